//! A slab whose keys are guarded against reuse: a late event never reaches a slot's next owner.

use crate::collections::paged::Paged;

/// Names an item: slot and generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// The slot.
    pub index: u32,
    /// How many items were added before.
    pub generation: u32,
}

/// Whether an item of this generation was there when `newest` was the newest one; both count beyond the end of a `u32`.
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
    /// Adds an item and names it.
    pub fn insert(&mut self, item: T) -> Key {
        self.generation = self.generation.wrapping_add(1);
        let index = self.slots.insert((self.generation, item)) as u32;
        Key { index, generation: self.generation }
    }

    /// The item, unless it is gone.
    #[must_use]
    pub fn get(&self, key: Key) -> Option<&T> {
        self.slots.get(key.index as usize).filter(|slot| slot.0 == key.generation).map(|slot| &slot.1)
    }

    /// The item, unless it is gone.
    pub fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        self.slots.get_mut(key.index as usize).filter(|slot| slot.0 == key.generation).map(|slot| &mut slot.1)
    }

    /// Takes the item out, unless it is gone.
    pub fn remove(&mut self, key: Key) -> Option<T> {
        self.get(key)?;
        Some(self.slots.remove(key.index as usize).1)
    }

    /// The key of the item in a slot.
    #[must_use]
    pub fn key_at(&self, index: usize) -> Option<Key> {
        self.slots.get(index).map(|slot| Key { index: index as u32, generation: slot.0 })
    }

    /// Tells items that are here from those that come later: an item's generation is at most this, in the sense of
    /// [`was_there`].
    #[must_use]
    pub fn newest(&self) -> u32 {
        self.generation
    }

    /// Slots, free ones included.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.slots.slots()
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// All of them with their keys.
    pub fn iter(&self) -> impl Iterator<Item = (Key, &T)> {
        self.slots.iter().map(|(index, slot)| (Key { index: index as u32, generation: slot.0 }, &slot.1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_does_not_reach_the_slot_s_next_owner() {
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
