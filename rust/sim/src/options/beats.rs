//! Heart-beats: what the broker offers, and what connections ask for.

use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};

use super::one_of;

/// A connection that agrees on heart-beats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pulse {
    /// Its header `heart-beat`: what it can do, and what it wants, in milliseconds.
    pub asked: (u32, u32),
    /// It sends after so many percent of the interval that it has agreed to; the tolerance is 200.
    pub percent: u32,
    /// The number of bytes after which it falls silent.
    pub bytes: u32,
}

/// Heart-beats at the end of a run. None in most seeds.
#[derive(Clone, Debug, Default)]
pub struct Beats {
    /// The connections.
    pub pulses: Vec<Pulse>,
}

impl Beats {
    /// Draws them for this seed, and what the broker offers. Other connections do not ask for heart-beats.
    pub fn draw(seed: u64, offer: &mut (u32, u32)) -> Self {
        let random = &mut SmallRng::seed_from_u64(seed ^ 0xBEA7_0011);
        if random.random_ratio(2, 3) {
            return Beats::default();
        }
        let intervals = [0, 50, 1_000, 7_000];
        *offer = (one_of(random, &intervals), one_of(random, &intervals));
        let pulses = (0..random.random_range(1..=3)).map(|_| Pulse {
            asked: (one_of(random, &intervals), one_of(random, &intervals)),
            percent: random.random_range(20..190),
            bytes: one_of(random, &[0, 1, 5, u32::MAX]),
        });
        Beats { pulses: pulses.collect() }
    }
}
