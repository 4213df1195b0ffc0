//! Counts anew what a router holds, and compares its indices with its tables.

use std::hash::BuildHasher as _;

use super::group::{Place, Subscription};
use super::{Filter, Router};
use crate::audit::{Audit, LocalFilter};
use crate::ids::ShardId;

impl Router {
    /// Visits all names, filters, groups and subscriptions.
    pub fn audit(&self, audit: &mut Audit) {
        self.names.audit(audit);
        self.tree.audit(audit);
        for (index, filter) in self.filters.iter() {
            audit.shared_text(&filter.name);
            self.audit_filter(audit, index as u32, filter);
        }
        self.audit_groups(audit);
        for (index, subscription) in self.subscriptions.iter() {
            audit.text(&subscription.id);
            self.audit_subscription(audit, index as u32, subscription);
        }
    }

    /// Whether publishers to some filter wait for a receiver.
    pub fn is_any_full(&self) -> bool {
        self.filters.iter().any(|(_, filter)| filter.full_local > 0 || filter.full_remote != 0)
    }

    /// Whether publishers to some filter wait for a private queue that grows.
    pub fn has_any_growing_queue(&self) -> bool {
        self.filters.iter().any(|(_, filter)| filter.growing_local > 0 || filter.growing_remote != 0)
    }

    fn audit_filter(&self, audit: &mut Audit, index: u32, filter: &Filter) {
        let shown = || String::from_utf8_lossy(&filter.name).into_owned();
        audit.require(filter.local > 0 || filter.remote != 0, || {
            format!("nobody needs the filter '{}'", shown())
        });
        let hash = self.names.hash(&filter.name);
        let (full, growing) = (filter.full_local > 0, filter.growing_local > 0);
        audit.own_filter(hash, LocalFilter { is_subscribed: filter.local > 0, full, growing });
        for shard in ShardId::of_bits(filter.remote | filter.full_remote | filter.growing_remote) {
            let has = |bits: u64| bits & shard.bit() != 0;
            let (full, growing) = (has(filter.full_remote), has(filter.growing_remote));
            audit.belief(shard, hash, LocalFilter { is_subscribed: has(filter.remote), full, growing });
        }
        let found = self.find_filter(&filter.name).ok().flatten();
        audit.require(found == Some(index), || format!("the filter '{}' is not found by its name", shown()));
        let members = filter.groups.iter().filter_map(|group| self.groups.get(*group as usize));
        let members: usize = members.map(|group| group.members.len()).sum();
        audit.equal("subscriptions of a filter", filter.local as usize, members);
        for (slot, group) in filter.groups.iter().enumerate() {
            let found = self.groups.get(*group as usize);
            let is_right = found.is_some_and(|group| group.filter == index && group.slot as usize == slot);
            audit.require(is_right, || format!("group {slot} of the filter '{}' is {found:?}", shown()));
        }
        audit.require(filter.full_local <= filter.local && filter.growing_local <= filter.local, || {
            format!("more subscriptions of '{}' make publishers wait than there are", shown())
        });
    }

    fn audit_groups(&self, audit: &mut Audit) {
        let mut indexed = 0;
        for (index, group) in self.groups.iter() {
            group.id.iter().for_each(|id| audit.text(id));
            audit.text(&group.prefix);
            audit.require(!group.members.is_empty(), || format!("group {index} has no members"));
            let own = self.filters.get(group.filter as usize);
            let is_listed =
                own.is_some_and(|filter| filter.groups.get(group.slot as usize) == Some(&(index as u32)));
            audit.require(is_listed, || format!("group {index} is not listed by its filter"));
            if group.target_queue.is_some() {
                continue;
            }
            indexed += 1;
            let hash = self.hasher.hash_one((group.filter, group.wire_format, group.id.as_deref()));
            let found = self.group_index.find(hash, |at| at == index as u32);
            audit.require(found.is_some(), || format!("group {index} is not in the index"));
        }
        audit.equal("groups in the index", self.group_index.len(), indexed);
    }

    fn audit_subscription(&self, audit: &mut Audit, index: u32, subscription: &Subscription) {
        let Place::Topic { filter, group, member } = subscription.place else { return };
        let found = self.groups.get(group as usize);
        let own = found.and_then(|group| group.members.get(member as usize));
        let is_right = found.is_some_and(|group| group.filter == filter)
            && own.is_some_and(|own| {
                (own.subscription.index, own.subscription.generation) == (index, subscription.generation)
                    && own.conn == subscription.conn.index
            });
        audit.require(is_right, || format!("subscription {index} is not a member of its group: {own:?}"));
    }
}

impl Router {
    /// The hash by which all shards know a name.
    #[must_use]
    pub fn hash_of(&self, name: &[u8]) -> u64 {
        self.names.hash(name)
    }
    /// The names and patterns with subscriptions here.
    #[cfg(simulated)]
    pub fn subscribed_names(&self) -> impl Iterator<Item = &[u8]> {
        self.filters.iter().filter(|(_, filter)| filter.local > 0).map(|(_, filter)| &filter.name[..])
    }

    /// The names and patterns with subscriptions anywhere, as far as they are known here.
    #[cfg(simulated)]
    pub fn known_names(&self) -> impl Iterator<Item = &[u8]> {
        self.filters.iter().map(|(_, filter)| &filter.name[..])
    }
}
