//! The diagnostics layer as the rest of a shard sees it.

use super::Shard;
use crate::connection::flow::Flow;
use crate::diag::Owners;
use crate::diag::inquiries::Purpose;
use crate::ids::ConnKey;
use crate::report::Query;
use crate::router::group::SubscriptionIndex;

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

    pub(crate) fn ask_for(&mut self, key: ConnKey, query: Query, purpose: Purpose) -> Flow {
        self.diag().ask_for(key, query, purpose)
    }

    pub(crate) fn watch(&mut self, index: SubscriptionIndex, query: Query, interval_ms: u64) {
        self.diag().watch(index, query, interval_ms);
    }
}
