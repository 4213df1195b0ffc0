//! A FIFO queue from which an item can be removed at any time by its place.

use std::collections::BTreeMap;

/// Approximate overhead of an item in bytes.
const PLACE_BYTES: usize = 16;

/// A FIFO queue. Places are never reused, so the place of a removed item refers to nothing.
#[derive(Debug)]
pub struct Line<T> {
    places: BTreeMap<u64, T>,
    last: u64,
}

impl<T> Default for Line<T> {
    fn default() -> Self {
        Line { places: BTreeMap::new(), last: 0 }
    }
}

impl<T> Line<T> {
    /// Adds an item at the end; returns its place.
    pub fn push(&mut self, one: T) -> u64 {
        self.push_behind(0, one)
    }

    /// Like `push`, with a place greater than `other`, a place in another line, so that the places of several lines
    /// give a common order.
    pub fn push_behind(&mut self, other: u64, one: T) -> u64 {
        self.last = self.last.max(other) + 1;
        self.places.insert(self.last, one);
        self.last
    }

    /// The first item and its place.
    pub fn first(&self) -> Option<(u64, &T)> {
        self.places.first_key_value().map(|(place, one)| (*place, one))
    }

    /// The item at a place.
    #[cfg(any(test, simulated))]
    pub fn at(&self, place: u64) -> Option<&T> {
        self.places.get(&place)
    }

    /// All items in order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.places.values()
    }

    /// Removes and returns the first item.
    pub fn pop(&mut self) -> Option<T> {
        self.places.pop_first().map(|(_, one)| one)
    }

    /// Removes the item at a place, if it is still there.
    pub fn leave(&mut self, place: u64) {
        self.places.remove(&place);
    }

    /// The number of items.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there are no items.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Approximate memory of one item in bytes.
    pub const fn bytes_of_one() -> usize {
        size_of::<T>() + PLACE_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_leave_in_order_or_by_their_place() {
        let mut line = Line::default();
        let places = ['a', 'b', 'c', 'd'].map(|one| line.push(one));
        line.leave(places[1]);
        assert_eq!((line.len(), line.pop()), (3, Some('a')));
        assert!(line.push('e') < line.push_behind(100, 'f') && line.push('g') == 102);
        line.leave(places[0]); // removed before
        assert_eq!((line.first(), line.iter().count()), (Some((places[2], &'c')), 5));
        assert_eq!(std::iter::from_fn(|| line.pop()).collect::<String>(), "cdefg");
        assert!(line.is_empty());
    }
}
