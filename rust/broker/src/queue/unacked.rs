//! What one subscription was sent and has not acknowledged (STOMP 1.2, "ACK").
//!
//! Deliveries are numbered in order; a number is never used twice on a shard. Entries stand in that order, so that an
//! ACK usually finds its own at the front. Settled ones leave a hole until the front reaches it or holes prevail.

use std::collections::{BTreeSet, VecDeque};

use smallvec::SmallVec;

use super::stored::{self, Stored};
use super::{ConsumerKey, QueueKey};
use crate::ids::ShardId;

/// Where a message in flight came from.
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
struct Entry {
    number: u64,
    /// Hash of the `message-id`, by which STOMP 1.1 acknowledges; 0 in other versions.
    id_hash: u64,
    delivered_ms: u64,
    origin: Origin,
    stored: Option<Stored>,
}

/// A message in flight that is taken out.
#[derive(Debug)]
pub struct Taken {
    /// Its number.
    pub number: u64,
    /// Hash of its `message-id`.
    pub id_hash: u64,
    /// Where it came from.
    pub origin: Origin,
    /// The message.
    pub stored: Stored,
}

/// Messages that are taken out together; mostly one, which then costs no allocation.
pub type TakenOnes = SmallVec<[Taken; 1]>;

/// The messages in flight of one subscription.
#[derive(Debug, Default)]
pub struct Unacked {
    /// The first one is no hole.
    entries: VecDeque<Entry>,
    live: usize,
    /// Hashes of `message-id`s with their numbers, for STOMP 1.1 alone.
    by_id: BTreeSet<(u64, u64)>,
    /// Bytes that are counted as held, beside the messages.
    counted: i64,
}

impl Drop for Unacked {
    fn drop(&mut self) {
        stored::count_bytes(-self.counted);
    }
}

/// Holes that are always tolerated.
const HOLES_MAX: usize = 64;
/// Messages that come and go before held bytes are corrected by them.
const COUNTED_TOGETHER: usize = 16;
/// What a hash occupies in its set, about.
const HASH_BYTES: usize = 24;

impl Unacked {
    /// Adds a delivery; its number is higher than any before.
    pub fn push(&mut self, number: u64, id_hash: u64, now_ms: u64, origin: Origin, stored: Stored) {
        self.entries.push_back(Entry { number, id_hash, delivered_ms: now_ms, origin, stored: Some(stored) });
        self.live += 1;
        if id_hash != 0 {
            self.by_id.insert((id_hash, number));
        }
        self.count();
    }

    /// Brings what its own tables occupy into the count of held bytes; a message that is held counts for itself. Messages
    /// are rounded down, so that the count, which belongs to the thread, is seldom touched.
    #[inline]
    fn count(&mut self) {
        let tables = size_of::<Entry>() * self.entries.capacity() + HASH_BYTES * self.by_id.len();
        let live = self.live - self.live % COUNTED_TOGETHER;
        let held = tables.saturating_sub(size_of::<Stored>() * live) as i64;
        if held != self.counted {
            stored::count_bytes(held - self.counted);
            self.counted = held;
        }
    }

    /// Whether the delivery with this number is in flight.
    #[must_use]
    pub fn holds(&self, number: u64) -> bool {
        self.place(number).is_some()
    }

    fn place(&self, number: u64) -> Option<usize> {
        let at = match self.entries.front()? {
            first if first.number == number => 0,
            _ => self.entries.binary_search_by_key(&number, |entry| entry.number).ok()?,
        };
        self.entries[at].stored.is_some().then_some(at)
    }

    /// The number under which a `message-id` is in flight; the lowest, if it is more than once.
    #[must_use]
    pub fn number_of(&self, id_hash: u64) -> Option<u64> {
        self.by_id.range((id_hash, 0)..=(id_hash, u64::MAX)).next().map(|(_, number)| *number)
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.live
    }

    /// Takes one out.
    pub fn take(&mut self, number: u64) -> Option<Taken> {
        let at = self.place(number)?;
        let taken = match at {
            0 => Self::empty(&mut self.entries.pop_front()?)?,
            _ => Self::empty(&mut self.entries[at])?,
        };
        self.forget(&taken);
        self.tidy();
        Some(taken)
    }

    fn forget(&mut self, taken: &Taken) {
        self.live -= 1;
        if taken.id_hash != 0 {
            self.by_id.remove(&(taken.id_hash, taken.number));
        }
    }

    /// Drops the holes at the front, and all of them once they prevail.
    fn tidy(&mut self) {
        while self.entries.front().is_some_and(|entry| entry.stored.is_none()) {
            self.entries.pop_front();
        }
        if self.entries.len() > 2 * self.live + HOLES_MAX {
            self.entries.retain(|entry| entry.stored.is_some());
        }
        if self.entries.capacity() > 1024 && self.entries.len() < self.entries.capacity() / 8 {
            self.entries.shrink_to(2 * self.entries.len());
        }
        self.count();
    }

    /// Takes out all up to and including a number, the oldest first, but no more than `count_max`.
    pub fn take_through(&mut self, number: u64, count_max: usize) -> TakenOnes {
        let mut taken = TakenOnes::new();
        while taken.len() < count_max && self.entries.front().is_some_and(|entry| entry.number <= number) {
            taken.extend(self.entries.pop_front().and_then(|mut entry| Self::empty(&mut entry)));
        }
        taken.iter().for_each(|taken| self.forget(taken));
        self.tidy();
        taken
    }

    /// Takes out the oldest.
    pub fn pop(&mut self) -> Option<Taken> {
        self.take(self.entries.front()?.number)
    }

    /// The numbers of the newest ones, no more than `count_max`, and the hashes of their `message-id`s; in their order.
    #[must_use]
    pub fn newest(&self, count_max: usize) -> Vec<(u64, u64)> {
        let newest_first = self.entries.iter().rev().filter(|entry| entry.stored.is_some()).take(count_max);
        let mut found: Vec<_> = newest_first.map(|entry| (entry.number, entry.id_hash)).collect();
        found.reverse();
        found
    }

    fn empty(entry: &mut Entry) -> Option<Taken> {
        let stored = entry.stored.take()?;
        Some(Taken { number: entry.number, id_hash: entry.id_hash, origin: entry.origin, stored })
    }

    /// The oldest delivery: its number, and when it was made.
    #[must_use]
    pub fn oldest(&self) -> Option<(u64, u64)> {
        self.entries.front().map(|first| (first.number, first.delivered_ms))
    }
}

#[cfg(test)]
mod tests {
    use stompica_proto::encode::Message;

    use super::*;
    use crate::keyed::Key;

    fn filled(numbers: impl Iterator<Item = u64>) -> Unacked {
        let key = Key { index: 0, generation: 0 };
        let origin = Origin { home: ShardId(0), queue: key, consumer: key };
        let message =
            Message { destination: b"/queue/a", id: b"i", sender: 0, headers: b"", plain: true, body: b"" };
        let mut unacked = Unacked::default();
        numbers.for_each(|number| unacked.push(number, 1000 + number, number, origin, Stored::new(&message)));
        unacked
    }

    #[test]
    fn each_delivery_is_taken_once() {
        let mut unacked = filled(5..10);
        assert_eq!(unacked.take(7).map(|taken| taken.number), Some(7));
        assert!(unacked.take(7).is_none() && unacked.take(4).is_none() && unacked.take(10).is_none());
        assert_eq!((unacked.number_of(1006), unacked.number_of(1007)), (Some(6), None));
        let through: Vec<u64> =
            unacked.take_through(8, usize::MAX).iter().map(|taken| taken.number).collect();
        assert_eq!((through, unacked.live, unacked.oldest()), (vec![5, 6, 8], 1, Some((9, 9))));
        assert!(unacked.pop().is_some() && unacked.pop().is_none());
        assert!(unacked.live == 0 && unacked.oldest().is_none());
    }

    #[test]
    fn a_message_id_is_found_without_a_search_and_forgotten_with_its_delivery() {
        let before = stored::held_bytes();
        let mut unacked = filled(0..60_000);
        assert_eq!((unacked.by_id.len(), unacked.number_of(1000 + 59_999)), (60_000, Some(59_999)));
        assert!(unacked.take(59_999).is_some() && unacked.number_of(1000 + 59_999).is_none());
        let tables = 60_000 * (size_of::<Entry>() + HASH_BYTES) as i64;
        assert!(stored::held_bytes() - before >= tables, "its tables are counted");
        assert_eq!((unacked.take_through(29_999, usize::MAX).len(), unacked.by_id.len()), (30_000, 29_999));
        assert!(unacked.newest(2).iter().copied().eq([59_997, 59_998].map(|number| (number, 1000 + number))));
        assert_eq!((std::iter::from_fn(|| unacked.pop()).count(), unacked.by_id.len()), (29_999, 0));
        drop(unacked);
        assert_eq!(stored::held_bytes(), before);
    }

    #[test]
    fn the_oldest_stands_in_front_however_those_before_it_went() {
        let mut unacked = filled(0..10);
        assert!(unacked.take(4).is_some() && unacked.take(5).is_some());
        unacked.take_through(3, usize::MAX);
        assert_eq!((unacked.oldest(), unacked.entries.len()), (Some((6, 6)), 4));
    }

    #[test]
    fn holes_do_not_pile_up_behind_one_that_is_never_acknowledged() {
        let mut unacked = filled(0..10_000);
        (1..10_000).for_each(|number| assert!(unacked.take(number).is_some()));
        assert_eq!((unacked.live, unacked.holds(0), unacked.oldest()), (1, true, Some((0, 0))));
        assert!(unacked.entries.len() <= 2 + HOLES_MAX);
    }
}
