//! State that all shards of a broker share.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::Clock;
use crate::door::sync::Ordering;
use crate::door::{self, HashState, planted_in_loom};
use crate::log::LogQueue;
use crate::mail::mailbox::{Mail, Mailbox};
use crate::queue::retained::RetainedCount;
use crate::queue::stale::StaleCounts;
use crate::stats::Published;
use crate::totals::{Largest, Totals};

/// State that all shards of a broker share.
#[derive(Debug)]
pub struct Shared {
    /// The mailbox of each shard.
    pub mailboxes: Arc<[Mailbox]>,
    /// Counters that all shards add to.
    pub totals: Arc<Totals>,
    /// Counters of stale messages.
    pub stale: Arc<StaleCounts>,
    /// Counts retained messages.
    pub retained: Arc<RetainedCount>,
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
            totals: Arc::new(Totals {
                largest: Largest::new(writers),
                largest_input: Largest::new(writers),
                ..Totals::default()
            }),
            stale: Arc::new(StaleCounts::new(writers)),
            retained: Arc::default(),
            hasher: door::hash_state(),
            published: (0..writers).map(|_| Published::default()).collect(),
            log,
            reclaim,
            clock: Clock::start(),
        }
    }

    /// Drops the mail to a shard that has ended. The last one drops all mail: others may have sent mail, a connection among
    /// it, to shards that had ended.
    pub fn discard_mail(&self, shard: usize, is_last: bool) {
        let ended = if is_last { &self.mailboxes[..] } else { &self.mailboxes[shard..=shard] };
        for mailbox in ended {
            let mut mails = Vec::new();
            mailbox.take(&mut mails);
            let is_counted = |mail: &&Mail| matches!(mail, Mail::Accepted(accepted) if !accepted.refused);
            let connections = mails.iter().filter(is_counted).count();
            self.totals.connections.fetch_sub(connections, Ordering::Relaxed);
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
