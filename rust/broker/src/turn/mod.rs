//! What every owner is given beside itself: the time, the settings, what the turn may still do, deadlines, counters.

pub mod budget;
pub mod cpu_clock;
pub mod jobs;

use std::sync::Arc;

use self::budget::{Budget, Heaviest};
use self::cpu_clock::CpuClock;
use self::jobs::Jobs;
use crate::config::Config;
use crate::ids::{MessageIds, ShardId};
use crate::report::stages::Stages;
use crate::stats::Counters;
use crate::timer::Timers;

/// The turn of one shard: one pass of its loop.
#[derive(Debug)]
pub struct Turn {
    /// The shard.
    pub id: ShardId,
    /// How many shards there are.
    pub shards: usize,
    /// The settings, as of the last reload.
    pub config: Arc<Config>,
    /// How many turns there have been.
    pub number: u64,
    /// Milliseconds since the broker's start, as of the turn's beginning.
    pub now_ms: u64,
    /// What this part of the turn may still do.
    pub budget: Budget,
    /// The most that any turn did.
    pub heaviest: Heaviest,
    /// Measures the processor time of turns.
    pub cpu_clock: CpuClock,
    /// The deadlines of connections, queues and subscriptions.
    pub timers: Timers,
    /// Work that goes on over several turns.
    pub jobs: Jobs,
    /// What was counted since the start.
    pub counters: Counters,
    /// Times of the stages of a message's way, while they are taken.
    pub stages: Stages,
    /// Times are taken, or frames are logged.
    pub is_observed: bool,
    /// Makes the ids of messages.
    pub message_ids: MessageIds,
}

impl Turn {
    /// Before the first turn of a shard.
    #[must_use]
    pub fn new(id: ShardId, shards: usize, config: Arc<Config>, epoch: &str) -> Self {
        Turn {
            id,
            shards,
            number: 0,
            now_ms: 0,
            budget: Budget::default(),
            heaviest: Heaviest::default(),
            cpu_clock: CpuClock::default(),
            timers: Timers::default(),
            jobs: Jobs::default(),
            counters: Counters::default(),
            stages: Stages::default(),
            is_observed: config.log_frames,
            message_ids: MessageIds::new(epoch, id),
            config,
        }
    }
}
