//! Queues that do not deliver in the order of places, but by priority, by a selector of each consumer or by group.
//!
//! In a queue with a [`Pick`], the next consumer in the ring that has credit is offered the pending messages in order.
//! A consumer for which no message is suitable leaves the ring, so that it does not delay others. It returns when the
//! queue is dispatched again, which happens whenever a message or a consumer is added or removed. Messages behind a
//! place that is reserved for a transaction are not offered.
//!
//! No setting gives a queue a [`Pick`] yet; only tests do. Their implementations walk through all pending messages for
//! each delivery; an implementation for users needs an index.

use std::fmt::Debug;

use super::home::Home;
use super::types::{Queue, Taker};
use crate::ids::{ConsumerKey, QueueKey, Subscriber};
use crate::message::OwnedMessage;

/// Decides which message of a queue a consumer gets next.
pub trait Pick: Debug + Send {
    /// The place of the message to deliver; `None` if none is suitable. `waiting` contains the messages in order,
    /// without expired ones. `is_there` tells whether a consumer still exists.
    fn pick(
        &mut self,
        consumer: ConsumerKey,
        subscriber: Subscriber,
        is_there: &dyn Fn(ConsumerKey) -> bool,
        waiting: &mut dyn Iterator<Item = &OwnedMessage>,
    ) -> Option<u64>;
}

/// The state of a queue with a [`Pick`].
#[derive(Debug)]
pub(super) struct Picking {
    pick: Box<dyn Pick>,
    /// Consumers and patterns for which no message was suitable.
    excluded: Vec<Taker>,
}

impl Home {
    /// Sets the [`Pick`] of a queue.
    #[cfg(test)]
    pub fn pick_by(&mut self, key: QueueKey, pick: impl Pick + 'static) {
        if let Some(queue) = self.queues.get_mut(key) {
            assert!(!queue.pending.is_paged(), "all of its messages are loaded");
            queue.picking = Some(Box::new(Picking { pick: Box::new(pick), excluded: Vec::new() }));
            (queue.is_special, self.picks) = (true, true);
        }
    }

    /// Whether a queue has a [`Pick`].
    #[cold]
    pub(super) fn has_picking(&self, key: QueueKey) -> bool {
        self.queues.get(key).is_some_and(|queue| queue.picking.is_some())
    }

    /// Delivers messages that are picked for one consumer after the other, up to `left` messages.
    #[cold]
    pub(super) fn dispatch_picked(&mut self, key: QueueKey, left: &mut usize) {
        let Some(queue) = self.queues.get_mut(key) else { return };
        let Some(mut picking) = queue.picking.take() else { return };
        queue.ready.extend(picking.excluded.drain(..));
        self.deliver_picked(key, &mut picking, left);
        if let Some(queue) = self.queues.get_mut(key) {
            queue.picking = Some(picking);
        }
        if self.queues.get(key).is_some_and(Queue::is_idle) {
            self.became_idle(key);
        }
    }

    fn deliver_picked(&mut self, key: QueueKey, picking: &mut Picking, left: &mut usize) {
        let mut misses = 0;
        while self.queues.get(key).is_some_and(|queue| queue.pending.has_next()) {
            if *left == 0 {
                return self.mark_ready(key);
            }
            let Some(chosen) = self.next_ready(key, None) else { return };
            match self.pick(key, chosen.consumer, &mut *picking.pick) {
                Some(message) => {
                    self.deliver(key, chosen, |_| Some(message));
                    misses = 0;
                    *left -= 1;
                }
                None => self.exclude(key, chosen.taker, picking, &mut misses),
            }
        }
    }

    /// Takes the message that is picked for a consumer.
    fn pick(&mut self, key: QueueKey, consumer: ConsumerKey, pick: &mut dyn Pick) -> Option<OwnedMessage> {
        let subscriber = self.consumers.get(consumer)?.subscriber;
        let queue = self.queues.get_mut(key)?;
        let consumers = &self.consumers;
        let is_there = |key| consumers.get(key).is_some();
        let (now_ms, mut looked) = (self.now_ms, 0);
        let picked = {
            let in_order = queue.pending.iter().take_while(|message| !queue.holds_back(message.seq));
            let mut waiting = in_order.inspect(|_| looked += 1).filter(|message| !message.is_expired(now_ms));
            pick.pick(consumer, subscriber, &is_there, &mut waiting)
        };
        self.visited += looked;
        queue.pending.take(picked?)
    }

    /// Removes a consumer without a suitable message from the ring. A pattern is removed if none of its consumers has
    /// one.
    fn exclude(&mut self, key: QueueKey, taker: Taker, picking: &mut Picking, misses: &mut usize) {
        *misses += 1;
        let Some(queue) = self.queues.get_mut(key) else { return };
        match taker {
            Taker::Pattern(at) if self.patterns.get(at).is_some_and(|it| *misses < it.ring.len()) => {
                queue.ready.push_front(taker);
            }
            _ => {
                picking.excluded.push(taker);
                (*misses, queue.turns) = (0, 0);
            }
        }
    }

    /// Starts a sweep of all queues after a pattern's consumers have changed: messages may be suitable for other
    /// consumers.
    pub(super) fn pick_again(&mut self) {
        if self.picks {
            self.sweep_all();
        }
    }
}

#[cfg(test)]
#[path = "pick_tests.rs"]
pub mod tests;
