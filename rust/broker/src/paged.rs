//! A slab that grows page by page, so that nothing in it ever moves.
//!
//! One that is a single block doubles and moves all it has, in one turn: with a million subscriptions that takes tens of
//! milliseconds, and what it moved from stays with the allocator for a while.

use std::mem::replace;
use std::ops::{Index, IndexMut};

/// Items of a page: few, since most tables are small.
const PAGE: usize = 64;
/// No slot.
const NONE: usize = usize::MAX;

#[derive(Debug)]
enum Slot<T> {
    Taken(T),
    /// The next free one, or [`NONE`].
    Free(usize),
}

/// Items by small numbers, which are used again.
#[derive(Debug)]
pub struct Paged<T> {
    /// Of a fixed size, so that an item is found with one check of bounds.
    pages: Vec<Box<[Slot<T>; PAGE]>>,
    /// Slots that were ever taken; those behind them are free, and not in the list of these.
    slots: usize,
    first_free: usize,
    len: usize,
}

impl<T> Default for Paged<T> {
    fn default() -> Self {
        Paged { pages: Vec::new(), slots: 0, first_free: NONE, len: 0 }
    }
}

impl<T> Paged<T> {
    /// Adds an item; returns its number.
    pub fn insert(&mut self, item: T) -> usize {
        self.len += 1;
        let at = self.first_free;
        if at != NONE {
            if let Slot::Free(next) = replace(self.slot_mut(at), Slot::Taken(item)) {
                self.first_free = next;
            }
            return at;
        }
        let at = self.slots;
        if at == self.pages.len() * PAGE {
            self.pages.push(Self::empty_page());
        }
        *self.slot_mut(at) = Slot::Taken(item);
        self.slots += 1;
        at
    }

    /// Takes an item out.
    ///
    /// # Panics
    /// If there is none with this number.
    pub fn remove(&mut self, at: usize) -> T {
        let next = self.first_free;
        let slot = self.slot_mut(at);
        assert!(matches!(slot, Slot::Taken(_)), "no item has number {at}");
        let Slot::Taken(item) = replace(slot, Slot::Free(next)) else { unreachable!("it was looked at") };
        self.first_free = at;
        self.len -= 1;
        item
    }

    fn slot_mut(&mut self, at: usize) -> &mut Slot<T> {
        &mut self.pages[at / PAGE][at % PAGE]
    }

    fn empty_page() -> Box<[Slot<T>; PAGE]> {
        let page: Box<[Slot<T>]> = (0..PAGE).map(|_| Slot::Free(NONE)).collect();
        page.try_into().unwrap_or_else(|_| unreachable!("it has as many slots as that"))
    }

    /// Numbers that were ever given: those of all items are below.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.slots
    }

    /// The item with this number.
    #[must_use]
    #[inline]
    pub fn get(&self, at: usize) -> Option<&T> {
        match &self.pages.get(at / PAGE)?[at % PAGE] {
            Slot::Taken(item) => Some(item),
            Slot::Free(_) => None,
        }
    }

    /// The item with this number.
    #[inline]
    pub fn get_mut(&mut self, at: usize) -> Option<&mut T> {
        match &mut self.pages.get_mut(at / PAGE)?[at % PAGE] {
            Slot::Taken(item) => Some(item),
            Slot::Free(_) => None,
        }
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    #[cfg(any(test, feature = "by-hand"))]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// All of them with their numbers, in the order of these, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (usize, &mut T)> {
        self.pages.iter_mut().flat_map(|page| page.iter_mut()).enumerate().filter_map(|(at, slot)| match slot
        {
            Slot::Taken(item) => Some((at, item)),
            Slot::Free(_) => None,
        })
    }

    /// All of them with their numbers, in the order of these.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &T)> {
        self.pages.iter().flat_map(|page| page.iter()).enumerate().filter_map(|(at, slot)| match slot {
            Slot::Taken(item) => Some((at, item)),
            Slot::Free(_) => None,
        })
    }
}

impl<T> Index<usize> for Paged<T> {
    type Output = T;

    /// # Panics
    /// If there is none with this number.
    #[inline]
    fn index(&self, at: usize) -> &T {
        self.get(at).expect("the number of an item")
    }
}

impl<T> IndexMut<usize> for Paged<T> {
    #[inline]
    fn index_mut(&mut self, at: usize) -> &mut T {
        self.get_mut(at).expect("the number of an item")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_there_stays_in_its_place_while_others_come() {
        let mut items = Paged::default();
        (0..=PAGE).for_each(|at| assert_eq!(items.insert(at), at));
        let place: *const usize = &raw const items[PAGE];
        (PAGE + 1..20 * PAGE).for_each(|at| assert_eq!(items.insert(at), at));
        assert_eq!(&raw const items[PAGE], place);
    }

    #[test]
    #[should_panic(expected = "no item has number 0")]
    fn what_is_gone_cannot_be_removed() {
        let mut items = Paged::default();
        items.insert('a');
        items.remove(0);
        items.remove(0);
    }

    proptest! {
        /// Beside a slab of one block, which gives the same numbers.
        #[test]
        fn it_is_as_a_slab(steps in prop::collection::vec((any::<bool>(), any::<prop::sample::Index>()), 1..4000)) {
            let (mut items, mut slab) = (Paged::default(), slab::Slab::new());
            for (step, (adds, which)) in steps.into_iter().enumerate() {
                if adds || slab.is_empty() {
                    prop_assert_eq!(items.insert(step), slab.insert(step));
                } else {
                    let keys: Vec<usize> = slab.iter().map(|(at, _)| at).collect();
                    let at = keys[which.index(keys.len())];
                    prop_assert_eq!(items.remove(at), slab.remove(at));
                    prop_assert_eq!(items.get(at), None);
                    prop_assert!(items.get_mut(at).is_none());
                }
                prop_assert_eq!(items.len(), slab.len());
            }
            prop_assert!(items.iter().eq(slab.iter()));
        }
    }
}
