//! Patterns with consumers at a home: each has one ring of consumers, which all matching queues share.
//!
//! A queue has a reference to each matching pattern, not to each consumer. When a pattern is added or removed, the
//! generation changes. A queue updates its references when it has a message to deliver, or when the sweep
//! ([`super::home::Home::proceed`]) reaches it.

use std::collections::VecDeque;
use std::hash::BuildHasher as _;

use super::types::Rules;
use crate::collections::keyed::Keyed;
use crate::collections::spread::Spread;
use crate::config::Compat;
use crate::destination::Kind;
use crate::destination::tree::Tree;
use crate::ids::{ConsumerKey, PatternKey, QueueKey};
use crate::message::DEAD_LETTERS;

/// The approximate memory of a pattern besides its text, most of it in the tree.
pub(super) const PATTERN_BYTES: usize = 512;

/// One pattern.
#[derive(Debug)]
pub(super) struct Pattern {
    pub(super) text: Box<[u8]>,
    pub(super) consumers: u32,
    /// Consumers that may have credit, in turn. A consumer that was found without credit is not in it.
    pub(super) ring: VecDeque<ConsumerKey>,
    /// Queues that found no consumer in the ring.
    pub(super) out_of_credit: VecDeque<QueueKey>,
    /// Its queues have to be checked again, because there may be a consumer for them now.
    pub(super) unserved: bool,
}

/// All patterns of a home.
#[derive(Debug)]
pub(super) struct Patterns {
    pub(super) all: Keyed<Pattern>,
    pub(super) by_text: Spread<PatternKey>,
    hasher: crate::door::HashState,
    tree: Tree,
    /// It changes whenever a pattern is added or removed.
    pub(super) generation: u64,
    pub(super) text_bytes: usize,
    found: Vec<u32>,
}

impl Default for Patterns {
    fn default() -> Self {
        Patterns {
            all: Keyed::default(),
            by_text: Spread::default(),
            hasher: crate::door::HashState::default(),
            tree: Tree::default(),
            generation: 1,
            text_bytes: 0,
            found: Vec::new(),
        }
    }
}

impl Patterns {
    pub(super) fn is_empty(&self) -> bool {
        self.all.len() == 0
    }

    pub(super) fn get(&self, key: PatternKey) -> Option<&Pattern> {
        self.all.get(key)
    }

    pub(super) fn get_mut(&mut self, key: PatternKey) -> Option<&mut Pattern> {
        self.all.get_mut(key)
    }

    /// The key of a pattern, which is added if necessary.
    pub(super) fn add(&mut self, text: &[u8], rules: &Rules) -> PatternKey {
        let hash = self.hasher.hash_one(text);
        let named = |key: PatternKey| self.all.get(key).is_some_and(|pattern| *pattern.text == *text);
        if let Some(key) = self.by_text.find(hash, named) {
            return key;
        }
        let key = self.all.insert(Pattern {
            text: text.into(),
            consumers: 0,
            ring: VecDeque::new(),
            out_of_credit: VecDeque::new(),
            unserved: false,
        });
        self.by_text.insert(hash, key);
        if let Ok(Some(parsed)) = rules.parse(text) {
            self.tree.insert(&parsed, key.index);
        }
        self.text_bytes += text.len();
        self.generation += 1;
        key
    }

    /// Removes a pattern without consumers.
    pub(super) fn remove(&mut self, key: PatternKey, rules: &Rules) {
        let Some(pattern) = self.all.remove(key) else { return };
        let hash = self.hasher.hash_one(&*pattern.text);
        self.by_text.remove(hash, |at| at == key);
        if let Ok(Some(parsed)) = rules.parse(&pattern.text) {
            self.tree.remove(&parsed, key.index);
        }
        self.text_bytes -= pattern.text.len();
        self.generation += 1;
    }

    /// The patterns that match a queue's name, sorted; `visited` grows by the number of visited nodes.
    pub(super) fn matching(&mut self, name: &[u8], visited: &mut usize) -> Vec<PatternKey> {
        if self.is_empty() {
            return Vec::new();
        }
        self.found.clear();
        *visited += self.tree.matching(name, &mut self.found);
        let all = &self.all;
        let keys = self.found.iter().filter_map(|index| {
            let key = all.key_at(*index as usize)?;
            all.get(key).filter(|pattern| may_match(&pattern.text, name)).map(|_| key)
        });
        let mut keys: Vec<PatternKey> = keys.collect();
        keys.sort_unstable();
        keys
    }

    /// The approximate memory of the patterns in bytes; the home counts the references of queues.
    pub(super) fn held_bytes(&self) -> usize {
        PATTERN_BYTES * self.all.len() + 2 * self.text_bytes
    }
}

/// Whether a pattern may match a name: it must be of the same kind, and it matches dead-letter queues only if its own
/// text begins with their prefix.
fn may_match(pattern: &[u8], name: &[u8]) -> bool {
    Kind::of(pattern, Compat::None) == Kind::of(name, Compat::None)
        && (!name.starts_with(DEAD_LETTERS) || pattern.starts_with(DEAD_LETTERS))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    #[test]
    fn a_pattern_is_added_once_and_removed_at_once() {
        let rules = Rules::of(&Config::default());
        let mut patterns = Patterns::default();
        let first = patterns.add(b"/queue/*", &rules);
        let before = patterns.generation;
        assert_eq!((patterns.add(b"/queue/*", &rules), patterns.generation), (first, before));
        let dead = patterns.add(b"/queue/dlq/>", &rules);
        let mut visited = 0;
        assert_eq!(patterns.matching(b"/queue/a", &mut visited), [first]);
        assert!(visited > 0);
        assert_eq!(
            patterns.matching(b"/queue/dlq/a", &mut visited),
            [dead],
            "dead letters are not for everybody"
        );
        assert!(patterns.held_bytes() > 0);
        patterns.remove(first, &rules);
        patterns.remove(dead, &rules);
        assert!(patterns.is_empty() && patterns.matching(b"/queue/a", &mut visited).is_empty());
        assert!(patterns.by_text.is_empty() && patterns.held_bytes() == 0);
        assert_ne!(patterns.add(b"/queue/*", &rules), first, "a key is not used again");
    }
}
