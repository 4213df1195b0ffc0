//! Heart-beats: what the broker offers, and what connections ask for.

use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};

use stompica_broker::config::Compat;

use super::limits::DESTINATIONS_MANY;
use super::{Options, one_of};

/// A connection that agrees on heart-beats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pulse {
    /// Its header `heart-beat`: what it can do, and what it wants, in milliseconds.
    pub asked: (u32, u32),
    /// It sends after so many percent of the interval that it has agreed to; the tolerance is 200, but a WebSocket may be
    /// later if it answers pings.
    pub percent: u32,
    /// How often it sends before it falls silent.
    pub bytes: u32,
    /// It uses WebSocket, and answers so many pings.
    pub pongs: Option<u32>,
    /// It subscribes to a topic that all such connections share, and sends messages there instead of heart-beats.
    pub is_busy: bool,
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
            pongs: None,
            is_busy: false,
        });
        Beats { pulses: pulses.collect() }
    }
}

/// Adds WebSockets in some of the runs, and messages beside heart-beats. Rogues ask for heart-beats of their own.
pub(super) fn draw_more(options: &mut Options) {
    let random = &mut SmallRng::seed_from_u64(options.seed ^ 0xBEA7_0022);
    if options.rogues.pace > 0 || random.random_ratio(3, 4) {
        return;
    }
    let can_be_busy = options.tree.patterns == 0
        && options.watching.percent == 0
        && options.config.compat != Compat::Stompica
        && options.config.max_destinations >= DESTINATIONS_MANY;
    if options.beats.pulses.is_empty() {
        let intervals = [0, 1_000, 7_000];
        options.config.heartbeat_ms = (one_of(random, &intervals), one_of(random, &intervals));
    }
    for _ in 0..random.random_range(1..=3) {
        let is_late = random.random_ratio(1, 3);
        options.beats.pulses.push(Pulse {
            asked: (one_of(random, &[0, 1_000, 7_000, 12_000]), one_of(random, &[0, 1_000, 7_000, 20_000])),
            percent: if is_late { random.random_range(210..390) } else { random.random_range(20..190) },
            bytes: one_of(random, &[0, 0, 1, 5, u32::MAX]),
            pongs: Some(one_of(random, &[0, 2, u32::MAX, u32::MAX])),
            is_busy: false,
        });
    }
    if can_be_busy && random.random_ratio(1, 2) {
        options.beats.pulses.iter_mut().for_each(|pulse| pulse.is_busy = random.random_ratio(1, 2));
    }
}
