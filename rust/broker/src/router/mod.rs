//! Hot path: who wants a message. The file to read first.
//!
//! ```text
//! name ──hash──► Name ──► exact Filter ──► Groups ──► members (connections of this shard)
//!                  └────► wildcard Entries (found in the tree once, then cached)
//! ```
//! An *entry* is a subscribed name or pattern: its groups of local subscriptions, the set of other shards that have
//! subscriptions too (their *interest*), and whether somebody behind it is full. Every shard knows every entry, so a
//! SEND finds all its receivers with one hash of its destination.
//!
//! Owner: one shard. Invariants: an entry exists while it has a local subscription or a remote interest; a group has
//! at least one member; a name whose `generation` is current lists every wildcard entry that matches. A
//! [`Destination`] is a key with a generation: that of a name which was forgotten, or resolved before patterns
//! changed, has no entries. Names are forgotten only between turns ([`Router::trim`]).
//! Budget: a repeated destination costs a comparison, another one a hash (6–23 ns), no allocation.

mod elsewhere;
pub mod fan_out;
pub mod group;
mod interest;
mod names;
pub mod reach;
mod subscriptions;

use std::sync::Arc;

use crate::collections::paged::Paged;
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
use crate::text::{BLOCK_BYTES, Text};

/// Names that nobody subscribes to may hold this much, and no more than a small part of `memory_limit`.
const NAMES_BYTES_MAX: usize = 8 << 20;
/// The part of `memory_limit` that such names may hold on all shards together.
const NAMES_SHARE: usize = 64;
/// Names that are looked at between two turns to find some that can go.
const TRIM_STEPS: usize = 20_000;

/// A slot, its place in the table of its connection and among the members of its group.
const SUBSCRIPTION_BYTES: usize = size_of::<Subscription>() + 8 + 12 + 18;
/// A slot, its place in the index, the first members and an entry's list of groups.
const GROUP_BYTES: usize = size_of::<Group>() + 8 + PLACE_BYTES + 4 * 8 + BLOCK_BYTES + 8;
/// A slot, its place in the index, and its name's counters.
const ENTRY_BYTES: usize = size_of::<Filter>() + 8 + PLACE_BYTES + size_of::<Text>() + 2 * BLOCK_BYTES;

/// A name that was looked up, and what is fixed about it. It may be kept as long as one likes: once the name is
/// forgotten, nobody is found behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Destination {
    key: Key,
    /// What it does with a message.
    pub kind: Kind,
    /// The shard that keeps what it needs in one place.
    pub home: ShardId,
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
    /// Local subscriptions whose outbox is full.
    pub full_local: u32,
    /// Other shards that have a full outbox behind it.
    pub full_remote: u64,
    /// Local subscriptions that keep what comes while memory is short.
    pub keepers_local: u32,
    /// Other shards that have such subscriptions behind it.
    pub keepers_remote: u64,
    /// Other shards where it is wide, a message much work, and how wide at most.
    pub widths: Vec<(ShardId, u32)>,
    /// How wide it is here at most, as the other shards know; 0: not wide.
    width_told: u32,
}

/// Why a message to a topic may have to wait for somebody behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holdup {
    /// An outbox is full.
    Outbox,
    /// Memory is short, and a subscription's own queue keeps what comes.
    Keeper,
}

/// What a change of subscriptions means for the other shards.
#[derive(Debug, PartialEq, Eq)]
pub enum InterestChange {
    /// Nothing.
    None,
    /// The first local subscription came, or the last one went: tell them.
    Changed,
}

/// All subscriptions that matter to one shard.
#[derive(Debug)]
pub struct Router {
    hasher: foldhash::fast::RandomState,
    names: Names,
    names_bytes_max: usize,
    last: Option<Destination>,
    /// Names and patterns that were looked at, until somebody asks.
    visited: usize,
    /// The entries.
    pub filters: Paged<Filter>,
    patterns: Spread<FilterIndex>,
    tree: Tree,
    generation: u64,
    /// The groups of all entries.
    pub groups: Paged<Group>,
    group_index: Spread<GroupIndex>,
    /// The local subscriptions.
    pub subscriptions: Paged<Subscription>,
    /// Subscriptions that were ever added.
    generation_of_subscriptions: u32,
    found: Vec<FilterIndex>,
    wildcards: Wildcards,
    compat: Compat,
    shards: usize,
    entries_max: usize,
}

impl Router {
    /// A router without subscriptions; `hasher` is the same on all shards.
    #[must_use]
    pub fn new(config: &Config, hasher: foldhash::fast::RandomState) -> Self {
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
            shards: config.writers,
            entries_max: config.max_destinations,
        }
    }

    /// Takes over what a reload may change.
    pub fn reload(&mut self, config: &Config) {
        self.entries_max = config.max_destinations;
        self.names_bytes_max = names_bytes_max(config);
    }

    fn remember(&mut self, name: Arc<Text>, hash: u64) -> Key {
        self.visited += 1 + name.len() / 64;
        let kind = Kind::of(&name, self.compat);
        let home = crate::destination::home_in(&name, kind, self.shards);
        self.names.add(hash, name, kind, home.unwrap_or_else(|| home_of(hash, self.shards)))
    }

    /// Forgets names that nobody subscribes to, where they hold too much. To be called between turns.
    pub fn trim(&mut self) {
        self.names.trim(self.names_bytes_max, TRIM_STEPS);
    }

    /// Whether [`Router::trim`] has something to do.
    #[must_use]
    pub fn has_to_trim(&self) -> bool {
        self.names.is_over(self.names_bytes_max)
    }

    /// How many names and patterns were looked at since this was last asked.
    pub fn take_visited(&mut self) -> usize {
        std::mem::take(&mut self.visited)
    }

    /// The queue of a name, if this shard was its home when last looked at.
    #[must_use]
    pub fn queue_of(&self, destination: Destination) -> Option<QueueKey> {
        self.names.get(destination.key)?.queue
    }

    /// Notes the queue of a name whose home this shard is.
    pub fn set_queue(&mut self, destination: Destination, queue: QueueKey) {
        if let Some(name) = self.names.get_mut(destination.key) {
            name.queue = Some(queue);
        }
    }

    /// Bytes that subscriptions, groups, entries and names occupy, about, without the texts in them, which count
    /// themselves.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.subscriptions.len() * SUBSCRIPTION_BYTES
            + self.groups.len() * GROUP_BYTES
            + self.filters.len() * ENTRY_BYTES
            + self.names.held_bytes()
            + self.tree.held_bytes()
    }

    /// How many names without a subscription of their own are remembered.
    #[must_use]
    pub fn cached(&self) -> usize {
        self.names.unsubscribed()
    }

    /// What a name or pattern is.
    #[must_use]
    pub fn kind(&self, name: &[u8]) -> Kind {
        Kind::of(name, self.compat)
    }

    /// A pattern, taken apart; `None` for a plain name.
    ///
    /// # Errors
    /// `E-DEST-INVALID`.
    pub fn parse<'a>(&self, name: &'a [u8]) -> Result<Option<Pattern<'a>>, ProtocolError> {
        Pattern::parse(name, self.wildcards, self.compat)
    }

    /// The shard that is home to a name.
    #[must_use]
    pub fn home(&self, name: &[u8]) -> ShardId {
        home_of(self.names.hash(name), self.shards)
    }

    /// The entry of a name or pattern, if there is one.
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
        // One copy of the text for the entry and the name.
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
            keepers_local: 0,
            keepers_remote: 0,
            widths: Vec::new(),
            width_told: 0,
        }) as FilterIndex;
        if let Some(pattern) = pattern {
            self.tree.insert(&pattern, filter);
            self.patterns.insert(hash, filter);
            self.generation += 1;
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

/// What names without a subscription of their own may hold on one shard.
fn names_bytes_max(config: &Config) -> usize {
    let limit = usize::try_from(config.memory_limit).unwrap_or(usize::MAX);
    NAMES_BYTES_MAX.min(limit / NAMES_SHARE / config.writers.max(1))
}

#[cfg(test)]
mod tests;
