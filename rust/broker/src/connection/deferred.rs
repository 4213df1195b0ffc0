//! Deliveries that wait because a connection's outbox is full. They are not encoded yet, and take little memory.
//!
//! All further deliveries to the connection wait after them, so that the order is kept.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use stompica_proto::session::AckMode;

use super::conn::Conn;
use crate::collections::paged_deque::PagedDeque;
use crate::door::{HashMap, planted};
use crate::ids::ShardId;
use crate::ids::SubscriptionKey;
use crate::message::chunk::ChunkId;
use crate::queue::queues::Queues;
use crate::queue::types::Delivery;
use crate::router::fan_out::FanOutKey;
use crate::router::group::SubscriptionIndex;

/// One deferred delivery.
#[derive(Debug)]
pub enum Waiting {
    /// A copy of a message that a fan-out holds.
    Copy(FanOutKey, SubscriptionKey),
    /// Frames that were encoded for a whole group; holds one reference to the chunk.
    Range(ChunkId, u32, u32, SubscriptionKey),
    /// A message of a queue, and the queue's home.
    Queued(Box<(ShardId, Delivery)>),
}

/// Messages of queues for one subscription, the oldest first, with their places.
pub type Queued = VecDeque<(u64, Box<(ShardId, Delivery)>)>;

/// Stale entries of ended subscriptions are removed once they outnumber all others, and are at least this many.
const STALE_MAX: usize = 32;

/// The deferred deliveries of one connection, in order.
#[derive(Debug, Default)]
pub struct Deferred {
    /// The place of the next delivery.
    pub(super) next: u64,
    /// Messages of topics, whose publishers pause meanwhile.
    pub(super) topics: PagedDeque<(u64, Waiting)>,
    /// Messages of queues, by subscription, so that those of an ended one are found without a search.
    pub(super) queued: HashMap<SubscriptionKey, Queued>,
    /// The place of the first message of each subscription; also of some ended subscriptions.
    pub(super) firsts: BinaryHeap<Reverse<(u64, SubscriptionKey)>>,
    /// The number of messages of queues.
    pub(super) of_queues: usize,
    /// The number of messages of topics whose publisher may have got its RECEIPT.
    pub accepted: usize,
    /// The connection is on the shard's list of those that have room again.
    pub is_listed: bool,
}

impl Conn {
    /// Whether messages of topics wait for room in its outbox.
    #[must_use]
    pub fn has_deferred(&self) -> bool {
        self.output.deferred.as_ref().is_some_and(|deferred| deferred.has_topics())
    }

    /// Whether one of its subscriptions, without ACKs, has messages of its topic in a private queue, which wait for room or
    /// for the end of its initial replay. Their publishers have their RECEIPT, so it gets them before it ends.
    pub(crate) fn owes(&self, queues: &Queues, index: SubscriptionIndex) -> bool {
        let Some(consumer) = queues.consumers.at(index) else { return false };
        let Some(queue) = consumer.own_queue.filter(|_| consumer.ack == AckMode::Auto) else { return false };
        let is_owed = queues.home.queue(queue).is_some_and(|queue| queue.has_pending())
            || self.output.deferred.as_ref().is_some_and(|deferred| deferred.has_queued(consumer.key));
        is_owed && !planted!("private-queue-left-behind")
    }
}

impl Deferred {
    /// Adds a delivery after all others. Returns whether it is the first one of a topic.
    pub fn push(&mut self, waiting: Waiting) -> bool {
        let place = self.next;
        self.next += 1;
        let Waiting::Queued(queued) = waiting else {
            self.topics.push_back((place, waiting));
            return self.topics.len() == 1;
        };
        let key = queued.1.subscriber.key;
        let list = self.queued.entry(key).or_default();
        if list.is_empty() {
            self.firsts.push(Reverse((place, key)));
        }
        list.push_back((place, queued));
        self.of_queues += 1;
        false
    }

    /// Takes the first delivery.
    pub fn pop(&mut self) -> Option<Waiting> {
        let topic = self.topics.front().map(|(place, _)| *place);
        while let Some(&Reverse((place, key))) = self.firsts.peek()
            && topic.is_none_or(|topic| place < topic)
        {
            self.firsts.pop();
            if let Some(queued) = self.pop_queued(place, key) {
                return Some(Waiting::Queued(queued));
            }
        }
        self.topics.pop_front().map(|(_, waiting)| waiting)
    }

    /// Takes the message in this place, unless its subscription has ended.
    fn pop_queued(&mut self, place: u64, key: SubscriptionKey) -> Option<Box<(ShardId, Delivery)>> {
        let list = self
            .queued
            .get_mut(&key)
            .filter(|list| list.front().is_some_and(|(first, _)| *first == place))?;
        let (_, queued) = list.pop_front()?;
        match list.front() {
            Some((next, _)) => self.firsts.push(Reverse((*next, key))),
            None => _ = self.queued.remove(&key),
        }
        self.of_queues -= 1;
        Some(queued)
    }

    /// Removes the messages of queues for an ended subscription. Also returns the number of visited entries.
    pub fn take_queued(&mut self, key: SubscriptionKey) -> (Queued, usize) {
        let taken = self.queued.remove(&key).unwrap_or_default();
        self.of_queues -= taken.len();
        let mut looked_at = taken.len();
        if self.firsts.len() > STALE_MAX + 2 * self.queued.len() {
            looked_at += self.firsts.len();
            let queued = &self.queued;
            self.firsts.retain(|Reverse((_, key))| queued.contains_key(key));
        }
        (taken, looked_at)
    }

    /// Whether messages of queues wait for this subscription.
    #[must_use]
    pub fn has_queued(&self, key: SubscriptionKey) -> bool {
        self.queued.contains_key(&key)
    }

    /// Removes the messages of topics.
    pub fn take_topics(&mut self) -> Deferred {
        self.accepted = 0;
        Deferred { topics: std::mem::take(&mut self.topics), ..Deferred::default() }
    }

    /// Whether messages of topics wait.
    #[must_use]
    pub fn has_topics(&self) -> bool {
        !self.topics.is_empty()
    }

    /// The number of deferred deliveries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.topics.len() + self.of_queues
    }

    /// Whether no delivery is deferred.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use stompica_proto::encode::Message;

    use super::*;
    use crate::collections::keyed::Key;
    use crate::ids::Subscriber;
    use crate::message::OwnedMessage;

    fn key(index: u32) -> Key {
        Key { index, generation: 0 }
    }

    fn queued(subscription: u32) -> Waiting {
        let message = Message {
            destination: b"/queue/a",
            id: b"i",
            sender: 0,
            headers: b"",
            plain: true,
            expires_ms: 0,
            body: b"",
        };
        let subscriber = Subscriber { shard: ShardId(0), key: key(subscription) };
        let (queue, consumer, owned) = (key(0), key(0), OwnedMessage::new(&message));
        Waiting::Queued(Box::new((ShardId(0), Delivery { subscriber, queue, consumer, message: owned })))
    }

    #[test]
    fn deliveries_keep_their_order_and_those_of_topics_are_counted() {
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
        assert_eq!((deferred.take_queued(key(1)).0.len(), deferred.len()), (2, 2));
        assert_eq!((deferred.take_queued(key(1)).0.len(), deferred.len()), (0, 2));
        let left: Vec<u32> = std::iter::from_fn(|| deferred.pop())
            .filter_map(
                |it| if let Waiting::Queued(it) = it { Some(it.1.subscriber.key.index) } else { None },
            )
            .collect();
        assert_eq!(left, [2, 3]);
    }
    #[test]
    fn very_many_deliveries_keep_their_order_with_at_most_a_spare_page() {
        let page = PagedDeque::<(u64, Waiting)>::PAGE;
        let count = 20 * page as u32 + 1;
        let mut deferred = Deferred::default();
        for at in 0..count {
            deferred.push(if at % 3 == 0 { queued(1) } else { Waiting::Copy(key(9), key(at)) });
        }
        assert!(deferred.topics.capacity() <= deferred.topics.len() + page);
        let mut topics = deferred.take_topics();
        assert_eq!((topics.len() + deferred.len(), deferred.has_topics()), (count as usize, false));
        for at in (0..count).filter(|at| at % 3 != 0) {
            assert!(matches!(topics.pop(), Some(Waiting::Copy(_, copy)) if copy == key(at)));
        }
        assert!(topics.is_empty() && deferred.take_queued(key(1)).0.len() == count.div_ceil(3) as usize);
    }

    #[test]
    fn subscriptions_that_end_one_by_one_visit_few_others_and_leave_no_stale_places() {
        const COUNT: u32 = 1000;
        let mut deferred = Deferred::default();
        (0..COUNT).for_each(|at| assert!(!deferred.push(queued(at))));
        assert!(deferred.push(Waiting::Copy(key(9), key(1))));
        let looked_at: usize = (0..COUNT).map(|at| deferred.take_queued(key(at)).1).sum();
        assert!(looked_at < 5 * COUNT as usize, "{looked_at}");
        assert!(deferred.firsts.len() <= STALE_MAX && deferred.queued.is_empty());
        assert!(deferred.len() == 1 && deferred.pop().is_some() && deferred.is_empty());
    }

    /// Identifies a message: its subscription for one of a queue, or none, and the number of its copy.
    fn name(waiting: &Waiting) -> (u32, u32) {
        match waiting {
            Waiting::Queued(queued) => (queued.1.subscriber.key.index, 0),
            Waiting::Copy(_, copy) => (u32::MAX, copy.index),
            Waiting::Range(..) => unreachable!("none was added"),
        }
    }

    proptest! {
        #[test]
        fn it_behaves_like_a_list(steps in vec((0..4_u32, 0..5_u32), 0..200)) {
            let mut deferred = Deferred::default();
            let mut list: VecDeque<(u32, u32)> = VecDeque::new();
            for (at, (what, who)) in steps.into_iter().enumerate() {
                match what {
                    0 => {
                        deferred.push(queued(who));
                        list.push_back((who, 0));
                    }
                    1 => {
                        let is_first = list.iter().all(|(who, _)| *who != u32::MAX);
                        let copy = at as u32;
                        prop_assert_eq!(deferred.push(Waiting::Copy(key(9), key(copy))), is_first);
                        list.push_back((u32::MAX, copy));
                    }
                    2 => prop_assert_eq!(deferred.pop().as_ref().map(name), list.pop_front()),
                    _ => {
                        let before = list.len();
                        list.retain(|(of, _)| *of != who);
                        prop_assert_eq!(deferred.take_queued(key(who)).0.len(), before - list.len());
                    }
                }
                prop_assert_eq!(deferred.len(), list.len());
            }
            let rest: VecDeque<_> = std::iter::from_fn(|| deferred.pop().as_ref().map(name)).collect();
            prop_assert_eq!(rest, list);
        }
    }
}
