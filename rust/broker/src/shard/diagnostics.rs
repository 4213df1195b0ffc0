//! The diagnostics layer as the rest of a shard sees it.

use super::Shard;
use crate::diag::Owners;

impl Shard {
    /// What diagnostics take of this shard.
    pub(crate) fn diag(&mut self) -> Owners<'_> {
        Owners {
            turn: &mut self.turn,
            notes: &mut self.notes,
            router: &mut self.router,
            queues: &mut self.queues,
            connections: &mut self.connections,
            deliveries: &mut self.deliveries,
            peers: &mut self.peers,
            diagnostics: &mut self.diagnostics,
            is_draining: self.draining.is_some(),
        }
    }
}
