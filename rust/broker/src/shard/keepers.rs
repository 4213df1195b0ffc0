//! Subscriptions to topics whose own queue keeps what comes, while memory is short: they count as full, so that the
//! publishers to their topics wait, on all shards.

use std::collections::{HashMap, VecDeque};

use super::Shard;
use crate::queue::QueueKey;
use crate::router::group::SubscriptionIndex;

/// Subscriptions that are looked at in one turn.
const TURN_MAX: usize = 256;

/// The subscriptions that count as full.
#[derive(Debug, Default)]
pub(super) struct Keepers {
    queues: HashMap<SubscriptionIndex, QueueKey>,
    /// In the order in which they are looked at; also some that are gone.
    round: VecDeque<SubscriptionIndex>,
}

impl Keepers {
    /// Adds a subscription; false if it is there.
    fn add(&mut self, subscription: SubscriptionIndex, queue: QueueKey) -> bool {
        let is_new = self.queues.insert(subscription, queue).is_none();
        if is_new {
            self.round.push_back(subscription);
        }
        is_new
    }

    /// Removes a subscription; false if it is not there.
    fn remove(&mut self, subscription: SubscriptionIndex) -> bool {
        self.queues.remove(&subscription).is_some()
    }

    /// The next one to look at.
    fn next(&mut self) -> Option<(SubscriptionIndex, QueueKey)> {
        while let Some(next) = self.round.pop_front() {
            if let Some(queue) = self.queues.get(&next) {
                self.round.push_back(next);
                return Some((next, *queue));
            }
        }
        None
    }

    fn len(&self) -> usize {
        self.queues.len()
    }
}

impl Shard {
    /// A message has come to the queue of a subscription while memory is short.
    pub(super) fn note_keeper(&mut self, subscription: SubscriptionIndex, queue: QueueKey) {
        if self.home.allowance(queue).is_none() && self.memory.keepers.add(subscription, queue) {
            self.change_full_of(subscription, true);
        }
    }

    /// A subscription to a topic goes.
    pub(super) fn forget_keeper(&mut self, subscription: SubscriptionIndex) {
        if self.memory.keepers.remove(subscription) {
            self.change_full_of(subscription, false);
        }
    }

    /// Lets those go on whose queue hands on again what comes; all of them, once memory is not short any more.
    pub(super) fn look_at_keepers(&mut self) {
        for _ in 0..self.memory.keepers.len().min(TURN_MAX) {
            self.budget.visit(1);
            let Some((subscription, queue)) = self.memory.keepers.next() else { break };
            let keeps = self.home.queue(queue).is_some() && self.home.allowance(queue).is_none();
            if !(keeps && self.memory.is_short) {
                self.forget_keeper(subscription);
            }
        }
    }

    /// Whether some count as full that need not any more.
    pub(super) fn has_keepers(&self) -> bool {
        self.memory.keepers.len() > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_looked_at_in_turn_until_it_is_removed() {
        let queue = QueueKey { index: 7, generation: 1 };
        let mut keepers = Keepers::default();
        assert!(keepers.add(1, queue) && keepers.add(2, queue) && !keepers.add(1, queue));
        let seen: Vec<_> = (0..3).filter_map(|_| keepers.next()).map(|(at, _)| at).collect();
        assert_eq!(seen, [1, 2, 1]);
        assert!(keepers.remove(2) && !keepers.remove(2));
        assert_eq!((keepers.next(), keepers.len()), (Some((1, queue)), 1));
        assert!(keepers.remove(1));
        assert_eq!((keepers.next(), keepers.round.len()), (None, 0));
    }
}
