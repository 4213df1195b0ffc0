//! The subscriptions of one shard that consume queues.
//!
//! A subscription is in this table while it consumes a queue, and no longer than it is in the router. So an ACK, a
//! delivery of a queue and `ack_timeout` need only one look-up.

use super::consumer_state::{ConsumerState, SharedCredit};
use crate::collections::sparse::Sparse;
use crate::ids::SubscriptionKey;

/// Consumers by subscription.
#[derive(Debug, Default)]
pub struct ConsumerStates {
    /// Consumers by the index of the subscription.
    table: Sparse<Box<ConsumerState>>,
    /// Delivery numbers up to this one may have been used by removed consumers.
    number_floor: u64,
}

impl ConsumerStates {
    /// Adds the consumer of a live subscription that had none.
    pub fn insert(&mut self, consumer: Box<ConsumerState>) {
        let replaced = self.table.insert(consumer.key.index as usize, consumer);
        debug_assert!(replaced.is_none(), "a subscription has one consumer");
    }

    /// Removes a consumer: its subscription ends, or no longer needs its queue.
    pub fn remove(&mut self, key: SubscriptionKey) -> Option<Box<ConsumerState>> {
        self.get(key)?;
        let consumer = self.table.remove(key.index as usize)?;
        self.number_floor = self.number_floor.max(consumer.number);
        Some(consumer)
    }

    /// The consumer of a live subscription, if it has one.
    #[inline]
    #[must_use]
    pub fn get(&self, key: SubscriptionKey) -> Option<&ConsumerState> {
        self.at(key.index).filter(|consumer| consumer.key == key)
    }

    /// The consumer of a live subscription, if it has one.
    #[inline]
    pub fn get_mut(&mut self, key: SubscriptionKey) -> Option<&mut ConsumerState> {
        let consumer = self.table.get_mut(key.index as usize)?;
        (consumer.key == key).then_some(&mut **consumer)
    }

    /// The consumer of the subscription with this index.
    #[inline]
    #[must_use]
    pub fn at(&self, index: u32) -> Option<&ConsumerState> {
        self.table.get(index as usize).map(Box::as_ref)
    }

    /// Does the same, to change it.
    pub fn at_mut(&mut self, index: u32) -> Option<&mut ConsumerState> {
        self.table.get_mut(index as usize).map(Box::as_mut)
    }

    /// The shared credit of a consumer of the queues of a pattern.
    pub fn shared_credit_mut(&mut self, key: SubscriptionKey) -> Option<&mut SharedCredit> {
        self.get_mut(key)?.shared_credit.as_mut()
    }

    /// A number that is at least as high as all delivery numbers of removed consumers.
    #[must_use]
    pub fn number_floor(&self) -> u64 {
        self.number_floor
    }

    /// All consumers.
    #[cfg(any(test, simulated))]
    pub fn iter(&self) -> impl Iterator<Item = &ConsumerState> {
        self.table.iter().map(Box::as_ref)
    }

    /// All consumers.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut ConsumerState> {
        self.table.iter_mut().map(Box::as_mut)
    }

    /// The number of consumers.
    #[cfg(any(test, feature = "simulation", simulated))]
    #[must_use]
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// The memory of the table in bytes; each consumer counts itself.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.table.held_bytes()
    }
}

#[cfg(test)]
mod tests {
    use stompica_proto::session::AckMode;

    use super::*;
    use crate::ids::ConnKey;

    fn consumer(key: SubscriptionKey, number: u64) -> Box<ConsumerState> {
        let conn = ConnKey { index: 1, generation: 1 };
        Box::new(ConsumerState { number, ..ConsumerState::for_tests(key, conn, AckMode::Client) })
    }

    #[test]
    fn a_key_does_not_reach_the_next_subscription_in_its_slot() {
        let mut consumers = ConsumerStates::default();
        let old = SubscriptionKey { index: 70, generation: 1 };
        let new = SubscriptionKey { index: 70, generation: 2 };
        consumers.insert(consumer(old, 5));
        assert!(consumers.get(old).is_some() && consumers.get(new).is_none() && consumers.held_bytes() > 0);
        assert!(consumers.remove(new).is_none() && consumers.remove(old).is_some());
        assert!(consumers.len() == 0 && consumers.get(old).is_none());
        consumers.insert(consumer(new, consumers.number_floor()));
        assert!(consumers.get(old).is_none() && consumers.get_mut(old).is_none());
        assert_eq!(consumers.at(70).map(|found| found.key), Some(new));
        assert!(consumers.shared_credit_mut(new).is_none(), "it consumes no pattern");
        assert!(consumers.iter_mut().map(|found| found.key).eq([new]));
    }

    #[test]
    fn delivery_numbers_continue_after_those_of_removed_consumers() {
        let mut consumers = ConsumerStates::default();
        for (generation, number, floor) in [(1, 5, 5), (2, 3, 5), (3, 9, 9)] {
            let key = SubscriptionKey { index: 0, generation };
            consumers.insert(consumer(key, number));
            assert!(consumers.remove(key).is_some());
            assert_eq!(consumers.number_floor(), floor);
        }
    }
}
