//! What other shards have behind the entries of this one: subscriptions, full outboxes, and what keeps messages while
//! memory is short.

use std::sync::Arc;

use super::tree::EntryIndex;
use super::{Holdup, Router};
use crate::ids::ShardId;
use crate::text::Text;

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
