//! Messages of one publisher to one destination reach each subscription in their order, and a topic's only once.

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
    /// The last place that a subscription has received from a publisher to a destination.
    last: BTreeMap<(ClientId, SubscriptionId, ClientId, String), u64>,
    received: BTreeSet<(ClientId, SubscriptionId, MessageId)>,
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
                if is_topic(destination) && !is_new {
                    return broken("order", format!("client {client} got {} twice", delivery.message));
                }
                if delivery.redelivered || delivery.dead_letter.is_some() {
                    return Ok(());
                }
                let key = (*client, subscription, *publisher, destination.clone());
                let last = self.last.insert(key, *place);
                if last.is_some_and(|last| last >= *place) {
                    let text =
                        format!("client {client}, subscription {subscription}: {} is late", delivery.message);
                    return broken("order", text);
                }
            }
            _ => {}
        }
        Ok(())
    }
}
