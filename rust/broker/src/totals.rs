//! Counters and one-time messages that all shards of a broker share.

use std::sync::Arc;

use crate::door::planted_in_loom;
use crate::door::sync::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use crate::ids::ShardId;

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

/// Stands for a shard that has not measured since memory became short.
const UNKNOWN: usize = usize::MAX;
/// Stands for a shard that has ended.
const ENDED: usize = usize::MAX - 1;

/// The most bytes of one connection, on each shard: 0 while memory is not short.
#[derive(Debug, Default)]
pub struct Largest(Box<[AtomicUsize]>);

impl Largest {
    /// The state for this number of shards.
    #[must_use]
    pub fn new(shards: usize) -> Self {
        Largest((0..shards).map(|_| AtomicUsize::new(0)).collect())
    }

    /// Notes that memory has become short. All shards have to measure, or to note that it is free, in their next turns.
    pub fn expect_all(&self) {
        for largest in &self.0 {
            _ = largest.compare_exchange(0, UNKNOWN, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Notes what a shard has measured.
    pub fn note(&self, shard: ShardId, bytes: usize) {
        if let Some(largest) = self.0.get(usize::from(shard.0)) {
            largest.store(bytes.min(ENDED - 1), Ordering::Relaxed);
        }
    }

    /// Notes in a turn of a shard that memory is not short.
    pub fn note_free(&self, shard: ShardId) {
        if let Some(largest) = self.0.get(usize::from(shard.0))
            && largest.load(Ordering::Relaxed) != 0
        {
            largest.store(0, Ordering::Relaxed);
        }
    }

    /// Notes the end of a shard.
    pub fn end(&self, shard: ShardId) {
        if let Some(largest) = self.0.get(usize::from(shard.0)) {
            largest.store(ENDED, Ordering::Relaxed);
        }
    }

    /// The maximum over all shards; `None` if some have not measured yet.
    #[must_use]
    pub fn of_all(&self) -> Option<usize> {
        let all = self.0.iter().map(|largest| largest.load(Ordering::Relaxed));
        let max = all.filter(|largest| *largest != ENDED).max().unwrap_or(0);
        (max != UNKNOWN).then_some(max)
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
    /// Memory is short: 80 % of `memory_limit` was reached, and usage has not fallen below 70 % since. All shards agree.
    pub memory_is_short: AtomicBool,
    /// The most bytes that wait for one connection.
    pub largest: Largest,
    /// The most bytes of an incomplete frame.
    pub largest_input: Largest,
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
    /// Whether it was logged that the disk of the store is full.
    pub warned_of_full_disk: Once,
    /// Hint: messages of a group are distributed like others.
    pub grouping: Once,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_of_all_shards_is_known_when_all_have_measured() {
        let (largest, [first, second]) = (Largest::new(2), [ShardId(0), ShardId(1)]);
        assert_eq!(largest.of_all(), Some(0));
        largest.expect_all();
        largest.note(first, 5);
        assert_eq!(largest.of_all(), None);
        largest.note(second, 7);
        largest.expect_all(); // another shard has noticed it, too
        assert_eq!(largest.of_all(), Some(7));
        largest.note_free(second);
        assert_eq!(largest.of_all(), Some(5));
        largest.end(second);
        largest.expect_all();
        assert_eq!(largest.of_all(), Some(5), "it measures no more");
    }

    #[test]
    fn only_the_first_caller_is_first() {
        let once = Once::default();
        assert_eq!([once.is_first(), once.is_first()], [true, false]);
    }
}
