//! Messages of one publisher reach each subscription in their order: those to topics across destinations, those to queues
//! for each queue. A topic's arrives only once. With ack auto, those to topics reach each connection in their order across
//! all its subscriptions, except those with a queue of their own: durable ones, and those that ask for a policy.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::{Checker, broken};
use crate::events::{
    ClientId, Event, MessageId, Request, SubscriptionId, TransactionId, Violation, is_topic,
};

/// Follows the order of messages: a transaction's messages are sent with its COMMIT.
#[derive(Debug, Default)]
pub struct Order {
    next_place: u64,
    /// Publisher, destination and place of each message.
    places: BTreeMap<MessageId, (ClientId, String, u64)>,
    open: BTreeMap<(ClientId, TransactionId), Vec<(MessageId, String)>>,
    /// The last place that a subscription has received from a publisher to a queue, or to any topic.
    last: BTreeMap<(ClientId, SubscriptionId, ClientId, String), u64>,
    received: BTreeSet<(ClientId, SubscriptionId, MessageId)>,
    /// Those whose messages do not wait in a queue of their own.
    direct: BTreeSet<(ClientId, SubscriptionId)>,
    /// The last place that a connection has received from a publisher to topics.
    last_of_topics: BTreeMap<(ClientId, ClientId), u64>,
}

impl Order {
    fn place(&mut self, client: ClientId, message: MessageId, destination: &str) {
        self.next_place += 1;
        self.places.insert(message, (client, destination.to_owned(), self.next_place));
    }
}

impl Checker for Order {
    fn see(&mut self, event: &Event, _: Duration) -> Result<(), Violation> {
        match event {
            Event::Requested(client, Request::Subscribe(subscription))
                if !subscription.has_own_queue() && subscription.durable.is_none() =>
            {
                self.direct.insert((*client, subscription.id));
            }
            Event::Requested(client, Request::Send(message)) => match message.transaction {
                Some(transaction) => self
                    .open
                    .entry((*client, transaction))
                    .or_default()
                    .push((message.id, message.destination.clone())),
                None => self.place(*client, message.id, &message.destination),
            },
            Event::Requested(client, Request::Commit(transaction)) => {
                for (message, destination) in self.open.remove(&(*client, *transaction)).unwrap_or_default() {
                    self.place(*client, message, &destination);
                }
            }
            Event::Delivered(client, delivery) => {
                let subscription = delivery.subscription;
                let Some((publisher, destination, place)) = self.places.get(&delivery.message) else {
                    return broken(
                        "order",
                        format!("a message of an open transaction: {}", delivery.message),
                    );
                };
                let is_new = self.received.insert((*client, subscription, delivery.message));
                if delivery.redelivered || delivery.dead_letter.is_some() {
                    return Ok(());
                }
                if is_topic(destination) && !is_new {
                    return broken("order", format!("client {client} got {} twice", delivery.message));
                }
                let queue = if is_topic(destination) { String::new() } else { destination.clone() };
                let key = (*client, subscription, *publisher, queue);
                let last = self.last.insert(key, *place);
                if last.is_some_and(|last| last >= *place) {
                    let text =
                        format!("client {client}, subscription {subscription}: {} is late", delivery.message);
                    return broken("order", text);
                }
                if is_topic(destination) && self.direct.contains(&(*client, subscription)) {
                    let last = self.last_of_topics.insert((*client, *publisher), *place);
                    if last.is_some_and(|last| last > *place) {
                        let text = format!("client {client}: {} to {destination} is late", delivery.message);
                        return broken("order", text);
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkers::tests::{delivered, message, sent};

    #[test]
    fn the_order_of_a_publisher_covers_all_topics_and_each_queue() {
        let found = |kind: &str| {
            let messages = [1, 2].map(|id| message(id, &format!("/{kind}/{id}")));
            let sent = messages.iter().flat_map(|message| sent(9, message.clone()));
            let arrived = messages.iter().rev().map(|message| delivered(0, 1, message, 1));
            let mut checker = Order::default();
            sent.chain(arrived).find_map(|event| checker.see(&event, Duration::ZERO).err())
        };
        assert!(found("topic").is_some());
        assert!(found("queue").is_none());
    }
}
