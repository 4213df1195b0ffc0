//! Planted faults: errors in the broker that `FAULT=name` switches on. Each has to be found.

use crate::options::Options;
use crate::world::World;

/// All planted faults.
pub const ALL: [&str; 16] = [
    "ack-forgotten",
    "answer-overtakes",
    "congested-forever",
    "credit-twice",
    "dead-letter-lost",
    "interest-forgotten",
    "mail-reordered",
    "prefetch-plus-one",
    "queue-timer-lost",
    "range-cut-inside-frame",
    "receipt-early",
    "redelivered-forgotten",
    "requeued-message-lost",
    "reserved-place-ignored",
    "retry-forgotten",
    "wake-up-forgotten",
];

/// Series of seeds in which each fault is searched.
const SERIES: u64 = 5;
/// The number of seeds of a series after which a fault counts as not found.
const SEEDS_MAX: u64 = 5000;

/// The number of seeds that each series needs until it finds a fault, in order, and the checkers that found it.
#[must_use]
pub fn seeds_needed(fault: &str, steps: u64) -> (Vec<Option<u64>>, Vec<&'static str>) {
    let (mut needed, mut checkers) = (Vec::new(), Vec::new());
    for series in 0..SERIES {
        let mut found = None;
        for at in 1..=SEEDS_MAX {
            let options =
                Options { fault: Some(fault.to_owned()), ..Options::new(series * 1_000_000 + at, steps) };
            if let Err(failure) = World::new(options).run(|_| true) {
                found = Some(at);
                checkers.push(failure.violation.checker);
                break;
            }
        }
        needed.push(found);
    }
    needed.sort_by_key(|seeds| seeds.unwrap_or(u64::MAX));
    checkers.sort_unstable();
    checkers.dedup();
    (needed, checkers)
}

/// Prints a table of the seeds that each fault needs. Returns whether all were found.
pub fn print_table(steps: u64) -> bool {
    println!("| fault | seeds until it is found: least, median, most of {SERIES} | checkers |");
    println!("|---|---|---|");
    let mut has_all = true;
    for fault in ALL {
        let (needed, checkers) = seeds_needed(fault, steps);
        let shown =
            |at: usize| needed[at].map_or(format!("more than {SEEDS_MAX}"), |seeds| seeds.to_string());
        has_all &= needed.iter().all(Option::is_some);
        let middle = needed.len() / 2;
        println!(
            "| `{fault}` | {}, {}, {} | {} |",
            shown(0),
            shown(middle),
            shown(needed.len() - 1),
            checkers.join(", ")
        );
    }
    has_all
}
