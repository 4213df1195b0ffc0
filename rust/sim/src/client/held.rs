//! What a client holds of a subscription.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::events::{Delivery, MessageId, Subscription};
use crate::work::LAST;

/// A subscription, and the messages that it holds.
#[derive(Debug)]
pub struct Held {
    /// As it was requested.
    pub subscription: Subscription,
    /// Messages that were received and not acknowledged, in order.
    pub unacked: Vec<Unacked>,
    /// Messages of which a dead letter has come: each subscription to a topic that refuses a message makes one.
    dead_letters: BTreeSet<MessageId>,
    /// What the ACKs of last values name.
    values: BTreeSet<String>,
}

impl Held {
    /// A new subscription.
    #[must_use]
    pub fn new(subscription: Subscription) -> Self {
        Held { subscription, unacked: Vec::new(), dead_letters: BTreeSet::new(), values: BTreeSet::new() }
    }

    /// A delivery was received, whose ACK names `ack_id`.
    pub(super) fn hold(&mut self, delivery: &Delivery, ack_id: String) {
        let is_new_dead_letter = delivery.dead_letter.is_some() && !delivery.redelivered;
        if !delivery.redelivered && self.may_come_twice() {
            // It is another copy.
        } else if !is_new_dead_letter || self.dead_letters.insert(delivery.message) {
            // It was taken back, and only its last delivery can be acknowledged. The same message as a last value, or as a
            // live one, is another copy.
            let values = &self.values;
            self.unacked.retain(|(message, ack_id, _)| {
                *message != delivery.message || values.contains(ack_id) != delivery.retained
            });
        }
        if delivery.retained {
            self.values.insert(ack_id.clone());
        }
        self.unacked.push((delivery.message, ack_id, delivery.written.at));
    }

    /// A delivery that was acknowledged in a transaction is held as before, unless it was taken back meanwhile.
    pub fn hold_again(&mut self, delivery: Unacked) {
        if self.may_come_twice() || self.unacked.iter().all(|(message, ..)| *message != delivery.0) {
            self.unacked.insert(0, delivery);
        }
    }

    /// Whether a value that was set during the SUBSCRIBE comes as such, and as a live message.
    fn may_come_twice(&self) -> bool {
        self.subscription.destination.starts_with(LAST)
    }
}

/// A message that was received, the value that its ACK names, and when the broker wrote it.
pub type Unacked = (MessageId, String, Duration);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkers::tests::{QUEUE, delivery, message};
    use crate::events::{AckMode, Terms};

    #[test]
    fn a_redelivery_replaces_a_delivery_and_each_dead_letter_of_a_message_is_held() {
        let destination = QUEUE.to_owned();
        let (prefetch, terms, durable) = (None, Terms::default(), None);
        let ack = AckMode::Individual;
        let mut held = Held::new(Subscription { id: 1, destination, ack, prefetch, terms, durable });
        let first = delivery(1, &message(1, QUEUE), 1);
        held.hold(&first, "a".to_owned());
        held.hold(&Delivery { redelivered: true, count: 2, ..first.clone() }, "b".to_owned());
        let dead = Delivery { dead_letter: Some("max-deliveries".to_owned()), ..first };
        ["c", "d"].into_iter().for_each(|ack_id| held.hold(&dead, ack_id.to_owned()));
        let ack_ids: Vec<&str> = held.unacked.iter().map(|(_, ack_id, _)| ack_id.as_str()).collect();
        assert_eq!(ack_ids, ["c", "d"]);
    }

    #[test]
    fn a_value_and_the_same_message_as_a_live_one_are_both_held() {
        let destination = "/last/0".to_owned();
        let (prefetch, terms, durable) = (None, Terms::default(), None);
        let ack = AckMode::Individual;
        let mut held = Held::new(Subscription { id: 1, destination, ack, prefetch, terms, durable });
        let live = delivery(1, &message(1, "/last/0"), 1);
        held.hold(&Delivery { retained: true, ..live.clone() }, "a".to_owned());
        held.hold(&live, "b".to_owned());
        assert_eq!(held.unacked.len(), 2);
        let first = held.unacked.remove(0);
        held.hold_again(first.clone());
        assert_eq!((held.unacked.len(), &held.unacked[0]), (2, &first));
        held.hold(&Delivery { redelivered: true, count: 2, ..live }, "c".to_owned());
        let ack_ids: Vec<&str> = held.unacked.iter().map(|(_, ack_id, _)| ack_id.as_str()).collect();
        assert_eq!(ack_ids, ["a", "c"], "the value is held still");
    }
}
