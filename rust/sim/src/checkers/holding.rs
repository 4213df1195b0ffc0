//! A message of a queue has at most one holder; an acknowledged one never comes again; nobody gets more than prefetch
//! allows; `redelivered` and `delivery-count` tell the truth.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::{Checker, broken};
use crate::events::{
    AckMode, ClientId, Delivery, Event, MessageId, Request, Subscription, SubscriptionId, TransactionId,
    Violation, is_queue,
};

/// Follows who holds which message of queues.
#[derive(Debug, Default)]
pub struct Holding {
    subscriptions: BTreeMap<(ClientId, SubscriptionId), Subscription>,
    /// The holder of each message that is delivered and not acknowledged.
    holders: BTreeMap<MessageId, ((ClientId, SubscriptionId), u64)>,
    unacked: BTreeMap<(ClientId, SubscriptionId), BTreeSet<MessageId>>,
    /// Subscriptions whose client has asked for their end.
    ended: BTreeSet<(ClientId, SubscriptionId)>,
    /// The number of the delivery that was acknowledged with a RECEIPT.
    acknowledged: BTreeMap<MessageId, u64>,
    /// The number of the last delivery to a subscription.
    received: BTreeMap<(ClientId, SubscriptionId, MessageId), u64>,
    deliveries: BTreeSet<(MessageId, u64)>,
    suspicions: Vec<(ClientId, String)>,
    open: BTreeMap<(ClientId, TransactionId), Vec<(SubscriptionId, MessageId)>>,
}

impl Holding {
    fn release(&mut self, client: ClientId, subscription: SubscriptionId, message: MessageId) {
        if self.holders.get(&message).is_some_and(|(holder, _)| *holder == (client, subscription)) {
            self.holders.remove(&message);
        }
        if let Some(unacked) = self.unacked.get_mut(&(client, subscription)) {
            unacked.remove(&message);
        }
    }

    fn acknowledge(&mut self, client: ClientId, subscription: SubscriptionId, message: MessageId) {
        if let Some(count) = self.received.get(&(client, subscription, message)) {
            self.acknowledged.insert(message, *count);
        }
    }

    fn release_all(&mut self, client: ClientId, subscription: Option<SubscriptionId>) {
        let is_meant = |holder: &(ClientId, SubscriptionId)| {
            holder.0 == client && subscription.is_none_or(|subscription| holder.1 == subscription)
        };
        self.holders.retain(|_, (holder, _)| !is_meant(holder));
        self.unacked.retain(|holder, _| !is_meant(holder));
    }

    fn deliver(&mut self, client: ClientId, delivery: &Delivery) -> Result<(), Violation> {
        let key = (client, delivery.subscription);
        let Some(subscription) = self.subscriptions.get(&key) else { return Ok(()) };
        if !is_queue(&subscription.destination) {
            return Ok(());
        }
        let message = delivery.message;
        self.received.insert((client, delivery.subscription, message), delivery.count);
        if self.acknowledged.get(&message).is_some_and(|count| delivery.count > *count) {
            return broken(
                "holding",
                format!("client {client} got {message}, which was acknowledged with a RECEIPT"),
            );
        }
        if delivery.dead_letter.is_some() {
            return Ok(());
        }
        // Clients may read later deliveries before earlier ones, but no two have the same number.
        let is_new = self.deliveries.insert((message, delivery.count));
        if !is_new || delivery.redelivered != (delivery.count > 1) {
            let (redelivered, count) = (delivery.redelivered, delivery.count);
            return broken(
                "holding",
                format!("a delivery of {message}: redelivered:{redelivered}, count {count} (new: {is_new})"),
            );
        }
        if self.ended.contains(&key) {
            return Ok(()); // it was on its way
        }
        if let Some((holder, count)) = self.holders.get(&message) {
            // The broker may have ended the connection with the lower number, and its client does not know yet. If it
            // turns out to be open in the end, this was wrong.
            let older = if delivery.count > *count { holder.0 } else { client };
            let text =
                format!("client {client} got {message} (count {}), which {holder:?} held", delivery.count);
            self.suspicions.push((older, text));
        }
        if subscription.ack == AckMode::Auto {
            return Ok(());
        }
        self.holders.insert(message, (key, delivery.count));
        let unacked = self.unacked.entry(key).or_default();
        unacked.insert(message);
        if subscription.prefetch.is_some_and(|prefetch| unacked.len() as u64 > prefetch) {
            return broken(
                "holding",
                format!("client {client} got more than its prefetch: {subscription:?}"),
            );
        }
        Ok(())
    }
}

impl Checker for Holding {
    fn see(&mut self, event: &Event, _: Duration) -> Result<(), Violation> {
        match event {
            Event::Requested(client, request) => match request {
                Request::Subscribe(subscription) => {
                    self.subscriptions.insert((*client, subscription.id), subscription.clone());
                }
                Request::Unsubscribe(subscription) => {
                    self.ended.insert((*client, *subscription));
                    self.release_all(*client, Some(*subscription));
                }
                Request::Ack(subscription, messages, None) | Request::Nack(subscription, messages) => {
                    messages.iter().for_each(|message| self.release(*client, *subscription, *message));
                }
                Request::Ack(subscription, messages, Some(transaction)) => {
                    let list = self.open.entry((*client, *transaction)).or_default();
                    list.extend(messages.iter().map(|message| (*subscription, *message)));
                }
                Request::Commit(transaction) => {
                    for (subscription, message) in
                        self.open.get(&(*client, *transaction)).cloned().unwrap_or_default()
                    {
                        self.release(*client, subscription, message);
                    }
                }
                _ => {}
            },
            Event::Confirmed(client, Request::Ack(subscription, messages, None)) => {
                messages.iter().for_each(|message| self.acknowledge(*client, *subscription, *message));
            }
            Event::Confirmed(client, Request::Commit(transaction)) => {
                let taken = self.open.remove(&(*client, *transaction)).unwrap_or_default();
                taken
                    .iter()
                    .for_each(|(subscription, message)| self.acknowledge(*client, *subscription, *message));
            }
            Event::Delivered(client, delivery) => return self.deliver(*client, delivery),
            Event::Released(client) => self.release_all(*client, None),
            Event::Finished(open) => {
                if let Some((_, text)) = self.suspicions.iter().find(|(holder, _)| open.contains(holder)) {
                    return broken("holding", text.clone());
                }
            }
            _ => {}
        }
        Ok(())
    }
}
