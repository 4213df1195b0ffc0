//! The state of a turn, which every owner is given: the time, the settings, the budget, deadlines, counters.

pub mod budget;
pub mod cpu_clock;
pub mod jobs;
pub mod memory;

use std::sync::Arc;

use self::budget::{Budget, Heaviest};
use self::cpu_clock::CpuClock;
use self::jobs::Jobs;
use self::memory::MemoryGauge;
use crate::config::Config;
use crate::door::sync::Ordering;
use crate::door::wall_clock_ms;
use crate::ids::{MessageIds, ShardId};
use crate::log::{Level, LogQueue};
use crate::report::stages::{Began, Stage, Stages};
use crate::stats::Counters;
use crate::timer::Timers;
use crate::totals::Totals;

/// The turn of one shard, which is one pass of its loop.
#[derive(Debug)]
pub struct Turn {
    /// The shard.
    pub id: ShardId,
    /// The number of shards.
    pub shards: usize,
    /// The settings, as of the last reload.
    pub config: Arc<Config>,
    /// Counters that all shards add to.
    pub totals: Arc<Totals>,
    /// The queue of log records.
    pub log: Arc<LogQueue>,
    /// Hashes destinations, the same on all shards.
    pub hasher: crate::door::HashState,
    /// The number of turns so far.
    pub number: u64,
    /// Milliseconds since the broker's start, at the beginning of the turn.
    pub now_ms: u64,
    /// Milliseconds by which the broker's clock is ahead of the system's clocks.
    pub ahead_ms: u64,
    /// The homes have what the store has kept, so that clients may log in.
    pub is_ready: bool,
    /// The broker shuts down: nothing more is read from connections.
    pub is_draining: bool,
    /// Since when.
    pub draining_since_ms: u64,
    /// The budget of this part of the turn.
    pub budget: Budget,
    /// The maxima of all turns.
    pub heaviest: Heaviest,
    /// Measures the processor time of turns.
    pub cpu_clock: CpuClock,
    /// The deadlines of connections, queues and subscriptions.
    pub timers: Timers,
    /// The order of work that takes several turns.
    pub jobs: Jobs,
    /// The state of the memory that all shards hold.
    pub memory: MemoryGauge,
    /// The counters of this shard.
    pub counters: Counters,
    /// Durations of the stages of a message's way, while they are measured.
    pub stages: Stages,
    /// Durations are measured, or frames are logged.
    pub is_observed: bool,
    /// Generates message ids.
    pub message_ids: MessageIds,
}

impl Turn {
    /// The state before the first turn of a shard.
    #[must_use]
    pub fn new(
        id: ShardId,
        shards: usize,
        config: Arc<Config>,
        totals: Arc<Totals>,
        log: Arc<LogQueue>,
        hasher: crate::door::HashState,
        epoch: &str,
    ) -> Self {
        Turn {
            id,
            shards,
            totals,
            log,
            hasher,
            number: 0,
            now_ms: 0,
            ahead_ms: 0,
            is_draining: false,
            draining_since_ms: 0,
            budget: Budget::default(),
            heaviest: Heaviest::default(),
            cpu_clock: CpuClock::default(),
            timers: Timers::default(),
            jobs: Jobs::default(),
            memory: MemoryGauge::default(),
            is_ready: true,
            counters: Counters::default(),
            stages: Stages::default(),
            is_observed: config.log_frames,
            message_ids: MessageIds::new(epoch, id),
            config,
        }
    }

    /// The time since 1970, in milliseconds, ahead of the system's clock as `now_ms` is.
    #[must_use]
    pub fn wall_ms(&self) -> u64 {
        wall_clock_ms().saturating_add(self.ahead_ms)
    }

    /// The set of all shards, including this one, one bit each.
    #[must_use]
    pub fn all_shards(&self) -> u64 {
        (0..self.shards).fold(0, |bits, at| bits | ShardId(at as u8).bit())
    }

    /// `memory_limit`, in bytes.
    #[must_use]
    pub fn memory_limit(&self) -> i64 {
        i64::try_from(self.config.memory_limit).unwrap_or(i64::MAX)
    }

    /// Bytes that all shards hold.
    #[must_use]
    pub fn held_bytes(&self) -> i64 {
        let held = self.totals.memory.load(Ordering::Relaxed);
        #[cfg(simulated)]
        self.memory.note_seen(held);
        held
    }

    /// Whether 95 % of `memory_limit` is used: nothing more is encoded for a connection that does not read.
    #[must_use]
    pub fn is_out_of_memory(&self) -> bool {
        self.held_bytes() >= self.memory_limit() / 100 * 95
    }

    /// Updates the share of this shard in the broker's total.
    pub fn count_memory(&mut self, held_here: i64) {
        self.memory.count(held_here, &self.totals.memory);
    }

    /// Updates the output of this shard in the broker's total.
    pub fn count_output(&mut self, output_here: i64) {
        self.memory.count_output(output_here, &self.totals.output);
    }

    /// The bytes that wait for consumers of all shards, if this many wait here.
    #[must_use]
    pub fn output_with(&self, output_here: i64) -> i64 {
        self.totals.output.load(Ordering::Relaxed) + output_here - self.memory.counted_output()
    }

    /// Logs something about this shard.
    pub fn log(&self, level: Level, text: impl FnOnce() -> String) {
        if self.log.enabled(level) {
            self.log.push(level, text(), vec![("shard", self.id.0.to_string())]);
        }
    }

    /// Updates whether frames are timed or logged.
    pub fn observe(&mut self) {
        self.is_observed = self.config.log_frames || self.stages.is_on();
    }

    /// Ends the measurement of a turn, and all measuring when its time is over.
    pub fn end_timing(&mut self, began: Option<Began>) {
        if began.is_some() {
            self.stages.end(Stage::Turn, began);
            if self.stages.expire(self.now_ms) {
                self.observe();
            }
        }
    }
}
