//! Deliveries that wait because a connection's outbox is full: not encoded yet, so that they cost next to nothing.
//!
//! Whatever else is to be delivered to the connection queues up behind them, so that the order stays.

use std::collections::VecDeque;

use crate::chunk::ChunkId;
use crate::fan_out::FanOutKey;
use crate::ids::ShardId;
use crate::queue::SubscriptionKey;
use crate::queue::parts::Delivery;

/// One of them.
#[derive(Debug)]
pub enum Waiting {
    /// A copy of a message that a fan-out holds.
    Copy(FanOutKey, SubscriptionKey),
    /// Frames that were encoded for a whole group; with one reference to the chunk.
    Range(ChunkId, u32, u32, SubscriptionKey),
    /// A message of a queue, and the queue's home.
    Queued(Box<(ShardId, Delivery)>),
}

/// What waits for one connection's outbox, in order.
#[derive(Debug, Default)]
pub struct Deferred {
    list: VecDeque<Waiting>,
    /// How many of them are of topics, whose publishers pause meanwhile.
    of_topics: usize,
    /// It is on the shard's list of connections that have room again.
    pub is_listed: bool,
}

impl Deferred {
    /// Adds one behind all others. Returns whether it is the first one of a topic.
    pub fn push(&mut self, waiting: Waiting) -> bool {
        let of_topic = !matches!(waiting, Waiting::Queued(_));
        self.of_topics += usize::from(of_topic);
        self.list.push_back(waiting);
        of_topic && self.of_topics == 1
    }

    /// Takes the first one.
    pub fn pop(&mut self) -> Option<Waiting> {
        let first = self.list.pop_front()?;
        self.of_topics -= usize::from(!matches!(first, Waiting::Queued(_)));
        Some(first)
    }

    /// Takes out the messages of queues for one subscription, the oldest first.
    pub fn take_queued(&mut self, key: SubscriptionKey) -> Vec<(ShardId, Delivery)> {
        let mut taken = Vec::new();
        for _ in 0..self.list.len() {
            match self.list.pop_front() {
                Some(Waiting::Queued(queued)) if queued.1.subscriber.key == key => taken.push(*queued),
                other => self.list.extend(other),
            }
        }
        taken
    }

    /// Takes out the messages of topics.
    pub fn take_topics(&mut self) -> Deferred {
        let queued = |waiting: &Waiting| matches!(waiting, Waiting::Queued(_));
        let (queued, of_topics) = std::mem::take(&mut self.list).into_iter().partition(queued);
        self.list = queued;
        Deferred { list: of_topics, of_topics: std::mem::take(&mut self.of_topics), is_listed: false }
    }

    /// Whether messages of topics wait.
    #[must_use]
    pub fn has_topics(&self) -> bool {
        self.of_topics > 0
    }

    /// How many wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether none waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use stompica_proto::encode::Message;

    use super::*;
    use crate::keyed::Key;
    use crate::queue::Subscriber;
    use crate::queue::stored::Stored;

    fn key(index: u32) -> Key {
        Key { index, generation: 0 }
    }

    fn queued(subscription: u32) -> Waiting {
        let message =
            Message { destination: b"/queue/a", id: b"i", sender: 0, headers: b"", plain: true, body: b"" };
        let subscriber = Subscriber { shard: ShardId(0), key: key(subscription) };
        let (queue, consumer, stored) = (key(0), key(0), Stored::new(&message));
        Waiting::Queued(Box::new((ShardId(0), Delivery { subscriber, queue, consumer, stored })))
    }

    #[test]
    fn they_stay_in_order_and_those_of_topics_are_counted() {
        let mut deferred = Deferred::default();
        assert!(!deferred.push(queued(1)) && deferred.push(Waiting::Copy(key(9), key(1))));
        assert!(!deferred.push(Waiting::Copy(key(9), key(2))) && deferred.has_topics());
        assert!(matches!(deferred.pop(), Some(Waiting::Queued(_))));
        assert!(matches!(deferred.pop(), Some(Waiting::Copy(_, first)) if first == key(1)));
        assert!(deferred.has_topics() && deferred.pop().is_some() && !deferred.has_topics());
        assert!(deferred.is_empty() && deferred.pop().is_none());
    }

    #[test]
    fn a_subscription_s_messages_are_taken_out_and_the_others_stay_in_order() {
        let mut deferred = Deferred::default();
        for subscription in [1, 2, 1, 3] {
            deferred.push(queued(subscription));
        }
        assert_eq!((deferred.take_queued(key(1)).len(), deferred.len()), (2, 2));
        let left: Vec<u32> = std::iter::from_fn(|| deferred.pop())
            .filter_map(
                |it| if let Waiting::Queued(it) = it { Some(it.1.subscriber.key.index) } else { None },
            )
            .collect();
        assert_eq!(left, [2, 3]);
    }
}
