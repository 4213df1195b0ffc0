//! A double-ended queue that grows and shrinks page by page.
//!
//! A deque in a single block doubles and moves all its items within one turn: with a million messages that takes tens
//! of milliseconds, and twice the memory meanwhile. Here no step moves more than a page of items, even when an item is
//! removed from the middle, so that callers need not leave gaps there. A short deque, which is the usual case, is a
//! `VecDeque`.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::mem::{size_of, take};

/// Maximum size of a page: that many bytes are moved in a microsecond.
const PAGE_BYTES: usize = 32 << 10;
/// The list of pages never shrinks below this capacity.
const KEPT_PAGES: usize = 64;

/// Items in order, in pages of [`PagedDeque::PAGE`].
#[derive(Debug)]
pub enum PagedDeque<T> {
    /// At most one page.
    Short(VecDeque<T>),
    /// More than one page.
    Long(Box<Long<T>>),
}

/// The pages of a long deque.
#[derive(Debug)]
pub struct Long<T> {
    /// At least two, none of them empty.
    pages: VecDeque<VecDeque<T>>,
    len: usize,
}

impl<T> Default for PagedDeque<T> {
    fn default() -> Self {
        PagedDeque::Short(VecDeque::new())
    }
}

impl<T> PagedDeque<T> {
    /// Items per page: a power of two, so that a short deque reaches this size by doubling.
    pub const PAGE: usize = 1 << (PAGE_BYTES / size_of::<T>()).ilog2();

    /// The number of items.
    #[must_use]
    #[inline]
    pub fn len(&self) -> usize {
        match self {
            PagedDeque::Short(page) => page.len(),
            PagedDeque::Long(long) => long.len,
        }
    }

    /// Whether there are no items.
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        matches!(self, PagedDeque::Short(page) if page.is_empty())
    }

    /// The approximate capacity in items.
    #[must_use]
    #[inline]
    pub fn capacity(&self) -> usize {
        match self {
            PagedDeque::Short(page) => page.capacity(),
            PagedDeque::Long(long) => long.pages.len() * Self::PAGE,
        }
    }

    /// The item at this position. Requires that no item was ever removed by its key.
    pub fn get_mut(&mut self, at: usize) -> Option<&mut T> {
        match self {
            PagedDeque::Short(page) => page.get_mut(at),
            PagedDeque::Long(long) => {
                let (page, at) = Self::place_of(at, long.pages.front()?.len());
                long.pages.get_mut(page)?.get_mut(at)
            }
        }
    }

    /// The item at this position. Requires that no item was ever removed by its key.
    #[must_use]
    pub fn get(&self, at: usize) -> Option<&T> {
        match self {
            PagedDeque::Short(page) => page.get(at),
            PagedDeque::Long(long) => {
                let (page, at) = Self::place_of(at, long.pages.front()?.len());
                long.pages.get(page)?.get(at)
            }
        }
    }

    /// The page and the position in it, given that all pages except the first and the last are full.
    fn place_of(at: usize, in_first: usize) -> (usize, usize) {
        match at.checked_sub(in_first) {
            None => (0, at),
            Some(behind) => (1 + behind / Self::PAGE, behind % Self::PAGE),
        }
    }

    /// Adds an item at the end.
    #[inline]
    pub fn push_back(&mut self, item: T) {
        match self {
            PagedDeque::Short(page) if page.len() < Self::PAGE => page.push_back(item),
            PagedDeque::Long(long) if long.pages.back().is_some_and(|last| last.len() < Self::PAGE) => {
                long.len += 1;
                if let Some(last) = long.pages.back_mut() {
                    last.push_back(item);
                }
            }
            _ => self.push_back_on_new_page(item),
        }
    }

    #[inline(never)]
    fn push_back_on_new_page(&mut self, item: T) {
        match self {
            PagedDeque::Short(page) => {
                let pages = VecDeque::from([take(page), Self::page_of(item)]);
                *self = PagedDeque::Long(Box::new(Long { pages, len: Self::PAGE + 1 }));
            }
            PagedDeque::Long(long) => {
                long.len += 1;
                long.pages.push_back(Self::page_of(item));
            }
        }
    }

    #[cold]
    fn page_of(item: T) -> VecDeque<T> {
        let mut page = VecDeque::with_capacity(Self::PAGE);
        page.push_back(item);
        page
    }

    /// The first item.
    #[must_use]
    #[inline]
    pub fn front(&self) -> Option<&T> {
        match self {
            PagedDeque::Short(page) => page.front(),
            PagedDeque::Long(long) => long.pages.front()?.front(),
        }
    }

    /// The last item.
    #[must_use]
    #[inline]
    pub fn back(&self) -> Option<&T> {
        match self {
            PagedDeque::Short(page) => page.back(),
            PagedDeque::Long(long) => long.pages.back()?.back(),
        }
    }

    /// The last item, mutably.
    #[inline]
    pub fn back_mut(&mut self) -> Option<&mut T> {
        match self {
            PagedDeque::Short(page) => page.back_mut(),
            PagedDeque::Long(long) => long.pages.back_mut()?.back_mut(),
        }
    }

    /// Removes and returns the first item.
    #[inline]
    pub fn pop_front(&mut self) -> Option<T> {
        match self {
            PagedDeque::Short(page) => page.pop_front(),
            PagedDeque::Long(long) => {
                long.len -= 1;
                let first = long.pages.front_mut()?;
                let item = first.pop_front();
                if first.is_empty() {
                    self.drop_page(0);
                }
                item
            }
        }
    }

    /// Removes a page without items, and shrinks the list of pages if it is mostly unused.
    #[cold]
    fn drop_page(&mut self, at: usize) {
        let PagedDeque::Long(long) = self else { return };
        let pages = &mut long.pages;
        pages.remove(at);
        if pages.capacity() > KEPT_PAGES && pages.len() < pages.capacity() / 8 {
            pages.shrink_to(2 * pages.len());
        }
        if pages.len() == 1 {
            *self = PagedDeque::Short(pages.pop_front().unwrap_or_default());
        }
    }

    /// The page and the position in it of the item with this key. Items are sorted by `key_of`.
    fn find<K: Ord>(&self, key: &K, key_of: impl Fn(&T) -> K) -> Option<(usize, usize)> {
        self.find_by(|item| key_of(item).cmp(key))
    }

    /// The page and the position in it of the item that is sought: `compare` says where another one is, as seen from it.
    fn find_by(&self, compare: impl Fn(&T) -> Ordering) -> Option<(usize, usize)> {
        match self {
            PagedDeque::Short(page) => Some((0, page.binary_search_by(compare).ok()?)),
            PagedDeque::Long(long) => {
                let ends_before =
                    |page: &VecDeque<T>| page.back().is_some_and(|last| compare(last) == Ordering::Less);
                let at = long.pages.partition_point(ends_before);
                let page = long.pages.get(at)?;
                Some((at, page.binary_search_by(compare).ok()?))
            }
        }
    }

    /// The item that is sought: `compare` says where another one is, as seen from it. Items are sorted like this.
    pub fn get_by_mut(&mut self, compare: impl Fn(&T) -> Ordering) -> Option<&mut T> {
        let (page, at) = self.find_by(compare)?;
        match self {
            PagedDeque::Short(page) => page.get_mut(at),
            PagedDeque::Long(long) => long.pages.get_mut(page)?.get_mut(at),
        }
    }

    /// Whether there is an item with this key. Items are sorted by `key_of`.
    #[must_use]
    pub fn contains_key<K: Ord>(&self, key: &K, key_of: impl Fn(&T) -> K) -> bool {
        self.find(key, key_of).is_some()
    }

    /// The item with this key. Items are sorted by `key_of`.
    #[must_use]
    pub fn get_key<K: Ord>(&self, key: &K, key_of: impl Fn(&T) -> K) -> Option<&T> {
        let (page, at) = self.find(key, key_of)?;
        match self {
            PagedDeque::Short(page) => page.get(at),
            PagedDeque::Long(long) => long.pages.get(page)?.get(at),
        }
    }

    /// Removes and returns the item with this key. Items are sorted by `key_of`.
    pub fn remove_key<K: Ord>(&mut self, key: &K, key_of: impl Fn(&T) -> K) -> Option<T> {
        self.remove_by(|item| key_of(item).cmp(key))
    }

    /// Removes and returns the item that is sought: `compare` says where another one is, as seen from it. Items are sorted like
    /// this.
    pub fn remove_by(&mut self, compare: impl Fn(&T) -> Ordering) -> Option<T> {
        let (page, at) = self.find_by(compare)?;
        match self {
            PagedDeque::Short(page) => page.remove(at),
            PagedDeque::Long(long) => {
                long.len -= 1;
                let item = long.pages[page].remove(at);
                self.merge_pages(page);
                item
            }
        }
    }

    /// Called after an item was removed from this page: merges it with a neighbour if both are mostly unused.
    fn merge_pages(&mut self, at: usize) {
        let PagedDeque::Long(long) = self else { return };
        let pages = &mut long.pages;
        if pages[at].is_empty() {
            return self.drop_page(at);
        }
        let fit = |first: usize| pages[first].len() + pages[first + 1].len() <= Self::PAGE / 2;
        let mut neighbours = at.saturating_sub(1)..(at + 1).min(pages.len() - 1);
        let Some(first) = neighbours.find(|first| fit(*first)) else { return };
        let mut next = take(&mut pages[first + 1]);
        pages[first].append(&mut next);
        self.drop_page(first + 1);
    }

    fn pages(&self) -> (&[VecDeque<T>], &[VecDeque<T>]) {
        match self {
            PagedDeque::Short(page) => (std::slice::from_ref(page), &[]),
            PagedDeque::Long(long) => long.pages.as_slices(),
        }
    }

    /// All items in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &T> {
        let (first, second) = self.pages();
        first.iter().chain(second).flatten()
    }

    /// Frees unused capacity of a short deque.
    pub fn shrink(&mut self) {
        if let PagedDeque::Short(page) = self {
            page.shrink_to_fit();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;
    use proptest::sample::Index;

    use super::*;

    /// A large item, so that a page holds few.
    #[derive(Debug)]
    struct Wide {
        key: u64,
        _rest: [u64; 511],
    }

    type Wides = PagedDeque<Wide>;

    fn wide(key: u64) -> Wide {
        Wide { key, _rest: [0; 511] }
    }

    fn key_of(item: &Wide) -> u64 {
        item.key
    }

    /// The address of each item.
    fn places(items: &Wides) -> HashMap<u64, *const Wide> {
        items.iter().map(|item| (item.key, &raw const *item)).collect()
    }

    /// The number of remaining items that have moved.
    fn moved(before: &HashMap<u64, *const Wide>, items: &Wides) -> usize {
        items
            .iter()
            .filter(|item| before.get(&item.key).is_some_and(|place| *place != &raw const **item))
            .count()
    }

    #[test]
    fn an_empty_deque_is_no_larger_than_a_vecdeque() {
        assert_eq!(size_of::<PagedDeque<[u64; 11]>>(), size_of::<VecDeque<[u64; 11]>>());
        assert_eq!((Wides::PAGE, PagedDeque::<[u64; 11]>::PAGE, PagedDeque::<u64>::PAGE), (8, 256, 4096));
        assert_eq!(Wides::default().capacity(), 0);
    }

    #[test]
    fn a_short_deque_has_a_small_capacity() {
        let mut items = PagedDeque::default();
        items.push_back([0_u64; 11]);
        assert!(items.capacity() <= 4);
        assert!(items.pop_front().is_some() && items.is_empty());
        items.shrink();
        assert_eq!(items.capacity(), 0);
    }

    #[test]
    fn no_step_moves_more_than_a_page_of_items() {
        let mut items = Wides::default();
        for key in 0..50 * Wides::PAGE as u64 {
            let before = places(&items);
            items.push_back(wide(key));
            assert!(moved(&before, &items) <= Wides::PAGE);
        }
        for round in 0..40 * Wides::PAGE as u64 {
            let before = places(&items);
            let taken = match round % 4 {
                0 | 1 => items.pop_front(),
                _ => items.remove_key(&(round * 7919 % 400), key_of).or_else(|| items.pop_front()),
            };
            assert!(taken.is_some() && moved(&before, &items) <= Wides::PAGE);
        }
    }

    #[test]
    fn empty_pages_are_freed() {
        let count = 1000 * Wides::PAGE as u64;
        let mut items = Wides::default();
        (0..count).for_each(|key| items.push_back(wide(key)));
        (0..count).filter(|key| key % 100 != 0).for_each(|key| _ = items.remove_key(&key, key_of));
        assert_eq!(items.len(), count as usize / 100);
        assert!(items.capacity() <= 4 * items.len() + 2 * Wides::PAGE, "{}", items.capacity());
        while items.len() > 1 {
            items.pop_front();
        }
        assert!(matches!(items, PagedDeque::Short(_)) && items.capacity() <= Wides::PAGE);
    }

    proptest! {
        /// Compared with a `VecDeque`: the same items in the same order, and no mostly unused pages.
        #[test]
        fn it_behaves_like_a_vecdeque(
            steps in prop::collection::vec((0_u8..8, any::<Index>()), 1..1500),
            pushes in 1_u8..8,
            is_fifo in any::<bool>(),
        ) {
            let (mut items, mut model) = (Wides::default(), VecDeque::new());
            for (key, (which, index)) in (0_u64..).zip(steps) {
                let before = places(&items);
                let pages_are_full = is_fifo && !model.is_empty();
                if pages_are_full {
                    let at = index.index(model.len());
                    prop_assert_eq!(items.get(at).map(key_of), model.get(at).copied());
                    prop_assert_eq!(items.get_mut(at).map(|item| item.key), model.get(at).copied());
                    prop_assert!(items.get(model.len()).is_none() && items.get_mut(model.len()).is_none());
                }
                if which < pushes || model.is_empty() {
                    items.push_back(wide(2 * key));
                    model.push_back(2 * key);
                } else if which % 3 == 0 || is_fifo {
                    prop_assert_eq!(items.pop_front().map(|item| item.key), model.pop_front());
                } else {
                    let key = model.remove(index.index(model.len())).expect("an item");
                    prop_assert!(items.contains_key(&key, key_of) && !items.contains_key(&(key + 1), key_of));
                    prop_assert_eq!(items.remove_key(&key, key_of).map(|item| item.key), Some(key));
                    prop_assert!(items.remove_key(&key, key_of).is_none());
                }
                prop_assert!(moved(&before, &items) <= Wides::PAGE);
                prop_assert_eq!((items.len(), items.is_empty()), (model.len(), model.is_empty()));
                prop_assert_eq!(items.front().map(key_of), model.front().copied());
                prop_assert_eq!(items.back().map(key_of), model.back().copied());
                prop_assert!(items.capacity() <= 4 * items.len() + 4 * Wides::PAGE);
            }
            prop_assert!(items.iter().map(key_of).eq(model.iter().copied()));
            prop_assert!(items.iter().rev().map(key_of).eq(model.into_iter().rev()));
        }
    }
}
