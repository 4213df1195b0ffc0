//! Shards that have enough unread deliveries.
//!
//! A home cannot withdraw mail that it has posted to another shard, and all later mail waits until the shard has read
//! it. If this were more than a shard reads in a turn or two, it would delay all other mail. So such a shard is closed
//! for deliveries. When one of its consumers is next in a ring, the consumer is suspended: it leaves the ring, as if it
//! had no credit, until its shard is opened.

use std::collections::VecDeque;

use super::home::Home;
use crate::ids::ConsumerKey;
use crate::ids::ShardId;

/// The shards that are closed for deliveries, and their suspended consumers.
#[derive(Debug, Default)]
pub(super) struct Congestion {
    /// Closed shards.
    pub(super) closed: u64,
    /// Shards that are open again, but some of whose consumers are still suspended.
    opening: u64,
    /// Suspended consumers by shard, in the order in which they will be resumed.
    pub(super) suspended: Vec<VecDeque<ConsumerKey>>,
    /// The shard whose consumer was resumed last.
    last: u32,
    /// The last step resumed a consumer, so the next one has to dispatch a queue.
    is_after: bool,
}

impl Congestion {
    /// Whether a shard is closed.
    pub(super) fn is_closed(&self, shard: ShardId) -> bool {
        self.closed & shard.bit() != 0
    }

    /// Suspends a consumer of a closed shard.
    pub(super) fn suspend(&mut self, shard: ShardId, consumer: ConsumerKey) {
        let at = usize::from(shard.0);
        if self.suspended.len() <= at {
            self.suspended.resize_with(at + 1, VecDeque::new);
        }
        self.suspended[at].push_back(consumer);
    }

    /// Whether a consumer may be resumed.
    pub(super) fn is_opening(&self) -> bool {
        self.opening != 0
    }

    /// The next consumer to resume, from the shards in turn. If there is other work, every second call returns `None`,
    /// so that no more consumers are resumed than get messages.
    pub(super) fn next(&mut self, other_work: bool) -> Option<ConsumerKey> {
        if self.opening == 0 {
            return None;
        }
        self.is_after = other_work && !self.is_after;
        if other_work && !self.is_after {
            return None;
        }
        let behind = (self.last + 1) % u64::BITS;
        self.last = (behind + self.opening.rotate_right(behind).trailing_zeros()) % u64::BITS;
        let suspended = self.suspended.get_mut(self.last as usize)?;
        let next = suspended.pop_front();
        if suspended.is_empty() {
            *suspended = VecDeque::new();
            self.opening &= !(1 << self.last);
        }
        next
    }
}

impl Home {
    /// Whether a shard is closed.
    #[cfg(test)]
    #[must_use]
    pub fn is_closed(&self, shard: ShardId) -> bool {
        self.congestion.is_closed(shard)
    }

    /// Stops deliveries to the consumers of a shard until [`Home::open`].
    pub fn close(&mut self, shard: ShardId) {
        self.congestion.closed |= shard.bit();
        self.congestion.opening &= !shard.bit();
    }

    /// Resumes deliveries to the consumers of a shard.
    pub fn open(&mut self, shard: ShardId) {
        self.congestion.closed &= !shard.bit();
        if self.congestion.suspended.get(usize::from(shard.0)).is_some_and(|suspended| !suspended.is_empty())
        {
            self.congestion.opening |= shard.bit();
        }
    }

    /// Puts a suspended consumer back into its ring.
    pub(super) fn resume(&mut self, key: ConsumerKey) {
        self.visited += 1;
        if let Some(consumer) = self.consumers.get_mut(key) {
            consumer.is_suspended = false;
            // The consumer need not have credit: without any, dispatch requests some.
            self.rejoin(key);
        }
    }
}
