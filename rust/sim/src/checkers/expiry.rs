//! An expired message is not delivered, and a message counts as expired no earlier than it is.
//!
//! A client may read a MESSAGE long after the broker decided to deliver it. The decision came after the last time at which
//! the broker had nothing to do, after the SUBSCRIBE, and after the acknowledgement that gave the consumer its credit.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Checker, broken};
use crate::events::{
    AckMode, ClientId, Delivery, Event, Message, MessageId, Request, Subscription, SubscriptionId,
    TransactionId, Violation, is_queue,
};
use crate::options::Options;

/// The broker counts in milliseconds, from the beginning of a turn.
const PRECISION: Duration = Duration::from_millis(2);

/// A subscription, and what decides when it can get its next message.
#[derive(Debug)]
struct Consumer {
    since: Duration,
    /// The number of messages that it gets without any acknowledgement; `None`: no bound is known.
    prefetch: Option<u64>,
    received: u64,
    /// When it has acknowledged or refused each message, in order.
    released: Vec<Duration>,
}

/// Follows what expires when.
#[derive(Debug)]
pub struct Expiry {
    prefetch: u64,
    takes_back: bool,
    sent: BTreeMap<MessageId, Message>,
    /// A time at which a message had arrived at the broker for certain.
    arrived: BTreeMap<MessageId, Duration>,
    consumers: BTreeMap<(ClientId, SubscriptionId), Consumer>,
    open: BTreeMap<(ClientId, TransactionId), Vec<(SubscriptionId, usize)>>,
}

impl Expiry {
    /// Expects what the settings promise.
    #[must_use]
    pub fn new(options: &Options) -> Self {
        Expiry {
            prefetch: u64::from(options.config.prefetch),
            takes_back: options.config.ack_timeout_ms > 0,
            sent: BTreeMap::new(),
            arrived: BTreeMap::new(),
            consumers: BTreeMap::new(),
            open: BTreeMap::new(),
        }
    }

    fn subscribe(&mut self, client: ClientId, subscription: &Subscription, now: Duration) {
        let is_bounded = subscription.ack != AckMode::Auto && is_queue(&subscription.destination);
        let prefetch = subscription.prefetch.unwrap_or(self.prefetch);
        let prefetch = Some(prefetch).filter(|count| is_bounded && *count > 0 && !self.takes_back);
        let consumer = Consumer { since: now, prefetch, received: 0, released: Vec::new() };
        self.consumers.insert((client, subscription.id), consumer);
    }

    fn release(&mut self, client: ClientId, subscription: SubscriptionId, count: usize, now: Duration) {
        if let Some(consumer) = self.consumers.get_mut(&(client, subscription)) {
            consumer.released.extend(std::iter::repeat_n(now, count));
        }
    }

    /// The time before which the broker cannot have decided to deliver the next message to a subscription.
    fn decided_from(&mut self, client: ClientId, delivery: &Delivery) -> Duration {
        let mut from = delivery.written.decided_from;
        if let Some(consumer) = self.consumers.get_mut(&(client, delivery.subscription)) {
            from = from.max(consumer.since);
            let needed = consumer.prefetch.and_then(|prefetch| consumer.received.checked_sub(prefetch));
            let released = needed.and_then(|needed| consumer.released.get(needed as usize));
            from = released.map_or(from, |released| from.max(*released));
            consumer.received += 1;
        }
        from
    }

    fn deliver(&mut self, client: ClientId, delivery: &Delivery) -> Result<(), Violation> {
        let decided_from = self.decided_from(client, delivery);
        let written = delivery.written.at;
        let arrived = self.arrived.get(&delivery.message).copied();
        let Some(message) = self.sent.get(&delivery.message) else { return Ok(()) };
        let id = message.id;
        if let Some(reason) = &delivery.dead_letter {
            let was_early = message.expires.is_none_or(|expires| written + PRECISION < expires);
            if reason == "expired" && was_early {
                return broken(
                    "expiry",
                    format!("{id} was dead-lettered at {written:?} as expired: {message:?}"),
                );
            }
            return Ok(());
        }
        // A time from its arrival ends at the latest so long after the latest time at which it can have arrived.
        let expires = match message.ttl {
            Some(ttl) => arrived.map(|arrived| arrived + ttl),
            None => message.expires,
        };
        if expires.is_some_and(|expires| decided_from >= expires + PRECISION) {
            let text =
                format!("client {client} got {id}, decided after {decided_from:?}, expired at {expires:?}");
            return broken("expiry", text);
        }
        let seen = self.arrived.entry(id).or_insert(written);
        *seen = written.min(*seen);
        Ok(())
    }
}

impl Checker for Expiry {
    fn see(&mut self, event: &Event, now: Duration) -> Result<(), Violation> {
        match event {
            Event::Requested(client, request) => match request {
                Request::Send(message) => _ = self.sent.insert(message.id, message.clone()),
                Request::Subscribe(subscription) => self.subscribe(*client, subscription, now),
                Request::Ack(subscription, messages, transaction)
                | Request::Nack(subscription, messages, transaction)
                | Request::Reject(subscription, messages, transaction) => match transaction {
                    None => self.release(*client, *subscription, messages.len(), now),
                    Some(transaction) => {
                        let list = self.open.entry((*client, *transaction)).or_default();
                        list.push((*subscription, messages.len()));
                    }
                },
                Request::Commit(transaction) => {
                    for (subscription, count) in
                        self.open.remove(&(*client, *transaction)).unwrap_or_default()
                    {
                        self.release(*client, subscription, count, now);
                    }
                }
                _ => {}
            },
            Event::Confirmed(_, Request::Send(message)) => {
                self.arrived.entry(message.id).or_insert(now);
            }
            Event::Delivered(client, delivery) => return self.deliver(*client, delivery),
            _ => {}
        }
        Ok(())
    }
}
