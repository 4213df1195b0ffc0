//! Tests of the tree of patterns: comparison with a linear scan, and the cost of a look-up.

use proptest::prelude::*;

use super::*;
use crate::config::{Compat, Wildcards};

fn name() -> impl Strategy<Value = String> {
    let first = prop_oneof![4 => "[/.]", 1 => Just(String::new())];
    (first, prop::collection::vec(("[/.]", "[ab]{0,2}"), 1..5)).prop_map(|(first, parts)| {
        let all: String = parts.into_iter().map(|(separator, text)| separator + &text).collect();
        if first.is_empty() { all.trim_start_matches(['/', '.']).to_owned() + "a" } else { all }
    })
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
        Just("/ab*".to_owned()),
        Just("*".to_owned()),
        Just("/#".to_owned())
    ];
    let parts = prop::collection::vec(("[/.]", segment), 0..4);
    (any::<bool>(), parts, last).prop_map(|(bare, parts, last)| {
        let all: String = parts.into_iter().map(|(separator, text)| separator + &text).collect();
        let all = all + &last;
        if bare { all.trim_start_matches(['/', '.']).to_owned() } else { all }
    })
}

fn parse(text: &str, wildcards: Wildcards, compat: Compat) -> Option<Pattern<'_>> {
    Pattern::parse(text.as_bytes(), wildcards, compat).ok().flatten()
}

fn sorted(mut found: Vec<u32>) -> Vec<u32> {
    found.sort_unstable();
    found
}

proptest! {
    /// Patterns are added and removed in any order; after each step the tree finds the same patterns as a scan.
    #[test]
    fn the_tree_agrees_with_a_linear_scan(
        steps in prop::collection::vec((pattern(), any::<bool>(), any::<prop::sample::Index>()), 1..40),
        names in prop::collection::vec(name(), 1..8),
        segment in any::<bool>(),
        c_stompica in any::<bool>(),
    ) {
        let wildcards = if segment { Wildcards::Segment } else { Wildcards::Ancestor };
        let compat = if c_stompica { Compat::Stompica } else { Compat::None };
        let mut tree = Tree::default();
        let mut live: Vec<(u32, Pattern<'_>)> = Vec::new();
        for (at, (text, remove, pick)) in steps.iter().enumerate() {
            if *remove && !live.is_empty() {
                let (filter, pattern) = live.swap_remove(pick.index(live.len()));
                tree.remove(&pattern, filter);
            } else if let Some(pattern) = parse(text, wildcards, compat) {
                tree.insert(&pattern, at as u32);
                live.push((at as u32, pattern));
            }
            for name in &names {
                let mut found = Vec::new();
                tree.matching(name.as_bytes(), &mut found);
                let scanned = live.iter().filter(|(_, pattern)| pattern.matches(name.as_bytes()));
                let scanned = scanned.map(|(filter, _)| *filter).collect();
                prop_assert_eq!(sorted(found), sorted(scanned), "name {}", name);
            }
            prop_assert!(tree.node_count() <= 1 + 6 * live.len().max(1), "{} nodes", tree.node_count());
        }
        for (filter, pattern) in &live {
            tree.remove(pattern, *filter);
        }
        prop_assert_eq!((tree.node_count(), tree.heap_bytes), (1, 0), "an empty tree has only its root");
        prop_assert!(tree.places.is_empty());
    }
}

fn insert_all(tree: &mut Tree, patterns: &[String]) {
    for (filter, text) in patterns.iter().enumerate() {
        let pattern = parse(text, Wildcards::Ancestor, Compat::None).expect("a pattern");
        tree.insert(&pattern, filter as u32);
    }
}

fn steps(tree: &mut Tree, name: &str) -> usize {
    tree.matching(name.as_bytes(), &mut Vec::new())
}

/// Sets of many patterns that share text with a name but do not match it.
fn near_misses() -> Vec<(&'static str, Vec<String>, String)> {
    let numbers = 0..10_000;
    vec![
        ("prefixes", numbers.clone().map(|at| format!("/topic/p{at}*")).collect(), "/topic/q1".into()),
        ("below one name", numbers.clone().map(|at| format!("/topic/{at}/>")).collect(), "/topic/x/y".into()),
        ("behind a star", numbers.clone().map(|at| format!("/*/a/{at}*")).collect(), "/topic/a/b".into()),
        ("last segments", numbers.clone().map(|at| format!("/topic/*/{at}")).collect(), "/topic/a/b".into()),
        ("of other names", numbers.map(|at| format!("/t{at}/>")).collect(), "/topic/a/b".into()),
    ]
}

#[test]
fn patterns_that_do_not_match_cost_no_steps() {
    for (what, patterns, name) in near_misses() {
        let mut tree = Tree::default();
        insert_all(&mut tree, &patterns[..10]);
        let few = steps(&mut tree, &name);
        let mut tree = Tree::default();
        insert_all(&mut tree, &patterns);
        let many = steps(&mut tree, &name);
        assert!(many <= few + 10, "{what}: {few} steps among 10 patterns, {many} among 10,000");
    }
}

#[test]
fn each_matching_pattern_costs_at_most_two_steps() {
    let mut tree = Tree::default();
    let patterns: Vec<String> = (1..1000).map(|len| "a".repeat(len) + "*").collect();
    insert_all(&mut tree, &patterns);
    let mut found = Vec::new();
    let steps = tree.matching("a".repeat(500).as_bytes(), &mut found);
    assert_eq!(found.len(), 500);
    assert!(steps <= 2 * 500 + 2, "{steps}");
}

#[test]
fn a_pattern_of_many_segments_takes_one_node() {
    let mut tree = Tree::default();
    insert_all(&mut tree, &["/a".repeat(5000) + "/>"]);
    assert_eq!(tree.node_count(), 2);
    assert!(tree.held_bytes() < 12_000);
}

#[test]
fn removing_patterns_restores_the_tree() {
    let mut tree = Tree::default();
    let long = "/topic/abcdefghijklmnopqrstuvwxyz*";
    insert_all(&mut tree, &[long.to_owned()]);
    let before = (tree.node_count(), tree.held_bytes());
    let others: Vec<String> = (7..30).map(|at| format!("{}#*", &long[..at])).collect();
    for (at, text) in others.iter().enumerate() {
        let pattern = parse(text, Wildcards::Ancestor, Compat::None).expect("a pattern");
        tree.insert(&pattern, 100 + at as u32);
    }
    for (at, text) in others.iter().enumerate() {
        let pattern = parse(text, Wildcards::Ancestor, Compat::None).expect("a pattern");
        tree.remove(&pattern, 100 + at as u32);
    }
    assert_eq!((tree.node_count(), tree.held_bytes()), before);
}

#[test]
fn equivalent_patterns_are_removed_one_by_one() {
    let texts: Vec<String> = (0..1000).map(|at| format!("/q/*{at}")).collect();
    let patterns: Vec<Pattern<'_>> =
        texts.iter().filter_map(|text| parse(text, Wildcards::Ancestor, Compat::Stompica)).collect();
    let mut tree = Tree::default();
    for (filter, pattern) in patterns.iter().enumerate() {
        tree.insert(pattern, filter as u32);
    }
    for (filter, pattern) in patterns.iter().enumerate().filter(|(filter, _)| filter % 3 != 0) {
        tree.remove(pattern, filter as u32);
    }
    let mut found = Vec::new();
    tree.matching(b"/q/x", &mut found);
    assert_eq!(sorted(found), (0..1000).step_by(3).collect::<Vec<u32>>());
}
