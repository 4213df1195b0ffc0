//! Subscriptions to topics whose own queue keeps what comes, while memory is short: publishers to their topics wait, on
//! all shards, unless they hold deliveries whose ACKs may be behind what they send.

use super::Shard;
use crate::ids::QueueKey;
use crate::router::Holdup;
use crate::router::group::SubscriptionIndex;

/// Subscriptions that are looked at in one turn.
const TURN_MAX: usize = 256;

impl Shard {
    /// A message has come to the queue of a subscription while memory is short.
    pub(super) fn note_keeper(&mut self, subscription: SubscriptionIndex, queue: QueueKey) {
        if self.queues.home.allowance(queue).is_none() && self.memory.keepers.add(subscription, queue) {
            self.change_full_of(subscription, Holdup::Keeper, true);
        }
    }

    /// A subscription to a topic goes.
    pub(super) fn forget_keeper(&mut self, subscription: SubscriptionIndex) {
        if self.memory.keepers.remove(subscription) {
            self.change_full_of(subscription, Holdup::Keeper, false);
        }
    }

    /// Lets those go on whose queue hands on again what comes; all of them, once memory is not short any more.
    pub(super) fn look_at_keepers(&mut self) {
        for _ in 0..self.memory.keepers.len().min(TURN_MAX) {
            self.turn.budget.visit(1);
            let Some((subscription, queue)) = self.memory.keepers.next() else { break };
            let keeps =
                self.queues.home.queue(queue).is_some() && self.queues.home.allowance(queue).is_none();
            if !(keeps && self.turn.memory.is_short) {
                self.forget_keeper(subscription);
            }
        }
    }

    /// Whether some hold publishers up that need not any more.
    pub(super) fn has_keepers(&self) -> bool {
        self.memory.keepers.len() > 0
    }
}
