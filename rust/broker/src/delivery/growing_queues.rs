//! Subscriptions to topics whose private queue grows while memory is short: publishers to their topics wait, on all
//! shards, unless they have deliveries in flight whose ACKs may follow their SENDs.

use std::collections::hash_map::Entry;

use super::Owners;
use crate::collections::line::Line;
use crate::door::HashMap;
use crate::ids::QueueKey;
use crate::router::Holdup;
use crate::router::group::SubscriptionIndex;

/// Subscriptions that are checked in one turn.
const TURN_MAX: usize = 256;

/// The subscriptions whose private queue grows while memory is short.
#[derive(Debug, Default)]
pub(crate) struct GrowingQueues {
    /// Their queues, and their places in the round.
    pub(crate) queues: HashMap<SubscriptionIndex, (QueueKey, u64)>,
    /// The order in which they are checked.
    pub(crate) round: Line<SubscriptionIndex>,
}

impl GrowingQueues {
    /// Adds a subscription; false if it was there already.
    pub(crate) fn add(&mut self, subscription: SubscriptionIndex, queue: QueueKey) -> bool {
        let Entry::Vacant(slot) = self.queues.entry(subscription) else { return false };
        slot.insert((queue, self.round.push(subscription)));
        true
    }

    /// Removes a subscription; false if it was not there.
    pub(crate) fn remove(&mut self, subscription: SubscriptionIndex) -> bool {
        let Some((_, place)) = self.queues.remove(&subscription) else { return false };
        self.round.leave(place);
        if self.queues.is_empty() {
            self.queues = HashMap::default();
        }
        true
    }

    /// The next subscription to check.
    pub(crate) fn next(&mut self) -> Option<(SubscriptionIndex, QueueKey)> {
        let next = self.round.pop()?;
        let (queue, place) = self.queues.get_mut(&next)?;
        *place = self.round.push(next);
        Some((next, *queue))
    }

    pub(crate) fn len(&self) -> usize {
        self.queues.len()
    }

    /// The approximate memory of its tables.
    pub(crate) fn held_bytes(&self) -> usize {
        self.queues.capacity() * size_of::<(SubscriptionIndex, (QueueKey, u64))>()
            + self.round.len() * Line::<SubscriptionIndex>::bytes_of_one()
    }
}

impl Owners<'_> {
    /// Records that a message was queued for a subscription while memory is short.
    pub fn note_growing_queue(&mut self, subscription: SubscriptionIndex, queue: QueueKey) {
        if self.queues.home.allowance(queue).is_none()
            && self.deliveries.growing_queues.add(subscription, queue)
        {
            self.change_full_of(subscription, Holdup::GrowingQueue, true);
        }
    }

    /// Removes a subscription to a topic, which has ended or whose queue is delivered again.
    pub fn forget_growing_queue(&mut self, subscription: SubscriptionIndex) {
        if self.deliveries.growing_queues.remove(subscription) {
            self.change_full_of(subscription, Holdup::GrowingQueue, false);
        }
    }

    /// Resumes publishers to subscriptions whose queue delivers new messages again, or to all once memory is not
    /// short.
    pub fn check_growing_queues(&mut self) {
        for _ in 0..self.deliveries.growing_queues.len().min(TURN_MAX) {
            self.turn.budget.visit(1);
            let Some((subscription, queue)) = self.deliveries.growing_queues.next() else { break };
            let keeps =
                self.queues.home.queue(queue).is_some() && self.queues.home.allowance(queue).is_none();
            if !(keeps && self.turn.memory.is_short) {
                self.forget_growing_queue(subscription);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_subscription_is_checked_in_turn_until_it_is_removed() {
        let queue = QueueKey { index: 7, generation: 1 };
        let mut growing = GrowingQueues::default();
        assert!(growing.add(1, queue) && growing.add(2, queue) && !growing.add(1, queue));
        let seen: Vec<_> = (0..3).filter_map(|_| growing.next()).map(|(at, _)| at).collect();
        assert_eq!(seen, [1, 2, 1]);
        assert!(growing.remove(2) && !growing.remove(2));
        assert_eq!((growing.next(), growing.len()), (Some((1, queue)), 1));
        assert!(growing.held_bytes() > 0 && growing.remove(1));
        assert_eq!((growing.next(), growing.round.len(), growing.held_bytes()), (None, 0, 0));
    }

    #[test]
    fn a_subscription_added_repeatedly_is_checked_once_a_round() {
        let queue = QueueKey { index: 7, generation: 1 };
        let mut growing = GrowingQueues::default();
        for _ in 0..10 {
            assert!(growing.add(1, queue) && growing.remove(1) && growing.add(1, queue));
            assert!(growing.add(2, queue) && growing.remove(2) && growing.remove(1));
        }
        assert!(growing.add(1, queue) && growing.add(2, queue));
        assert_eq!((growing.len(), growing.round.len()), (2, 2));
    }
}
