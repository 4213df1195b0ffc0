//! Hot path: from a queue's front to the next consumer with credit.

use std::mem::take;

use super::home::Home;
use super::parts::{Credit, Delivery, Effect, Queue};
use super::{ConsumerKey, QueueKey, Subscriber};

impl Home {
    /// Remembers that a queue may have something to deliver.
    pub(super) fn touch(&mut self, key: QueueKey) {
        if let Some(queue) = self.queues.get_mut(key)
            && !queue.touched
            && queue.pending.has_next()
        {
            queue.touched = true;
            self.touched.push(key);
        }
    }

    /// Delivers what can be delivered, as [`Effect::Deliver`], at most `deliveries_max` messages. Returns how many.
    pub fn dispatch(&mut self, deliveries_max: usize) -> usize {
        let mut left = deliveries_max;
        while self.has_work() && left > 0 {
            // First, so that a message that one consumer refused finds another one.
            for key in take(&mut self.unserved) {
                self.serve_starved(key);
            }
            let mut touched = take(&mut self.touched);
            for key in touched.drain(..) {
                self.dispatch_queue(key, &mut left);
            }
            if self.touched.is_empty() {
                self.touched = touched;
            }
        }
        self.return_reclaimed();
        deliveries_max - left
    }

    /// Delivers what one queue has.
    pub fn dispatch_queue(&mut self, key: QueueKey, left: &mut usize) {
        let Some(queue) = self.queues.get_mut(key) else { return };
        queue.touched = false;
        while let Some(queue) = self.queues.get_mut(key)
            && let Some(first) = queue.pending.first()
        {
            if *left == 0 {
                return self.touch(key);
            }
            if first.is_expired(self.now_ms) {
                if let Some(stored) = queue.pending.pop() {
                    self.expire(key, stored);
                }
                continue;
            }
            if queue.barriers.first().is_some_and(|barrier| first.seq > *barrier) {
                return; // a transaction is about to put its messages in front of it
            }
            let avoid = first.refused_by;
            let Some(chosen) = self.next_ready(key, avoid) else { return };
            self.deliver(key, chosen);
            *left -= 1;
        }
        if self.queues.get(key).is_some_and(Queue::is_idle) {
            self.became_idle(key);
        }
    }

    /// The next consumer in the round that has credit; `avoid` only if nobody else has.
    fn next_ready(&mut self, key: QueueKey, avoid: Option<ConsumerKey>) -> Option<ConsumerKey> {
        let mut avoided = None;
        let chosen = loop {
            let queue = self.queues.get_mut(key)?;
            let Some(next) = queue.ready.pop_front() else { break None };
            let Some(consumer) = self.consumers.get_mut(next) else { continue };
            if !consumer.credit.is_left() {
                consumer.starved.push_back(key);
                if consumer.borrows && !consumer.wanting && consumer.credit.messages <= 0 {
                    consumer.wanting = true;
                    self.effects.push(Effect::Want(consumer.subscriber, next));
                }
            } else if Some(next) == avoid {
                avoided = avoid;
            } else {
                break Some(next);
            }
        };
        if chosen.is_some()
            && let (Some(avoided), Some(queue)) = (avoided, self.queues.get_mut(key))
        {
            queue.ready.push_front(avoided);
        }
        chosen.or(avoided)
    }

    fn deliver(&mut self, key: QueueKey, chosen: ConsumerKey) {
        let (Some(queue), Some(consumer)) = (self.queues.get_mut(key), self.consumers.get_mut(chosen)) else {
            return;
        };
        let Some(mut stored) = queue.pending.pop() else { return };
        let size = stored.size() as u64;
        queue.in_flight += 1;
        queue.in_flight_bytes += size;
        consumer.credit.messages -= 1;
        consumer.credit.bytes -= size as i64;
        if consumer.credit.is_left() || consumer.borrows {
            queue.ready.push_back(chosen);
        } else {
            consumer.starved.push_back(key);
        }
        // Its other queues wait for it too, and nothing else would ask for them.
        if consumer.borrows
            && consumer.credit.messages <= 0
            && !consumer.wanting
            && !consumer.starved.is_empty()
        {
            consumer.wanting = true;
            self.effects.push(Effect::Want(consumer.subscriber, chosen));
        }
        self.counts.redelivered += u64::from(stored.deliveries > 0);
        stored.deliveries += 1;
        let subscriber = consumer.subscriber;
        self.effects.push(Effect::Deliver(Delivery { subscriber, queue: key, consumer: chosen, stored }));
    }

    /// A consumer has credit again: back into the ring of the queues that found it without, one after the other.
    fn serve_starved(&mut self, key: ConsumerKey) {
        while let Some(consumer) = self.consumers.get_mut(key)
            && consumer.credit.is_left()
        {
            let Some(starved) = consumer.starved.pop_front() else { return };
            let Some(queue) = self.queues.get_mut(starved) else { continue };
            queue.ready.push_back(key);
            if queue.pending.has_next() {
                self.touch(starved);
                self.unserved.push(key); // it may have credit left after that
                return;
            }
        }
    }

    /// Lends a consumer of a pattern credit.
    pub fn lend(&mut self, key: ConsumerKey, messages: i64) {
        self.add_credit(key, Credit { messages, bytes: 0 });
    }

    /// Credit of this consumer is wanted at another home: gives back what is not needed here, now or as soon as it is
    /// not.
    pub fn reclaim(&mut self, subscriber: Subscriber) {
        let Some(&key) = self.by_subscriber.get(&subscriber) else { return };
        if let Some(consumer) = self.consumers.get_mut(key)
            && !consumer.reclaimed
        {
            consumer.reclaimed = true;
            self.reclaimed.push(key);
        }
        self.return_reclaimed();
    }

    pub(super) fn return_reclaimed(&mut self) {
        if self.reclaimed.is_empty() {
            return;
        }
        let (queues, consumers, effects) = (&mut self.queues, &mut self.consumers, &mut self.effects);
        self.reclaimed.retain(|key| {
            let Some(consumer) = consumers.get_mut(*key) else { return false };
            let has_next = |at: &QueueKey| queues.get(*at).is_some_and(|queue| queue.pending.has_next());
            if consumer.credit.messages > 0 && consumer.queues.iter().any(has_next) {
                return true;
            }
            consumer.reclaimed = false;
            if consumer.credit.messages > 0 {
                effects.push(Effect::Unused(consumer.subscriber, take(&mut consumer.credit.messages)));
                // Back into the rings: whoever finds it there without credit asks for more.
                for at in consumer.starved.drain(..) {
                    if let Some(queue) = queues.get_mut(at) {
                        queue.ready.push_back(*key);
                    }
                }
            }
            false
        });
    }
}
