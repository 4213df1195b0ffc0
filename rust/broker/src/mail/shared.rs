//! What the shards of one broker have in common.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use crate::clock::Clock;
use crate::log::LogQueue;
use crate::mail::mailbox::Mailbox;
use crate::queue::stale::StaleCounts;
use crate::stats::Published;
use crate::totals::Totals;

/// What all shards of a broker share.
#[derive(Debug)]
pub struct Shared {
    /// One per shard.
    pub mailboxes: Arc<[Mailbox]>,
    /// Numbers that all shards add to.
    pub totals: Arc<Totals>,
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
            mailboxes: mailboxes.into(),
            totals: Arc::default(),
            stale: Arc::new(StaleCounts::new(writers)),
            retained: Arc::default(),
            hasher: foldhash::fast::RandomState::default(),
            published: (0..writers).map(|_| Published::default()).collect(),
            log,
            reclaim,
            clock: Clock::start(),
        }
    }
}
