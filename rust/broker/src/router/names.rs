//! The names that messages or subscriptions have used, with their properties. Names without subscriptions are
//! forgotten, the oldest first, once they use more than their share of memory. Only [`Names::trim`] forgets names; its
//! owner calls it between turns. The key of a forgotten name finds nothing.
//!
//! ```text
//! unsubscribed, or matched by many patterns ──► line ──trim──► forgotten, or without its matches
//! ```
//! Invariant: a name with [`Name::evictable_bytes`] is in the line once.

use std::collections::VecDeque;
use std::hash::BuildHasher as _;
use std::sync::Arc;

use smallvec::SmallVec;

#[cfg(any(test, simulated))]
use crate::audit::Audit;
use crate::collections::keyed::{Key, Keyed};
use crate::collections::spread::{PLACE_BYTES, Spread};
use crate::destination::Kind;
use crate::destination::tree::FilterIndex;
use crate::ids::QueueKey;
use crate::ids::ShardId;
use crate::text::{BLOCK_BYTES, Text};

/// A name and its properties.
#[derive(Debug)]
pub(super) struct Name {
    /// Shared with its filter and with other shards; it counts itself.
    text: Arc<Text>,
    pub(super) kind: Kind,
    pub(super) home: ShardId,
    pub(super) is_recorded: bool,
    /// Its queue, if this shard was its home at the last look-up.
    pub(super) queue: Option<QueueKey>,
    /// The filter of the subscriptions to this name itself.
    pub(super) exact: Option<FilterIndex>,
    /// The filters of the matching patterns, as of `generation`.
    pub(super) wild: SmallVec<[FilterIndex; 2]>,
    /// The generation of the patterns; [`Name::UNRESOLVED`]: `wild` is not known.
    pub(super) generation: u64,
    is_in_line: bool,
    counted: usize,
}

impl Name {
    pub(super) const UNRESOLVED: u64 = u64::MAX;

    pub(super) fn text(&self) -> &Arc<Text> {
        &self.text
    }

    fn wild_bytes(&self) -> usize {
        if self.wild.spilled() { self.wild.capacity() * size_of::<FilterIndex>() + BLOCK_BYTES } else { 0 }
    }

    /// The memory that is freed when it is forgotten.
    fn evictable_bytes(&self) -> usize {
        match self.exact {
            Some(_) => self.wild_bytes(),
            None => SLOT_BYTES + self.text.len() + self.wild_bytes(),
        }
    }
}

/// An item in the slab, in the table and in the line; the counters and the block of the text.
const SLOT_BYTES: usize =
    size_of::<Name>() + 16 + 2 * size_of::<Key>() + PLACE_BYTES + TEXT_BYTES + 2 * BLOCK_BYTES;
/// The additional memory of an `Arc` of a text.
const TEXT_BYTES: usize = size_of::<Text>() + 2 * size_of::<usize>();

/// Names by their text.
#[derive(Debug)]
pub(super) struct Names {
    hasher: crate::door::HashState,
    table: Spread<Key>,
    known: Keyed<Name>,
    line: VecDeque<Key>,
    /// The sum of [`Name::evictable_bytes`] of all names.
    evictable: usize,
    /// The memory of the matching patterns of all names.
    wild_bytes: usize,
    unsubscribed: usize,
}

impl Names {
    pub(super) fn new(hasher: crate::door::HashState) -> Self {
        Names {
            hasher,
            table: Spread::default(),
            known: Keyed::default(),
            line: VecDeque::new(),
            evictable: 0,
            wild_bytes: 0,
            unsubscribed: 0,
        }
    }

    pub(super) fn hash(&self, text: &[u8]) -> u64 {
        self.hasher.hash_one(text)
    }

    pub(super) fn find(&self, hash: u64, text: &[u8]) -> Option<Key> {
        self.table.find(hash, |at| self.known.get(at).is_some_and(|name| name.text[..] == *text))
    }

    /// Adds a new name.
    pub(super) fn add(
        &mut self,
        hash: u64,
        text: Arc<Text>,
        (kind, is_recorded): (Kind, bool),
        home: ShardId,
    ) -> Key {
        let key = self.known.insert(Name {
            text,
            kind,
            home,
            is_recorded,
            queue: None,
            exact: None,
            wild: SmallVec::new(),
            generation: Name::UNRESOLVED,
            is_in_line: false,
            counted: 0,
        });
        self.table.insert(hash, key);
        self.unsubscribed += 1;
        self.count(key);
        key
    }

    pub(super) fn get(&self, key: Key) -> Option<&Name> {
        self.known.get(key)
    }

    pub(super) fn get_mut(&mut self, key: Key) -> Option<&mut Name> {
        self.known.get_mut(key)
    }

    /// Records the filter of a name's own subscriptions, or that there is none any more.
    pub(super) fn set_exact(&mut self, key: Key, filter: Option<FilterIndex>) {
        let Some(name) = self.known.get_mut(key) else { return };
        self.unsubscribed += usize::from(filter.is_none());
        self.unsubscribed -= usize::from(name.exact.is_none());
        name.exact = filter;
        self.count(key);
    }

    /// Records the patterns that match a name.
    pub(super) fn set_wild(&mut self, key: Key, found: &[FilterIndex], generation: u64) {
        let Some(name) = self.known.get_mut(key) else { return };
        self.wild_bytes -= name.wild_bytes();
        name.wild.clear();
        name.wild.extend_from_slice(found);
        name.wild.shrink_to_fit();
        name.generation = generation;
        self.wild_bytes += name.wild_bytes();
        self.count(key);
    }

    fn count(&mut self, key: Key) {
        let Some(name) = self.known.get_mut(key) else { return };
        let bytes = name.evictable_bytes();
        self.evictable = self.evictable + bytes - name.counted;
        name.counted = bytes;
        if bytes > 0 && !name.is_in_line {
            name.is_in_line = true;
            self.line.push_back(key);
        }
    }

    /// Whether evictable names use more memory than `bytes_max`.
    pub(super) fn is_over(&self, bytes_max: usize) -> bool {
        self.evictable > bytes_max
    }

    /// Forgets names until they use at most `bytes_max`, the oldest first; visits at most `steps` names.
    pub(super) fn trim(&mut self, bytes_max: usize, steps: usize) {
        for _ in 0..steps {
            if self.evictable <= bytes_max {
                return;
            }
            let Some(key) = self.line.pop_front() else { return };
            let Some(name) = self.known.get_mut(key) else { continue };
            name.is_in_line = false;
            if name.exact.is_some() {
                self.set_wild(key, &[], Name::UNRESOLVED);
            } else {
                self.forget(key);
            }
        }
    }

    fn forget(&mut self, key: Key) {
        let Some(name) = self.known.remove(key) else { return };
        let hash = self.hasher.hash_one(&name.text[..]);
        self.table.remove(hash, |at| at == key);
        self.evictable -= name.counted;
        self.wild_bytes -= name.wild_bytes();
        self.unsubscribed -= 1;
    }

    /// The number of names without subscriptions.
    pub(super) fn unsubscribed(&self) -> usize {
        self.unsubscribed
    }

    /// Visits all names.
    #[cfg(any(test, simulated))]
    pub(super) fn audit(&self, audit: &mut Audit) {
        let (mut evictable, mut wild_bytes, mut unsubscribed, mut in_line) = (0, 0, 0, 0);
        for (key, name) in self.known.iter() {
            audit.shared_text(&name.text);
            evictable += name.evictable_bytes();
            wild_bytes += name.wild_bytes();
            unsubscribed += usize::from(name.exact.is_none());
            let found = self.find(self.hash(&name.text), &name.text);
            audit.require(found == Some(key), || format!("the name {:?} is not found", name.text));
            in_line += usize::from(name.is_in_line);
        }
        let listed = self.line.iter().filter(|key| self.known.get(**key).is_some_and(|name| name.is_in_line));
        audit.equal("names in the line", listed.count(), in_line);
        audit.equal("names in the table", self.table.len(), self.known.len());
        audit.equal("bytes of names that can be forgotten", self.evictable, evictable);
        audit.equal("bytes of matches of names", self.wild_bytes, wild_bytes);
        audit.equal("names without subscriptions", self.unsubscribed, unsubscribed);
    }

    /// The memory of all names in bytes, with or without subscriptions, without their texts.
    pub(super) fn held_bytes(&self) -> usize {
        self.known.len() * SLOT_BYTES + self.wild_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Names {
        Names::new(crate::door::HashState::default())
    }

    fn add(names: &mut Names, text: &str) -> Key {
        let hash = names.hash(text.as_bytes());
        names.add(hash, Arc::new(text.as_bytes().into()), (Kind::Topic, false), ShardId(0))
    }

    fn find(names: &Names, text: &str) -> Option<Key> {
        names.find(names.hash(text.as_bytes()), text.as_bytes())
    }

    #[test]
    fn the_oldest_names_are_forgotten_first_and_their_keys_find_nothing() {
        let mut names = names();
        let keys: Vec<Key> = (0..10).map(|at| add(&mut names, &format!("/t/{at}"))).collect();
        let one = names.evictable / 10;
        names.trim(one * 4, 100);
        assert_eq!(names.unsubscribed(), 4);
        assert!(keys[..6].iter().all(|key| names.get(*key).is_none()));
        assert!(keys[6..].iter().all(|key| names.get(*key).is_some()));
        assert_eq!((find(&names, "/t/0"), find(&names, "/t/9")), (None, Some(keys[9])));
        let again = add(&mut names, "/t/0");
        assert_ne!(again, keys[0]);
        assert!(names.get(keys[0]).is_none());
    }

    #[test]
    fn one_call_visits_at_most_the_given_number_of_names() {
        let mut names = names();
        (0..100).for_each(|at| _ = add(&mut names, &format!("/t/{at}")));
        names.trim(0, 30);
        assert_eq!(names.unsubscribed(), 70);
        names.trim(0, 100);
        assert_eq!((names.unsubscribed(), names.evictable, names.held_bytes()), (0, 0, 0));
    }

    #[test]
    fn a_long_name_counts_as_much_as_many_short_ones() {
        let mut names = names();
        add(&mut names, &"x".repeat(10_000));
        (0..20).for_each(|at| _ = add(&mut names, &format!("/t/{at}")));
        names.trim(10_000, 100);
        assert_eq!(names.unsubscribed(), 20);
    }

    #[test]
    fn a_name_with_subscriptions_stays() {
        let mut names = names();
        let kept = add(&mut names, "/t/kept");
        names.set_exact(kept, Some(7));
        let gone = add(&mut names, "/t/gone");
        assert_eq!(names.unsubscribed(), 1);
        names.trim(0, 100);
        assert!(names.get(kept).is_some() && names.get(gone).is_none());
        names.set_exact(kept, None);
        names.trim(0, 100);
        assert!(names.get(kept).is_none());
    }

    #[test]
    fn a_name_whose_subscriptions_change_is_in_the_line_once() {
        let mut names = names();
        let key = add(&mut names, "/t/a");
        for _ in 0..100 {
            names.set_exact(key, Some(1));
            names.set_exact(key, None);
        }
        assert_eq!(names.line.len(), 1);
    }

    #[test]
    fn the_matches_of_a_subscribed_name_are_forgotten_without_the_name() {
        let mut names = names();
        let key = add(&mut names, "/t/a");
        names.set_exact(key, Some(1));
        assert_eq!(names.evictable, 0);
        names.set_wild(key, &(0..1000).collect::<Vec<_>>(), 3);
        assert!(names.evictable >= 4000);
        names.trim(0, 100);
        let name = names.get(key).expect("a name with a subscription");
        assert_eq!((names.evictable, name.generation, name.wild.len()), (0, Name::UNRESOLVED, 0));
    }

    #[test]
    fn matches_count_as_memory_until_they_are_forgotten() {
        let mut names = names();
        let key = add(&mut names, "/t/a");
        let alone = names.held_bytes();
        names.set_wild(key, &(0..1000).collect::<Vec<_>>(), 3);
        assert!((4000..4100).contains(&(names.held_bytes() - alone)));
        names.set_wild(key, &[1, 2], 4);
        assert_eq!(names.held_bytes(), alone);
    }
}
