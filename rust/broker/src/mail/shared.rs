//! What the shards of one broker have in common.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};

use crate::clock::Clock;
use crate::log::LogQueue;
use crate::mail::mailbox::Mailbox;
use crate::queue::stale::StaleCounts;
use crate::stats::Published;

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

/// What all shards of a broker share.
#[derive(Debug)]
pub struct Shared {
    /// One per shard.
    pub mailboxes: Vec<Mailbox>,
    /// Bytes held by all shards, against `memory_limit`.
    pub memory: Arc<AtomicI64>,
    /// Bytes of input that all shards keep; `memory` has them too.
    pub unfinished: AtomicI64,
    /// Open connections.
    pub connections: AtomicUsize,
    /// Queues with a name.
    pub queues: AtomicUsize,
    /// Stale messages held.
    pub stale: Arc<StaleCounts>,
    /// Last values held.
    pub retained: Arc<AtomicUsize>,
    /// Hashes destinations, the same on all shards: it chooses their homes.
    pub hasher: foldhash::fast::RandomState,
    /// Counters, published once per turn; one set per shard.
    pub published: Vec<Published>,
    /// Where log records go.
    pub log: Arc<LogQueue>,
    /// Messages of queues that ended with a shard.
    pub lost: AtomicU64,
    /// The deep wildcard was explained once.
    pub explained_wildcard: Once,
    /// It was said once that a dotted name is a topic.
    pub explained_dotted: Once,
    /// It was said once that nothing is stored on disk.
    pub warned_of_memory: Once,
    /// It was said once that messages of a group are shared out like others.
    pub grouping: Once,
    /// Gives the system back what the calling thread allocated and any thread freed.
    pub reclaim: fn(),
    /// What time it is, for all of them.
    pub clock: Clock,
}

impl Shared {
    /// What the shards that own these mailboxes begin with.
    #[must_use]
    pub fn new(mailboxes: Vec<Mailbox>, log: Arc<LogQueue>, reclaim: fn()) -> Self {
        let writers = mailboxes.len();
        Shared {
            mailboxes,
            memory: Arc::new(AtomicI64::new(0)),
            unfinished: AtomicI64::new(0),
            connections: AtomicUsize::new(0),
            queues: AtomicUsize::new(0),
            stale: Arc::new(StaleCounts::new(writers)),
            retained: Arc::default(),
            hasher: foldhash::fast::RandomState::default(),
            published: (0..writers).map(|_| Published::default()).collect(),
            log,
            lost: AtomicU64::new(0),
            explained_wildcard: Once::default(),
            explained_dotted: Once::default(),
            warned_of_memory: Once::default(),
            reclaim,
            grouping: Once::default(),
            clock: Clock::start(),
        }
    }
}
