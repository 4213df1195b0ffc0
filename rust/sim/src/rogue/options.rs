//! How rogues behave in a run. They have random numbers of their own, so that nothing else changes with them.

use std::time::Duration;

use rand::rngs::SmallRng;
use rand::seq::IndexedRandom as _;
use rand::{Rng as _, SeedableRng as _};
use stompica_broker::config::{Compat, Config};

/// What keeps this stream of random numbers apart from others.
const STREAM: u64 = 0x0DD_C11E;

/// How rogues behave.
#[derive(Clone, Debug)]
pub struct RogueOptions {
    /// The largest number of rogues at a time; 0: there are none.
    pub rogues_max: usize,
    /// How often a rogue has its turn, as a weight beside those of [`super::super::options::Pace`].
    pub pace: u32,
    /// Frames that are wrong.
    pub misdeeds: u32,
    /// Frames that never end.
    pub stalls: u32,
    /// Many legal frames at once.
    pub loads: u32,
    /// Ends in the middle of something.
    pub exits: u32,
    /// The largest number of frames of a load.
    pub load_max: usize,
    /// How often a polite pair is timed beside the rogues, as a weight.
    pub probes: u32,
    /// Limits that are changed in the run.
    limits: Limits,
}

/// Limits that rogues reach.
#[derive(Clone, Debug)]
struct Limits {
    login_timeout: Duration,
    frame_timeout: Duration,
    header_bytes: usize,
    headers: usize,
    message_bytes: usize,
    subscriptions: usize,
    transactions: usize,
}

impl RogueOptions {
    /// What a seed expands into.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let random = &mut SmallRng::seed_from_u64(seed ^ STREAM);
        let has_rogues = random.random_ratio(1, 2);
        let weight = |random: &mut SmallRng, max| {
            if random.random_ratio(1, 3) { 0 } else { random.random_range(1..=max) }
        };
        let seconds =
            |random: &mut SmallRng, all: &[u64]| Duration::from_secs(*all.choose(random).unwrap_or(&1));
        let size = |random: &mut SmallRng, all: &[usize]| *all.choose(random).unwrap_or(&1);
        RogueOptions {
            rogues_max: if has_rogues { random.random_range(1..=8) } else { 0 },
            pace: if has_rogues { random.random_range(2..=20) } else { 0 },
            misdeeds: random.random_range(1..=20),
            stalls: weight(random, 6),
            loads: weight(random, 6),
            exits: weight(random, 4),
            load_max: size(random, &[3, 30, 300, 1000]),
            probes: if has_rogues { u32::from(random.random_ratio(1, 2)) } else { 0 },
            limits: Limits {
                login_timeout: seconds(random, &[10, 10, 2]),
                frame_timeout: seconds(random, &[30, 30, 3]),
                header_bytes: size(random, &[10 << 10, 10 << 10, 200]),
                headers: size(random, &[100, 100, 12]),
                message_bytes: size(random, &[16 << 20, 70_000]),
                subscriptions: size(random, &[10_000, 10_000, 20]),
                transactions: size(random, &[100, 100, 4]),
            },
        }
    }

    /// Sets the limits that rogues are to reach; polite clients keep them. If there are patterns of any kind, they would
    /// match names that are to be the rogues' alone, so rogues send nothing there. Diagnostics would count rogues.
    pub fn adjust(&mut self, config: &mut Config, has_patterns: bool, is_watched: bool) {
        if config.compat != Compat::None || is_watched {
            (self.rogues_max, self.pace, self.probes) = (0, 0, 0); // other names are wrong with `compat`
        }
        if has_patterns {
            (self.loads, self.probes) = (0, 0);
        }
        if self.rogues_max == 0 {
            return;
        }
        let Limits {
            login_timeout,
            frame_timeout,
            header_bytes,
            headers,
            message_bytes,
            subscriptions,
            transactions,
        } = self.limits;
        (config.login_timeout, config.frame_timeout) = (login_timeout, frame_timeout);
        config.limits.header_line_bytes_max = header_bytes;
        config.limits.headers_max = headers;
        config.limits.message_bytes_max = message_bytes;
        config.limits.ws_message_bytes_max = message_bytes + (64 << 10);
        (config.max_subscriptions, config.max_transactions) = (subscriptions, transactions);
    }
}
