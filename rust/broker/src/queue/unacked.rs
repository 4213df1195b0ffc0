//! The unacknowledged deliveries of one subscription (STOMP 1.2, "ACK").
//!
//! Deliveries are numbered in order; a number is never used twice on a shard. Entries are in that order, so that an ACK
//! usually finds its delivery at the front.

use std::collections::BTreeSet;

use smallvec::SmallVec;

use crate::collections::paged_deque::PagedDeque;
use crate::held;
use crate::ids::ShardId;
use crate::ids::{ConsumerKey, QueueKey};
use crate::message::OwnedMessage;

/// The origin of a message in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The home of its queue.
    pub home: ShardId,
    /// The queue there.
    pub queue: QueueKey,
    /// The consumer there.
    pub consumer: ConsumerKey,
}

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) number: u64,
    /// Hash of the `message-id`, by which STOMP 1.1 acknowledges; 0 in other versions.
    pub(super) id_hash: u64,
    delivered_ms: u64,
    pub(super) origin: Origin,
    pub(super) message: OwnedMessage,
}

impl Entry {
    fn number(&self) -> u64 {
        self.number
    }
}

/// A delivery that was removed.
#[derive(Debug)]
pub struct Taken {
    /// Its number.
    pub number: u64,
    /// The hash of its `message-id`.
    pub id_hash: u64,
    /// Its origin.
    pub origin: Origin,
    /// The message.
    pub message: OwnedMessage,
}

/// Deliveries that are removed together; usually one, which needs no allocation.
pub type TakenOnes = SmallVec<[Taken; 1]>;

/// The unacknowledged deliveries of one subscription.
#[derive(Debug, Default)]
pub struct Unacked {
    pub(super) entries: PagedDeque<Entry>,
    /// Hashes of `message-id`s with the delivery numbers, only for STOMP 1.1.
    pub(super) by_id: BTreeSet<(u64, u64)>,
    /// The bytes that are counted as held, besides the messages.
    pub(super) counted: i64,
}

impl Drop for Unacked {
    fn drop(&mut self) {
        held::add(-self.counted);
    }
}

/// The number of pushed or removed deliveries after which held bytes are updated.
const COUNTED_TOGETHER: usize = 16;
/// The approximate memory of a hash in its set.
const HASH_BYTES: usize = 24;

impl Unacked {
    /// Adds a delivery; its number is higher than all earlier ones.
    #[inline]
    pub fn push(&mut self, number: u64, id_hash: u64, now_ms: u64, origin: Origin, message: OwnedMessage) {
        self.entries.push_back(Entry { number, id_hash, delivered_ms: now_ms, origin, message });
        if id_hash != 0 {
            self.by_id.insert((id_hash, number));
        }
        self.count();
    }

    /// Updates the count of held bytes with the memory of its tables; messages count themselves. The number of messages
    /// is rounded down, so that the thread's count is seldom accessed.
    #[inline]
    fn count(&mut self) {
        let held = self.table_bytes();
        if held != self.counted {
            held::add(held - self.counted);
            self.counted = held;
        }
    }

    #[inline]
    pub(super) fn table_bytes(&self) -> i64 {
        let tables = size_of::<Entry>() * self.entries.capacity() + HASH_BYTES * self.by_id.len();
        let live = self.len() - self.len() % COUNTED_TOGETHER;
        tables.saturating_sub(size_of::<OwnedMessage>() * live) as i64
    }

    /// Whether the delivery with this number is unacknowledged.
    #[must_use]
    pub fn holds(&self, number: u64) -> bool {
        self.entries.front().is_some_and(|first| first.number == number)
            || self.entries.contains_key(&number, Entry::number)
    }

    /// The number of the unacknowledged delivery with this `message-id`. If there are several, the lowest one for an ACK,
    /// which may cover those before it, and the highest one for a NACK.
    #[must_use]
    pub fn number_of(&self, id_hash: u64, is_accepted: bool) -> Option<u64> {
        let mut all = self.by_id.range((id_hash, 0)..=(id_hash, u64::MAX));
        let found = if is_accepted { all.next() } else { all.next_back() };
        found.map(|(_, number)| *number)
    }

    /// The hash of the `message-id` of an unacknowledged delivery.
    #[must_use]
    pub fn id_hash_of(&self, number: u64) -> Option<u64> {
        self.entries.get_key(&number, Entry::number).map(|entry| entry.id_hash)
    }

    /// Whether the message with this delivery number was delivered before.
    #[must_use]
    pub fn is_redelivery(&self, number: u64) -> bool {
        self.entries.get_key(&number, Entry::number).is_some_and(|entry| entry.message.deliveries > 1)
    }

    /// The number of deliveries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Removes one delivery.
    pub fn take(&mut self, number: u64) -> Option<Taken> {
        let entry = match self.entries.front()? {
            first if first.number == number => self.entries.pop_front()?,
            _ => self.entries.remove_key(&number, Entry::number)?,
        };
        let taken = self.forget(entry);
        self.count();
        Some(taken)
    }

    fn forget(&mut self, Entry { number, id_hash, origin, message, .. }: Entry) -> Taken {
        if id_hash != 0 {
            self.by_id.remove(&(id_hash, number));
        }
        Taken { number, id_hash, origin, message }
    }

    /// Removes the deliveries up to and including a number, the oldest first, but at most `count_max`.
    pub fn take_through(&mut self, number: u64, count_max: usize) -> TakenOnes {
        let mut taken = TakenOnes::new();
        while taken.len() < count_max
            && self.entries.front().is_some_and(|entry| entry.number <= number)
            && let Some(entry) = self.entries.pop_front()
        {
            taken.push(self.forget(entry));
        }
        self.count();
        taken
    }

    /// Removes the oldest delivery.
    pub fn pop(&mut self) -> Option<Taken> {
        self.take(self.entries.front()?.number)
    }

    /// The numbers of the newest deliveries, at most `count_max`, with the hashes of their `message-id`s, in order.
    #[must_use]
    pub fn newest(&self, count_max: usize) -> Vec<(u64, u64)> {
        let newest_first = self.entries.iter().rev().take(count_max);
        let mut found: Vec<_> = newest_first.map(|entry| (entry.number, entry.id_hash)).collect();
        found.reverse();
        found
    }

    /// The number and the time of the oldest delivery.
    #[must_use]
    pub fn oldest(&self) -> Option<(u64, u64)> {
        self.entries.front().map(|first| (first.number, first.delivered_ms))
    }
}

#[cfg(test)]
mod tests {
    use stompica_proto::encode::Message;

    use super::*;
    use crate::collections::keyed::Key;

    fn filled(numbers: impl Iterator<Item = u64>) -> Unacked {
        let key = Key { index: 0, generation: 0 };
        let origin = Origin { home: ShardId(0), queue: key, consumer: key };
        let message = Message {
            destination: b"/queue/a",
            id: b"i",
            sender: 0,
            headers: b"",
            plain: true,
            expires_ms: 0,
            body: b"",
        };
        let mut unacked = Unacked::default();
        numbers.for_each(|number| {
            unacked.push(number, 1000 + number, number, origin, OwnedMessage::new(&message))
        });
        unacked
    }

    #[test]
    fn each_delivery_is_taken_once() {
        let mut unacked = filled(5..10);
        assert_eq!(unacked.take(7).map(|taken| taken.number), Some(7));
        assert!(unacked.take(7).is_none() && unacked.take(4).is_none() && unacked.take(10).is_none());
        assert_eq!((unacked.number_of(1006, true), unacked.number_of(1007, true)), (Some(6), None));
        assert_eq!((unacked.id_hash_of(6), unacked.id_hash_of(7)), (Some(1006), None));
        let through: Vec<u64> =
            unacked.take_through(8, usize::MAX).iter().map(|taken| taken.number).collect();
        assert_eq!((through, unacked.len(), unacked.oldest()), (vec![5, 6, 8], 1, Some((9, 9))));
        assert!(unacked.pop().is_some() && unacked.pop().is_none());
        assert!(unacked.len() == 0 && unacked.oldest().is_none());
    }

    #[test]
    fn a_message_id_is_indexed_until_its_delivery_is_removed() {
        let before = held::bytes();
        let mut unacked = filled(0..60_000);
        assert_eq!((unacked.by_id.len(), unacked.number_of(1000 + 59_999, true)), (60_000, Some(59_999)));
        assert!(unacked.take(59_999).is_some() && unacked.number_of(1000 + 59_999, true).is_none());
        let tables = 60_000 * (size_of::<Entry>() + HASH_BYTES) as i64;
        assert!(held::bytes() - before >= tables, "its tables are counted");
        assert_eq!((unacked.take_through(29_999, usize::MAX).len(), unacked.by_id.len()), (30_000, 29_999));
        assert!(unacked.newest(2).iter().copied().eq([59_997, 59_998].map(|number| (number, 1000 + number))));
        assert_eq!((std::iter::from_fn(|| unacked.pop()).count(), unacked.by_id.len()), (29_999, 0));
        drop(unacked);
        assert_eq!(held::bytes(), before);
    }

    #[test]
    fn many_deliveries_reserve_at_most_one_page_more() {
        let page = PagedDeque::<Entry>::PAGE;
        for count in [2 * page + 1, 64 * page + 1] {
            let unacked = filled(0..count as u64);
            assert!(unacked.entries.capacity() <= count + page);
        }
    }

    #[test]
    fn the_oldest_delivery_is_first_however_earlier_ones_ended() {
        let mut unacked = filled(0..10);
        assert!(unacked.take(4).is_some() && unacked.take(5).is_some());
        unacked.take_through(3, usize::MAX);
        assert_eq!((unacked.oldest(), unacked.entries.len()), (Some((6, 6)), 4));
    }

    #[test]
    fn memory_does_not_grow_behind_a_delivery_that_is_never_acknowledged() {
        let mut unacked = filled(0..10_000);
        (1..10_000).for_each(|number| assert!(unacked.take(number).is_some()));
        assert_eq!((unacked.len(), unacked.holds(0), unacked.oldest()), (1, true, Some((0, 0))));
        assert!(unacked.entries.capacity() <= PagedDeque::<Entry>::PAGE);
    }
}
