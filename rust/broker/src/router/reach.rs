//! What is behind a destination on this shard, in one look, so that a message need not walk its entries again and again.

use super::group::GroupIndex;
use super::{Destination, Router};

/// Who wants the messages to one destination.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reach {
    /// Subscribed names and patterns that match, here or elsewhere.
    pub entries: usize,
    /// Groups of local subscriptions behind them.
    pub groups: usize,
    /// One of them.
    pub group: Option<GroupIndex>,
    /// Local subscriptions whose outbox is full.
    pub full: u32,
}

impl Router {
    /// What is behind a destination.
    #[must_use]
    #[inline]
    pub fn reach(&self, destination: Destination) -> Reach {
        let mut reach = Reach::default();
        self.each_entry(destination, |entry| {
            reach.entries += 1;
            reach.groups += entry.groups.len();
            reach.full += entry.full_local;
            reach.group = entry.groups.last().copied().or(reach.group);
        });
        reach
    }
    /// The groups of local subscriptions to a destination, in the place of what `groups` held.
    pub fn groups_of(&self, destination: Destination, groups: &mut Vec<GroupIndex>) {
        groups.clear();
        self.each_entry(destination, |entry| groups.extend_from_slice(&entry.groups));
    }
}
