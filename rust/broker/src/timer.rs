//! Deadlines: at most one entry per owner, so there are never more entries than owners.
//!
//! A heart-beat timer is not re-armed with every byte: its entry fires at the earliest possible deadline, and the shard
//! then checks the time of the last byte.

use crate::collections::spread::{Map, give_back};
use crate::ids::ConnKey;
use crate::ids::{QueueKey, SubscriptionKey};

/// No deadline.
pub const NEVER: u64 = u64::MAX;

/// A time in milliseconds that may not be set, in the space of a number: connections are many, and have several.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Since(u64);

impl Since {
    /// Not set.
    pub const NONE: Since = Since(NEVER);

    /// This time.
    #[must_use]
    pub fn at(ms: u64) -> Since {
        Since(ms)
    }

    /// The time, if it is set.
    #[must_use]
    #[inline]
    pub fn get(self) -> Option<u64> {
        self.is_set().then_some(self.0)
    }

    /// Whether it is set.
    #[must_use]
    #[inline]
    pub fn is_set(self) -> bool {
        self.0 != NEVER
    }

    /// Sets it, unless it is set; returns the time.
    pub fn get_or_set(&mut self, ms: u64) -> u64 {
        if !self.is_set() {
            self.0 = ms;
        }
        self.0
    }

    /// Unsets it; returns the time, if it was set.
    pub fn take(&mut self) -> Option<u64> {
        std::mem::take(self).get()
    }
}

impl Default for Since {
    fn default() -> Since {
        Since::NONE
    }
}

impl std::fmt::Debug for Since {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.get().fmt(f)
    }
}

/// The longest wait of one poll, which counts in 32 bits; a later deadline is reached in several steps.
pub const POLL_MAX_MS: u64 = 3_600_000;

/// Children of each entry of the heap.
const CHILDREN: usize = 4;
/// Capacity above this is freed once most entries are removed.
const CAPACITY_KEPT: usize = 1024;

/// The purpose of a deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Due {
    /// A deadline of a connection.
    Conn(ConnKey),
    /// A redelivery, an expiry or the removal of an idle queue.
    Queue(QueueKey),
    /// The oldest unacknowledged delivery (`ack_timeout`).
    Subscription(SubscriptionKey),
    /// The stale or retained message that expires first.
    Waiting,
    /// The next status text for `/queue/monitor`.
    Monitor,
    /// The next answer to a subscription to diagnostics.
    Diagnostics(SubscriptionKey),
    /// The next message of a replay, or the next attempt to read it.
    Replay(SubscriptionKey),
}

/// The deadlines of one shard, in milliseconds since the broker's start.
///
/// A heap in one allocation: the nodes of a sorted tree would be scattered among short-lived allocations and keep their
/// pages from being freed.
#[derive(Debug, Default)]
pub struct Timers {
    /// A d-ary heap: no entry is due before its parent.
    heap: Vec<(u64, Due)>,
    /// The position of each entry in the heap.
    places: Map<Due, u32>,
}

impl Timers {
    /// Sets or replaces the deadline; [`NEVER`] removes it.
    pub fn set(&mut self, at_ms: u64, due: Due) {
        if at_ms == NEVER {
            return self.cancel(due);
        }
        match self.places.get(&due) {
            Some(place) => {
                let place = *place as usize;
                if self.heap[place].0 != at_ms {
                    self.heap[place].0 = at_ms;
                    self.restore_order(place);
                }
            }
            None => {
                let place = self.heap.len();
                self.heap.push((at_ms, due));
                self.places.insert(due, place as u32);
                self.move_up(place);
            }
        }
    }

    /// Removes the deadline, if there is one.
    pub fn cancel(&mut self, due: Due) {
        if let Some(place) = self.places.get(&due) {
            self.take(*place as usize);
        }
    }

    /// Removes and returns the first deadline that has passed.
    pub fn pop_due(&mut self, now_ms: u64) -> Option<(u64, Due)> {
        if self.next_ms()? > now_ms {
            return None;
        }
        Some(self.take(0))
    }

    /// The time of the first deadline.
    #[must_use]
    pub fn next_ms(&self) -> Option<u64> {
        self.heap.first().map(|(at_ms, _)| *at_ms)
    }

    /// The number of deadlines.
    #[must_use]
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// All deadlines.
    #[cfg(any(test, simulated))]
    pub fn iter(&self) -> impl Iterator<Item = (u64, Due)> {
        self.heap.iter().copied()
    }

    /// Whether there is a deadline for this purpose.
    #[cfg(any(test, simulated))]
    pub fn has(&self, due: Due) -> bool {
        self.places.contains_key(&due)
    }

    /// Compares the heap with its index.
    #[cfg(any(test, simulated))]
    pub fn audit(&self, audit: &mut crate::audit::Audit) {
        audit.equal("deadlines in the index", self.places.len(), self.heap.len());
        for (place, entry) in self.heap.iter().enumerate() {
            let found = self.places.get(&entry.1).map(|place| *place as usize);
            audit.require(found == Some(place), || {
                format!("{entry:?} is at {place}, the index says {found:?}")
            });
            let is_in_order = place == 0 || self.heap[(place - 1) / CHILDREN] <= *entry;
            audit.require(is_in_order, || format!("{entry:?} at {place} is before its parent"));
        }
    }

    /// Approximate memory in bytes.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        size_of::<(u64, Due)>() * self.heap.capacity()
            + (size_of::<(Due, u32)>() + 1) * self.places.capacity() * 8 / 7
    }

    /// Removes the entry at a position; the last entry takes its place.
    fn take(&mut self, place: usize) -> (u64, Due) {
        let entry = self.heap.swap_remove(place);
        self.places.remove(&entry.1);
        if place < self.heap.len() {
            self.restore_order(place);
        }
        if self.heap.capacity() > CAPACITY_KEPT && self.heap.len() < self.heap.capacity() / 8 {
            self.heap.shrink_to(2 * self.heap.len());
        }
        give_back(&mut self.places);
        entry
    }

    /// Restores the heap order for the entry at a position.
    fn restore_order(&mut self, place: usize) {
        let place = self.move_up(place);
        self.move_down(place);
    }

    /// Moves an entry towards the root, past entries that are due later. Returns its new position.
    fn move_up(&mut self, mut place: usize) -> usize {
        let entry = self.heap[place];
        while place > 0 && entry < self.heap[(place - 1) / CHILDREN] {
            self.put(place, self.heap[(place - 1) / CHILDREN]);
            place = (place - 1) / CHILDREN;
        }
        self.put(place, entry);
        place
    }

    /// Moves an entry towards the leaves, past entries that are due earlier.
    fn move_down(&mut self, mut place: usize) {
        let entry = self.heap[place];
        while let Some((at, first)) = self.first_child(place).filter(|(_, first)| *first < entry) {
            self.put(place, first);
            place = at;
        }
        self.put(place, entry);
    }

    /// The child of a position that is due first.
    fn first_child(&self, place: usize) -> Option<(usize, (u64, Due))> {
        let from = CHILDREN * place + 1;
        let children = self.heap.get(from..self.heap.len().min(from + CHILDREN))?;
        children.iter().enumerate().map(|(at, entry)| (from + at, *entry)).min_by_key(|(_, entry)| *entry)
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

    #[test]
    fn a_time_that_is_not_set_is_none() {
        let mut since = Since::default();
        assert_eq!((since.get(), since.take(), format!("{since:?}")), (None, None, "None".to_owned()));
        assert_eq!((since.get_or_set(0), since.get_or_set(7), since.is_set()), (0, 0, true));
        assert_eq!(
            (format!("{since:?}"), since.take(), since.is_set()),
            ("Some(0)".to_owned(), Some(0), false)
        );
        assert_eq!((since, Since::at(7).get()), (Since::NONE, Some(7)));
    }

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
    fn setting_a_deadline_again_replaces_it() {
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
    fn cancelled_deadlines_free_their_memory() {
        let mut timers = Timers::default();
        (0..10_000).for_each(|index| timers.set(u64::from(index), conn(index)));
        timers.set(NEVER, conn(10_000));
        (0..10_000).for_each(|index| timers.cancel(conn(index)));
        timers.cancel(conn(10_000));
        assert_eq!((timers.len(), timers.next_ms(), timers.pop_due(NEVER)), (0, None, None));
        assert!(timers.held_bytes() < 64 << 10, "{} bytes", timers.held_bytes());
    }

    #[test]
    fn the_memory_per_deadline_is_small() {
        let mut timers = Timers::default();
        (0..100_000).for_each(|index| timers.set(u64::from(index), conn(index)));
        assert!(timers.held_bytes() < 100_000 * 80, "{} bytes", timers.held_bytes());
    }

    proptest! {
        /// Compared with a sorted set: the same deadlines come due in the same order.
        #[test]
        fn it_behaves_like_a_sorted_set(steps in prop::collection::vec((0_u8..6, 0_u64..50, 0_u32..200), 1..2000)) {
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
