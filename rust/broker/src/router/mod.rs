//! Hot path: finds the receivers of a message. Read this file first.
//!
//! ```text
//! name ──hash──► Name ──► exact Filter ──► Groups ──► members (connections of this shard)
//!                  └────► wildcard Filters (found in the tree once, then cached)
//! ```
//! A *filter* is a subscribed name or pattern. It has its groups of local subscriptions, the set of other shards with
//! subscriptions (their *interest*), and whether one of its receivers is full. Every shard knows every filter, so a
//! SEND finds all its receivers with one hash of its destination.
//!
//! Owner: one shard. Invariants: a filter exists while it has a local subscription or a remote interest; a group has at
//! least one member; a name whose `generation` is current lists every matching wildcard filter. A [`Destination`] is a
//! key with a generation: if its name was forgotten, or was resolved before patterns changed, it has no filters. Names
//! are forgotten only between turns ([`Router::trim`]).
//! Budget: a repeated destination costs a comparison, another one a hash (6–23 ns), without an allocation.

#[cfg(any(test, simulated))]
mod audit;
mod elsewhere;
pub mod fan_out;
pub mod group;
mod interest;
mod names;
pub mod reach;
mod subscriptions;

use std::sync::Arc;

use crate::collections::paged::Paged;
use crate::door::planted;
use smallvec::SmallVec;
use stompica_proto::ProtocolError;

use self::group::{Group, GroupIndex, Subscription};
use self::names::Names;
use crate::collections::keyed::Key;
use crate::collections::spread::{PLACE_BYTES, Spread};
use crate::config::{Compat, Config, Wildcards};
use crate::destination::home_of;
use crate::destination::tree::{FilterIndex, Tree};
use crate::destination::{Kind, Pattern};
use crate::ids::QueueKey;
use crate::ids::ShardId;
use crate::message::DEAD_LETTERS;
use crate::text::{BLOCK_BYTES, Text};

/// The maximum memory of names without subscriptions, which is also bounded by a share of `memory_limit`.
const NAMES_BYTES_MAX: usize = 8 << 20;
/// The share of `memory_limit` that such names may use on all shards together.
const NAMES_SHARE: usize = 64;
/// The maximum number of names that are checked for removal between two turns.
const TRIM_STEPS: usize = 20_000;

/// A slot, an item in the table of its connection, and one in the list of members of its group.
const SUBSCRIPTION_BYTES: usize = size_of::<Subscription>() + 8 + 12 + 18;
/// A slot, an item in the index, the first members, and an item in a filter's list of groups.
const GROUP_BYTES: usize = size_of::<Group>() + 8 + PLACE_BYTES + 4 * 8 + BLOCK_BYTES + 8;
/// A slot, an item in the index, and the counters of its name.
const FILTER_BYTES: usize = size_of::<Filter>() + 8 + PLACE_BYTES + size_of::<Text>() + 2 * BLOCK_BYTES;

/// A name that was looked up, with its fixed properties. It may be kept for any time: once the name is forgotten, it
/// has no receivers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Destination {
    key: Key,
    /// The kind of the destination.
    pub kind: Kind,
    /// The home of the name.
    pub home: ShardId,
    /// Whether its home numbers and records its messages.
    pub is_recorded: bool,
}

/// A subscribed name or pattern.
#[derive(Debug)]
pub struct Filter {
    name: Arc<Text>,
    kind: Kind,
    is_pattern: bool,
    /// Groups of local subscriptions.
    pub groups: SmallVec<[GroupIndex; 2]>,
    local: u32,
    /// Other shards with subscriptions to it.
    pub remote: u64,
    /// The number of local subscriptions whose outbox is full.
    pub full_local: u32,
    /// Other shards with a full outbox among its receivers.
    pub full_remote: u64,
    /// The number of local subscriptions whose private queue grows while memory is short.
    pub growing_local: u32,
    /// Other shards that have such subscriptions.
    pub growing_remote: u64,
    /// Other shards where a message to it is much work, with the maximum number of deliveries there.
    pub fan_out_sizes: Vec<(ShardId, u32)>,
    /// The maximum number of deliveries here that the other shards know; 0: few.
    fan_out_size_told: u32,
}

/// The reason why a message to a topic may have to wait for one of its receivers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holdup {
    /// An outbox is full.
    Outbox,
    /// Memory is short, and the private queue of a subscription grows.
    GrowingQueue,
}

/// The effect of a change of subscriptions on the other shards.
#[derive(Debug, PartialEq, Eq)]
pub enum InterestChange {
    /// No effect.
    None,
    /// The first local subscription began, or the last one ended: tell them.
    Changed,
}

/// All subscriptions that are relevant for one shard.
#[derive(Debug)]
pub struct Router {
    hasher: crate::door::HashState,
    names: Names,
    names_bytes_max: usize,
    last: Option<Destination>,
    /// The number of visited names and patterns since the last query.
    visited: usize,
    /// The filters.
    pub filters: Paged<Filter>,
    patterns: Spread<FilterIndex>,
    tree: Tree,
    generation: u64,
    /// The groups of all filters.
    pub groups: Paged<Group>,
    group_index: Spread<GroupIndex>,
    /// The local subscriptions.
    pub subscriptions: Paged<Subscription>,
    /// The number of subscriptions that were ever added.
    generation_of_subscriptions: u32,
    found: Vec<FilterIndex>,
    wildcards: Wildcards,
    compat: Compat,
    /// The names and patterns of recorded destinations.
    recorded: Vec<Box<[u8]>>,
    shards: usize,
    entries_max: usize,
    /// The number of names that were ever learned from other shards.
    #[cfg(simulated)]
    pub learned: usize,
}

impl Router {
    /// A router without subscriptions; `hasher` is the same on all shards.
    #[must_use]
    pub fn new(config: &Config, hasher: crate::door::HashState) -> Self {
        Router {
            names: Names::new(hasher.clone()),
            names_bytes_max: names_bytes_max(config),
            hasher,
            last: None,
            visited: 0,
            filters: Paged::default(),
            patterns: Spread::default(),
            tree: Tree::default(),
            generation: 0,
            groups: Paged::default(),
            group_index: Spread::default(),
            subscriptions: Paged::default(),
            generation_of_subscriptions: 0,
            found: Vec::new(),
            wildcards: config.wildcards,
            compat: config.compat,
            recorded: config.record.0.iter().map(|name| name.as_bytes().into()).collect(),
            shards: config.writers,
            entries_max: config.max_destinations,
            #[cfg(simulated)]
            learned: 0,
        }
    }

    /// Applies reloaded settings.
    pub fn reload(&mut self, config: &Config) {
        self.entries_max = config.max_destinations;
        self.names_bytes_max = names_bytes_max(config);
    }

    fn remember(&mut self, name: Arc<Text>, hash: u64) -> Key {
        self.visited += 1 + name.len() / 64;
        let kind = Kind::of(&name, self.compat);
        let home = crate::destination::home_in(&name, kind, self.shards);
        let is_recorded = self.is_recorded(&name, kind);
        self.names.add(hash, name, (kind, is_recorded), home.unwrap_or_else(|| home_of(hash, self.shards)))
    }

    /// Whether a name is that of a recorded destination.
    fn is_recorded(&self, name: &[u8], kind: Kind) -> bool {
        matches!(kind, Kind::Topic | Kind::Queue)
            && self.recorded.iter().any(|recorded| {
                // Patterns match dead-letter queues only if they say so.
                let is_named = !name.starts_with(DEAD_LETTERS) || recorded.starts_with(DEAD_LETTERS);
                is_named
                    && self.kind(recorded) == kind
                    && match self.parse(recorded) {
                        Ok(Some(pattern)) => pattern.matches(name),
                        _ => **recorded == *name,
                    }
            })
    }

    /// Forgets names without subscriptions if they use too much memory. Call it between turns.
    pub fn trim(&mut self) {
        self.names.trim(self.names_bytes_max, TRIM_STEPS);
    }

    /// Whether [`Router::trim`] has work to do.
    #[must_use]
    pub fn has_to_trim(&self) -> bool {
        self.names.is_over(self.names_bytes_max)
    }

    /// The number of names and patterns that were visited since the last call.
    pub fn take_visited(&mut self) -> usize {
        std::mem::take(&mut self.visited)
    }

    /// The queue of a name, if this shard was its home at the last look-up.
    #[must_use]
    pub fn queue_of(&self, destination: Destination) -> Option<QueueKey> {
        self.names.get(destination.key)?.queue
    }

    /// Records the queue of a name whose home is this shard.
    pub fn set_queue(&mut self, destination: Destination, queue: QueueKey) {
        if let Some(name) = self.names.get_mut(destination.key) {
            name.queue = Some(queue);
        }
    }

    /// The approximate memory of subscriptions, groups, filters and names, without their texts, which count themselves.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.subscriptions.len() * SUBSCRIPTION_BYTES
            + self.groups.len() * GROUP_BYTES
            + self.filters.len() * FILTER_BYTES
            + self.names.held_bytes()
            + self.tree.held_bytes()
    }

    /// The number of cached names without a subscription of their own.
    #[must_use]
    pub fn cached(&self) -> usize {
        self.names.unsubscribed()
    }

    /// The kind of a name or pattern.
    #[must_use]
    pub fn kind(&self, name: &[u8]) -> Kind {
        Kind::of(name, self.compat)
    }

    /// Parses a pattern; `None` for a plain name.
    ///
    /// # Errors
    /// `E-DEST-INVALID`.
    pub fn parse<'a>(&self, name: &'a [u8]) -> Result<Option<Pattern<'a>>, ProtocolError> {
        Pattern::parse(name, self.wildcards, self.compat)
    }

    /// The home of a name.
    #[must_use]
    pub fn home(&self, name: &[u8]) -> ShardId {
        home_of(self.names.hash(name), self.shards)
    }

    /// The filter of a name or pattern, if there is one.
    fn find_filter(&self, name: &[u8]) -> Result<Option<FilterIndex>, ProtocolError> {
        if Pattern::parse(name, self.wildcards, self.compat)?.is_some() {
            let is_named = |at: FilterIndex| self.filters[at as usize].name[..] == *name;
            return Ok(self.patterns.find(self.names.hash(name), is_named));
        }
        let known = self.names.find(self.names.hash(name), name);
        Ok(known.and_then(|key| self.names.get(key)?.exact))
    }

    fn add_filter(&mut self, name: &Arc<Text>) -> Result<FilterIndex, ProtocolError> {
        let pattern = Pattern::parse(name, self.wildcards, self.compat)?;
        let hash = self.names.hash(name);
        // One copy of the text for the filter and the name.
        let known = self.names.find(hash, name).and_then(|key| self.names.get(key));
        let filter = self.filters.insert(Filter {
            name: Arc::clone(known.map_or(name, |known| known.text())),
            kind: Kind::of(name, self.compat),
            is_pattern: pattern.is_some(),
            groups: SmallVec::new(),
            local: 0,
            remote: 0,
            full_local: 0,
            full_remote: 0,
            growing_local: 0,
            growing_remote: 0,
            fan_out_sizes: Vec::new(),
            fan_out_size_told: 0,
        }) as FilterIndex;
        if let Some(pattern) = pattern {
            self.tree.insert(&pattern, filter);
            self.patterns.insert(hash, filter);
            if !planted!("pattern-unnoticed") {
                self.generation += 1;
            }
        } else {
            let known = self.names.find(hash, name);
            let key = known.unwrap_or_else(|| self.remember(Arc::clone(name), hash));
            self.names.set_exact(key, Some(filter));
        }
        Ok(filter)
    }

    fn remove_filter_if_unused(&mut self, index: FilterIndex) {
        let filter = &self.filters[index as usize];
        if filter.local > 0 || filter.remote != 0 {
            return;
        }
        let filter = self.filters.remove(index as usize);
        if !filter.is_pattern {
            if let Some(key) = self.names.find(self.names.hash(&filter.name), &filter.name) {
                self.names.set_exact(key, None);
            }
        } else if let Ok(Some(pattern)) = Pattern::parse(&filter.name, self.wildcards, self.compat) {
            self.tree.remove(&pattern, index);
            self.patterns.remove(self.names.hash(&filter.name), |at| at == index);
            self.generation += 1;
        }
    }
}

/// The maximum memory of names without a subscription of their own, for one shard.
fn names_bytes_max(config: &Config) -> usize {
    let limit = usize::try_from(config.memory_limit).unwrap_or(usize::MAX);
    NAMES_BYTES_MAX.min(limit / NAMES_SHARE / config.writers.max(1))
}

#[cfg(test)]
mod tests;
