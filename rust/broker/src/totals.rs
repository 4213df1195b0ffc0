//! What all shards of a broker count together, and what they say once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};

/// Something that is said once, by whichever shard comes first.
#[derive(Debug, Default)]
pub struct Once(AtomicBool);

impl Once {
    /// True for the first who asks.
    pub fn is_first(&self) -> bool {
        // Most come later, and a read is cheaper to share than a write.
        !self.0.load(Ordering::Relaxed) && !self.0.swap(true, Ordering::Relaxed)
    }
}

/// Numbers that all shards add to, and the hints that they log once.
#[derive(Debug, Default)]
pub struct Totals {
    /// Bytes held by all shards, against `memory_limit`.
    pub memory: Arc<AtomicI64>,
    /// Bytes of input that all shards keep; `memory` has them too.
    pub unfinished: AtomicI64,
    /// Open connections.
    pub connections: AtomicUsize,
    /// Queues with a name.
    pub queues: AtomicUsize,
    /// Messages of queues that ended with a shard.
    pub lost: AtomicU64,
    /// What the deep wildcard matches.
    pub explained_wildcard: Once,
    /// A dotted name is a topic.
    pub explained_dotted: Once,
    /// Nothing is stored on disk.
    pub warned_of_memory: Once,
    /// Messages of a group are shared out like others.
    pub grouping: Once,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hint_is_for_the_first_who_asks() {
        let once = Once::default();
        assert_eq!([once.is_first(), once.is_first()], [true, false]);
    }
}
