//! Counters and one-time messages that all shards of a broker share.

use std::sync::Arc;

use crate::door::planted_in_loom;
use crate::door::sync::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};

/// A flag for something that is logged once per broker.
#[derive(Debug, Default)]
pub struct Once(AtomicBool);

impl Once {
    /// True for the first caller only.
    pub fn is_first(&self) -> bool {
        if planted_in_loom!("first-twice") {
            let was_set = self.0.load(Ordering::Relaxed);
            self.0.store(true, Ordering::Relaxed);
            return !was_set;
        }
        // Most calls are not the first, and a shared read is cheaper than a write.
        !self.0.load(Ordering::Relaxed) && !self.0.swap(true, Ordering::Relaxed)
    }
}

/// Counters that all shards add to, and flags for hints that are logged once.
#[derive(Debug, Default)]
pub struct Totals {
    /// Bytes held by all shards, against `memory_limit`.
    pub memory: Arc<AtomicI64>,
    /// Bytes that wait for consumers, in outboxes and private queues of all shards; those in outboxes are also counted in
    /// `memory`, and messages that wait in several private queues are there once.
    pub output: AtomicI64,
    /// Bytes of input that all shards keep until it is complete; also counted in `memory`.
    pub unfinished: AtomicI64,
    /// Open connections.
    pub connections: AtomicUsize,
    /// Queues with a name.
    pub queues: AtomicUsize,
    /// Messages in queues that were lost when their shard ended.
    pub lost: AtomicU64,
    /// Hint: what the deep wildcard matches.
    pub explained_wildcard: Once,
    /// Hint: a dotted name is a topic.
    pub explained_dotted: Once,
    /// Warning: persistent messages are not stored on disk.
    pub warned_of_memory: Once,
    /// Hint: messages of a group are distributed like others.
    pub grouping: Once,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_caller_is_first() {
        let once = Once::default();
        assert_eq!([once.is_first(), once.is_first()], [true, false]);
    }
}
