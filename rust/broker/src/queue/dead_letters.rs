//! Messages that a queue gives up: they expire, or fail too often, and go to a dead-letter queue.

use super::home::Home;
use super::types::{Effect, Queue};
use crate::door::planted;
use crate::ids::QueueKey;
use crate::message::OwnedMessage;

impl Home {
    /// Ends a message whose time is over: a queue's goes to its dead-letter queue, others are dropped.
    pub(super) fn expire(&mut self, key: QueueKey, message: OwnedMessage) {
        self.counts.expired += 1;
        if self.queues.get(key).is_some_and(Queue::is_dead_lettered) {
            self.dead_letter(message, "expired");
        } else {
            self.forget(&message);
        }
    }

    /// Sends a message to its dead-letter queue, or drops it if it can have none. Its old record is kept until it has one
    /// there.
    pub(super) fn dead_letter(&mut self, message: OwnedMessage, reason: &str) {
        let dead = if self.rules.has_dead_letters() { message.as_dead_letter(reason) } else { None };
        match dead {
            Some(mut dead) => {
                dead.record = message.record;
                if planted!("dead-letter-twice")
                    && let Some(copy) = message.as_dead_letter(reason)
                {
                    self.effects.push(Effect::DeadLetter(copy));
                }
                self.counts.dead_lettered += 1;
                if !planted!("dead-letter-lost") {
                    self.effects.push(Effect::DeadLetter(dead));
                }
            }
            None => {
                self.counts.dropped += 1;
                self.forget(&message);
            }
        }
    }
}
