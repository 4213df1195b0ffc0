//! The tree of wildcard patterns. It finds the patterns that match a name, in time that does not grow with the number
//! of patterns.
//!
//! ```text
//! /t/a*    root ──/t/──┬──a──┬──────── ends: "anything follows"
//! /t/ab*               │     └──b───── ends: "anything follows"
//! /t/*/x               └──(* behind /)──/x── ends: "nothing follows"
//! ```
//! A radix tree over the text of the patterns. A node has the bytes that lead to it, children by their first byte, one
//! child per separator for a `*` segment, and the patterns that end there, each with its tail. The search follows the
//! bytes of a name once; only `*` segments make it branch. It uses an explicit stack, so that no pattern can exhaust
//! the thread's stack.

use hashbrown::HashMap;
use memchr::memchr2;
use smallvec::SmallVec;

use super::{Pattern, Tail, is_star, matches_tail, separator};
use crate::collections::paged::Paged;
use crate::door::{HashState, planted};

/// The index of a pattern's filter in the router.
pub type FilterIndex = u32;

/// No node.
const NONE: u32 = u32::MAX;
/// Bytes that count as one step when they are compared.
const STEP_BYTES: usize = 64;
/// Approximate overhead of the allocator per block.
const BLOCK_BYTES: usize = 16;

#[derive(Debug)]
struct Node {
    /// Bytes of a name that lead to this node; empty for the root and for the child of a `*`.
    label: Box<[u8]>,
    /// The children by the first byte of their labels, in order.
    children: SmallVec<[(u8, u32); 2]>,
    /// The children for a `*` segment, by [`star_index`].
    stars: [u32; 3],
    ends: SmallVec<[End; 2]>,
}

#[derive(Clone, Copy, Debug)]
struct End {
    tail: Tail,
    filter: FilterIndex,
}

impl Node {
    fn new(label: &[u8]) -> Self {
        Node { label: label.into(), children: SmallVec::new(), stars: [NONE; 3], ends: SmallVec::new() }
    }

    fn child(&self, byte: u8) -> Option<u32> {
        let at = self.children.binary_search_by_key(&byte, |(first, _)| *first).ok()?;
        Some(self.children[at].1)
    }

    fn is_unused(&self) -> bool {
        self.ends.is_empty() && self.children.is_empty() && self.stars == [NONE; 3]
    }

    fn heap_bytes(&self) -> usize {
        let children = if self.children.spilled() { 8 * self.children.capacity() + BLOCK_BYTES } else { 0 };
        let ends = if self.ends.spilled() { 8 * self.ends.capacity() + BLOCK_BYTES } else { 0 };
        let label = if self.label.is_empty() { 0 } else { self.label.len() + BLOCK_BYTES };
        label + children + ends
    }
}

/// Frees unused capacity of a list.
fn shrink<T>(list: &mut SmallVec<[T; 2]>) {
    if list.spilled() && list.len() * 4 <= list.capacity() {
        list.shrink_to_fit();
    }
}

/// A step on the path of a pattern down the tree.
#[derive(Debug)]
enum Step {
    Literal(Vec<u8>),
    /// A `*` segment: the index of its separator, see [`star_index`].
    Star(usize),
}

/// The index of the child for a `*` segment with this separator.
fn star_index(separator: u8) -> usize {
    match separator {
        b'/' => 1,
        b'.' => 2,
        _ => 0,
    }
}

fn steps_of(pattern: &Pattern<'_>) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut literal = Vec::new();
    for segment in &pattern.segments {
        if is_star(segment) {
            if !literal.is_empty() {
                steps.push(Step::Literal(std::mem::take(&mut literal)));
            }
            steps.push(Step::Star(star_index(separator(segment))));
        } else {
            literal.extend_from_slice(segment);
        }
    }
    literal.extend_from_slice(pattern.prefix);
    if !literal.is_empty() {
        steps.push(Step::Literal(literal));
    }
    steps
}

/// Whether a pattern with this tail allows the rest of a name after the pattern's text.
fn allows(tail: Tail, rest: &[u8]) -> bool {
    match tail {
        Tail::PrefixDeep => true,
        Tail::PrefixSegment => memchr2(b'/', b'.', rest).is_none(),
        tail => matches_tail(tail, b"", rest),
    }
}

/// All wildcard patterns of a shard.
#[derive(Debug)]
pub struct Tree {
    nodes: Paged<Node>,
    root: u32,
    /// The position of each pattern among the ends of its node.
    places: HashMap<FilterIndex, u32, HashState>,
    /// Bytes that the nodes occupy on the heap.
    heap_bytes: usize,
    /// Stack of [`Tree::matching`]: nodes to visit, and how many bytes of the name were matched before them.
    pending: Vec<(u32, u32)>,
}

impl Default for Tree {
    fn default() -> Self {
        let mut nodes = Paged::default();
        let root = nodes.insert(Node::new(b"")) as u32;
        Tree { nodes, root, places: HashMap::default(), heap_bytes: 0, pending: Vec::new() }
    }
}

impl Tree {
    /// Adds a pattern that is not in the tree.
    pub fn insert(&mut self, pattern: &Pattern<'_>, filter: FilterIndex) {
        let mut at = self.root;
        for step in steps_of(pattern) {
            at = match step {
                Step::Literal(text) => self.descend(at, &text),
                Step::Star(place) => self.descend_star(at, place),
            };
        }
        self.change(at, |node| node.ends.push(End { tail: pattern.tail, filter }));
        self.places.insert(filter, self.nodes[at as usize].ends.len() as u32 - 1);
    }

    /// Removes a pattern, and the nodes that only this pattern needed.
    pub fn remove(&mut self, pattern: &Pattern<'_>, filter: FilterIndex) {
        let Some(mut path) = self.path(pattern) else { return };
        let Some(end) = path.pop() else { return };
        let Some(place) = self.places.remove(&filter) else { return };
        self.change(end, |node| {
            node.ends.swap_remove(place as usize);
            shrink(&mut node.ends);
        });
        if let Some(moved) = self.nodes[end as usize].ends.get(place as usize) {
            self.places.insert(moved.filter, place);
        }
        let mut unused = end;
        while self.nodes[unused as usize].is_unused()
            && let Some(parent) = path.pop()
        {
            self.drop_child(parent, unused);
            unused = parent;
        }
        self.merge_only_child(unused);
    }

    /// Appends to `found` the filters whose pattern matches `name`. Returns the number of steps.
    pub fn matching(&mut self, name: &[u8], found: &mut Vec<FilterIndex>) -> usize {
        let mut steps = 0;
        self.pending.clear();
        self.pending.push((self.root, 0));
        while let Some((at, passed)) = self.pending.pop() {
            let node = &self.nodes[at as usize];
            steps += 1 + node.label.len() / STEP_BYTES;
            let Some(rest) = name[passed as usize..].strip_prefix(&*node.label) else { continue };
            steps += node.ends.len();
            found.extend(node.ends.iter().filter(|end| allows(end.tail, rest)).map(|end| end.filter));
            let Some(&first) = rest.first() else { continue };
            let passed = name.len() - rest.len();
            if let Some(child) = node.child(first) {
                self.pending.push((child, passed as u32));
            }
            let separated = star_index(first) != 0;
            let is_blind = separated && planted!("star-ignores-separator");
            let star = node.stars[if is_blind { star_index(b'/') } else { star_index(first) }];
            // Only the first segment can have no separator before it.
            if star != NONE && (separated || passed == 0) {
                let from = usize::from(separated);
                let len = memchr2(b'/', b'.', &rest[from..]).map_or(rest.len(), |len| len + from);
                steps += len / STEP_BYTES;
                self.pending.push((star, (passed + len) as u32));
            }
        }
        steps
    }

    /// Counts the memory of the nodes anew.
    #[cfg(any(test, simulated))]
    pub fn audit(&self, audit: &mut crate::audit::Audit) {
        let bytes = self.nodes.iter().map(|(_, node)| node.heap_bytes()).sum();
        audit.equal("bytes of a tree", self.heap_bytes, bytes);
        let ends = self.nodes.iter().map(|(_, node)| node.ends.len()).sum();
        audit.equal("patterns in a tree", self.places.len(), ends);
    }

    /// Approximate memory of the tree in bytes.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.nodes.len() * (size_of::<Node>() + 16) + self.heap_bytes + self.places.len() * 16
    }

    /// The node that some text leads to from a node; created if it does not exist.
    fn descend(&mut self, mut at: u32, mut text: &[u8]) -> u32 {
        while let Some(&first) = text.first() {
            let Some(child) = self.nodes[at as usize].child(first) else {
                let child = self.add(text);
                self.link(at, first, child);
                return child;
            };
            let label = &self.nodes[child as usize].label;
            let common = label.iter().zip(text).take_while(|(one, other)| one == other).count();
            if common < label.len() {
                self.split(child, common);
            }
            text = &text[common..];
            at = child;
        }
        at
    }

    fn descend_star(&mut self, at: u32, place: usize) -> u32 {
        let known = self.nodes[at as usize].stars[place];
        if known != NONE {
            return known;
        }
        let child = self.add(b"");
        self.change(at, |node| node.stars[place] = child);
        child
    }

    fn add(&mut self, label: &[u8]) -> u32 {
        let node = Node::new(label);
        self.heap_bytes += node.heap_bytes();
        self.nodes.insert(node) as u32
    }

    fn link(&mut self, parent: u32, first: u8, child: u32) {
        self.change(parent, |node| {
            let at = node.children.partition_point(|(other, _)| *other < first);
            node.children.insert(at, (first, child));
        });
    }

    /// Changes a node and updates `heap_bytes`.
    fn change(&mut self, at: u32, change: impl FnOnce(&mut Node)) {
        let node = &mut self.nodes[at as usize];
        self.heap_bytes -= node.heap_bytes();
        change(node);
        self.heap_bytes += node.heap_bytes();
    }

    /// Splits a node: the label after its first `len` bytes and everything below move to a new child.
    fn split(&mut self, at: u32, len: usize) {
        let mut lower = Node::new(&[]);
        self.change(at, |node| {
            std::mem::swap(node, &mut lower);
            node.label = lower.label[..len].into();
            lower.label = lower.label[len..].into();
        });
        let first = lower.label[0];
        self.heap_bytes += lower.heap_bytes();
        let lower = self.nodes.insert(lower) as u32;
        self.link(at, first, lower);
    }

    /// The nodes from the root to the node of a pattern.
    fn path(&self, pattern: &Pattern<'_>) -> Option<Vec<u32>> {
        let mut path = vec![self.root];
        let mut at = self.root;
        for step in steps_of(pattern) {
            match step {
                Step::Star(place) => {
                    at = Some(self.nodes[at as usize].stars[place]).filter(|star| *star != NONE)?;
                    path.push(at);
                }
                Step::Literal(text) => {
                    let mut rest = &text[..];
                    while let Some(first) = rest.first() {
                        at = self.nodes[at as usize].child(*first)?;
                        path.push(at);
                        rest = rest.strip_prefix(&*self.nodes[at as usize].label)?;
                    }
                }
            }
        }
        Some(path)
    }

    fn drop_child(&mut self, parent: u32, child: u32) {
        let gone = self.nodes.remove(child as usize);
        self.heap_bytes -= gone.heap_bytes();
        self.change(parent, |node| {
            node.children.retain(|(_, at)| *at != child);
            shrink(&mut node.children);
            node.stars.iter_mut().filter(|star| **star == child).for_each(|star| *star = NONE);
        });
    }

    /// Merges a node with its only child, if nothing else needs the node.
    fn merge_only_child(&mut self, at: u32) {
        let node = &self.nodes[at as usize];
        let [(_, child)] = node.children[..] else { return };
        if node.label.is_empty() || !node.ends.is_empty() || node.stars != [NONE; 3] {
            return;
        }
        let mut lower = self.nodes.remove(child as usize);
        self.heap_bytes -= lower.heap_bytes();
        self.change(at, |node| {
            lower.label = [&*node.label, &*lower.label].concat().into();
            *node = lower;
        });
    }

    /// The number of nodes, including the root.
    #[cfg(test)]
    #[must_use]
    pub fn node_count(&self) -> usize {
        self.nodes.len()
    }
}

#[cfg(test)]
#[path = "tree_tests.rs"]
mod tests;
