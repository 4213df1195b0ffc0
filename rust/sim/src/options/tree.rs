//! Names that form a small tree, and patterns over it.

use rand::rngs::SmallRng;
use rand::seq::{IndexedRandom as _, SliceRandom as _};
use rand::{Rng as _, SeedableRng as _};
use stompica_broker::config::{Compat, Config, Wildcards};

/// What follows `/topic` or `/queue` in a name.
const NAMES: [&str; 10] = ["/a", "/b", "/a/b", "/a.b", "/ab", "/a/b/c", "/a/c", "/b/c", "/c.b/a", "/b/b/c"];
/// What follows `/topic` or `/queue` in a pattern.
const PATTERNS: [&str; 18] = [
    "/*", "/>", "/**", "/#", "/a*", "/a/*", "/a/>", "/a/#", "/a.*", "/a/b/#", "/ab*", "/*/b", "/*/c", "/*/*",
    "/*/b/*", "/*/>", "/*/#", "/a/b*",
];
/// Further patterns of topics.
const TOPICS: [&str; 5] = [">", "/*", "/*/a", "/**", "/*/*/b"];
/// Further patterns of queues.
const QUEUES: [&str; 3] = ["/queue/dlq/*", "/queue/dlq/>", "/queue/dlq/a*"];

/// How names and patterns are chosen.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    /// Percentage of SUBSCRIBEs with a pattern.
    pub patterns: u32,
    /// The patterns.
    pub all: Vec<String>,
}

impl Tree {
    /// Draws a tree for this seed: in half of them none. It replaces the names of topics and queues.
    pub fn draw(seed: u64, config: &mut Config, topics: &mut Vec<String>, queues: &mut Vec<String>) -> Self {
        let random = &mut SmallRng::seed_from_u64(seed ^ 0x7EEE_0011);
        if random.random_ratio(1, 2) {
            return Tree::default();
        }
        if random.random_ratio(1, 2) {
            config.wildcards = Wildcards::Segment;
        }
        if random.random_ratio(1, 8) {
            config.compat = Compat::Stompica;
            queues.clear(); // there are none
        }
        let (has_topics, has_queues) = (!topics.is_empty() || queues.is_empty(), !queues.is_empty());
        let mut names = NAMES;
        names.shuffle(random);
        let names = &names[..random.random_range(2..=6)];
        let mut patterns: Vec<String> = Vec::new();
        for (is_used, prefix, list, more) in
            [(has_topics, "/topic", topics, &TOPICS[..]), (has_queues, "/queue", queues, &QUEUES[..])]
        {
            if !is_used {
                continue;
            }
            *list = names.iter().map(|name| format!("{prefix}{name}")).collect();
            for _ in 0..random.random_range(1..=4) {
                patterns.extend(PATTERNS.choose(random).map(|rest| format!("{prefix}{rest}")));
            }
            patterns.extend(more.choose(random).map(|text| (*text).to_owned()));
        }
        if config.compat == Compat::Stompica {
            patterns.retain(|pattern| pattern.contains('*'));
        }
        Tree { patterns: *[10, 50, 90].choose(random).expect("not empty"), all: patterns }
    }
}
