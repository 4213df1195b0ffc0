//! Names, ids and other bytes that clients choose and the broker keeps: they count themselves as held.

use std::borrow::Borrow;
use std::cell::Cell;
use std::cmp::Ordering;
use std::hash::{Hash, Hasher};
use std::ops::Deref;

thread_local! {
    /// Bytes of texts made on this thread minus those dropped on it; as with messages, only the sum over all shards
    /// means something.
    static HELD: Cell<i64> = const { Cell::new(0) };
}

/// Bytes that texts made on this thread hold, less those that were dropped on it.
#[must_use]
pub fn held_bytes() -> i64 {
    HELD.get()
}

/// What the allocator adds to a block, about.
pub const BLOCK_BYTES: usize = 16;

/// Counts as held, on the thread that makes or drops it, what its owner occupies.
#[derive(Debug)]
pub struct Weight(usize);

impl Weight {
    /// Counts this many bytes and what the allocator adds.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        let weight = Weight(bytes + BLOCK_BYTES);
        HELD.set(HELD.get() + i64::try_from(weight.0).unwrap_or(i64::MAX));
        weight
    }

    /// How many bytes it counts.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.0
    }

    /// Counts a value in a block of its own.
    #[must_use]
    pub fn of<T>() -> Self {
        Weight::new(size_of::<T>())
    }
}

impl Drop for Weight {
    fn drop(&mut self) {
        HELD.set(HELD.get() - i64::try_from(self.0).unwrap_or(i64::MAX));
    }
}

/// Bytes that count themselves.
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
        self.bytes.hash(state); // as of the borrowed bytes
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
    fn a_text_counts_as_long_as_it_lives_and_each_copy_for_itself() {
        let before = held_bytes();
        let text = Text::from(&[b'x'; 1000][..]);
        assert_eq!(held_bytes() - before, 1000 + BLOCK_BYTES as i64);
        let copy = text.clone();
        assert_eq!(held_bytes() - before, 2 * (1000 + BLOCK_BYTES as i64));
        assert_eq!(*text, *copy);
        drop((text, copy));
        assert_eq!(held_bytes(), before);
    }
}
