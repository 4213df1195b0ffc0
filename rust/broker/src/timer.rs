//! Deadlines: one entry for whatever has one, so that there are never more of them than of what they are for.
//!
//! A heart-beat is not re-armed with every byte: its entry fires at the earliest possible deadline, and the shard then
//! sees from the time of the last byte whether there is anything to do.

use crate::collections::spread::{Map, give_back};
use crate::ids::ConnKey;
use crate::ids::{QueueKey, SubscriptionKey};

/// No deadline.
pub const NEVER: u64 = u64::MAX;

/// The poll counts in 32 bits, so a later deadline is waited for in steps.
pub const POLL_MAX_MS: u64 = 3_600_000;

/// How many entries of the heap stand directly behind each one.
const BRANCHES: usize = 4;
/// Room for more entries than these is given back once most are gone.
const KEPT: usize = 1024;

/// What is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Due {
    /// Something of a connection.
    Conn(ConnKey),
    /// A redelivery, an expiry, the end of an idle queue.
    Queue(QueueKey),
    /// The oldest unacknowledged delivery (`ack_timeout`).
    Subscription(SubscriptionKey),
    /// The stale or retained message that expires first.
    Waiting,
    /// The next text for `/queue/monitor`.
    Monitor,
    /// The next answer to a subscription to diagnostics.
    Diagnostics(SubscriptionKey),
}

/// The deadlines of one shard, in milliseconds since the broker's start.
///
/// A heap in one block: the nodes of a sorted tree lie among the blocks of what comes and goes, and keep for the
/// allocator what is free beside them.
#[derive(Debug, Default)]
pub struct Timers {
    /// None is due before the one that it stands behind.
    heap: Vec<(u64, Due)>,
    /// Where the entry of each stands in it.
    places: Map<Due, u32>,
}

impl Timers {
    /// Sets the deadline, in place of the one there was; [`NEVER`] is none.
    pub fn set(&mut self, at_ms: u64, due: Due) {
        if at_ms == NEVER {
            return self.cancel(due);
        }
        match self.places.get(&due) {
            Some(place) => {
                let place = *place as usize;
                if self.heap[place].0 != at_ms {
                    self.heap[place].0 = at_ms;
                    self.settle(place);
                }
            }
            None => {
                let place = self.heap.len();
                self.heap.push((at_ms, due));
                self.places.insert(due, place as u32);
                self.rise(place);
            }
        }
    }

    /// What it was for is gone, or nothing is due any more.
    pub fn cancel(&mut self, due: Due) {
        if let Some(place) = self.places.get(&due) {
            self.take(*place as usize);
        }
    }

    /// Takes the first deadline that has passed.
    pub fn pop_due(&mut self, now_ms: u64) -> Option<(u64, Due)> {
        if self.next_ms()? > now_ms {
            return None;
        }
        Some(self.take(0))
    }

    /// When the first deadline comes due.
    #[must_use]
    pub fn next_ms(&self) -> Option<u64> {
        self.heap.first().map(|(at_ms, _)| *at_ms)
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// Bytes they occupy, about.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        size_of::<(u64, Due)>() * self.heap.capacity()
            + (size_of::<(Due, u32)>() + 1) * self.places.capacity() * 8 / 7
    }

    /// Takes the entry at a place out; the last one fills it.
    fn take(&mut self, place: usize) -> (u64, Due) {
        let entry = self.heap.swap_remove(place);
        self.places.remove(&entry.1);
        if place < self.heap.len() {
            self.settle(place);
        }
        if self.heap.capacity() > KEPT && self.heap.len() < self.heap.capacity() / 8 {
            self.heap.shrink_to(2 * self.heap.len());
        }
        give_back(&mut self.places);
        entry
    }

    /// Moves the entry at a place, which is new there, to where it belongs.
    fn settle(&mut self, place: usize) {
        let place = self.rise(place);
        self.sink(place);
    }

    /// Moves an entry towards the front, past those that are due after it. Returns its place.
    fn rise(&mut self, mut place: usize) -> usize {
        let entry = self.heap[place];
        while place > 0 && entry < self.heap[(place - 1) / BRANCHES] {
            self.put(place, self.heap[(place - 1) / BRANCHES]);
            place = (place - 1) / BRANCHES;
        }
        self.put(place, entry);
        place
    }

    /// Moves an entry towards the end, past those that are due before it.
    fn sink(&mut self, mut place: usize) {
        let entry = self.heap[place];
        while let Some((at, first)) = self.first_behind(place).filter(|(_, first)| *first < entry) {
            self.put(place, first);
            place = at;
        }
        self.put(place, entry);
    }

    /// The entry that is due first of those directly behind a place.
    fn first_behind(&self, place: usize) -> Option<(usize, (u64, Due))> {
        let from = BRANCHES * place + 1;
        let behind = self.heap.get(from..self.heap.len().min(from + BRANCHES))?;
        behind.iter().enumerate().map(|(at, entry)| (from + at, *entry)).min_by_key(|(_, entry)| *entry)
    }

    fn put(&mut self, place: usize, entry: (u64, Due)) {
        self.heap[place] = entry;
        self.places.insert(entry.1, place as u32);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;

    fn conn(index: u32) -> Due {
        Due::Conn(ConnKey { index, generation: 0 })
    }

    #[test]
    fn deadlines_come_due_in_order() {
        let mut timers = Timers::default();
        for (at, index) in [(30, 3), (10, 1), (20, 2)] {
            timers.set(at, conn(index));
        }
        assert_eq!(timers.next_ms(), Some(10));
        assert_eq!(timers.pop_due(9), None);
        assert_eq!(timers.pop_due(25), Some((10, conn(1))));
        assert_eq!(timers.pop_due(25), Some((20, conn(2))));
        assert_eq!(timers.pop_due(25), None);
    }

    #[test]
    fn whatever_has_a_deadline_has_one_entry() {
        let mut timers = Timers::default();
        for at_ms in (1000..2000).rev() {
            timers.set(at_ms, conn(1));
        }
        timers.set(5000, conn(2));
        assert_eq!((timers.len(), timers.places.len(), timers.next_ms()), (2, 2, Some(1000)));
        timers.set(3000, conn(1));
        assert_eq!((timers.len(), timers.next_ms(), timers.pop_due(2999)), (2, Some(3000), None));
    }

    #[test]
    fn one_that_is_cancelled_or_never_due_leaves_nothing_behind() {
        let mut timers = Timers::default();
        (0..10_000).for_each(|index| timers.set(u64::from(index), conn(index)));
        timers.set(NEVER, conn(10_000));
        (0..10_000).for_each(|index| timers.cancel(conn(index)));
        timers.cancel(conn(10_000));
        assert_eq!((timers.len(), timers.next_ms(), timers.pop_due(NEVER)), (0, None, None));
        assert!(timers.held_bytes() < 64 << 10, "{} bytes", timers.held_bytes());
    }

    #[test]
    fn an_entry_occupies_little_more_than_itself() {
        let mut timers = Timers::default();
        (0..100_000).for_each(|index| timers.set(u64::from(index), conn(index)));
        assert!(timers.held_bytes() < 100_000 * 80, "{} bytes", timers.held_bytes());
    }

    proptest! {
        /// Beside a sorted set: what comes due, and in which order.
        #[test]
        fn it_is_as_a_sorted_set(steps in prop::collection::vec((0_u8..6, 0_u64..50, 0_u32..200), 1..2000)) {
            let (mut timers, mut sorted, mut times) = (Timers::default(), BTreeSet::new(), BTreeMap::new());
            for (which, at_ms, index) in steps {
                let due = conn(index);
                if which == 0 {
                    let first = sorted.first().copied().filter(|(first_ms, _)| *first_ms <= at_ms);
                    prop_assert_eq!(timers.pop_due(at_ms), first);
                    if let Some((first_ms, first)) = first {
                        sorted.remove(&(first_ms, first));
                        times.remove(&first);
                    }
                    continue;
                }
                let at_ms = if which == 1 { NEVER } else { at_ms };
                timers.set(at_ms, due);
                let before = if at_ms == NEVER { times.remove(&due) } else { times.insert(due, at_ms) };
                before.map(|before_ms| sorted.remove(&(before_ms, due)));
                if at_ms != NEVER {
                    sorted.insert((at_ms, due));
                }
                prop_assert_eq!((timers.len(), timers.places.len()), (sorted.len(), sorted.len()));
                prop_assert!(timers.places.iter().all(|(due, place)| timers.heap[*place as usize].1 == *due));
            }
            for entry in sorted {
                prop_assert_eq!(timers.pop_due(u64::MAX), Some(entry));
            }
            prop_assert_eq!(timers.len(), 0);
        }
    }
}
