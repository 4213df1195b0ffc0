//! Consumers of queues and patterns: they are added and removed, and queues are matched with patterns.

use std::hash::BuildHasher as _;

use super::QueueKind;
use super::home::Home;
use super::types::{Consumed, Consumer, Credit, FIRST_SEQ, Queue, Taker};
use crate::door::planted;
use crate::ids::{ConsumerKey, PatternKey, QueueKey, ShardId, Subscriber};

/// Lists of consumers drop removed ones once they are this much longer than necessary.
pub(super) const STALE_MAX: usize = 32;

impl Home {
    /// Adds a consumer of one queue, with all its credit.
    pub fn attach(&mut self, queue: QueueKey, subscriber: Subscriber, credit: Credit) -> ConsumerKey {
        let key = self.add_consumer(Consumer::new(subscriber, credit, Consumed::Queue(queue)));
        if let Some(joined) = self.queues.get_mut(queue) {
            joined.ready.push_back(Taker::One(key));
            joined.exact += 1;
            if self.pacing.is_own(subscriber.shard) {
                joined.add_own();
            }
            self.mark_ready(queue);
        }
        key
    }

    /// Adds a consumer of all queues that match a pattern, now or later, with its share of credit. If the pattern is
    /// new, pending messages of existing queues reach it when [`Home::proceed`] visits them.
    pub fn attach_pattern(&mut self, pattern: &[u8], subscriber: Subscriber, credit: Credit) -> ConsumerKey {
        let generation = self.patterns.generation;
        let pattern = self.patterns.add(pattern, &self.rules);
        let key = self.add_consumer(Consumer::new(subscriber, credit, Consumed::Pattern(pattern)));
        if let Some(joined) = self.patterns.get_mut(pattern) {
            joined.consumers += 1;
            joined.ring.push_back(key);
        }
        self.serve_soon(pattern);
        if self.patterns.generation != generation {
            self.sweep_all();
        }
        self.pick_again();
        key
    }

    /// Whether a subscription consumes a queue or a pattern here.
    #[must_use]
    pub fn has_consumer(&self, subscriber: Subscriber) -> bool {
        self.consumer_of(subscriber).is_some()
    }

    /// The consumer that a subscription has in this home.
    pub(super) fn consumer_of(&self, subscriber: Subscriber) -> Option<ConsumerKey> {
        self.by_subscriber.find(self.hasher.hash_one(subscriber), |key| {
            self.consumers.get(key).is_some_and(|consumer| consumer.subscriber == subscriber)
        })
    }

    fn add_consumer(&mut self, consumer: Consumer) -> ConsumerKey {
        let subscriber = consumer.subscriber;
        let key = self.consumers.insert(consumer);
        self.by_subscriber.insert(self.hasher.hash_one(subscriber), key);
        key
    }

    /// The number of subscriptions that consume a queue.
    #[must_use]
    pub fn consumers_of(&self, queue: &Queue) -> u32 {
        let of_patterns = queue.patterns.iter().filter_map(|key| self.patterns.get(*key));
        queue.exact + of_patterns.map(|pattern| pattern.consumers).sum::<u32>()
    }

    /// Whether a queue has a consumer, including consumers of patterns that were just added.
    pub fn is_consumed(&mut self, key: QueueKey) -> bool {
        self.match_patterns(key);
        self.queues.get(key).is_some_and(|queue| queue.exact > 0 || !queue.patterns.is_empty())
    }

    /// Whether a queue is a worker topic without consumers: then it accepts no message.
    pub(super) fn is_unmatched(&mut self, key: QueueKey) -> bool {
        let is_released = |queue: &Queue| match queue.kind {
            QueueKind::Durable { .. } => planted!("durable-backlog-dropped"),
            kind => kind == QueueKind::Worker,
        };
        self.queues.get(key).is_some_and(is_released) && !self.is_consumed(key)
    }

    /// Updates the patterns that a queue knows.
    pub(super) fn match_patterns(&mut self, key: QueueKey) {
        let Some(queue) = self.queues.get_mut(key) else { return };
        if queue.patterns_as_of == self.patterns.generation {
            return;
        }
        queue.patterns_as_of = self.patterns.generation;
        if !queue.kind.is_named() {
            return;
        }
        let found = self.patterns.matching(&queue.name, &mut self.visited);
        self.visited += found.len();
        if found == queue.patterns {
            return;
        }
        self.references = self.references + found.len() - queue.patterns.len();
        let known = std::mem::replace(&mut queue.patterns, found);
        if known.iter().any(|known| self.patterns.get(*known).is_none()) {
            let patterns = &self.patterns;
            queue.ready.retain(|taker| match taker {
                Taker::One(_) => true,
                Taker::Pattern(pattern) => patterns.get(*pattern).is_some(),
            });
            queue.turns = 0;
        }
        let new: Vec<PatternKey> =
            queue.patterns.iter().filter(|key| known.binary_search(key).is_err()).copied().collect();
        self.join_in_turn(key, &new);
        self.mark_ready(key);
    }

    /// Lets the consumers of patterns take messages of a queue. Each queue begins its round at another consumer, so
    /// that many queues with few messages each are shared evenly, too.
    fn join_in_turn(&mut self, key: QueueKey, new: &[PatternKey]) {
        let Some(queue) = self.queues.get_mut(key) else { return };
        let size = |key: &PatternKey| self.patterns.get(*key).map_or(0, |pattern| pattern.consumers as usize);
        let all: usize = new.iter().map(size).sum();
        let mut place = if all > 0 { self.rotation % all } else { 0 };
        let first = new.iter().position(|key| match place.checked_sub(size(key)) {
            None => true,
            Some(behind) => {
                place = behind;
                false
            }
        });
        let first = first.unwrap_or(0);
        let in_turn = new[first..].iter().chain(&new[..first]);
        if queue.ready.is_empty()
            && let Some(front) = new.get(first)
        {
            queue.turns = size(front) - place;
            queue.place = place;
        }
        queue.ready.extend(in_turn.map(|pattern| Taker::Pattern(*pattern)));
        if !new.is_empty() {
            self.rotation = self.rotation.wrapping_add(1);
        }
    }

    /// Removes a consumer. Its own shard returns its deliveries.
    pub fn detach(&mut self, subscriber: Subscriber) {
        let Some(key) = self.consumer_of(subscriber) else { return };
        self.by_subscriber.remove(self.hasher.hash_one(subscriber), |other| other == key);
        let Some(consumer) = self.consumers.remove(key) else { return };
        match consumer.consumed {
            Consumed::Queue(queue) => self.leave_queue(queue, consumer.subscriber.shard),
            Consumed::Pattern(pattern) => self.leave_pattern(pattern),
        }
    }

    fn leave_queue(&mut self, key: QueueKey, shard: ShardId) {
        let Some(queue) = self.queues.get_mut(key) else { return };
        queue.exact -= 1;
        let picks = queue.picking.is_some();
        if self.pacing.is_own(shard) {
            queue.remove_own();
        }
        if queue.ready.len() > STALE_MAX + 2 * (queue.exact as usize + queue.patterns.len()) {
            let consumers = &self.consumers;
            queue.ready.retain(|taker| match taker {
                Taker::One(consumer) => consumers.get(*consumer).is_some(),
                Taker::Pattern(_) => true,
            });
        }
        if picks {
            self.mark_ready(key); // its messages may suit other consumers
        }
        self.release_unmatched(key);
        if self.queues.get(key).is_some_and(Queue::is_idle) {
            self.became_idle(key);
        }
    }

    fn leave_pattern(&mut self, key: PatternKey) {
        let Some(pattern) = self.patterns.get_mut(key) else { return };
        pattern.consumers -= 1;
        if pattern.consumers == 0 {
            self.patterns.remove(key, &self.rules);
            self.sweep_all();
        } else if pattern.ring.len() > STALE_MAX + 2 * pattern.consumers as usize {
            let consumers = &self.consumers;
            pattern.ring.retain(|consumer| consumers.get(*consumer).is_some());
        }
        self.pick_again();
    }

    /// Delivers only messages that precede all others, until [`Home::let_live_pass`].
    pub fn hold_live_back(&mut self, key: QueueKey) {
        if let Some(queue) = self.queues.get_mut(key) {
            queue.barriers.insert(FIRST_SEQ - 1);
        }
    }

    /// Delivers all messages again.
    pub fn let_live_pass(&mut self, key: QueueKey) {
        if let Some(queue) = self.queues.get_mut(key) {
            queue.barriers.remove(&(FIRST_SEQ - 1));
        }
        self.mark_ready(key);
    }

    /// Delivers no message after the oldest stale message of a worker topic.
    pub fn hold_behind(&mut self, key: QueueKey, older: Option<u64>) {
        if let Some(queue) = self.queues.get_mut(key)
            && queue.older != older
        {
            queue.older = older;
            self.mark_ready(key);
        }
    }

    /// Changes the credit of a consumer.
    pub fn add_credit_of(&mut self, subscriber: Subscriber, credit: Credit) {
        if let Some(key) = self.consumer_of(subscriber) {
            self.add_credit(key, credit);
        }
    }

    /// Whether a consumer gets no more messages before it acknowledges one. If credit in bytes is returned when bytes
    /// are written (`false`), a lack of it does not count.
    #[must_use]
    pub fn waits_for_ack(&self, subscriber: Subscriber, bytes_on_ack: bool) -> bool {
        let key = self.consumer_of(subscriber);
        key.and_then(|key| self.consumers.get(key)).is_some_and(|consumer| {
            consumer.credit.messages <= 0 || (bytes_on_ack && consumer.credit.bytes <= 0)
        })
    }

    /// Sets whether a durable subscription may have several holders. Returns whether that is new.
    pub fn set_shared(&mut self, key: QueueKey, shared: bool) -> bool {
        let Some(queue) = self.queues.get_mut(key) else { return false };
        std::mem::replace(&mut queue.kind, QueueKind::Durable { shared }) != queue.kind
    }
}
