//! Patterns that are consumed at a home: each has one ring of its consumers, which all of its queues share.
//!
//! A queue keeps a reference to each pattern that matches it, not to each consumer. When a pattern comes or goes, the
//! generation changes; a queue compares what it knows with the patterns when it has something to deliver, or when the
//! sweep ([`super::home::Home::proceed`]) comes to it, whichever is first.

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

/// What a pattern occupies beside its text, in the tree above all, about.
const PATTERN_BYTES: usize = 512;

/// One pattern.
#[derive(Debug)]
pub(super) struct Pattern {
    text: Box<[u8]>,
    pub(super) consumers: u32,
    /// Consumers that may have credit, in turn. One that was found without has left it.
    pub(super) ring: VecDeque<ConsumerKey>,
    /// Queues that found no consumer in the ring.
    pub(super) out_of_credit: VecDeque<QueueKey>,
    /// It is to be looked at because there may be a consumer for the queues that found none.
    pub(super) unserved: bool,
}

/// All of them.
#[derive(Debug)]
pub(super) struct Patterns {
    all: Keyed<Pattern>,
    by_text: Spread<PatternKey>,
    hasher: foldhash::fast::RandomState,
    tree: Tree,
    /// Changes whenever a pattern comes or goes.
    pub(super) generation: u64,
    text_bytes: usize,
    found: Vec<u32>,
}

impl Default for Patterns {
    fn default() -> Self {
        Patterns {
            all: Keyed::default(),
            by_text: Spread::default(),
            hasher: foldhash::fast::RandomState::default(),
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

    /// A pattern by its text, added if necessary.
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

    /// The patterns that match a queue's name, sorted; `visited` grows by what was looked at.
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

    /// Bytes that patterns occupy, about; what queues keep of them is counted by their home.
    pub(super) fn held_bytes(&self) -> usize {
        PATTERN_BYTES * self.all.len() + 2 * self.text_bytes
    }
}

/// Whether a pattern may match a name at all: only its own kind, and dead-letter queues only when its own text begins
/// like theirs.
fn may_match(pattern: &[u8], name: &[u8]) -> bool {
    Kind::of(pattern, Compat::None) == Kind::of(name, Compat::None)
        && (!name.starts_with(DEAD_LETTERS) || pattern.starts_with(DEAD_LETTERS))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    #[test]
    fn a_pattern_is_known_once_and_gone_with_its_removal() {
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
