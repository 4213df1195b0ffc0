//! No message is lost whose SEND was confirmed: a queue's is consumed in the end, a topic's reaches each subscription
//! that was confirmed before it was sent.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use stompica_broker::config::SlowConsumer;

use super::{Checker, broken};
use crate::events::{
    AckMode, ClientId, Event, Message, MessageId, Request, Subscription, SubscriptionId, TransactionId,
    Violation, is_queue,
};
use crate::options::Options;

/// Follows what must arrive.
#[derive(Debug)]
pub struct Loss {
    /// Subscriptions may lose messages of topics.
    drops: bool,
    sent: BTreeMap<MessageId, (Message, ClientId)>,
    /// Confirmed subscriptions at the time when a message was sent to a topic.
    due: BTreeMap<MessageId, Vec<(ClientId, SubscriptionId)>>,
    confirmed: BTreeSet<MessageId>,
    open: BTreeMap<(ClientId, TransactionId), Vec<MessageId>>,
    subscriptions: BTreeMap<(ClientId, SubscriptionId), Subscription>,
    /// Subscriptions whose client has asked for their end.
    ended: BTreeSet<(ClientId, SubscriptionId)>,
    received: BTreeSet<MessageId>,
    received_by: BTreeSet<(ClientId, SubscriptionId, MessageId)>,
    /// Messages that a connection may have lost: with ack auto they are consumed once they are written.
    auto: BTreeSet<(ClientId, SubscriptionId)>,
    /// Queues that had an auto consumer whose connection was lost: what was written to it may be lost.
    leaky: BTreeSet<String>,
}

impl Loss {
    /// Expects what the settings promise.
    #[must_use]
    pub fn new(options: &Options) -> Self {
        Loss {
            drops: !matches!(options.config.slow_consumer, SlowConsumer::Block(_)),
            sent: BTreeMap::new(),
            due: BTreeMap::new(),
            confirmed: BTreeSet::new(),
            open: BTreeMap::new(),
            subscriptions: BTreeMap::new(),
            ended: BTreeSet::new(),
            received: BTreeSet::new(),
            received_by: BTreeSet::new(),
            auto: BTreeSet::new(),
            leaky: BTreeSet::new(),
        }
    }

    fn end(&mut self, client: ClientId, subscription: Option<SubscriptionId>) {
        let ended: Vec<_> = self
            .auto
            .iter()
            .filter(|key| key.0 == client && subscription.is_none_or(|subscription| key.1 == subscription))
            .copied()
            .collect();
        for key in ended {
            self.auto.remove(&key);
            if let Some(subscription) = self.subscriptions.get(&key) {
                self.leaky.insert(subscription.destination.clone());
            }
        }
        self.subscriptions.retain(|key, _| {
            !(key.0 == client && subscription.is_none_or(|subscription| key.1 == subscription))
        });
    }

    fn may_leak(&self, destination: &str) -> bool {
        self.leaky.contains(destination) || self.leaky.iter().any(|name| name == "/queue/*")
    }

    fn finish(&self, open: &[ClientId]) -> Result<(), Violation> {
        for (id, (message, publisher)) in &self.sent {
            if !self.confirmed.contains(id) || message.expires.is_some() {
                continue;
            }
            if is_queue(&message.destination) {
                let is_there = self.received.contains(id) || self.may_leak(&message.destination);
                if !is_there {
                    return broken(
                        "loss",
                        format!("{id} of client {publisher} to {} is lost", message.destination),
                    );
                }
            } else if !self.drops {
                for (client, subscription) in self.due.get(id).into_iter().flatten() {
                    let still_there = self.subscriptions.contains_key(&(*client, *subscription));
                    let has_it = self.received_by.contains(&(*client, *subscription, *id));
                    if still_there && open.contains(client) && !has_it {
                        let text = format!("{id} to {} has not reached client {client}", message.destination);
                        return broken("loss", text);
                    }
                }
            }
        }
        Ok(())
    }
}

impl Checker for Loss {
    fn see(&mut self, event: &Event, _: Duration) -> Result<(), Violation> {
        match event {
            Event::Requested(client, Request::Subscribe(subscription))
                if subscription.ack == AckMode::Auto && is_queue(&subscription.destination) =>
            {
                self.auto.insert((*client, subscription.id));
                self.subscriptions.insert((*client, subscription.id), subscription.clone());
            }
            Event::Confirmed(client, Request::Subscribe(subscription))
                if !self.ended.contains(&(*client, subscription.id)) =>
            {
                self.subscriptions.insert((*client, subscription.id), subscription.clone());
            }
            Event::Requested(client, Request::Unsubscribe(subscription)) => {
                self.ended.insert((*client, *subscription));
                self.end(*client, Some(*subscription));
            }
            Event::Requested(client, Request::Send(message)) => {
                self.sent.insert(message.id, (message.clone(), *client));
                let is_due = |subscription: &Subscription| {
                    subscription.destination == message.destination || subscription.destination == "/topic/*"
                };
                if !is_queue(&message.destination) {
                    let due =
                        self.subscriptions.iter().filter(|(_, it)| is_due(it)).map(|(key, _)| *key).collect();
                    self.due.insert(message.id, due);
                }
                if let Some(transaction) = message.transaction {
                    self.open.entry((*client, transaction)).or_default().push(message.id);
                }
            }
            Event::Confirmed(_, Request::Send(message)) if message.transaction.is_none() => {
                self.confirmed.insert(message.id);
            }
            Event::Confirmed(client, Request::Commit(transaction)) => {
                for message in self.open.remove(&(*client, *transaction)).unwrap_or_default() {
                    self.confirmed.insert(message);
                }
            }
            Event::Delivered(client, delivery) => {
                self.received.insert(delivery.message);
                self.received_by.insert((*client, delivery.subscription, delivery.message));
            }
            Event::Released(client)
            | Event::Ended(client, _)
            | Event::Requested(client, Request::Disconnect) => {
                self.end(*client, None);
            }
            Event::Finished(open) => return self.finish(open),
            _ => {}
        }
        Ok(())
    }
}
