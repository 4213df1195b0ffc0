//! The contents of a simulated broker at one moment.

/// The contents of a broker at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Open connections.
    pub connections: usize,
    /// Subscriptions, including those of durable subscriptions and of private queues.
    pub subscriptions: usize,
    /// Subscribed names and patterns, counted once for each shard that knows them.
    pub filters: usize,
    /// Names of queues; the name of a private queue is empty.
    pub queues: Vec<String>,
    /// Messages in queues, delivered and not settled ones included.
    pub queued: u64,
    /// Requests that wait for an answer.
    pub unanswered: usize,
    /// Deliveries of large fan-outs that are counted at mailboxes.
    pub fan_out_work: usize,
    /// Deadlines.
    pub timers: usize,
    /// Bytes of owned messages and of names.
    pub message_bytes: i64,
    /// Bytes counted against `memory_limit`.
    pub held_bytes: i64,
}
