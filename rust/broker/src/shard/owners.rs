//! The owners of a shard that each layer borrows for one call.

use super::Shard;
use crate::{command, delivery, diag, queue};

impl Shard {
    /// The owners that queues need.
    #[inline]
    pub(crate) fn queue(&mut self) -> queue::Owners<'_> {
        lend!(self => queue::Owners { turn, notes, router, queues })
    }

    /// The owners that deliveries need.
    #[inline]
    pub(crate) fn delivery(&mut self) -> delivery::Owners<'_> {
        lend!(self => delivery::Owners { turn, notes, router, queues, connections, deliveries, peers })
    }

    /// The owners that diagnostics need.
    pub(crate) fn diag(&mut self) -> diag::Owners<'_> {
        lend!(self => diag::Owners {
            turn, notes, router, queues, connections, deliveries, peers, diagnostics
        } with { is_draining: self.draining.is_some() })
    }

    /// The owners that commands need.
    #[inline]
    pub(crate) fn command(&mut self) -> command::Owners<'_> {
        lend!(self => command::Owners {
            turn, notes, router, queues, connections, deliveries, peers, diagnostics, commits
        } with { is_draining: self.draining.is_some() })
    }
}
