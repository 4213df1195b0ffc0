//! What a seed expands into for disturbances of the world around the broker.

use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};
use stompica_broker::config::{self, Config};

use super::one_of;

/// Something that happens to the broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disturbance {
    /// Other settings are applied.
    Reload,
    /// Descriptors run out or come back.
    Descriptors,
    /// The wall clock jumps.
    WallClock,
    /// A shard gets no turn for a while.
    Pause,
}

/// How the broker ends before the steps are over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It drains.
    Drain,
    /// It stops at once.
    Stop,
}

/// What happens to the broker, and how often.
#[derive(Clone, Debug, Default)]
pub struct Disturbances {
    /// How often, as a weight among the steps of the world.
    pub pace: u32,
    /// What may happen.
    pub kinds: Vec<Disturbance>,
    /// How the broker ends at some step, in most of these runs.
    pub ending: Option<Ending>,
    /// The longest pause of a shard.
    pub pause_max: Duration,
}

impl Disturbances {
    /// What a seed expands into; `clients_max`: the largest number of its connections.
    #[must_use]
    pub fn draw(seed: u64, config: &mut Config, clients_max: usize) -> Self {
        let random = &mut SmallRng::seed_from_u64(seed ^ 0xD157_00EB);
        if random.random_ratio(1, 16) {
            config.writers = one_of(random, &[8, 16, 32]);
        }
        if random.random_ratio(1, 12) {
            config.max_connections = random.random_range(1..=clients_max);
        }
        let all = [Disturbance::Reload, Disturbance::Descriptors, Disturbance::WallClock, Disturbance::Pause];
        let some: Vec<Disturbance> = all.into_iter().filter(|_| random.random_ratio(1, 2)).collect();
        let (is_on, pace) = (random.random_ratio(2, 5) && !some.is_empty(), one_of(random, &[1, 4]));
        Disturbances {
            pace: if is_on { pace } else { 0 },
            kinds: if is_on { some } else { Vec::new() },
            ending: one_of(
                random,
                &[None, None, None, None, None, None, None, Some(Ending::Drain), Some(Ending::Stop)],
            ),
            pause_max: Duration::from_millis(one_of(random, &[50, 500, 3_000])),
        }
    }

    /// The longest time for which a shard that has work may have no turn.
    #[must_use]
    pub fn lateness_max(&self) -> Duration {
        if self.kinds.contains(&Disturbance::Pause) { self.pause_max } else { Duration::ZERO }
    }

    /// The settings after a reload: one of them is another one, if it can be reloaded. Limits that checkers know stay the same.
    #[must_use]
    pub fn reloaded(running: &Config, random: &mut SmallRng) -> Config {
        let (seconds, mut wanted) = (Duration::from_secs, running.clone());
        match random.random_range(0..4) {
            0 => wanted.max_input_queue_size = one_of(random, &[10, 1000, 1_000_000]), // needs a restart
            1 => wanted.queue_idle_expiry = seconds(one_of(random, &[1, 300])),
            2 => wanted.login_timeout = seconds(one_of(random, &[10, 30, 60])),
            _ => wanted.drain = seconds(one_of(random, &[1, 5, 10])),
        }
        config::reloaded(running, &wanted)
    }
}
