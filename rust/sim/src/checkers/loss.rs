//! No message is lost whose SEND was confirmed: a queue's is consumed or dead-lettered in the end, a topic's reaches each
//! subscription that was confirmed before it was sent. If any message of a transaction has arrived, all of them count as
//! confirmed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::slowness::Slowness;
use super::{Checker, broken};
use crate::events::{
    AckMode, ClientId, Delivery, Event, Message, MessageId, Request, Subscription, SubscriptionId,
    TransactionId, Violation, is_queue,
};
use crate::options::Options;
use crate::patterns::Rules;

/// The broker counts in milliseconds, from the beginning of a turn.
const PRECISION: Duration = Duration::from_millis(2);

/// Follows what must arrive.
#[derive(Debug)]
pub struct Loss {
    slowness: Slowness,
    rules: Rules,
    /// Dead-letter queues may be full; then what is dead-lettered is dropped.
    may_fill: bool,
    /// Subscriptions begin with stale or retained messages: live ones wait meanwhile, and may be paged out.
    begins_late: bool,
    /// Messages that may have failed.
    refused: BTreeSet<MessageId>,
    takes_back: bool,
    /// Somebody consumes dead letters; if they fail, too, they are dropped.
    has_dead_consumers: bool,
    is_at_rest: bool,
    sent: BTreeMap<MessageId, (Message, ClientId)>,
    /// Confirmed subscriptions at the time when a message was sent to a topic.
    due: BTreeMap<MessageId, Vec<(ClientId, SubscriptionId)>>,
    confirmed: BTreeSet<MessageId>,
    transactions: BTreeMap<(ClientId, TransactionId), Vec<MessageId>>,
    /// Messages that open transactions acknowledge.
    open: BTreeMap<(ClientId, TransactionId), Vec<MessageId>>,
    modes: BTreeMap<(ClientId, SubscriptionId), AckMode>,
    subscriptions: BTreeMap<(ClientId, SubscriptionId), Subscription>,
    /// Subscriptions whose client has asked for their end.
    ended: BTreeSet<(ClientId, SubscriptionId)>,
    /// When each delivery was written.
    received_by: BTreeMap<(ClientId, SubscriptionId, MessageId), Duration>,
    /// Messages of which something has arrived.
    received: BTreeSet<MessageId>,
    /// Messages of queues that may have ended: acknowledged, dead-lettered, or written to a consumer with ack auto.
    settled: BTreeSet<MessageId>,
}

impl Loss {
    /// Expects what the settings promise.
    #[must_use]
    pub fn new(options: &Options) -> Self {
        Loss {
            slowness: Slowness::new(options),
            rules: options.rules(),
            may_fill: options.may_refuse_dead_letters(),
            begins_late: options.config.ttl_ms > 0 || options.retained.percent > 0,
            refused: BTreeSet::new(),
            takes_back: options.config.ack_timeout_ms > 0,
            has_dead_consumers: false,
            is_at_rest: false,
            sent: BTreeMap::new(),
            due: BTreeMap::new(),
            confirmed: BTreeSet::new(),
            transactions: BTreeMap::new(),
            open: BTreeMap::new(),
            modes: BTreeMap::new(),
            subscriptions: BTreeMap::new(),
            ended: BTreeSet::new(),
            received_by: BTreeMap::new(),
            received: BTreeSet::new(),
            settled: BTreeSet::new(),
        }
    }

    fn end(&mut self, client: ClientId, subscription: Option<SubscriptionId>) {
        self.subscriptions.retain(|key, _| {
            !(key.0 == client && subscription.is_none_or(|subscription| key.1 == subscription))
        });
    }

    /// The SEND of a message, or the COMMIT of its transaction, took effect.
    fn is_confirmed(&self, message: &Message, publisher: ClientId) -> bool {
        let key = message.transaction.map(|transaction| (publisher, transaction));
        let members = key.and_then(|key| self.transactions.get(&key)).into_iter().flatten();
        self.confirmed.contains(&message.id) || members.into_iter().any(|id| self.received.contains(id))
    }

    /// Whether a message of a topic that a subscription did not get had expired before it could get it: nothing that the
    /// publisher sent later came before.
    fn may_have_expired(
        &self,
        message: &Message,
        key: (ClientId, SubscriptionId),
        publisher: ClientId,
    ) -> bool {
        let Some(expires) = message.expires else { return false };
        let later = (key.0, key.1, message.id + 1)..(key.0, key.1, MessageId::MAX);
        message.transaction.is_some()
            || !self.received_by.range(later).any(|((.., id), written)| {
                let is_later = |(other, sender): &(Message, ClientId)| {
                    *sender == publisher && other.transaction.is_none()
                };
                *written + PRECISION < expires && self.sent.get(id).is_some_and(is_later)
            })
    }

    fn finish(&self, open: &[ClientId]) -> Result<(), Violation> {
        for (id, (message, publisher)) in &self.sent {
            if !self.is_confirmed(message, *publisher) {
                continue;
            }
            if is_queue(&message.destination) {
                let may_die = self.takes_back || self.refused.contains(id) || message.expires.is_some();
                let may_go = self.may_fill || (self.takes_back && self.has_dead_consumers);
                if !(self.settled.contains(id) || may_die && may_go) {
                    let text = format!("{id} of client {publisher} to {} is lost", message.destination);
                    return broken("loss", text);
                }
            } else {
                for (client, subscription) in self.due.get(id).into_iter().flatten() {
                    let key = (*client, *subscription);
                    let has_it = self.received_by.contains_key(&(*client, *subscription, *id));
                    let subscription = self.subscriptions.get(&key);
                    if subscription.is_some_and(|subscription| !self.slowness.drops(subscription))
                        && open.contains(client)
                        && !has_it
                        && !self.may_have_expired(message, key, *publisher)
                    {
                        let text = format!("{id} to {} has not reached client {client}", message.destination);
                        return broken("loss", text);
                    }
                }
            }
        }
        Ok(())
    }

    fn request(&mut self, client: ClientId, request: &Request) {
        match request {
            Request::Subscribe(subscription) => {
                self.modes.insert((client, subscription.id), subscription.ack);
                let is_dead = subscription.destination.starts_with("/queue/dlq/");
                self.has_dead_consumers |= is_dead && !self.is_at_rest;
            }
            Request::Unsubscribe(subscription) => {
                self.ended.insert((client, *subscription));
                self.end(client, Some(*subscription));
            }
            Request::Send(message) => self.send(client, message),
            Request::Ack(_, messages, None) => self.settled.extend(messages),
            Request::Ack(_, messages, Some(transaction)) => {
                self.open.entry((client, *transaction)).or_default().extend(messages);
            }
            Request::Commit(transaction) => {
                self.settled.extend(self.open.remove(&(client, *transaction)).unwrap_or_default());
            }
            Request::Nack(_, messages, _) | Request::Reject(_, messages, _) => self.refused.extend(messages),
            Request::Disconnect => self.end(client, None),
            _ => {}
        }
    }

    fn send(&mut self, client: ClientId, message: &Message) {
        self.slowness.send(message);
        self.sent.insert(message.id, (message.clone(), client));
        let is_due =
            |subscription: &Subscription| self.rules.matches(&subscription.destination, &message.destination);
        if !is_queue(&message.destination) {
            let due = self.subscriptions.iter().filter(|(_, it)| is_due(it)).map(|(key, _)| *key).collect();
            self.due.insert(message.id, due);
        }
        if let Some(transaction) = message.transaction {
            self.transactions.entry((client, transaction)).or_default().push(message.id);
        }
    }

    fn deliver(&mut self, client: ClientId, delivery: &Delivery) {
        let (subscription, message) = (delivery.subscription, delivery.message);
        self.received_by.insert((client, subscription, message), delivery.written.at);
        self.received.insert(message);
        if delivery.dead_letter.is_some() {
            self.settled.insert(message);
        }
        self.consume(client, subscription, message);
    }

    /// A consumer with ack auto has consumed what was written to it.
    fn consume(&mut self, client: ClientId, subscription: SubscriptionId, message: MessageId) {
        if self.modes.get(&(client, subscription)) == Some(&AckMode::Auto) {
            self.settled.insert(message);
        }
    }
}

impl Checker for Loss {
    fn see(&mut self, event: &Event, _: Duration) -> Result<(), Violation> {
        match event {
            Event::Requested(client, request) => self.request(*client, request),
            Event::Confirmed(client, Request::Subscribe(subscription))
                if subscription.durable.is_none() && !self.ended.contains(&(*client, subscription.id)) =>
            {
                self.subscriptions.insert((*client, subscription.id), subscription.clone());
            }
            Event::Confirmed(_, Request::Send(message)) if message.transaction.is_none() => {
                self.confirmed.insert(message.id);
            }
            Event::Confirmed(client, Request::Commit(transaction)) => {
                let members = self.transactions.get(&(*client, *transaction));
                self.confirmed.extend(members.into_iter().flatten());
            }
            Event::Damaged(message) => {
                self.received.insert(*message);
                self.settled.insert(*message);
                // Only copies in the queues of single subscriptions are ever paged out.
                if let Some(due) = self.due.get_mut(message) {
                    due.retain(|key| {
                        !self.begins_late && self.subscriptions.get(key).is_none_or(|it| !it.has_own_queue())
                    });
                }
            }
            Event::Delivered(client, delivery) => self.deliver(*client, delivery),
            Event::Unread(client, subscription, message) => self.consume(*client, *subscription, *message),
            Event::Released(client) | Event::Ended(client, _) => self.end(*client, None),
            Event::Resting(_) => self.is_at_rest = true,
            Event::Finished(open) => return self.finish(open),
            _ => {}
        }
        Ok(())
    }
}
