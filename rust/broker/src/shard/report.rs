//! What a shard tells of itself: counters, memory, log records.

use super::Shard;
use crate::ids::ConnKey;
use crate::log::Level;
use crate::message;
use crate::text;

impl Shard {
    /// Brings what this shard holds into the broker's count.
    pub(super) fn count_memory(&mut self) {
        let held = self.connections.chunks.held_bytes()
            + self.connections.input_bytes
            + self.memory.passing.held_bytes()
            + self.memory.keepers.held_bytes()
            + self.router.held_bytes()
            + self.queues.home.held_bytes()
            + self.queues.consumers.held_bytes()
            + self.turn.timers.held_bytes()
            + self.deliveries.fan_outs.held_bytes()
            + self.queues.replays.held_bytes();
        let held = i64::try_from(held).unwrap_or(i64::MAX);
        self.turn.count_memory(held.saturating_add(message::held_bytes() + text::held_bytes()));
    }

    pub(super) fn publish_counters(&mut self) {
        self.count_memory();
        self.count_queues();
        let counts = self.queues.home.counts;
        self.turn.counters.queues = self.queues.counted as u64;
        self.turn.counters.enqueued = counts.enqueued;
        self.turn.counters.dequeued = counts.dequeued;
        self.turn.counters.redelivered = counts.redelivered;
        self.turn.counters.dead_lettered = counts.dead_lettered;
        self.turn.counters.queue_expired = counts.expired;
        self.turn.counters.queue_dropped = counts.dropped;
        self.turn.counters.connections = self.connections.table.len() as u64;
        self.turn.counters.subscriptions = self.router.subscriptions.len() as u64;
        self.turn.counters.destinations = self.router.filters.len() as u64;
        self.turn.counters.turns = self.turn.number;
        self.shared.published[usize::from(self.turn.id.0)].publish(&self.turn.counters);
    }

    /// Logs something about one connection.
    pub(crate) fn log_conn(&self, level: Level, key: ConnKey, text: impl FnOnce() -> String) {
        if !self.turn.log.enabled(level) {
            return;
        }
        let mut fields = vec![("shard", self.turn.id.0.to_string())];
        if let Some(conn) = self.connections.table.get(key) {
            fields.push(("connection", conn.id.to_string()));
            fields.push(("peer", conn.peer.to_string()));
        }
        self.turn.log.push(level, text(), fields);
    }
}
