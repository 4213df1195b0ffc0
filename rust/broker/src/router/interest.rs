//! What other shards have behind the entries of this one: subscriptions, and full outboxes.

use super::Router;
use super::tree::EntryIndex;
use crate::ids::ShardId;

impl Router {
    /// Notes whether another shard has subscriptions to a name or pattern.
    pub fn set_interest(&mut self, name: &[u8], shard: ShardId, interested: bool) {
        // The other shard has parsed the name, so neither step can fail here.
        let Ok(known) = self.entry(name) else { return };
        if interested {
            let Ok(entry) = known.map_or_else(|| self.add_entry(name), Ok) else { return };
            self.entries[entry as usize].remote |= shard.bit();
        } else if let Some(entry) = known {
            self.entries[entry as usize].remote &= !shard.bit();
            self.entries[entry as usize].full_remote &= !shard.bit();
            self.remove_entry_if_unused(entry);
        }
    }

    /// Notes whether another shard has a full outbox behind a name or pattern.
    pub fn set_full(&mut self, name: &[u8], shard: ShardId, full: bool) {
        if let Ok(Some(entry)) = self.entry(name) {
            let entry = &mut self.entries[entry as usize];
            entry.full_remote =
                if full { entry.full_remote | shard.bit() } else { entry.full_remote & !shard.bit() };
        }
    }

    /// Whether anybody subscribes to a plain name, here or on another shard.
    #[must_use]
    pub fn has_entry(&self, name: &[u8]) -> bool {
        matches!(self.entry(name), Ok(Some(_)))
    }

    /// The name or pattern of an entry.
    #[must_use]
    pub fn entry_name(&self, entry: EntryIndex) -> &[u8] {
        &self.entries[entry as usize].name
    }
}
