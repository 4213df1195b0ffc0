//! Shards that have enough to read for now.
//!
//! What a home posts to another shard cannot be called back, and all that comes behind it waits until it was read: more
//! than a shard reads in a turn or two would delay everybody. So a shard that has so much is closed for deliveries. A
//! consumer there whose turn it is stands aside, in no ring, as if it had no credit, until its shard is opened.

use std::collections::VecDeque;

use super::home::Home;
use crate::ids::ConsumerKey;
use crate::ids::ShardId;

/// Which shards take deliveries, and whose consumers stand aside.
#[derive(Debug, Default)]
pub(super) struct Congestion {
    /// Shards that take none.
    closed: u64,
    /// Shards that take some again, and whose consumers have not all come back.
    opening: u64,
    /// Consumers that stand aside, by shard, in the order in which they are to come back.
    aside: Vec<VecDeque<ConsumerKey>>,
    /// The shard whose consumer came back last.
    last: u32,
    /// A consumer came back, and a queue is to be looked at next.
    is_after: bool,
}

impl Congestion {
    /// Whether a shard takes no deliveries.
    pub(super) fn is_closed(&self, shard: ShardId) -> bool {
        self.closed & shard.bit() != 0
    }

    /// Keeps a consumer of a closed shard.
    pub(super) fn stand_aside(&mut self, shard: ShardId, consumer: ConsumerKey) {
        let at = usize::from(shard.0);
        if self.aside.len() <= at {
            self.aside.resize_with(at + 1, VecDeque::new);
        }
        self.aside[at].push_back(consumer);
    }

    /// Whether a consumer may come back.
    pub(super) fn is_opening(&self) -> bool {
        self.opening != 0
    }

    /// Who comes back now: shard by shard in turns, and a queue is looked at between two of them if there is any, so that
    /// no more come back than get something.
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
        let aside = self.aside.get_mut(self.last as usize)?;
        let next = aside.pop_front();
        if aside.is_empty() {
            *aside = VecDeque::new();
            self.opening &= !(1 << self.last);
        }
        next
    }
}

impl Home {
    /// Whether consumers of this shard get nothing for now.
    #[cfg(test)]
    #[must_use]
    pub fn is_closed(&self, shard: ShardId) -> bool {
        self.congestion.is_closed(shard)
    }

    /// Delivers nothing to the consumers of a shard until [`Home::open`].
    pub fn close(&mut self, shard: ShardId) {
        self.congestion.closed |= shard.bit();
        self.congestion.opening &= !shard.bit();
    }

    /// Delivers to the consumers of a shard again.
    pub fn open(&mut self, shard: ShardId) {
        self.congestion.closed &= !shard.bit();
        if self.congestion.aside.get(usize::from(shard.0)).is_some_and(|aside| !aside.is_empty()) {
            self.congestion.opening |= shard.bit();
        }
    }

    /// A consumer that stood aside comes back into its ring.
    pub(super) fn come_back(&mut self, key: ConsumerKey) {
        self.visited += 1;
        if let Some(consumer) = self.consumers.get_mut(key) {
            consumer.aside = false;
            // Even without credit: dispatch finds it there and asks for more.
            self.rejoin(key);
        }
    }
}
