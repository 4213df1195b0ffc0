//! How often clients ask for diagnostics.

use rand::rngs::SmallRng;
use rand::seq::IndexedRandom as _;
use rand::{Rng as _, SeedableRng as _};
use stompica_broker::config::{Compat, Config};

/// The use of DIAG and of `/queue/monitor`.
#[derive(Clone, Debug, Default)]
pub struct Watching {
    /// Percentage of the actions that concern them.
    pub percent: u32,
    /// The queries that clients make.
    pub queries: Vec<&'static str>,
    /// The interval of periodic answers in milliseconds; 0: nobody requests them.
    pub interval_ms: u64,
    /// Whether `/queue/monitor` exists and has subscribers.
    pub has_monitor: bool,
    /// The number of subscriptions that one client adds at once, so that answers are long; 0: none.
    pub crowd: usize,
}

/// All queries.
const QUERIES: [&str; 16] = [
    "session",
    "ws_buffer",
    "stale",
    "session-size",
    "session-encoded-size",
    "session-connected-size",
    "pubsub-size",
    "subs",
    "network",
    "benchmark",
    "shards",
    "memory",
    "queues",
    "ack",
    "store",
    "slow",
];

impl Watching {
    /// Draws it for this seed: in more than half of them nobody asks.
    #[must_use]
    pub fn draw(seed: u64, config: &Config) -> Self {
        let random = &mut SmallRng::seed_from_u64(seed ^ 0xD1A6_0011);
        if random.random_ratio(3, 5) {
            return Watching::default();
        }
        let queries: Vec<&str> = QUERIES.into_iter().filter(|_| random.random_ratio(1, 2)).collect();
        let has_monitor = config.compat == Compat::None && random.random_ratio(1, 3);
        let mut one_of = |all: &[u32]| *all.choose(random).expect("a list that is not empty");
        Watching {
            percent: one_of(&[5, 20, 50]),
            queries: if queries.is_empty() { QUERIES.to_vec() } else { queries },
            interval_ms: u64::from(one_of(&[0, 100, 250, 1000])),
            has_monitor,
            crowd: one_of(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 700]) as usize,
        }
    }
}
