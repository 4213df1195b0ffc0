//! A message of a queue or of a durable subscription has at most one holder; an acknowledged one never comes
//! again; nobody gets more than prefetch allows; `redelivered` and `delivery-count` tell the truth.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use stompica_broker::simulated::outside::Written;

use super::{Checker, broken};
use crate::events::{
    AckMode, ClientId, Delivery, Event, MessageId, Request, Store, Subscription, SubscriptionId,
    TransactionId, Violation, is_queue,
};
use crate::frames::Version;
use crate::options::Options;

/// A subscription of a client.
type Key = (ClientId, SubscriptionId);
/// A message where it waits for its acknowledgement.
type Copy = (MessageId, Store);

/// A delivery with its number.
type Numbered = (Key, MessageId, u64);

/// A delivery that is not acknowledged.
#[derive(Clone, Copy, Debug)]
struct Held {
    holder: Key,
    count: u64,
    written: Written,
    len: u64,
}

/// Follows who holds which message of queues and of durable subscriptions.
#[derive(Debug)]
pub struct Holding {
    /// Those who do not ask for another one have this prefetch.
    prefetch: u64,
    /// What an acknowledgement has at least before the delivery is taken back.
    timeout: Duration,
    subscriptions: BTreeMap<Key, Subscription>,
    /// The holder of each message that is delivered and not acknowledged.
    holders: BTreeMap<Copy, Held>,
    unacked: BTreeMap<Key, BTreeMap<MessageId, Held>>,
    /// Subscriptions whose client has asked for their end.
    ended: BTreeSet<Key>,
    /// The number of the delivery that was acknowledged with a RECEIPT.
    acknowledged: BTreeMap<Copy, u64>,
    /// The last delivery to a subscription.
    received: BTreeMap<(Key, MessageId), Held>,
    /// What the first ACK of it that is not confirmed covers.
    acks: BTreeMap<(Key, MessageId), Held>,
    deliveries: BTreeSet<(Copy, u64)>,
    suspicions: Vec<(ClientId, String)>,
    /// Clients of STOMP 1.1, whose ACKs and NACKs name messages, not deliveries.
    named_by_message: BTreeSet<ClientId>,
    /// The number of the delivery that the last NACK of a message refused.
    nacked: BTreeMap<(Key, MessageId), u64>,
    open: BTreeMap<(ClientId, TransactionId), Vec<(SubscriptionId, MessageId)>>,
    /// The ACKs among them.
    accepted: BTreeMap<(ClientId, TransactionId), Vec<Numbered>>,
}

impl Holding {
    /// Expects what the settings promise.
    #[must_use]
    pub fn new(options: &Options) -> Self {
        Holding {
            prefetch: u64::from(options.config.prefetch),
            timeout: super::ack_timeout(options),
            subscriptions: BTreeMap::new(),
            holders: BTreeMap::new(),
            unacked: BTreeMap::new(),
            ended: BTreeSet::new(),
            acknowledged: BTreeMap::new(),
            received: BTreeMap::new(),
            acks: BTreeMap::new(),
            deliveries: BTreeSet::new(),
            suspicions: Vec::new(),
            named_by_message: BTreeSet::new(),
            nacked: BTreeMap::new(),
            open: BTreeMap::new(),
            accepted: BTreeMap::new(),
        }
    }

    fn copy_of(&self, key: Key, message: MessageId) -> Option<Copy> {
        Some((message, self.subscriptions.get(&key)?.store()?))
    }

    fn release(&mut self, key: Key, message: MessageId) {
        let Some(copy) = self.copy_of(key, message) else { return };
        if self.holders.get(&copy).is_some_and(|held| held.holder == key) {
            self.holders.remove(&copy);
        }
        if let Some(unacked) = self.unacked.get_mut(&key) {
            unacked.remove(&message);
        }
    }

    /// An ACK had an effect.
    fn acknowledge(&mut self, key: Key, message: MessageId, count: u64) {
        // In STOMP 1.1 a late one may have meant a later delivery.
        let is_certain = self.timeout == Duration::MAX || !self.named_by_message.contains(&key.0);
        if let Some(copy) = self.copy_of(key, message).filter(|_| is_certain) {
            self.acknowledged.insert(copy, count);
        }
    }

    fn release_all(&mut self, client: ClientId, subscription: Option<SubscriptionId>) {
        let is_meant = |holder: &Key| {
            holder.0 == client && subscription.is_none_or(|subscription| holder.1 == subscription)
        };
        self.holders.retain(|_, held| !is_meant(&held.holder));
        self.unacked.retain(|holder, _| !is_meant(holder));
    }

    fn deliver(&mut self, client: ClientId, delivery: &Delivery) -> Result<(), Violation> {
        let key = (client, delivery.subscription);
        let Some(subscription) = self.subscriptions.get(&key).cloned() else { return Ok(()) };
        let Some(store) = subscription.store().filter(|_| !delivery.retained) else { return Ok(()) };
        // Each subscription to a topic had a copy of its own, and their dead letters cannot be told apart.
        if delivery.original.as_ref().is_some_and(|original| !is_queue(original)) {
            return Ok(());
        }
        let (message, count, written) = (delivery.message, delivery.count, delivery.written);
        let copy = (message, store);
        let held = Held { holder: key, count, written, len: delivery.body.len() as u64 };
        self.received.insert((key, message), held);
        if delivery.version == Version::V11 {
            self.named_by_message.insert(client);
        }
        if self.acknowledged.get(&copy).is_some_and(|acknowledged| count > *acknowledged) {
            let text = format!("client {client} got {message}, which was acknowledged with a RECEIPT");
            return broken("holding", text);
        }
        // Clients may read later deliveries before earlier ones, but no two have the same number.
        let is_new = self.deliveries.insert((copy, count));
        if !is_new || delivery.redelivered != (count > 1) {
            let redelivered = delivery.redelivered;
            let text =
                format!("a delivery of {message}: redelivered:{redelivered}, count {count} (new: {is_new})");
            return broken("holding", text);
        }
        if self.ended.contains(&key) {
            return Ok(()); // it was on its way
        }
        if let Some(holder) = self.holders.get(&copy).copied() {
            // The broker may have ended the connection with the lower number, and its client does not know yet. If it
            // turns out to be open in the end, this was wrong.
            let (older, newer) = if count > holder.count { (holder, held) } else { (held, holder) };
            let is_held = newer.written.at < older.written.encoded_from.saturating_add(self.timeout);
            if is_held && !self.may_be_nacked(message, older) {
                let text = format!("client {client} got {message} (count {count}), which {holder:?} held");
                self.suspicions.push((older.holder.0, text));
            }
        }
        if subscription.ack == AckMode::Auto {
            return Ok(());
        }
        self.holders.insert(copy, held);
        self.unacked.entry(key).or_default().insert(message, held);
        self.check_credit(key, &subscription, held)
    }

    /// Whether a NACK of an earlier delivery may have come so late that it refused this one. It does so once.
    fn may_be_nacked(&mut self, message: MessageId, held: Held) -> bool {
        let key = held.holder;
        if self.timeout == Duration::MAX || !self.named_by_message.contains(&key.0) {
            return false;
        }
        // A cumulative one refuses all that came before the delivery that it names.
        if self.subscriptions.get(&key).is_some_and(|subscription| subscription.ack == AckMode::Client) {
            return self.nacked.range((key, 0)..=(key, MessageId::MAX)).next().is_some();
        }
        let is_earlier = self.nacked.get(&(key, message)).is_some_and(|count| *count < held.count);
        is_earlier && self.nacked.remove(&(key, message)).is_some()
    }

    /// Checks that the newest delivery is within the prefetch. Others may have been taken back meanwhile.
    fn check_credit(&self, key: Key, subscription: &Subscription, newest: Held) -> Result<(), Violation> {
        if self.timeout < Duration::MAX && self.named_by_message.contains(&key.0) {
            return Ok(()); // a late ACK that names a message may have meant a later delivery
        }
        let is_held =
            |held: &&Held| newest.written.at < held.written.encoded_from.saturating_add(self.timeout);
        let held: Vec<&Held> =
            self.unacked.get(&key).into_iter().flat_map(BTreeMap::values).filter(is_held).collect();
        let prefetch = subscription.prefetch.unwrap_or(self.prefetch);
        // The last message may exceed the bound in bytes; that of a pattern is divided among shards.
        let before = held.iter().map(|held| held.len).sum::<u64>().saturating_sub(newest.len);
        let is_exact = !subscription.destination.contains(['*', '>', '#']);
        let is_over =
            subscription.terms.window.is_some_and(|window| is_exact && held.len() > 1 && before >= window);
        if is_over || (prefetch > 0 && held.len() as u64 > prefetch) {
            let (client, count) = (key.0, held.len());
            let text = format!("client {client} got more than its prefetch ({count}): {subscription:?}");
            return broken("holding", text);
        }
        Ok(())
    }

    fn request(&mut self, client: ClientId, request: &Request) {
        match request {
            Request::Subscribe(subscription) => {
                self.subscriptions.insert((client, subscription.id), subscription.clone());
                self.ended.remove(&(client, subscription.id));
            }
            Request::Unsubscribe(subscription) => {
                self.ended.insert((client, *subscription));
                self.release_all(client, Some(*subscription));
            }
            Request::Ack(subscription, messages, transaction)
            | Request::Nack(subscription, messages, transaction)
            | Request::Reject(subscription, messages, transaction) => {
                let key = (client, *subscription);
                for message in messages {
                    let held = self.received.get(&(key, *message)).copied();
                    match (held, request) {
                        (Some(held), Request::Ack(..)) => {
                            _ = self.acks.entry((key, *message)).or_insert(held)
                        }
                        (Some(held), Request::Nack(..)) => {
                            _ = self.nacked.insert((key, *message), held.count)
                        }
                        _ => {}
                    }
                    match transaction {
                        None => self.release(key, *message),
                        Some(transaction) => {
                            let list = self.open.entry((client, *transaction)).or_default();
                            list.push((*subscription, *message));
                        }
                    }
                }
            }
            Request::Commit(transaction) => {
                for (subscription, message) in self.open.remove(&(client, *transaction)).unwrap_or_default() {
                    self.release((client, subscription), message);
                }
            }
            _ => {}
        }
    }
}

impl Checker for Holding {
    fn see(&mut self, event: &Event, now: Duration) -> Result<(), Violation> {
        match event {
            Event::Requested(client, request) => self.request(*client, request),
            Event::Confirmed(client, Request::Ack(subscription, messages, transaction)) => {
                let key = (*client, *subscription);
                for message in messages {
                    let held = self.acks.remove(&(key, *message));
                    // It has an effect, unless the delivery was taken back before it came.
                    let in_time = |held: &Held| now < held.written.encoded_from.saturating_add(self.timeout);
                    let Some(held) = held.filter(in_time) else { continue };
                    match transaction {
                        None => self.acknowledge(key, *message, held.count),
                        Some(transaction) => {
                            let list = self.accepted.entry((*client, *transaction)).or_default();
                            list.push((key, *message, held.count));
                        }
                    }
                }
            }
            Event::Confirmed(client, Request::Commit(transaction)) => {
                for (key, message, count) in
                    self.accepted.remove(&(*client, *transaction)).unwrap_or_default()
                {
                    self.acknowledge(key, message, count);
                }
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
