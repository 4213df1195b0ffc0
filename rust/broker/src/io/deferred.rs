//! Deliveries that wait because a connection's outbox is full: not encoded yet, so that they cost next to nothing.
//!
//! Whatever else is to be delivered to the connection queues up behind them, so that the order stays.

use std::collections::{HashMap, VecDeque};
use std::mem::take;

use super::conn::Conn;
use crate::chunk::ChunkId;
use crate::fan_out::FanOutKey;
use crate::ids::ShardId;
use crate::paged_deque::PagedDeque;
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

/// The place of one of them.
#[derive(Debug)]
enum Place {
    /// Of a topic.
    Topic(Waiting),
    /// Of a queue: the first of the subscription's own list, or of nothing if that has gone.
    Queue(SubscriptionKey),
}

/// Messages of queues for one subscription, the oldest first.
pub type Queued = VecDeque<Box<(ShardId, Delivery)>>;

/// What waits for one connection's outbox, in order.
#[derive(Debug, Default)]
pub struct Deferred {
    places: PagedDeque<Place>,
    /// Those of queues, by subscription, so that one that ends need not be told from all others.
    queued: HashMap<SubscriptionKey, Queued, foldhash::fast::RandomState>,
    /// How many of them are of topics, whose publishers pause meanwhile.
    of_topics: usize,
    /// How many of those are of messages for which a RECEIPT may have left.
    pub accepted: usize,
    /// Places whose message was taken out; once they are more than half of all, they go.
    gone: usize,
    /// It is on the shard's list of connections that have room again.
    pub is_listed: bool,
}

impl Conn {
    /// Whether messages of topics wait for room in its outbox.
    #[must_use]
    pub fn is_owed(&self) -> bool {
        self.deferred.as_ref().is_some_and(|deferred| deferred.has_topics())
    }
}

impl Deferred {
    /// Adds one behind all others. Returns whether it is the first one of a topic.
    pub fn push(&mut self, waiting: Waiting) -> bool {
        let (place, of_topic) = match waiting {
            Waiting::Queued(queued) => {
                let key = queued.1.subscriber.key;
                self.queued.entry(key).or_default().push_back(queued);
                (Place::Queue(key), false)
            }
            of_topic => (Place::Topic(of_topic), true),
        };
        self.of_topics += usize::from(of_topic);
        self.places.push_back(place);
        of_topic && self.of_topics == 1
    }

    /// Takes the first one.
    pub fn pop(&mut self) -> Option<Waiting> {
        loop {
            match self.places.pop_front()? {
                Place::Topic(waiting) => {
                    self.of_topics -= 1;
                    return Some(waiting);
                }
                Place::Queue(key) => match self.pop_queued(key) {
                    Some(queued) => return Some(Waiting::Queued(queued)),
                    None => self.gone -= 1,
                },
            }
        }
    }

    fn pop_queued(&mut self, key: SubscriptionKey) -> Option<Box<(ShardId, Delivery)>> {
        let queued = self.queued.get_mut(&key)?;
        let first = queued.pop_front();
        if queued.is_empty() {
            self.queued.remove(&key);
        }
        first
    }

    /// Takes out the messages of queues for one subscription, which has ended, and how many places it looked at.
    pub fn take_queued(&mut self, key: SubscriptionKey) -> (Queued, usize) {
        let taken = self.queued.remove(&key).unwrap_or_default();
        self.gone += taken.len();
        let mut looked_at = taken.len();
        if 2 * self.gone > self.places.len() {
            looked_at += self.places.len();
            for place in take(&mut self.places) {
                let stays = match &place {
                    Place::Topic(_) => true,
                    Place::Queue(key) => self.queued.contains_key(key),
                };
                if stays {
                    self.places.push_back(place);
                }
            }
            self.gone = 0;
        }
        (taken, looked_at)
    }

    /// Takes out the messages of topics.
    pub fn take_topics(&mut self) -> Deferred {
        let mut topics = Deferred { of_topics: take(&mut self.of_topics), ..Deferred::default() };
        for place in take(&mut self.places) {
            match place {
                Place::Topic(_) => topics.places.push_back(place),
                Place::Queue(_) => self.places.push_back(place),
            }
        }
        self.accepted = 0;
        topics
    }

    /// Whether messages of topics wait.
    #[must_use]
    pub fn has_topics(&self) -> bool {
        self.of_topics > 0
    }

    /// How many wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.places.len() - self.gone
    }

    /// Whether none waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
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
    fn very_many_have_room_for_a_page_more_and_stay_in_order() {
        let page = PagedDeque::<Place>::PAGE;
        let count = 20 * page as u32 + 1;
        let mut deferred = Deferred::default();
        for at in 0..count {
            deferred.push(if at % 3 == 0 { queued(1) } else { Waiting::Copy(key(9), key(at)) });
        }
        assert!(deferred.places.capacity() <= deferred.len() + page);
        let mut topics = deferred.take_topics();
        assert_eq!((topics.len() + deferred.len(), deferred.has_topics()), (count as usize, false));
        for at in (0..count).filter(|at| at % 3 != 0) {
            assert!(matches!(topics.pop(), Some(Waiting::Copy(_, copy)) if copy == key(at)));
        }
        assert!(topics.is_empty() && deferred.take_queued(key(1)).0.len() == count.div_ceil(3) as usize);
    }

    #[test]
    fn subscriptions_that_go_one_by_one_look_at_few_others_and_leave_no_places_behind() {
        const COUNT: u32 = 1000;
        let mut deferred = Deferred::default();
        (0..COUNT).for_each(|at| assert!(!deferred.push(queued(at))));
        assert!(deferred.push(Waiting::Copy(key(9), key(1))));
        let looked_at: usize = (0..COUNT).map(|at| deferred.take_queued(key(at)).1).sum();
        assert!(looked_at < 5 * COUNT as usize, "{looked_at}");
        assert!((1..=2).contains(&deferred.places.len()) && deferred.queued.is_empty());
        assert!(deferred.len() == 1 && deferred.pop().is_some() && deferred.is_empty());
    }
}
