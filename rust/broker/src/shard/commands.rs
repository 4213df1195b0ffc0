//! The commands' layer as the rest of a shard sees it.

use super::Shard;
use crate::command::Owners;

impl Shard {
    /// What commands take of this shard.
    #[inline]
    pub(crate) fn command(&mut self) -> Owners<'_> {
        Owners {
            turn: &mut self.turn,
            notes: &mut self.notes,
            router: &mut self.router,
            queues: &mut self.queues,
            connections: &mut self.connections,
            deliveries: &mut self.deliveries,
            peers: &mut self.peers,
            diagnostics: &mut self.diagnostics,
            commits: &mut self.commits,
            is_draining: self.draining.is_some(),
        }
    }
}
