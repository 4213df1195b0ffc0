//! Those that wait in a line, first come first served; whoever knows its place may leave it at any time.

use std::collections::BTreeMap;

/// What the table has for each place beside its value, about.
const PLACE_BYTES: usize = 16;

/// A line. Places are never used again, so a place that was left means nothing any more.
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
    /// Adds one behind all others; returns its place.
    pub fn push(&mut self, one: T) -> u64 {
        self.push_behind(0, one)
    }

    /// The same behind a place of another line, too, so that places of several lines tell who came first.
    pub fn push_behind(&mut self, other: u64, one: T) -> u64 {
        self.last = self.last.max(other) + 1;
        self.places.insert(self.last, one);
        self.last
    }

    /// The first one, and its place.
    pub fn first(&self) -> Option<(u64, &T)> {
        self.places.first_key_value().map(|(place, one)| (*place, one))
    }

    /// All of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.places.values()
    }

    /// Takes the first one.
    pub fn pop(&mut self) -> Option<T> {
        self.places.pop_first().map(|(_, one)| one)
    }

    /// Takes one out of its place.
    pub fn leave(&mut self, place: u64) {
        self.places.remove(&place);
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// What one that waits occupies, about.
    pub const fn bytes_of_one() -> usize {
        size_of::<T>() + PLACE_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_go_in_order_and_leave_from_anywhere() {
        let mut line = Line::default();
        let places = ['a', 'b', 'c', 'd'].map(|one| line.push(one));
        line.leave(places[1]);
        assert_eq!((line.len(), line.pop()), (3, Some('a')));
        assert!(line.push('e') < line.push_behind(100, 'f') && line.push('g') == 102);
        line.leave(places[0]); // gone already
        assert_eq!((line.first(), line.iter().count()), (Some((places[2], &'c')), 5));
        assert_eq!(std::iter::from_fn(|| line.pop()).collect::<String>(), "cdefg");
        assert!(line.is_empty());
    }
}
