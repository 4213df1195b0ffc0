//! What each layer is given of a shard: its owners, borrowed for one call.

use super::Shard;
use crate::{command, delivery, diag, queue};

impl Shard {
    /// The queues, with what they need.
    #[inline]
    pub(crate) fn queue(&mut self) -> queue::Owners<'_> {
        queue::Owners {
            turn: &mut self.turn,
            notes: &mut self.notes,
            router: &mut self.router,
            queues: &mut self.queues,
        }
    }

    /// What delivering takes of this shard.
    #[inline]
    pub(crate) fn delivery(&mut self) -> delivery::Owners<'_> {
        delivery::Owners {
            turn: &mut self.turn,
            notes: &mut self.notes,
            router: &mut self.router,
            queues: &mut self.queues,
            connections: &mut self.connections,
            deliveries: &mut self.deliveries,
            peers: &mut self.peers,
        }
    }

    /// What diagnostics take of this shard.
    pub(crate) fn diag(&mut self) -> diag::Owners<'_> {
        diag::Owners {
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

    /// What commands take of this shard.
    #[inline]
    pub(crate) fn command(&mut self) -> command::Owners<'_> {
        command::Owners {
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
