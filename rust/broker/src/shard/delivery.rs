//! The delivery layer as the rest of a shard sees it.

use super::Shard;
use crate::connection::pausing::Pause;
use crate::connection::pending_writes::PendingWrites;
use crate::delivery::Owners;
use crate::delivery::passing::Load;
use crate::ids::{ConnKey, SubscriptionKey};

use crate::message::OwnedMessage;
use crate::queue::consumer_state::Retries;
use crate::queue::passing::Allowance;
use crate::queue::unacked::TakenOnes;
use crate::turn::budget::Budget;
use crate::turn::jobs::Job;

impl Shard {
    /// What delivering takes of this shard.
    #[inline]
    pub(crate) fn delivery(&mut self) -> Owners<'_> {
        Owners {
            turn: &mut self.turn,
            notes: &mut self.notes,
            router: &mut self.router,
            queues: &mut self.queues,
            connections: &mut self.connections,
            deliveries: &mut self.deliveries,
            peers: &mut self.peers,
        }
    }

    /// Whether fan-outs and full outboxes have something to do in the next turn.
    pub(super) fn has_deliveries(&self) -> bool {
        !self.connections.refill.is_empty()
            || self.queues.replays.has_work()
            || ((self.deliveries.fan_outs.first().is_some() || self.queues.replays.wait_for_memory())
                && !self.turn.is_out_of_memory())
    }

    /// Goes on with what earlier turns began, for half of a turn each.
    pub(super) fn proceed_with_deliveries(&mut self) {
        self.delivery().proceed_with_fan_outs(2);
        self.delivery().refill_outboxes();
        self.delivery().pull_again();
        self.proceed_with_replays();
    }

    /// The shard ends, and there are no more turns: forgets what connections were owed, and ends subscriptions.
    pub(super) fn drop_all_deferred(&mut self) {
        while let Some(job) = self.turn.jobs.pop() {
            self.turn.budget = Budget::default();
            match job {
                Job::Forget => self.delivery().proceed_with_forgetting(),
                Job::Leave(key) => self.proceed_with_leaving(key),
                _ => {}
            }
        }
    }
}

/// What other files of this folder call by these names.
impl Shard {
    #[inline]
    pub(crate) fn distribute(&mut self) {
        self.connections.distribute(&mut self.turn);
    }

    pub(crate) fn give_back_failed(&mut self, key: SubscriptionKey, retries: Retries, taken: TakenOnes) {
        self.delivery().give_back_failed(key, retries, taken);
    }

    pub(super) fn give_back_unwritten(&mut self, pending: &mut PendingWrites, frames: Option<usize>) {
        self.delivery().give_back_unwritten(pending, frames);
    }

    pub(super) fn proceed_with_forgetting(&mut self) {
        self.delivery().proceed_with_forgetting();
    }

    #[inline]
    pub(super) fn note_written(&mut self, key: ConnKey) {
        self.delivery().note_written(key);
    }

    pub(super) fn note_room(&mut self, key: ConnKey) {
        self.delivery().note_room(key);
    }

    pub(super) fn note_progress(&mut self, key: ConnKey) {
        self.delivery().note_progress(key);
    }

    pub(super) fn count_memory(&mut self) {
        self.delivery().count_memory();
    }

    pub(super) fn is_owed(&self, key: ConnKey) -> bool {
        self.connections.is_owed(key)
    }

    #[inline]
    pub(crate) fn pause_for(&mut self, key: ConnKey, load: &Load<'_>) -> Option<Pause> {
        self.delivery().pause_for(key, load)
    }

    pub(super) fn may_exceed(&mut self, key: ConnKey) -> bool {
        self.delivery().may_exceed(key)
    }

    pub(super) fn let_pass(&mut self, hash: u64, allowance: Allowance, remember: bool) {
        self.delivery().let_pass(hash, allowance, remember);
    }

    pub(super) fn publish_late(&mut self, stored: &OwnedMessage) {
        self.delivery().publish_late(stored);
    }

    pub(super) fn has_inbound(&self) -> bool {
        self.peers.inbound.can_go_on(&self.deliveries.fan_outs)
    }
}
