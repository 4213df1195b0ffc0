//! A slab that grows and shrinks page by page, so that items never move.
//!
//! A slab in a single block doubles and moves all its items within one turn: with a million subscriptions that takes
//! tens of milliseconds, and the allocator keeps the old block for a while. A page without items is freed: otherwise
//! each table that was once filled would keep memory that `memory_limit` no longer counts.

use std::array;
use std::mem::replace;
use std::ops::{Index, IndexMut};

/// Items per page: few, because most tables are small.
const PAGE: usize = 64;
/// No slot.
const NONE: u32 = u32::MAX;

#[derive(Debug)]
enum Slot<T> {
    Taken(T),
    /// The next free slot of the page, or [`NONE`].
    Free(u32),
}

#[derive(Debug)]
struct Page<T> {
    /// An array of fixed size, so that a look-up needs one bounds check.
    slots: [Slot<T>; PAGE],
    first_free: u32,
    taken: u32,
}

impl<T> Page<T> {
    fn empty() -> Box<Self> {
        let slots = array::from_fn(|at| Slot::Free(if at + 1 < PAGE { at as u32 + 1 } else { NONE }));
        Box::new(Page { slots, first_free: 0, taken: 0 })
    }

    fn is_full(&self) -> bool {
        self.first_free == NONE
    }

    /// Puts an item into a free slot, which must exist; returns its position.
    fn put(&mut self, item: T) -> usize {
        let at = self.first_free as usize;
        if let Slot::Free(next) = replace(&mut self.slots[at], Slot::Taken(item)) {
            self.first_free = next;
        }
        self.taken += 1;
        at
    }

    fn take(&mut self, at: usize) -> Option<T> {
        match replace(&mut self.slots[at], Slot::Free(self.first_free)) {
            Slot::Taken(item) => {
                self.first_free = at as u32;
                self.taken -= 1;
                Some(item)
            }
            free => {
                self.slots[at] = free;
                None
            }
        }
    }
}

/// Items at small indexes, which are reused.
#[derive(Debug)]
pub struct Paged<T> {
    /// `None` for a page that was freed.
    pages: Vec<Option<Box<Page<T>>>>,
    /// The numbers of the pages that have a free slot or were freed.
    roomy: Vec<u32>,
    /// One empty page is kept, so that adding and removing a single item does not allocate each time.
    spare: Option<Box<Page<T>>>,
    len: usize,
}

impl<T> Default for Paged<T> {
    fn default() -> Self {
        Paged { pages: Vec::new(), roomy: Vec::new(), spare: None, len: 0 }
    }
}

impl<T> Paged<T> {
    /// Adds an item; returns its index.
    pub fn insert(&mut self, item: T) -> usize {
        if self.roomy.is_empty() {
            self.roomy.push(self.pages.len() as u32);
            self.pages.push(None);
        }
        let number = self.roomy[self.roomy.len() - 1] as usize;
        let page = self.pages[number].get_or_insert_with(|| self.spare.take().unwrap_or_else(Page::empty));
        let at = page.put(item);
        if page.is_full() {
            self.roomy.pop();
        }
        self.len += 1;
        number * PAGE + at
    }

    /// Removes and returns an item.
    ///
    /// # Panics
    /// If there is no item at this index.
    pub fn remove(&mut self, at: usize) -> T {
        let number = at / PAGE;
        let page = self.pages.get_mut(number).and_then(Option::as_mut);
        let was_full = page.as_ref().is_some_and(|page| page.is_full());
        let taken = page.and_then(|page| page.take(at % PAGE).map(|item| (item, page.taken)));
        let (item, left) = taken.unwrap_or_else(|| panic!("no item at index {at}"));
        if was_full {
            self.roomy.push(number as u32);
        }
        if left == 0 {
            let page = self.pages[number].take();
            self.spare = self.spare.take().or(page);
        }
        self.len -= 1;
        item
    }

    /// The number of slots: all indexes are below it.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.pages.len() * PAGE
    }

    /// The item at this index.
    #[must_use]
    #[inline]
    pub fn get(&self, at: usize) -> Option<&T> {
        match &self.pages.get(at / PAGE)?.as_ref()?.slots[at % PAGE] {
            Slot::Taken(item) => Some(item),
            Slot::Free(_) => None,
        }
    }

    /// The item at this index.
    #[inline]
    pub fn get_mut(&mut self, at: usize) -> Option<&mut T> {
        match &mut self.pages.get_mut(at / PAGE)?.as_mut()?.slots[at % PAGE] {
            Slot::Taken(item) => Some(item),
            Slot::Free(_) => None,
        }
    }

    /// The number of items.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no items.
    #[cfg(any(test, feature = "simulation"))]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// All items with their indexes, in order.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &T)> {
        let pages = self.pages.iter().enumerate();
        let pages = pages.filter_map(|(number, page)| Some((number * PAGE, page.as_ref()?)));
        pages.flat_map(|(first, page)| {
            page.slots.iter().enumerate().filter_map(move |(at, slot)| match slot {
                Slot::Taken(item) => Some((first + at, item)),
                Slot::Free(_) => None,
            })
        })
    }
}

impl<T> Index<usize> for Paged<T> {
    type Output = T;

    /// # Panics
    /// If there is no item at this index.
    #[inline]
    fn index(&self, at: usize) -> &T {
        self.get(at).expect("the index of an item")
    }
}

impl<T> IndexMut<usize> for Paged<T> {
    #[inline]
    fn index_mut(&mut self, at: usize) -> &mut T {
        self.get_mut(at).expect("the index of an item")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    impl<T> Paged<T> {
        /// The number of allocated pages.
        fn resident(&self) -> usize {
            self.pages.iter().flatten().count() + usize::from(self.spare.is_some())
        }
    }

    #[test]
    fn an_item_does_not_move_while_others_are_added_and_removed() {
        let mut items = Paged::default();
        (0..20 * PAGE).for_each(|at| assert_eq!(items.insert(at), at));
        let place: *const usize = &raw const items[PAGE];
        (0..20 * PAGE).filter(|at| *at != PAGE).for_each(|at| assert_eq!(items.remove(at), at));
        (0..30 * PAGE).for_each(|at| assert_ne!(items.insert(at), PAGE));
        assert_eq!((&raw const items[PAGE], items[PAGE]), (place, PAGE));
    }

    #[test]
    fn pages_without_items_are_freed() {
        let mut items = Paged::default();
        let numbers: Vec<usize> = (0..20 * PAGE).map(|at| items.insert(at)).collect();
        assert_eq!(items.resident(), 20);
        numbers.iter().skip(1).for_each(|at| assert_eq!(items.remove(*at), *at));
        assert_eq!((items.resident(), items.len()), (2, 1), "the used page and the spare one");
        (0..20 * PAGE).for_each(|at| assert!(items.insert(at) < 21 * PAGE, "indexes are reused"));
        assert_eq!(items.resident(), 21);
    }

    #[test]
    #[should_panic(expected = "no item at index 0")]
    fn removing_an_item_twice_panics() {
        let mut items = Paged::default();
        items.insert('a');
        items.insert('b');
        items.remove(0);
        items.remove(0);
    }

    #[test]
    #[should_panic(expected = "no item at index 0")]
    fn removing_an_item_of_a_freed_page_panics() {
        let mut items = Paged::default();
        items.insert('a');
        items.remove(0);
        items.remove(0);
    }

    proptest! {
        /// Compared with a map: each item has its own index, and only pages with items exist.
        #[test]
        fn it_behaves_like_a_map(steps in prop::collection::vec((0_u8..5, any::<prop::sample::Index>()), 1..4000), adds in 1_u8..5) {
            let (mut items, mut map) = (Paged::default(), BTreeMap::new());
            for (step, (which, index)) in steps.into_iter().enumerate() {
                if which < adds || map.is_empty() {
                    prop_assert_eq!(map.insert(items.insert(step), step), None);
                } else {
                    let at = *map.keys().nth(index.index(map.len())).expect("an item");
                    prop_assert_eq!(Some(items.remove(at)), map.remove(&at));
                    prop_assert_eq!(items.get(at), None);
                    prop_assert!(items.get_mut(at).is_none());
                }
                prop_assert_eq!(items.len(), map.len());
                let mut used: Vec<usize> = map.keys().map(|at| at / PAGE).collect();
                used.dedup();
                prop_assert!(items.resident() <= used.len() + 1);
                prop_assert!(map.keys().all(|at| *at < items.slots()));
            }
            prop_assert!(items.iter().eq(map.iter().map(|(at, item)| (*at, item))));
        }
    }
}
