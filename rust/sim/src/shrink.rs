//! Removes the steps of a failed run that its failure does not need.
//!
//! Each step has random numbers of its own, so a step can be left out and the others stay what they are. The steps of the
//! end, when faults have stopped, always run.

use std::time::{Duration, Instant};

use crate::options::Options;
use crate::world::{Failure, World};

/// Leaves out as many steps as possible while the same checker still finds something, for at most this time. Returns the
/// number of steps that remain, and the failure without the others.
#[must_use]
pub fn shrink(failure: &Failure, options: &Options, limit: Duration) -> (usize, Failure) {
    let began = Instant::now();
    let mut kept: Vec<u64> = (1..=failure.step).collect();
    let mut least = failure.clone();
    let mut portion = kept.len().div_ceil(2);
    while portion > 0 && began.elapsed() < limit {
        let mut at = 0;
        while at < kept.len() && began.elapsed() < limit {
            let end = (at + portion).min(kept.len());
            let fewer: Vec<u64> = [&kept[..at], &kept[end..]].concat();
            match run(options, &fewer) {
                Some(found) if found.violation.checker == failure.violation.checker => {
                    kept = fewer;
                    least = found;
                }
                _ => at = end,
            }
        }
        portion = if portion == 1 { 0 } else { portion.div_ceil(2) };
    }
    (kept.len(), least)
}

fn run(options: &Options, kept: &[u64]) -> Option<Failure> {
    let world = World::new(options.clone());
    world.run(|step| kept.binary_search(&step).is_ok()).err().map(|failure| *failure)
}
