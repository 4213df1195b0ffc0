//! Returns free memory to the system, and polls the memory state without an event.
//!
//! The behaviour near `memory_limit` is in `delivery/memory.rs`.

use std::time::Duration;

use super::Shard;
use crate::door::planted;

/// The interval at which a shard that waits for memory checks again.
const MEMORY_POLL: Duration = Duration::from_millis(10);
/// Memory is returned to the system once usage is this many bytes below its peak (fewer in the simulator, whose runs are small)…
const RECLAIM_BYTES: i64 = if cfg!(simulated) { 64 << 10 } else { 16 << 20 };
/// …for this long: memory that the next burst needs is better kept.
const RECLAIM_MS: u64 = 2000;

/// The recent maxima of memory usage.
#[derive(Debug, Default)]
pub(super) struct MemoryState {
    /// The maximum that all shards held since this one last returned memory.
    peak: i64,
    /// The maximum since the last decision.
    recent_peak: i64,
    next_reclaim_ms: u64,
}

impl Shard {
    /// Removes the share of this shard from the broker's total when it ends.
    pub(super) fn forget_memory(&mut self) {
        self.turn.count_memory(0);
        self.turn.count_output(0);
        self.turn.totals.largest.end(self.turn.id);
        self.turn.totals.largest_input.end(self.turn.id);
        self.connections.unfinished.forget(&self.turn.totals.unfinished);
    }

    /// Returns memory to the system when the shard is idle and usage has been far below its peak for a while. The
    /// shard that consumes a message frees it, but only the thread that allocated it can return its page.
    pub(super) fn reclaim_if_idle(&mut self) {
        let held = self.turn.held_bytes();
        let memory = &mut self.memory;
        memory.recent_peak = memory.recent_peak.max(held);
        memory.peak = memory.peak.max(held);
        if self.turn.now_ms < memory.next_reclaim_ms {
            return;
        }
        let unused = memory.peak - memory.recent_peak;
        if unused < RECLAIM_BYTES {
            memory.next_reclaim_ms = self.turn.now_ms + RECLAIM_MS;
            memory.recent_peak = held;
        } else if !self.has_work() || planted!("reclaim-while-busy") {
            self.memory.peak = held;
            (self.shared.reclaim)();
        }
    }

    /// The time until the next check: other shards free memory without notice.
    pub(super) fn memory_timeout(&self) -> Option<Duration> {
        let waits = self.turn.memory.is_awaited()
            || self.connections.unfinished.is_over()
            || self.connections.has_arriving()
            || self.deliveries.round.is_going();
        // Memory may have run out since the turn began.
        (waits || self.turn.is_out_of_memory()).then_some(MEMORY_POLL)
    }

    /// The time until the next check: other shards free memory of this shard without notice.
    pub(super) fn reclaim_timeout(&self) -> Option<Duration> {
        (self.memory.peak >= RECLAIM_BYTES).then_some(Duration::from_millis(RECLAIM_MS))
    }

    pub(super) fn publish_counters(&mut self) {
        self.delivery().count_memory();
        self.queue().count_queues();
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
}
