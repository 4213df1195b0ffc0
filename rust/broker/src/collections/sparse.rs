//! A sparse array: items at indexes of another table. A page is allocated only while it holds an item.

use std::array;

/// Items per page.
const PAGE: usize = 64;

#[derive(Debug)]
struct Page<T> {
    slots: [Option<T>; PAGE],
    taken: usize,
}

/// Items at indexes that the caller chooses; meant for small items, such as boxes.
#[derive(Debug)]
pub struct Sparse<T> {
    /// `None` for a page without items.
    pages: Vec<Option<Box<Page<T>>>>,
    resident: usize,
}

impl<T> Default for Sparse<T> {
    fn default() -> Self {
        Sparse { pages: Vec::new(), resident: 0 }
    }
}

impl<T> Sparse<T> {
    /// Sets the item at this index; returns the one it replaces.
    pub fn insert(&mut self, at: usize, item: T) -> Option<T> {
        let number = at / PAGE;
        if number >= self.pages.len() {
            self.pages.resize_with(number + 1, || None);
        }
        let page = self.pages[number].get_or_insert_with(|| {
            self.resident += 1;
            Box::new(Page { slots: array::from_fn(|_| None), taken: 0 })
        });
        let replaced = page.slots[at % PAGE].replace(item);
        page.taken += usize::from(replaced.is_none());
        replaced
    }

    /// Removes and returns the item at this index.
    pub fn remove(&mut self, at: usize) -> Option<T> {
        let slot = self.pages.get_mut(at / PAGE)?;
        let page = slot.as_mut()?;
        let item = page.slots[at % PAGE].take()?;
        page.taken -= 1;
        if page.taken == 0 {
            *slot = None;
            self.resident -= 1;
        }
        Some(item)
    }

    /// The item at this index.
    #[must_use]
    #[inline]
    pub fn get(&self, at: usize) -> Option<&T> {
        self.pages.get(at / PAGE)?.as_ref()?.slots[at % PAGE].as_ref()
    }

    /// The item at this index.
    #[inline]
    pub fn get_mut(&mut self, at: usize) -> Option<&mut T> {
        self.pages.get_mut(at / PAGE)?.as_mut()?.slots[at % PAGE].as_mut()
    }

    /// All items in the order of their indexes.
    #[cfg(any(test, simulated))]
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.pages.iter().flatten().flat_map(|page| page.slots.iter().flatten())
    }

    /// All items in the order of their indexes.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.pages.iter_mut().flatten().flat_map(|page| page.slots.iter_mut().flatten())
    }

    /// The number of items.
    #[cfg(any(test, feature = "simulation", simulated))]
    #[must_use]
    pub fn len(&self) -> usize {
        self.pages.iter().flatten().map(|page| page.taken).sum()
    }

    /// Bytes that the pages occupy.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.resident * size_of::<Page<T>>()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Compared with a map: each index has its own item, and only pages with items exist.
        #[test]
        fn it_behaves_like_a_map(steps in prop::collection::vec((any::<bool>(), 0_usize..5 * PAGE), 1..2000)) {
            let (mut items, mut map) = (Sparse::default(), BTreeMap::new());
            for (step, (adds, at)) in steps.into_iter().enumerate() {
                if adds {
                    prop_assert_eq!(items.insert(at, step), map.insert(at, step));
                } else {
                    prop_assert_eq!(items.remove(at), map.remove(&at));
                }
                prop_assert_eq!(items.get(at), map.get(&at));
                prop_assert_eq!(items.get_mut(at), map.get_mut(&at));
                let mut used: Vec<usize> = map.keys().map(|at| at / PAGE).collect();
                used.dedup();
                prop_assert_eq!(items.held_bytes(), used.len() * size_of::<Page<usize>>());
                prop_assert_eq!(items.len(), map.len());
            }
            prop_assert!(items.iter_mut().eq(map.values_mut()));
        }
    }

    #[test]
    fn there_is_no_item_beyond_the_last_page() {
        let mut items = Sparse::<u8>::default();
        assert!(items.get(1000).is_none() && items.get_mut(1000).is_none() && items.remove(1000).is_none());
    }
}
