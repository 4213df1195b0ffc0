//! What other shards have behind the entries of this one: subscriptions and how much work a message to them is, full
//! outboxes, and what keeps messages while memory is short.

use std::sync::Arc;

use super::{Filter, Holdup, Router};
use crate::destination::tree::FilterIndex;
use crate::ids::ShardId;
use crate::text::Text;

/// From this width on other shards know how wide an entry is, about.
const WIDE: u32 = if cfg!(fuzzing) { 2 } else { 16 };
/// Subscriptions of a group that are as much work as another group: its messages are encoded once, and handed out many
/// at a time.
const GROUP_MEMBERS: u32 = 64;

impl Router {
    /// Notes whether another shard has subscriptions to a name or pattern.
    pub fn set_interest(&mut self, name: &Arc<Text>, shard: ShardId, interested: bool) {
        // The other shard has parsed the name, so neither step can fail here.
        let Ok(known) = self.find_filter(name) else { return };
        if interested {
            let Ok(filter) = known.map_or_else(|| self.add_filter(name), Ok) else { return };
            self.filters[filter as usize].remote |= shard.bit();
        } else if let Some(filter) = known {
            self.filters[filter as usize].remote &= !shard.bit();
            self.filters[filter as usize].full_remote &= !shard.bit();
            self.filters[filter as usize].keepers_remote &= !shard.bit();
            self.filters[filter as usize].set_width(shard, 0);
            self.remove_filter_if_unused(filter);
        }
    }

    /// Notes whether another shard has somebody behind a name or pattern for whom messages have to wait.
    pub fn set_full(&mut self, name: &[u8], shard: ShardId, holdup: Holdup, full: bool) {
        if let Ok(Some(filter)) = self.find_filter(name) {
            let filter = &mut self.filters[filter as usize];
            let shards = match holdup {
                Holdup::Outbox => &mut filter.full_remote,
                Holdup::Keeper => &mut filter.keepers_remote,
            };
            *shards = if full { *shards | shard.bit() } else { *shards & !shard.bit() };
        }
    }

    /// Notes how wide a name or pattern is at another shard, at most; 0: not wide.
    pub fn set_width(&mut self, name: &[u8], shard: ShardId, width: u32) {
        if let Ok(Some(filter)) = self.find_filter(name) {
            self.filters[filter as usize].set_width(shard, width);
        }
    }

    /// What other shards are to be told of how wide an entry is here, if anything: a power of two, and not again before
    /// it is wider, or has less than a quarter of that.
    pub fn width_to_tell(&mut self, filter: FilterIndex) -> Option<u32> {
        let filter = self.filters.get_mut(filter as usize)?;
        let (width, told) = (filter.groups.len() as u32 + filter.local / GROUP_MEMBERS, filter.width_told);
        let is_news = if told == 0 { width >= WIDE } else { width > told || width < told / 4 };
        if is_news {
            filter.width_told = if width >= WIDE { width.next_power_of_two() } else { 0 };
        }
        is_news.then_some(filter.width_told)
    }

    /// Whether anybody subscribes to a plain name, here or on another shard.
    #[must_use]
    pub fn has_filter(&self, name: &[u8]) -> bool {
        matches!(self.find_filter(name), Ok(Some(_)))
    }

    /// A name or pattern to tell other shards, so that all have one copy of it.
    #[must_use]
    pub fn shared_text(&self, name: &[u8]) -> Arc<Text> {
        match self.find_filter(name) {
            Ok(Some(filter)) => Arc::clone(&self.filters[filter as usize].name),
            _ => Arc::new(name.into()),
        }
    }

    /// The name or pattern of an entry.
    #[must_use]
    pub fn filter_name(&self, filter: FilterIndex) -> &[u8] {
        &self.filters[filter as usize].name
    }
}

impl Filter {
    fn set_width(&mut self, shard: ShardId, width: u32) {
        self.widths.retain(|(other, _)| *other != shard);
        if width > 0 {
            self.widths.push((shard, width));
        }
    }

    /// How wide it is at any other shard, at most.
    #[inline]
    pub(super) fn width(&self) -> usize {
        self.widths.iter().map(|(_, width)| *width as usize).max().unwrap_or(0)
    }
}
