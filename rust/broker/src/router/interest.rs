//! The state of other shards for the filters of this one: subscriptions, the work of a message, full outboxes, and
//! growing private queues while memory is short.

use std::sync::Arc;

use super::{Filter, Holdup, Router};
use crate::destination::tree::FilterIndex;
use crate::door::planted;
use crate::ids::ShardId;
use crate::text::Text;

/// From this number of deliveries on, other shards know the approximate number.
const LARGE: u32 = if cfg!(fuzzing) { 2 } else { 16 };
/// This many subscriptions of a group are as much work as another group: messages of a group are encoded once, and
/// distributed in batches.
const GROUP_MEMBERS: u32 = 64;

impl Router {
    /// Records whether another shard has subscriptions to a name or pattern.
    pub fn set_interest(&mut self, name: &Arc<Text>, shard: ShardId, interested: bool) {
        // The other shard has parsed the name, so neither step can fail here.
        let Ok(known) = self.find_filter(name) else { return };
        if interested {
            #[cfg(simulated)]
            {
                self.learned += usize::from(known.is_none());
            }
            let Ok(filter) = known.map_or_else(|| self.add_filter(name), Ok) else { return };
            self.filters[filter as usize].remote |= shard.bit();
        } else if let Some(filter) = known {
            let filter_of_name = &mut self.filters[filter as usize];
            filter_of_name.remote &= !shard.bit();
            if filter_of_name.remote != 0 && planted!("disinterest-of-all") {
                filter_of_name.remote = 0;
            }
            filter_of_name.full_remote &= !shard.bit();
            filter_of_name.growing_remote &= !shard.bit();
            filter_of_name.set_fan_out_size(shard, 0);
            self.remove_filter_if_unused(filter);
        }
    }

    /// Records whether another shard has a receiver for a name or pattern that messages have to wait for.
    pub fn set_full(&mut self, name: &[u8], shard: ShardId, holdup: Holdup, full: bool) {
        if let Ok(Some(filter)) = self.find_filter(name) {
            let filter = &mut self.filters[filter as usize];
            let shards = match holdup {
                Holdup::Outbox => &mut filter.full_remote,
                Holdup::GrowingQueue => &mut filter.growing_remote,
            };
            *shards = if full { *shards | shard.bit() } else { *shards & !shard.bit() };
        }
    }

    /// Records the maximum number of deliveries for a name or pattern at another shard; 0: few.
    pub fn set_fan_out_size(&mut self, name: &[u8], shard: ShardId, fan_out_size: u32) {
        if let Ok(Some(filter)) = self.find_filter(name) {
            self.filters[filter as usize].set_fan_out_size(shard, fan_out_size);
        }
    }

    /// The number of deliveries for a filter that other shards have to be told, if any: a power of two. It changes only
    /// if the number exceeds it, or is less than a quarter of it.
    pub fn fan_out_size_to_tell(&mut self, filter: FilterIndex) -> Option<u32> {
        let filter = self.filters.get_mut(filter as usize)?;
        let (fan_out_size, told) =
            (filter.groups.len() as u32 + filter.local / GROUP_MEMBERS, filter.fan_out_size_told);
        let is_news =
            if told == 0 { fan_out_size >= LARGE } else { fan_out_size > told || fan_out_size < told / 4 };
        if is_news {
            filter.fan_out_size_told =
                if fan_out_size >= LARGE { fan_out_size.next_power_of_two() } else { 0 };
        }
        is_news.then_some(filter.fan_out_size_told)
    }

    /// Whether a plain name has a subscription, here or on another shard.
    #[must_use]
    pub fn has_filter(&self, name: &[u8]) -> bool {
        matches!(self.find_filter(name), Ok(Some(_)))
    }

    /// The text of a name or pattern for other shards, so that all shards share one copy.
    #[must_use]
    pub fn shared_text(&self, name: &[u8]) -> Arc<Text> {
        match self.find_filter(name) {
            Ok(Some(filter)) => Arc::clone(&self.filters[filter as usize].name),
            _ => Arc::new(name.into()),
        }
    }

    /// The name or pattern of a filter.
    #[must_use]
    pub fn filter_name(&self, filter: FilterIndex) -> &[u8] {
        &self.filters[filter as usize].name
    }
}

impl Filter {
    fn set_fan_out_size(&mut self, shard: ShardId, fan_out_size: u32) {
        self.fan_out_sizes.retain(|(other, _)| *other != shard);
        if fan_out_size > 0 {
            self.fan_out_sizes.push((shard, fan_out_size));
        }
    }

    /// The maximum number of deliveries at any other shard.
    #[inline]
    pub(super) fn fan_out_size(&self) -> usize {
        self.fan_out_sizes.iter().map(|(_, fan_out_size)| *fan_out_size as usize).max().unwrap_or(0)
    }
}
