//! Hot path: looks up the destination of a message and its receivers, once for each message, so that its filters are
//! not walked repeatedly.

use std::sync::Arc;

use stompica_proto::ProtocolError;

use super::group::GroupIndex;
use super::names::Name;
use super::{Destination, Filter, Router};
use crate::collections::keyed::Key;
use crate::config::Compat;
use crate::destination::Kind;
use crate::door::planted;
use crate::ids::ShardId;
use crate::log::Level;
use crate::turn::Turn;

/// The maximum length of a name in the log.
const SHOWN_BYTES: usize = 100;

/// The receivers of messages to one destination, valid until subscriptions change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reach {
    /// The number of matching subscribed names and patterns, here or on other shards.
    pub filters: usize,
    /// The number of their groups of local subscriptions.
    pub groups: usize,
    /// One of these groups.
    pub group: Option<GroupIndex>,
    /// The number of local subscriptions whose outbox is full.
    pub full: u32,
    /// Whether a receiver, here or on another shard, has a full outbox.
    pub is_full: bool,
    /// Other shards that receive the message.
    pub remote: u64,
    /// The maximum number of deliveries at each of them; 0: few.
    pub fan_out_size: usize,
}

impl Reach {
    /// The receivers of one filter. Inlined, so that it stays in registers.
    #[inline(always)]
    fn of(filter: &Filter) -> Self {
        Reach {
            filters: 1,
            groups: filter.groups.len(),
            group: filter.groups.last().copied(),
            full: filter.full_local,
            is_full: filter.full_local > 0 || filter.full_remote != 0,
            remote: filter.remote,
            fan_out_size: filter.fan_out_size(),
        }
    }

    fn add(&mut self, other: Reach) {
        self.filters += other.filters;
        self.groups += other.groups;
        self.group = other.group.or(self.group);
        self.full += other.full;
        self.is_full |= other.is_full;
        self.remote |= other.remote;
        self.fan_out_size += other.fan_out_size;
    }
}

impl Router {
    /// The destination of a message.
    ///
    /// # Errors
    /// `E-DEST-WILDCARD`.
    #[inline]
    pub fn destination_of(&mut self, turn: &mut Turn, name: &[u8]) -> Result<Destination, ProtocolError> {
        match self.last_destination(name) {
            Some(last) => Ok(last),
            None => self.look_up(turn, name),
        }
    }

    /// The destination of the last look-up, if it has this name and its filters are current.
    #[inline]
    #[must_use]
    pub fn last_destination(&self, name: &[u8]) -> Option<Destination> {
        let last = self.last?;
        let known = self.resolved(last)?;
        (known.text()[..] == *name).then_some(last)
    }

    #[inline(never)]
    fn look_up(&mut self, turn: &mut Turn, name: &[u8]) -> Result<Destination, ProtocolError> {
        let found = self.destination(name);
        let visited = self.take_visited();
        if visited > 0 {
            turn.budget.visit(visited);
            self.warn_of_dotted(turn, name);
        }
        found
    }

    /// The destination of a SEND, with all its filters; try [`Router::last_destination`] first.
    ///
    /// # Errors
    /// `E-DEST-WILDCARD`; only valid names are cached.
    pub fn destination(&mut self, name: &[u8]) -> Result<Destination, ProtocolError> {
        let hash = self.names.hash(name);
        let key = match self.names.find(hash, name) {
            Some(key) => key,
            None => {
                crate::destination::require_plain(name)?;
                self.remember(Arc::new(name.into()), hash)
            }
        };
        let known = self.names.get(key).expect("found or remembered above");
        let Name { kind, home, is_recorded, .. } = *known;
        let destination = Destination { key, kind, home, is_recorded };
        if known.generation != self.generation {
            self.resolve(key);
        }
        self.last = Some(destination);
        Ok(destination)
    }

    fn resolve(&mut self, key: Key) {
        let Some(name) = self.names.get(key) else { return };
        self.found.clear();
        self.visited += self.tree.matching(name.text(), &mut self.found);
        let (kind, filters) = (name.kind, &self.filters);
        // A pattern matches only its own kind, so that a pattern cannot receive messages of temporary topics.
        self.found.retain(|at| filters[*at as usize].kind == kind);
        self.names.set_wild(key, &self.found, self.generation);
    }

    /// Warns once that a name with dots and without a prefix is a topic here. In other brokers it is a queue.
    #[cold]
    pub fn warn_of_dotted(&self, turn: &Turn, name: &[u8]) {
        let is_dotted = turn.config.compat == Compat::None
            && !name.starts_with(b"/")
            && name.contains(&b'.')
            && self.kind(name) == Kind::Topic;
        if is_dotted && turn.totals.explained_dotted.is_first() {
            let shown = String::from_utf8_lossy(&name[..name.len().min(SHOWN_BYTES)]);
            let more = if name.len() > SHOWN_BYTES { "…" } else { "" };
            turn.log(Level::Warn, || {
                format!("'{shown}{more}' is a topic, as are all dotted names; a queue's name begins with '/queue/'")
            });
        }
    }

    /// The receivers of a destination.
    #[must_use]
    #[inline(always)]
    pub fn reach(&self, destination: Destination) -> Reach {
        // Most names match no pattern.
        if let Some(name) = self.resolved(destination)
            && let Some(filter) = name.exact.and_then(|filter| self.filters.get(filter as usize))
            && name.wild.is_empty()
        {
            return Reach::of(filter);
        }
        self.reach_of_patterns(destination)
    }

    /// The receivers of a destination that may match patterns.
    #[inline(never)]
    fn reach_of_patterns(&self, destination: Destination) -> Reach {
        let mut reach = Reach::default();
        self.each_filter(destination, |filter| reach.add(Reach::of(filter)));
        reach
    }

    /// Does the same for any kind of destination: messages to queues go to their home. `own` is this shard.
    #[must_use]
    #[inline]
    pub fn reach_of_any(&self, destination: Destination, own: ShardId) -> Reach {
        match destination.kind.is_topic() {
            true => self.reach(destination),
            false => Reach { remote: destination.home.bit() & !own.bit(), ..Reach::default() },
        }
    }

    /// Fills `groups` with the groups of local subscriptions to a destination.
    pub fn groups_of(&self, destination: Destination, groups: &mut Vec<GroupIndex>) {
        groups.clear();
        self.each_filter(destination, |filter| groups.extend_from_slice(&filter.groups));
    }

    /// A name with the patterns that match it; `None` if it was forgotten, or patterns have changed since.
    fn resolved(&self, destination: Destination) -> Option<&Name> {
        let is_current = |name: &&Name| name.generation == self.generation || planted!("stale-matches-used");
        self.names.get(destination.key).filter(is_current)
    }

    /// The number of filters of a destination.
    #[must_use]
    pub fn filter_count(&self, destination: Destination) -> usize {
        self.resolved(destination).map_or(0, |name| usize::from(name.exact.is_some()) + name.wild.len())
    }

    /// A loop, because it runs several times for each message, and chained iterators cost more.
    #[inline]
    fn each_filter(&self, destination: Destination, mut look: impl FnMut(&Filter)) {
        let Some(name) = self.resolved(destination) else { return };
        if let Some(filter) = name.exact.and_then(|filter| self.filters.get(filter as usize)) {
            look(filter);
        }
        for filter in &name.wild {
            if let Some(filter) = self.filters.get(*filter as usize) {
                look(filter);
            }
        }
    }

    /// Whether the private queue of a matching subscription, here or on another shard, grows while memory is short.
    #[must_use]
    pub fn has_growing_queue(&self, destination: Destination) -> bool {
        let mut kept = false;
        self.each_filter(destination, |filter| {
            kept |= filter.growing_local > 0 || filter.growing_remote != 0
        });
        kept
    }
}
