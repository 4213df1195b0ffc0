//! State that all shards of a broker share.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::Clock;
use crate::door::sync::AtomicUsize;
use crate::door::{self, HashState, planted_in_loom};
use crate::log::LogQueue;
use crate::mail::mailbox::Mailbox;
use crate::queue::stale::StaleCounts;
use crate::stats::Published;
use crate::totals::Totals;

/// State that all shards of a broker share.
#[derive(Debug)]
pub struct Shared {
    /// The mailbox of each shard.
    pub mailboxes: Arc<[Mailbox]>,
    /// Counters that all shards add to.
    pub totals: Arc<Totals>,
    /// Counters of stale messages.
    pub stale: Arc<StaleCounts>,
    /// The number of retained messages.
    pub retained: Arc<AtomicUsize>,
    /// Hashes destinations, with the same result on all shards; it determines their homes.
    pub hasher: HashState,
    /// The counters of each shard, published once per turn.
    pub published: Vec<Published>,
    /// The queue of log records.
    pub log: Arc<LogQueue>,
    /// Gives free memory that the calling thread allocated back to the system.
    pub reclaim: fn(),
    /// The clock of all shards.
    pub clock: Clock,
}

impl Shared {
    /// The initial state for the shards that own these mailboxes.
    #[must_use]
    pub fn new(mailboxes: Vec<Mailbox>, log: Arc<LogQueue>, reclaim: fn()) -> Self {
        let writers = mailboxes.len();
        Shared {
            mailboxes: mailboxes.into(),
            totals: Arc::default(),
            stale: Arc::new(StaleCounts::new(writers)),
            retained: Arc::default(),
            hasher: door::hash_state(),
            published: (0..writers).map(|_| Published::default()).collect(),
            log,
            reclaim,
            clock: Clock::start(),
        }
    }

    /// Sets the clock of all shards ahead by some time more, and wakes those that sleep until a deadline.
    pub fn advance_clock(&self, time: Duration) {
        if planted_in_loom!("woken-before-the-clock") {
            self.mailboxes.iter().for_each(Mailbox::wake);
        }
        self.clock.advance(time);
        if !planted_in_loom!("woken-before-the-clock") {
            self.mailboxes.iter().for_each(Mailbox::wake);
        }
    }
}
