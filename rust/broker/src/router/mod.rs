//! Hot path: who wants a message. The file to read first.
//!
//! ```text
//! name ──hash──► Destination ──► exact Entry ──► Groups ──► members (connections of this shard)
//!                     └────────► wildcard Entries (found in the tree once, then cached)
//! ```
//! An *entry* is a subscribed name or pattern: its groups of local subscriptions, the set of other shards that have
//! subscriptions too (their *interest*), and whether somebody behind it is full. Every shard knows every entry, so a
//! SEND finds all its receivers with one hash of its destination.
//!
//! Owner: one shard. Invariants: an entry exists while it has a local subscription or a remote interest; a group has
//! at least one member; a cached destination whose `generation` is current lists every wildcard entry that matches.
//! Budget: a repeated destination costs a comparison, another one a hash (6–23 ns), no allocation.

pub mod destination;
pub mod group;
mod interest;
pub mod receiver;
mod subscriptions;
pub mod tree;

use std::hash::BuildHasher as _;

use hashbrown::{HashMap, HashTable};
use slab::Slab;
use smallvec::SmallVec;
use stompica_proto::ProtocolError;

use self::destination::{Kind, Pattern};
use self::group::{Group, GroupIndex, Subscription};
use self::tree::{EntryIndex, Tree};
use crate::config::{Compat, Config, Wildcards};
use crate::ids::ShardId;
use crate::queue::QueueKey;
use crate::queue::home::home_of;

/// Index of a [`Destination`] in its router; stands until the next call that adds or removes anything.
pub type DestinationIndex = u32;
/// Destinations without a subscription of their own that stay resolved.
const CACHED_MAX: usize = 65_536;

/// A name that was sent or subscribed to.
#[derive(Debug)]
pub struct Destination {
    name: Box<[u8]>,
    /// What it does with a message.
    pub kind: Kind,
    /// The shard that keeps what it needs in one place.
    pub home: ShardId,
    /// Its queue, if this shard was its home when last looked at.
    pub queue: Option<QueueKey>,
    exact: Option<EntryIndex>,
    wild: SmallVec<[EntryIndex; 2]>,
    generation: u64,
}

/// A subscribed name or pattern.
#[derive(Debug)]
pub struct Entry {
    name: Box<[u8]>,
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
    names: HashTable<DestinationIndex>,
    destinations: Slab<Destination>,
    cached: usize,
    last: Option<DestinationIndex>,
    /// The entries.
    pub entries: Slab<Entry>,
    patterns: HashMap<Box<[u8]>, EntryIndex, foldhash::fast::RandomState>,
    tree: Tree,
    generation: u64,
    /// The groups of all entries.
    pub groups: Slab<Group>,
    group_index: HashTable<GroupIndex>,
    /// The local subscriptions.
    pub subscriptions: Slab<Subscription>,
    /// Subscriptions that were ever added.
    generation_of_subscriptions: u32,
    /// Delivery numbers up to this one may have been used by subscriptions that are gone.
    number_floor: u64,
    found: Vec<EntryIndex>,
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
            hasher,
            names: HashTable::new(),
            destinations: Slab::new(),
            cached: 0,
            last: None,
            entries: Slab::new(),
            patterns: HashMap::default(),
            tree: Tree::default(),
            generation: 0,
            groups: Slab::new(),
            group_index: HashTable::new(),
            subscriptions: Slab::new(),
            generation_of_subscriptions: 0,
            number_floor: 0,
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
    }

    /// The destination a SEND names, with all its entries found.
    ///
    /// # Errors
    /// `E-DEST-WILDCARD`; only names that passed are remembered.
    pub fn destination(&mut self, name: &[u8]) -> Result<DestinationIndex, ProtocolError> {
        if let Some(last) = self.last {
            let destination = &self.destinations[last as usize];
            if *destination.name == *name && destination.generation == self.generation {
                return Ok(last);
            }
        }
        let hash = self.hasher.hash_one(name);
        let known = self.names.find(hash, |&at| *self.destinations[at as usize].name == *name).copied();
        let index = match known {
            Some(index) => index,
            None => {
                destination::require_plain(name)?;
                self.forget_unsubscribed();
                self.remember(name, hash)
            }
        };
        self.last = Some(index);
        if self.destinations[index as usize].generation != self.generation {
            self.resolve(index);
        }
        Ok(index)
    }

    fn remember(&mut self, name: &[u8], hash: u64) -> DestinationIndex {
        let kind = Kind::of(name, self.compat);
        let home = destination::home_in(name, kind, self.shards);
        let index = self.destinations.insert(Destination {
            name: name.into(),
            kind,
            home: home.unwrap_or_else(|| home_of(hash, self.shards)),
            queue: None,
            exact: None,
            wild: SmallVec::new(),
            generation: u64::MAX,
        }) as DestinationIndex;
        let (destinations, hasher) = (&self.destinations, &self.hasher);
        self.names.insert_unique(hash, index, |&at| hasher.hash_one(&*destinations[at as usize].name));
        self.cached += 1;
        index
    }

    fn resolve(&mut self, index: DestinationIndex) {
        let destination = &mut self.destinations[index as usize];
        self.found.clear();
        self.tree.matching(&destination.name, &mut self.found);
        let (kind, entries, compat) = (destination.kind, &self.entries, self.compat);
        // A pattern matches its own kind only: nobody listens in on temporary topics.
        self.found.retain(|at| Kind::of(&entries[*at as usize].name, compat) == kind);
        destination.wild = SmallVec::from_slice(&self.found);
        destination.generation = self.generation;
    }

    /// Keeps the number of remembered names without subscription within its bound.
    fn forget_unsubscribed(&mut self) {
        if self.cached < CACHED_MAX {
            return;
        }
        let gone: Vec<usize> =
            self.destinations.iter().filter(|(_, known)| known.exact.is_none()).map(|(at, _)| at).collect();
        for at in gone {
            self.forget(at as DestinationIndex);
        }
    }

    fn forget(&mut self, index: DestinationIndex) {
        let name = self.destinations.remove(index as usize).name;
        let hash = self.hasher.hash_one(&*name);
        if let Ok(found) = self.names.find_entry(hash, |&at| at == index) {
            found.remove();
        }
        self.cached -= 1;
        self.last = None;
    }

    /// A destination that [`Router::destination`] has found.
    pub fn known(&mut self, destination: DestinationIndex) -> &mut Destination {
        &mut self.destinations[destination as usize]
    }

    /// How many names without a subscription of their own are remembered.
    #[must_use]
    pub fn cached(&self) -> usize {
        self.cached
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
        home_of(self.hasher.hash_one(name), self.shards)
    }

    /// How many entries a destination has.
    #[must_use]
    pub fn entry_count(&self, destination: DestinationIndex) -> usize {
        let destination = &self.destinations[destination as usize];
        usize::from(destination.exact.is_some()) + destination.wild.len()
    }

    /// The entry at a place below [`Router::entry_count`].
    #[must_use]
    pub fn entry_at(&self, destination: DestinationIndex, place: usize) -> EntryIndex {
        let destination = &self.destinations[destination as usize];
        match destination.exact {
            Some(entry) if place == 0 => entry,
            Some(_) => destination.wild[place - 1],
            None => destination.wild[place],
        }
    }

    /// The shards, other than this one, with subscriptions that match.
    #[must_use]
    pub fn remote(&self, destination: DestinationIndex) -> u64 {
        (0..self.entry_count(destination))
            .fold(0, |shards, place| shards | self.entries[self.entry_at(destination, place) as usize].remote)
    }

    /// Whether a matching subscription, here or elsewhere, has a full outbox.
    #[must_use]
    pub fn is_full(&self, destination: DestinationIndex) -> bool {
        (0..self.entry_count(destination)).any(|place| {
            let entry = &self.entries[self.entry_at(destination, place) as usize];
            entry.full_local > 0 || entry.full_remote != 0
        })
    }

    /// The entry of a name or pattern, if there is one.
    fn entry(&self, name: &[u8]) -> Result<Option<EntryIndex>, ProtocolError> {
        if Pattern::parse(name, self.wildcards, self.compat)?.is_some() {
            return Ok(self.patterns.get(name).copied());
        }
        let known =
            self.names.find(self.hasher.hash_one(name), |&at| *self.destinations[at as usize].name == *name);
        Ok(known.and_then(|&at| self.destinations[at as usize].exact))
    }

    fn add_entry(&mut self, name: &[u8]) -> Result<EntryIndex, ProtocolError> {
        let pattern = Pattern::parse(name, self.wildcards, self.compat)?;
        let entry = self.entries.insert(Entry {
            name: name.into(),
            is_pattern: pattern.is_some(),
            groups: SmallVec::new(),
            local: 0,
            remote: 0,
            full_local: 0,
            full_remote: 0,
        }) as EntryIndex;
        if let Some(pattern) = pattern {
            self.tree.insert(&pattern, entry);
            self.patterns.insert(name.into(), entry);
            self.generation += 1;
        } else {
            let hash = self.hasher.hash_one(name);
            let known = self.names.find(hash, |&at| *self.destinations[at as usize].name == *name).copied();
            let destination = known.unwrap_or_else(|| self.remember(name, hash));
            self.destinations[destination as usize].exact = Some(entry);
            self.cached -= 1;
        }
        Ok(entry)
    }

    fn remove_entry_if_unused(&mut self, index: EntryIndex) {
        let entry = &self.entries[index as usize];
        if entry.local > 0 || entry.remote != 0 {
            return;
        }
        let entry = self.entries.remove(index as usize);
        if !entry.is_pattern {
            let hash = self.hasher.hash_one(&*entry.name);
            let known =
                self.names.find(hash, |&at| *self.destinations[at as usize].name == *entry.name).copied();
            if let Some(destination) = known {
                self.destinations[destination as usize].exact = None;
                self.cached += 1;
                self.forget(destination);
            }
        } else if let Ok(Some(pattern)) = Pattern::parse(&entry.name, self.wildcards, self.compat) {
            self.tree.remove(&pattern, index);
            self.patterns.remove(&entry.name);
            self.generation += 1;
        }
    }
}

#[cfg(test)]
#[path = "../router_tests.rs"]
mod tests;
