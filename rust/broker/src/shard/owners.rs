//! The owners of a shard that each layer borrows for one call.

use super::Shard;
use crate::{command, delivery, diag, queue};

impl Shard {
    /// The owners that queues need.
    #[inline]
    pub(crate) fn queue(&mut self) -> queue::Owners<'_> {
        queue::Owners {
            turn: &mut self.turn,
            notes: &mut self.notes,
            router: &mut self.router,
            queues: &mut self.queues,
        }
    }

    /// The owners that deliveries need.
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

    /// The owners that diagnostics need.
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

    /// The owners that commands need.
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
