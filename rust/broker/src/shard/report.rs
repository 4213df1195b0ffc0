//! What a shard tells of itself: counters, memory, log records.

use super::Shard;
use crate::ids::ConnKey;
use crate::log::Level;

impl Shard {
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
        self.connections.log(&self.turn, level, key, text);
    }
}
