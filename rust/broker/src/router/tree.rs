//! The tree of wildcard patterns: which patterns match a name, in time that does not grow with their number.
//!
//! One node per literal or `*` segment. The walk keeps a set of nodes, one step per segment of the name, so that
//! neither depth nor a hostile pattern can exhaust the stack.

use hashbrown::HashMap;

use super::destination::{Pattern, Tail, is_star, matches_tail, segments, separator};

/// What a pattern stands for in the router: an index of its entry.
pub type EntryIndex = u32;

#[derive(Debug, Default)]
struct Node {
    /// By segment, separator included; a `*` segment stands under its own text, which no plain name contains.
    children: HashMap<Box<[u8]>, u32, foldhash::fast::RandomState>,
    ends: Vec<End>,
}

#[derive(Debug)]
struct End {
    tail: Tail,
    prefix: Box<[u8]>,
    entry: EntryIndex,
}

/// All wildcard patterns of a shard.
#[derive(Debug)]
pub struct Tree {
    nodes: slab::Slab<Node>,
    root: u32,
    /// Scratch of [`Tree::matching`].
    level: Vec<u32>,
    next_level: Vec<u32>,
}

impl Default for Tree {
    fn default() -> Self {
        let mut nodes = slab::Slab::new();
        let root = nodes.insert(Node::default()) as u32;
        Tree { nodes, root, level: Vec::new(), next_level: Vec::new() }
    }
}

impl Tree {
    /// Adds a pattern that is not in the tree.
    pub fn insert(&mut self, pattern: &Pattern<'_>, entry: EntryIndex) {
        let mut at = self.root;
        for segment in &pattern.segments {
            at = match self.nodes[at as usize].children.get(*segment) {
                Some(child) => *child,
                None => {
                    let child = self.nodes.insert(Node::default()) as u32;
                    self.nodes[at as usize].children.insert((*segment).into(), child);
                    child
                }
            };
        }
        self.nodes[at as usize].ends.push(End { tail: pattern.tail, prefix: pattern.prefix.into(), entry });
    }

    /// Removes a pattern, and the nodes that only it needed.
    pub fn remove(&mut self, pattern: &Pattern<'_>, entry: EntryIndex) {
        let mut path = vec![self.root];
        let mut at = self.root;
        for segment in &pattern.segments {
            let Some(child) = self.nodes[at as usize].children.get(*segment) else { return };
            at = *child;
            path.push(at);
        }
        self.nodes[at as usize].ends.retain(|end| end.entry != entry);
        for (depth, segment) in pattern.segments.iter().enumerate().rev() {
            let node = path[depth + 1];
            if !(self.nodes[node as usize].ends.is_empty() && self.nodes[node as usize].children.is_empty()) {
                break;
            }
            self.nodes.remove(node as usize);
            self.nodes[path[depth] as usize].children.remove(*segment);
        }
    }

    /// Appends to `found` the entries whose pattern matches `name`.
    pub fn matching(&mut self, name: &[u8], found: &mut Vec<EntryIndex>) {
        self.level.clear();
        self.level.push(self.root);
        let mut rest = name;
        loop {
            for node in &self.level {
                for end in &self.nodes[*node as usize].ends {
                    if matches_tail(end.tail, &end.prefix, rest) {
                        found.push(end.entry);
                    }
                }
            }
            let Some(segment) = segments(rest).next() else { break };
            let separator = separator(segment);
            let star: &[u8] = if separator == 0 { b"*" } else { &[separator, b'*'] };
            self.next_level.clear();
            for node in &self.level {
                let children = &self.nodes[*node as usize].children;
                self.next_level.extend(children.get(segment));
                if !is_star(segment) {
                    self.next_level.extend(children.get(star));
                }
            }
            std::mem::swap(&mut self.level, &mut self.next_level);
            if self.level.is_empty() {
                break;
            }
            rest = &rest[segment.len()..];
        }
    }

    /// Nodes in the tree, its root included.
    #[cfg(test)]
    #[must_use]
    pub fn node_count(&self) -> usize {
        self.nodes.len()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::config::{Compat, Wildcards};

    fn name() -> impl Strategy<Value = String> {
        prop::collection::vec(("[/.]", "[ab]{0,2}"), 1..5)
            .prop_map(|parts| parts.into_iter().map(|(separator, text)| separator + &text).collect())
    }

    fn pattern() -> impl Strategy<Value = String> {
        let segment = prop_oneof![4 => "[ab]{0,2}", 2 => Just("*".to_owned())];
        let last = prop_oneof![
            Just(String::new()),
            Just("/*".to_owned()),
            Just("/>".to_owned()),
            Just(".#".to_owned()),
            Just("/**".to_owned()),
            Just("/a*".to_owned()),
            Just("*".to_owned()),
            Just("/#".to_owned())
        ];
        (prop::collection::vec(("[/.]", segment), 0..4), last).prop_map(|(parts, last)| {
            parts.into_iter().map(|(separator, text)| separator + &text).collect::<String>() + &last
        })
    }

    proptest! {
        #[test]
        fn the_tree_agrees_with_a_linear_scan(
            patterns in prop::collection::vec(pattern(), 1..20),
            names in prop::collection::vec(name(), 1..10),
            segment in any::<bool>(),
            removed in prop::collection::vec(any::<prop::sample::Index>(), 0..10),
        ) {
            let wildcards = if segment { Wildcards::Segment } else { Wildcards::Ancestor };
            let mut parsed: Vec<(u32, Pattern<'_>)> = patterns
                .iter()
                .enumerate()
                .filter_map(|(at, text)| {
                    let pattern = Pattern::parse(text.as_bytes(), wildcards, Compat::None).ok().flatten();
                    pattern.map(|pattern| (at as u32, pattern))
                })
                .collect();
            let mut tree = Tree::default();
            for (entry, pattern) in &parsed {
                tree.insert(pattern, *entry);
            }
            for index in removed {
                if !parsed.is_empty() {
                    let (entry, pattern) = parsed.swap_remove(index.index(parsed.len()));
                    tree.remove(&pattern, entry);
                }
            }
            for name in &names {
                let mut found = Vec::new();
                tree.matching(name.as_bytes(), &mut found);
                found.sort_unstable();
                let mut expected: Vec<u32> = parsed
                    .iter()
                    .filter(|(_, pattern)| pattern.matches(name.as_bytes()))
                    .map(|(entry, _)| *entry)
                    .collect();
                expected.sort_unstable();
                prop_assert_eq!(found, expected, "name {}", name);
            }
            for (entry, pattern) in &parsed {
                tree.remove(pattern, *entry);
            }
            prop_assert_eq!(tree.node_count(), 1, "an empty tree keeps its root only");
        }
    }
}
