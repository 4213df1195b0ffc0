//! The credit of a pattern's consumer, which is spread over all homes: each home returns what it does not need once another
//! home has requested it.

use super::home::Home;
use super::types::{Consumed, Credit, Effect, Taker};
use crate::ids::{ConsumerKey, PatternKey, Subscriber};

impl Home {
    /// Whether a queue of a pattern has a message and no consumer for it.
    fn has_waiting_queue(&mut self, key: PatternKey) -> bool {
        let Some(pattern) = self.patterns.get_mut(key) else { return false };
        while let Some(first) = pattern.out_of_credit.front().copied() {
            match self.queues.get_mut(first) {
                Some(queue) if queue.pending.has_next() => return true,
                Some(queue) => queue.ready.push_back(Taker::Pattern(key)),
                None => {}
            }
            pattern.out_of_credit.pop_front();
            self.visited += 1;
        }
        false
    }

    /// Grants credit to a consumer of a pattern.
    pub fn grant(&mut self, key: ConsumerKey, messages: i64) {
        self.add_credit(key, Credit { messages, bytes: 0 });
    }

    /// Revokes the unneeded credit of a consumer, which another home has requested: returns it now, or as soon as it is
    /// not needed.
    pub fn revoke(&mut self, subscriber: Subscriber) {
        let Some(key) = self.consumer_of(subscriber) else { return };
        if let Some(consumer) = self.consumers.get_mut(key)
            && !consumer.is_revoked
        {
            consumer.is_revoked = true;
            // Credit that is left when all queues that may need it have been visited is not needed.
            let then = self.looked + (self.ready_queues.len() + self.unserved.len()) as u64;
            self.revocations.push_back((then, key));
        }
        self.return_revoked_credit();
    }

    pub(super) fn return_revoked_credit(&mut self) {
        for _ in 0..self.revocations.len() {
            let Some((then, key)) = self.revocations.pop_front() else { return };
            self.visited += 1;
            if then > self.looked && self.has_work() {
                self.revocations.push_back((then, key));
                continue;
            }
            let Some(consumer) = self.consumers.get(key) else { continue };
            let (credit, consumed) = (consumer.credit, consumer.consumed);
            // Without credit in bytes it could not be sent a message now; it requests credit again once it can.
            if let Consumed::Pattern(pattern) = consumed
                && credit.messages > 0
                && self.has_waiting_queue(pattern)
            {
                self.revocations.push_back((then, key));
                continue;
            }
            let Some(consumer) = self.consumers.get_mut(key) else { continue };
            consumer.is_revoked = false;
            let messages = consumer.credit.messages;
            if messages > 0 {
                consumer.credit.messages = 0;
                self.effects.push(Effect::CreditReturn(consumer.subscriber, messages));
                if consumer.out_of_credit {
                    self.rejoin(key); // dispatch finds it there without credit, and requests some
                }
            }
        }
    }
}
