//! What a shard tells of itself: counters, memory, log records.

use std::sync::atomic::Ordering;

use super::Shard;
use crate::ids::ConnKey;
use crate::log::Level;
use crate::message;
use crate::text;

impl Shard {
    /// Brings what this shard holds into the broker's count.
    pub(super) fn count_memory(&mut self) {
        let held = self.chunks.held_bytes()
            + self.memory.input_bytes
            + self.memory.passing.held_bytes()
            + self.memory.keepers.held_bytes()
            + self.router.held_bytes()
            + self.home.held_bytes()
            + self.timers.held_bytes()
            + self.fan_outs.held_bytes()
            + self.replays.held_bytes();
        let held = i64::try_from(held)
            .unwrap_or(i64::MAX)
            .saturating_add(message::held_bytes() + text::held_bytes());
        if held != self.counted_bytes {
            self.shared.memory.fetch_add(held - self.counted_bytes, Ordering::Relaxed);
            self.counted_bytes = held;
        }
    }

    pub(super) fn publish_counters(&mut self) {
        self.count_memory();
        self.count_queues();
        let counts = self.home.counts;
        self.counters.queues = self.counted_queues as u64;
        self.counters.enqueued = counts.enqueued;
        self.counters.dequeued = counts.dequeued;
        self.counters.redelivered = counts.redelivered;
        self.counters.dead_lettered = counts.dead_lettered;
        self.counters.queue_expired = counts.expired;
        self.counters.queue_dropped = counts.dropped;
        self.counters.connections = self.conns.len() as u64;
        self.counters.subscriptions = self.router.subscriptions.len() as u64;
        self.counters.destinations = self.router.filters.len() as u64;
        self.counters.turns = self.turn;
        self.shared.published[usize::from(self.id.0)].publish(&self.counters);
    }

    pub(crate) fn log(&self, level: Level, text: impl FnOnce() -> String) {
        if self.shared.log.enabled(level) {
            self.shared.log.push(level, text(), vec![("shard", self.id.0.to_string())]);
        }
    }

    /// Logs something about one connection.
    pub(crate) fn log_conn(&self, level: Level, key: ConnKey, text: impl FnOnce() -> String) {
        if !self.shared.log.enabled(level) {
            return;
        }
        let mut fields = vec![("shard", self.id.0.to_string())];
        if let Some(conn) = self.conns.get(key) {
            fields.push(("connection", conn.id.to_string()));
            fields.push(("peer", conn.peer.to_string()));
        }
        self.shared.log.push(level, text(), fields);
    }
}
