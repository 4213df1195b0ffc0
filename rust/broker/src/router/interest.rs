//! What other shards have behind the entries of this one: subscriptions and how much work a message to them is, full
//! outboxes, and what keeps messages while memory is short.

use std::sync::Arc;

use super::{Entry, Holdup, Router};
use crate::destination::tree::EntryIndex;
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
        let Ok(known) = self.entry(name) else { return };
        if interested {
            let Ok(entry) = known.map_or_else(|| self.add_entry(name), Ok) else { return };
            self.entries[entry as usize].remote |= shard.bit();
        } else if let Some(entry) = known {
            self.entries[entry as usize].remote &= !shard.bit();
            self.entries[entry as usize].full_remote &= !shard.bit();
            self.entries[entry as usize].keepers_remote &= !shard.bit();
            self.entries[entry as usize].set_width(shard, 0);
            self.remove_entry_if_unused(entry);
        }
    }

    /// Notes whether another shard has somebody behind a name or pattern for whom messages have to wait.
    pub fn set_full(&mut self, name: &[u8], shard: ShardId, holdup: Holdup, full: bool) {
        if let Ok(Some(entry)) = self.entry(name) {
            let entry = &mut self.entries[entry as usize];
            let shards = match holdup {
                Holdup::Outbox => &mut entry.full_remote,
                Holdup::Keeper => &mut entry.keepers_remote,
            };
            *shards = if full { *shards | shard.bit() } else { *shards & !shard.bit() };
        }
    }

    /// Notes how wide a name or pattern is at another shard, at most; 0: not wide.
    pub fn set_width(&mut self, name: &[u8], shard: ShardId, width: u32) {
        if let Ok(Some(entry)) = self.entry(name) {
            self.entries[entry as usize].set_width(shard, width);
        }
    }

    /// What other shards are to be told of how wide an entry is here, if anything: a power of two, and not again before
    /// it is wider, or has less than a quarter of that.
    pub fn width_to_tell(&mut self, entry: EntryIndex) -> Option<u32> {
        let entry = self.entries.get_mut(entry as usize)?;
        let (width, told) = (entry.groups.len() as u32 + entry.local / GROUP_MEMBERS, entry.width_told);
        let is_news = if told == 0 { width >= WIDE } else { width > told || width < told / 4 };
        if is_news {
            entry.width_told = if width >= WIDE { width.next_power_of_two() } else { 0 };
        }
        is_news.then_some(entry.width_told)
    }

    /// Whether anybody subscribes to a plain name, here or on another shard.
    #[must_use]
    pub fn has_entry(&self, name: &[u8]) -> bool {
        matches!(self.entry(name), Ok(Some(_)))
    }

    /// A name or pattern to tell other shards, so that all have one copy of it.
    #[must_use]
    pub fn shared_text(&self, name: &[u8]) -> Arc<Text> {
        match self.entry(name) {
            Ok(Some(entry)) => Arc::clone(&self.entries[entry as usize].name),
            _ => Arc::new(name.into()),
        }
    }

    /// The name or pattern of an entry.
    #[must_use]
    pub fn entry_name(&self, entry: EntryIndex) -> &[u8] {
        &self.entries[entry as usize].name
    }
}

impl Entry {
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
