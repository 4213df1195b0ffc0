//! A transaction takes effect as a whole or not at all: none of its messages arrives without its COMMIT, and if one has
//! arrived, what the transaction acknowledged does not come again. (That all of its messages arrive then is a part of
//! `loss`.)

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::{Checker, broken};
use crate::events::{
    ClientId, Delivery, Event, MessageId, Request, Store, SubscriptionId, TransactionId, Violation,
};
use crate::frames::Version;
use crate::options::Options;

/// A transaction of a client.
type Key = (ClientId, TransactionId);
/// A message where it waits for its acknowledgement; each subscription to a topic has a copy of its own.
type Copy = (MessageId, Source);

/// What a subscription takes messages from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Source {
    Shared(Store),
    Own(ClientId, SubscriptionId),
}

/// Follows the messages and acknowledgements of transactions.
#[derive(Debug)]
pub struct Transactions {
    /// What an acknowledgement has at least before the delivery is taken back.
    timeout: Duration,
    members: BTreeMap<MessageId, Key>,
    committed: BTreeSet<Key>,
    sources: BTreeMap<(ClientId, SubscriptionId), Source>,
    /// The last delivery that a subscription has received of a message: its number, and when it was encoded.
    received: BTreeMap<(ClientId, SubscriptionId, MessageId), (u64, Duration)>,
    /// The delivery that an acknowledgement in a transaction means; that of the first one, if there are several. The client
    /// may receive the next delivery before the RECEIPT of the acknowledgement.
    meant: BTreeMap<(ClientId, TransactionId, SubscriptionId, MessageId), (u64, Duration)>,
    /// The transactions that acknowledge a delivery, and its number.
    acknowledged: BTreeMap<Copy, Vec<(Key, u64)>>,
    /// Transactions whose messages have arrived.
    effective: BTreeMap<Key, MessageId>,
    /// Transactions whose acknowledgements had no effect.
    void: BTreeMap<Key, MessageId>,
}

impl Transactions {
    /// Expects what the settings promise.
    #[must_use]
    pub fn new(options: &Options) -> Self {
        Transactions {
            timeout: super::ack_timeout(options),
            members: BTreeMap::new(),
            committed: BTreeSet::new(),
            sources: BTreeMap::new(),
            received: BTreeMap::new(),
            meant: BTreeMap::new(),
            acknowledged: BTreeMap::new(),
            effective: BTreeMap::new(),
            void: BTreeMap::new(),
        }
    }

    fn deliver(&mut self, client: ClientId, delivery: &Delivery) -> Result<(), Violation> {
        let message = delivery.message;
        let key = (client, delivery.subscription);
        let copy = (message, self.sources.get(&key).copied().unwrap_or(Source::Own(key.0, key.1)));
        // In STOMP 1.1 an ACK names the message, and so maybe a later delivery.
        if self.timeout == Duration::MAX || delivery.version != Version::V11 {
            let received = (delivery.count, delivery.written.encoded_from);
            self.received.insert((client, delivery.subscription, message), received);
        }
        if let Some(transaction) = self.members.get(&message).copied() {
            if !self.committed.contains(&transaction) {
                let text = format!("client {client} got {message} of {transaction:?}, which has no COMMIT");
                return broken("transactions", text);
            }
            self.effective.insert(transaction, message);
            self.check(transaction)?;
        }
        let voided = self.acknowledged.get(&copy).into_iter().flatten();
        let voided: Vec<Key> =
            voided.filter(|(_, count)| delivery.count > *count).map(|(key, _)| *key).collect();
        for transaction in voided {
            self.void.insert(transaction, message);
            self.check(transaction)?;
        }
        Ok(())
    }

    fn check(&self, transaction: Key) -> Result<(), Violation> {
        match (self.effective.get(&transaction), self.void.get(&transaction)) {
            (Some(arrived), Some(again)) => {
                let text = format!(
                    "{arrived} of {transaction:?} has arrived, but {again}, which it acknowledged, came again"
                );
                broken("transactions", text)
            }
            _ => Ok(()),
        }
    }
}

impl Checker for Transactions {
    fn see(&mut self, event: &Event, now: Duration) -> Result<(), Violation> {
        match event {
            Event::Requested(client, Request::Send(message)) => {
                if let Some(transaction) = message.transaction {
                    self.members.insert(message.id, (*client, transaction));
                }
            }
            Event::Requested(client, Request::Ack(subscription, messages, Some(transaction))) => {
                for message in messages {
                    if let Some(received) = self.received.get(&(*client, *subscription, *message)) {
                        let key = (*client, *transaction, *subscription, *message);
                        self.meant.entry(key).or_insert(*received);
                    }
                }
            }
            // It is in the transaction, unless the delivery was taken back before it came.
            Event::Confirmed(client, Request::Ack(subscription, messages, Some(transaction))) => {
                let key = (*client, *subscription);
                let source = self.sources.get(&key).copied().unwrap_or(Source::Own(key.0, key.1));
                for message in messages {
                    let meant = self.meant.get(&(*client, *transaction, *subscription, *message));
                    if let Some((count, encoded_from)) = meant
                        && now < encoded_from.saturating_add(self.timeout)
                    {
                        let list = self.acknowledged.entry((*message, source)).or_default();
                        list.push(((*client, *transaction), *count));
                    }
                }
            }
            Event::Requested(client, Request::Subscribe(subscription)) => {
                let own = Source::Own(*client, subscription.id);
                let source = subscription.store().map_or(own, Source::Shared);
                self.sources.insert((*client, subscription.id), source);
            }
            Event::Requested(client, Request::Commit(transaction)) => {
                self.committed.insert((*client, *transaction));
            }
            Event::Delivered(client, delivery) => return self.deliver(*client, delivery),
            _ => {}
        }
        Ok(())
    }
}
