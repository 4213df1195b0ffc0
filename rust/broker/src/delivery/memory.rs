//! What one shard holds.

use super::Owners;
use crate::{message, text};

impl Owners<'_> {
    /// Brings what this shard holds into the broker's count.
    pub fn count_memory(&mut self) {
        let held = self.connections.chunks.held_bytes()
            + self.connections.input_bytes
            + self.deliveries.passing.held_bytes()
            + self.deliveries.keepers.held_bytes()
            + self.router.held_bytes()
            + self.queues.home.held_bytes()
            + self.queues.consumers.held_bytes()
            + self.turn.timers.held_bytes()
            + self.deliveries.fan_outs.held_bytes()
            + self.queues.replays.held_bytes();
        let held = i64::try_from(held).unwrap_or(i64::MAX);
        self.turn.count_memory(held.saturating_add(message::held_bytes() + text::held_bytes()));
    }
}
