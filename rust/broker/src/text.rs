//! Names, ids and other bytes that clients choose and the broker keeps. They count themselves towards `memory_limit`.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::hash::{Hash, Hasher};
use std::ops::Deref;

use crate::held;

/// Approximate overhead of the allocator per block.
pub const BLOCK_BYTES: usize = 16;

/// Counts the memory of its owner as held while it exists, on the threads that create and drop it.
#[derive(Debug)]
pub struct Weight(usize);

impl Weight {
    /// Counts this many bytes plus the allocator's overhead.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        let weight = Weight(bytes + BLOCK_BYTES);
        held::add(i64::try_from(weight.0).unwrap_or(i64::MAX));
        weight
    }

    /// How many bytes it counts.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.0
    }

    /// Counts a value that is allocated by itself.
    #[must_use]
    pub fn of<T>() -> Self {
        Weight::new(size_of::<T>())
    }
}

impl Drop for Weight {
    fn drop(&mut self) {
        held::add(-i64::try_from(self.0).unwrap_or(i64::MAX));
    }
}

/// Bytes that count themselves as held.
#[derive(Debug)]
pub struct Text {
    bytes: Box<[u8]>,
    _weight: Weight,
}

impl From<Box<[u8]>> for Text {
    fn from(bytes: Box<[u8]>) -> Self {
        let weight = Weight::new(bytes.len());
        Text { bytes, _weight: weight }
    }
}

impl Text {
    /// What it counts as held.
    #[cfg(any(test, simulated))]
    pub fn weight(&self) -> &Weight {
        &self._weight
    }
}

impl From<Vec<u8>> for Text {
    fn from(bytes: Vec<u8>) -> Self {
        bytes.into_boxed_slice().into()
    }
}

impl From<&[u8]> for Text {
    fn from(bytes: &[u8]) -> Self {
        Box::<[u8]>::from(bytes).into()
    }
}

impl Clone for Text {
    fn clone(&self) -> Self {
        self.bytes.clone().into()
    }
}

impl Default for Text {
    fn default() -> Self {
        Box::<[u8]>::default().into()
    }
}

impl Borrow<[u8]> for Text {
    fn borrow(&self) -> &[u8] {
        &self.bytes
    }
}

impl PartialEq for Text {
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes
    }
}

impl Eq for Text {}

impl PartialOrd for Text {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Text {
    fn cmp(&self, other: &Self) -> Ordering {
        self.bytes.cmp(&other.bytes)
    }
}

impl Hash for Text {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.bytes.hash(state); // the same hash as the borrowed bytes
    }
}

impl Deref for Text {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_copy_of_a_text_is_counted_until_it_is_dropped() {
        let before = held::bytes();
        let text = Text::from(&[b'x'; 1000][..]);
        assert_eq!(held::bytes() - before, 1000 + BLOCK_BYTES as i64);
        let copy = text.clone();
        assert_eq!(held::bytes() - before, 2 * (1000 + BLOCK_BYTES as i64));
        assert_eq!(*text, *copy);
        drop((text, copy));
        assert_eq!(held::bytes(), before);
    }
}
