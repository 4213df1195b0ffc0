//! A hash table that grows and shrinks in small steps.
//!
//! A table that doubles moves all its entries within one turn: with a million entries that takes a tenth of a second or
//! more. Here the entries are distributed over many tables, which grow one by one at different times. Each entry keeps
//! its hash, so that growing accesses nothing but the table.

use std::hash::Hash;

use hashbrown::{HashMap, HashTable};

/// Number of tables.
const TABLES: usize = 256;
/// Position of the hash bits that select the table: a table itself uses the lowest bits for buckets and the highest for
/// tags.
const SHIFT: u32 = 48;
/// A table shrinks when fewer than one in this many buckets are used.
const SPARSE: usize = 8;
/// Approximate overhead of an entry in bytes, including its share of the empty buckets.
pub const PLACE_BYTES: usize = 24;

/// Small values by the hash of their keys, which are stored elsewhere.
#[derive(Debug)]
pub struct Spread<T> {
    tables: Box<[HashTable<(u64, T)>]>,
    len: usize,
}

/// A map whose keys no client can choose.
pub type Map<K, V> = HashMap<K, V, crate::door::HashState>;

/// Shrinks a map that is mostly unused, if that frees enough.
pub fn give_back<K: Eq + Hash, V>(map: &mut Map<K, V>) {
    if map.capacity() > 1024 && map.len() < map.capacity() / SPARSE {
        map.shrink_to(2 * map.len());
    }
}

impl<T> Default for Spread<T> {
    fn default() -> Self {
        Spread { tables: (0..TABLES).map(|_| HashTable::new()).collect(), len: 0 }
    }
}

impl<T: Copy> Spread<T> {
    fn place(hash: u64) -> usize {
        (hash >> SHIFT) as usize % TABLES
    }

    /// The value with this hash for which `is` returns true.
    pub fn find(&self, hash: u64, mut is: impl FnMut(T) -> bool) -> Option<T> {
        self.tables[Self::place(hash)].find(hash, |(own, one)| *own == hash && is(*one)).map(|(_, one)| *one)
    }

    /// Adds a value; the caller ensures that it is not present.
    pub fn insert(&mut self, hash: u64, one: T) {
        self.len += 1;
        self.tables[Self::place(hash)].insert_unique(hash, (hash, one), |(hash, _)| *hash);
    }

    /// Removes the value with this hash for which `is` returns true.
    pub fn remove(&mut self, hash: u64, mut is: impl FnMut(T) -> bool) {
        let table = &mut self.tables[Self::place(hash)];
        if let Ok(found) = table.find_entry(hash, |(own, one)| *own == hash && is(*one)) {
            found.remove();
            self.len -= 1;
            if table.len() < table.num_buckets() / SPARSE {
                table.shrink_to(2 * table.len(), |(hash, _)| *hash);
            }
        }
    }

    /// The number of values.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// All values with their hashes.
    #[cfg(any(test, simulated))]
    pub fn iter(&self) -> impl Iterator<Item = (u64, T)> {
        // Most are empty in a simulated broker, which looks at all of them after each turn.
        self.tables.iter().filter(|table| !table.is_empty()).flat_map(HashTable::iter).copied()
    }

    /// Whether there are none.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

#[cfg(test)]
mod tests {
    use std::hash::BuildHasher as _;

    use super::*;

    #[test]
    fn a_value_is_found_until_it_is_removed() {
        let hasher = crate::door::HashState::default();
        let mut all = Spread::default();
        for one in 0..10_000_u32 {
            all.insert(hasher.hash_one(one), one);
        }
        all.insert(7, 1);
        all.insert(7, 2); // two keys may have the same hash
        assert_eq!(
            (all.len(), all.find(7, |at| at == 2), all.find(7, |at| at == 3)),
            (10_002, Some(2), None)
        );
        all.remove(7, |at| at == 1);
        all.remove(7, |at| at == 3);
        assert_eq!((all.find(7, |at| at == 1), all.find(7, |at| at == 2)), (None, Some(2)));
        all.remove(7, |at| at == 2);
        for one in 0..10_000_u32 {
            assert_eq!(all.find(hasher.hash_one(one), |at| at == one), Some(one));
            all.remove(hasher.hash_one(one), |at| at == one);
        }
        assert!(all.is_empty());
    }

    #[test]
    fn a_mostly_unused_table_shrinks() {
        let hasher = crate::door::HashState::default();
        let mut all = Spread::default();
        let places = |all: &Spread<u32>| all.tables.iter().map(HashTable::num_buckets).sum::<usize>();
        (0..100_000_u32).for_each(|one| all.insert(hasher.hash_one(one), one));
        (1000..100_000_u32).for_each(|one| all.remove(hasher.hash_one(one), |at| at == one));
        assert!((0..1000_u32).all(|one| all.find(hasher.hash_one(one), |at| at == one) == Some(one)));
        assert!(places(&all) <= SPARSE * 1000 + 8 * TABLES, "{}", places(&all));
        (0..1000_u32).for_each(|one| all.remove(hasher.hash_one(one), |at| at == one));
        assert!(places(&all) <= 8 * TABLES, "{}", places(&all));
    }

    #[test]
    fn an_insertion_moves_only_a_few_entries() {
        let hasher = crate::door::HashState::default();
        let mut all = Spread::default();
        for one in 0..200_000_u32 {
            let hash = hasher.hash_one(one);
            all.insert(hash, one);
            let moved = all.tables[Spread::<u32>::place(hash)].len();
            assert!(moved < 2000, "{moved} of {one}");
        }
    }
}
