//! What a seed expands into for the store.

use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};
use stompica_broker::config::Config;

use super::log::LogOptions;
use super::one_of;

/// What the store can do, and which of its faults occur.
#[derive(Clone, Copy, Debug, Default)]
pub struct StoreOptions {
    /// Whether there is one; else messages are in memory only.
    pub is_on: bool,
    /// Messages survive the end of the process, so that RECEIPTs wait for it.
    pub is_durable: bool,
    /// It can load messages, so that queues page out.
    pub pages: bool,
    /// The messages and bytes of a queue that stay loaded, while it pages out.
    pub window: (usize, usize),
    /// Calls are written at once.
    pub is_fast: bool,
    /// How often it writes or answers, as a weight among the steps of the world; 0: only at the end.
    pub pace: u32,
    /// The largest number of calls that are written at a time.
    pub burst_max: usize,
    /// Percentage of loaded messages that cannot be read.
    pub unreadable: u32,
    /// It fails for good with a chance of one in this number of its steps; 0: never.
    pub failure_steps: u32,
    /// It is the real log on a simulated disk; else a double of it.
    pub log: Option<LogOptions>,
}

impl StoreOptions {
    /// What a seed expands into. A store that pages gets so little memory that it has to.
    #[must_use]
    pub fn new(seed: u64, config: &mut Config) -> Self {
        let random = &mut SmallRng::seed_from_u64(seed ^ 0x0570_4E00);
        let is_on = random.random_ratio(2, 5);
        let store = StoreOptions {
            is_on,
            is_durable: is_on && random.random_ratio(4, 5),
            pages: is_on && random.random_ratio(1, 2),
            window: (random.random_range(1..10), one_of(random, &[100, 2_000, 20_000])),
            is_fast: random.random_ratio(1, 8),
            pace: one_of(random, &[0, 1, 5, 20]),
            burst_max: one_of(random, &[1, 3, 1000]),
            unreadable: one_of(random, &[0, 0, 0, 10]),
            failure_steps: one_of(random, &[0, 0, 0, 10, 100]),
            log: LogOptions::draw(seed, config),
        };
        let store = if store.log.is_some() { store.of_log() } else { store };
        if store.pages {
            config.memory_limit = one_of(random, &[64 << 10, 128 << 10, 512 << 10]);
        }
        StoreOptions { pace: if store.is_on { store.pace } else { 0 }, ..store }
    }

    /// The same with the real log, whose faults are those of its disk.
    fn of_log(self) -> Self {
        let opens_late = self.pace > 0;
        let log = self.log.map(|log| LogOptions { opens_late: log.opens_late && opens_late, ..log });
        StoreOptions {
            is_on: true,
            is_durable: true,
            is_fast: false,
            unreadable: 0,
            failure_steps: 0,
            log,
            ..self
        }
    }

    /// Whether it is a double that tells what it has written.
    #[must_use]
    pub fn is_double(&self) -> bool {
        self.is_on && self.log.is_none()
    }

    /// The longest pause beside it. It may write little before faults end, and a connection whose answers wait for a minute
    /// is given up.
    #[must_use]
    pub fn pause_max(&self) -> Duration {
        match self.pace {
            _ if !self.is_on => Duration::MAX,
            0 | 1 => Duration::from_millis(20),
            _ if self.burst_max <= 3 => Duration::from_millis(50),
            _ => Duration::from_millis(200),
        }
    }
}
