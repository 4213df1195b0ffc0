//! What homes have counted.

/// Counters of homes since the broker's start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Messages added to queues.
    pub enqueued: u64,
    /// Messages consumed.
    pub dequeued: u64,
    /// Deliveries of messages that had been delivered before.
    pub redelivered: u64,
    /// Messages moved to a dead-letter queue.
    pub dead_lettered: u64,
    /// Expired messages.
    pub expired: u64,
    /// Dropped messages: failed or expired in a dead-letter queue, or in a queue that was removed.
    pub dropped: u64,
}
