//! A slab whose keys are guarded against reuse: a late event never reaches a slot's next owner.

use crate::collections::paged::Paged;

/// Identifies an item by slot and generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// The slot.
    pub index: u32,
    /// The number of the item in order of insertion, modulo 2^32.
    pub generation: u32,
}

/// Whether an item of this generation had been inserted when `newest` was the latest generation; both may wrap around.
#[must_use]
pub fn was_there(generation: u32, newest: u32) -> bool {
    newest.wrapping_sub(generation) < u32::MAX / 2
}

/// Items by [`Key`].
#[derive(Debug)]
pub struct Keyed<T> {
    slots: Paged<(u32, T)>,
    generation: u32,
}

impl<T> Default for Keyed<T> {
    fn default() -> Self {
        Keyed { slots: Paged::default(), generation: 0 }
    }
}

impl<T> Keyed<T> {
    /// Adds an item and returns its key.
    pub fn insert(&mut self, item: T) -> Key {
        self.generation = self.generation.wrapping_add(1);
        let index = self.slots.insert((self.generation, item)) as u32;
        Key { index, generation: self.generation }
    }

    /// The item, unless it was removed.
    #[must_use]
    pub fn get(&self, key: Key) -> Option<&T> {
        self.slots.get(key.index as usize).filter(|slot| slot.0 == key.generation).map(|slot| &slot.1)
    }

    /// The item, unless it was removed.
    pub fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        self.slots.get_mut(key.index as usize).filter(|slot| slot.0 == key.generation).map(|slot| &mut slot.1)
    }

    /// Removes and returns the item, unless it was removed before.
    pub fn remove(&mut self, key: Key) -> Option<T> {
        self.get(key)?;
        Some(self.slots.remove(key.index as usize).1)
    }

    /// The key of the item in a slot.
    #[must_use]
    pub fn key_at(&self, index: usize) -> Option<Key> {
        self.slots.get(index).map(|slot| Key { index: index as u32, generation: slot.0 })
    }

    /// The latest generation: with [`was_there`] it separates present items from later ones.
    #[must_use]
    pub fn newest(&self) -> u32 {
        self.generation
    }

    /// The number of slots, including free ones.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.slots.slots()
    }

    /// The number of items.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// All items with their keys.
    pub fn iter(&self) -> impl Iterator<Item = (Key, &T)> {
        self.slots.iter().map(|(index, slot)| (Key { index: index as u32, generation: slot.0 }, &slot.1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_key_does_not_find_the_slot_s_next_item() {
        let mut items = Keyed::default();
        let first = items.insert('a');
        assert_eq!(items.get(first), Some(&'a'));
        assert_eq!(items.remove(first), Some('a'));
        assert_eq!(items.get(first), None);
        let second = items.insert('b');
        assert_eq!((first.index, items.get(first)), (second.index, None));
        assert_eq!(items.remove(first), None);
        assert_eq!((items.get(second), items.len()), (Some(&'b'), 1));
    }
}
