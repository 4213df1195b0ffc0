//! What is behind a destination, in one look, so that a message need not walk its entries again and again.

use super::group::GroupIndex;
use super::{Destination, Router};
use crate::ids::ShardId;

/// Who wants the messages to one destination, until subscriptions change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reach {
    /// Subscribed names and patterns that match, here or elsewhere.
    pub filters: usize,
    /// Groups of local subscriptions behind them.
    pub groups: usize,
    /// One of them.
    pub group: Option<GroupIndex>,
    /// Local subscriptions whose outbox is full.
    pub full: u32,
    /// Whether one behind them, here or elsewhere, has a full outbox.
    pub is_full: bool,
    /// Other shards that it goes to.
    pub remote: u64,
    /// How much work it is at each of them, at most, in deliveries; 0: not much.
    pub width: usize,
}

impl Router {
    /// What is behind a destination.
    #[must_use]
    #[inline]
    pub fn reach(&self, destination: Destination) -> Reach {
        let mut reach = Reach::default();
        self.each_filter(destination, |filter| {
            reach.filters += 1;
            reach.groups += filter.groups.len();
            reach.full += filter.full_local;
            reach.is_full |= filter.full_local > 0 || filter.full_remote != 0;
            reach.remote |= filter.remote;
            reach.width += filter.width();
            reach.group = filter.groups.last().copied().or(reach.group);
        });
        reach
    }

    /// The same for a destination that may be no topic: what goes to a queue goes to its home. `own` is this shard.
    #[must_use]
    pub fn reach_of_any(&self, destination: Destination, own: ShardId) -> Reach {
        match destination.kind.is_topic() {
            true => self.reach(destination),
            false => Reach { remote: destination.home.bit() & !own.bit(), ..Reach::default() },
        }
    }

    /// The groups of local subscriptions to a destination, in the place of what `groups` held.
    pub fn groups_of(&self, destination: Destination, groups: &mut Vec<GroupIndex>) {
        groups.clear();
        self.each_filter(destination, |filter| groups.extend_from_slice(&filter.groups));
    }
}
