//! A temporary destination is its connection's alone: answers reach nobody else, each once and in order, under the name
//! that the owner uses; nothing of it remains when its connection has ended.

#[cfg(test)]
#[path = "private_tests.rs"]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use stompica_broker::config::SlowConsumer;

use super::{Checker, broken};
use crate::events::{
    ClientId, Delivery, Event, Message, MessageId, PrivateEvent, Request, SubscriptionId, TransactionId,
    Violation,
};
use crate::options::Options;
use crate::patterns::Rules;

/// A connection and the name that it uses.
type Owner = (ClientId, String);

/// The length of the secret in an address, in hexadecimal digits.
const SECRET_LEN: usize = 32;

/// A message to a temporary destination.
#[derive(Debug)]
struct Answer {
    message: Message,
    from: ClientId,
    /// Its place in the order of its sender; none before COMMIT.
    place: Option<u64>,
    is_confirmed: bool,
    /// Subscriptions to a temporary topic that were confirmed when it was sent.
    due: Vec<SubscriptionId>,
}

/// Follows temporary destinations.
#[derive(Debug)]
pub struct Private {
    /// Subscriptions to topics may lose messages.
    drops: bool,
    rules: Rules,
    asked: BTreeMap<MessageId, Owner>,
    owners: BTreeMap<String, Owner>,
    addresses: BTreeMap<Owner, String>,
    /// The names that a connection has used.
    used: BTreeSet<Owner>,
    sent: BTreeMap<MessageId, Answer>,
    open: BTreeMap<(ClientId, TransactionId), Vec<MessageId>>,
    last_place: u64,
    received: BTreeSet<(ClientId, SubscriptionId, MessageId)>,
    last: BTreeMap<(Owner, SubscriptionId, ClientId), u64>,
    /// Confirmed explicit subscriptions.
    subscriptions: BTreeMap<(ClientId, SubscriptionId), String>,
    ended: BTreeSet<(ClientId, SubscriptionId)>,
    /// Messages that the store could not read.
    damaged: BTreeSet<MessageId>,
    /// Names of the broker's queues at the end.
    kept: Vec<String>,
}

fn is_queue(name: &str) -> bool {
    name.starts_with("/temp-queue/")
}

/// The owner's name in an address; `None` if it is none.
fn name_in(address: &str) -> Option<String> {
    let (prefix, rest) = address.split_at_checked("/temp-queue/".len())?;
    let (secret, name) = rest.split_at_checked(SECRET_LEN)?;
    let is_secret = secret.bytes().all(|byte| byte.is_ascii_hexdigit());
    Some(format!("{prefix}{}", name.strip_prefix('/').filter(|_| is_secret)?))
}

impl Private {
    /// Expects what the settings promise.
    #[must_use]
    pub fn new(options: &Options) -> Self {
        Private {
            drops: !matches!(options.config.slow_consumer, SlowConsumer::Block(_)),
            rules: options.rules(),
            asked: BTreeMap::new(),
            owners: BTreeMap::new(),
            addresses: BTreeMap::new(),
            used: BTreeSet::new(),
            sent: BTreeMap::new(),
            open: BTreeMap::new(),
            last_place: 0,
            received: BTreeSet::new(),
            last: BTreeMap::new(),
            subscriptions: BTreeMap::new(),
            ended: BTreeSet::new(),
            damaged: BTreeSet::new(),
            kept: Vec::new(),
        }
    }

    /// A request has arrived: its address is new, or the one that its owner has had for this name.
    fn learn(&mut self, message: MessageId, address: &str) -> Result<(), Violation> {
        let Some(owner) = self.asked.get(&message).cloned() else { return Ok(()) };
        if name_in(address).as_ref() != Some(&owner.1) {
            return broken("private", format!("{owner:?} has the address {address}"));
        }
        let known = self.addresses.entry(owner.clone()).or_insert_with(|| address.to_owned());
        if known != address {
            return broken("private", format!("{owner:?} has two addresses: {known}, {address}"));
        }
        let other = self.owners.entry(address.to_owned()).or_insert_with(|| owner.clone());
        if *other != owner {
            return broken("private", format!("{address} belongs to {owner:?} and {other:?}"));
        }
        Ok(())
    }

    /// Whose destination a message was sent to.
    fn owner(&self, answer: &Answer) -> Option<Owner> {
        let destination = &answer.message.destination;
        match name_in(destination) {
            Some(_) => self.owners.get(destination).cloned(),
            None => Some((answer.from, destination.clone())),
        }
    }

    fn send(&mut self, from: ClientId, message: &Message) {
        let answer =
            Answer { message: message.clone(), from, place: None, is_confirmed: false, due: Vec::new() };
        self.sent.insert(message.id, answer);
        match message.transaction {
            Some(transaction) => self.open.entry((from, transaction)).or_default().push(message.id),
            None => self.place(message.id),
        }
    }

    fn place(&mut self, id: MessageId) {
        let Some(answer) = self.sent.get(&id) else { return };
        let due = self.owner(answer).filter(|(_, name)| !is_queue(name)).map(|(owner, name)| {
            let own =
                self.subscriptions.iter().filter(|(key, it)| key.0 == owner && self.rules.matches(it, &name));
            own.map(|(key, _)| key.1).collect()
        });
        self.last_place += 1;
        let place = self.last_place;
        if let Some(answer) = self.sent.get_mut(&id) {
            (answer.place, answer.due) = (Some(place), due.unwrap_or_default());
        }
    }

    fn receive(&mut self, client: ClientId, delivery: &Delivery) -> Result<(), Violation> {
        let Some(answer) = self.sent.get(&delivery.message) else {
            return broken("private", format!("client {client} got what nobody sent: {delivery:?}"));
        };
        let id = delivery.message;
        let owner = (client, delivery.destination.clone());
        if self.owner(answer) != Some(owner.clone()) {
            let text = format!("{owner:?} got {id}, sent to {}", answer.message.destination);
            return broken("private", text);
        }
        let Some(place) = answer.place else {
            return broken("private", format!("{owner:?} got {id} of an open transaction"));
        };
        if delivery.body != answer.message.body() || delivery.header.as_ref() != Some(&answer.message.header)
        {
            return broken("private", format!("{id} has changed"));
        }
        let receiver = if is_queue(&owner.1) { 0 } else { delivery.subscription };
        if !self.received.insert((client, receiver, id)) {
            return broken("private", format!("{owner:?} got {id} twice"));
        }
        if delivery.redelivered {
            return Ok(());
        }
        let last = self.last.insert((owner.clone(), receiver, answer.from), place);
        if last.is_some_and(|last| last > place) {
            return broken("private", format!("{owner:?} got {id} of client {} late", answer.from));
        }
        Ok(())
    }

    fn finish(&self, open: &[ClientId]) -> Result<(), Violation> {
        for (id, answer) in self.sent.iter().filter(|(_, answer)| answer.is_confirmed) {
            let Some((owner, name)) = self.owner(answer).filter(|(owner, _)| open.contains(owner)) else {
                continue;
            };
            let due = if is_queue(&name) { &[0][..] } else { &answer.due };
            for receiver in due {
                let is_excused = match *receiver {
                    0 => self.damaged.contains(id),
                    receiver => self.drops || !self.subscriptions.contains_key(&(owner, receiver)),
                };
                if !is_excused && !self.received.contains(&(owner, *receiver, *id)) {
                    return broken("private", format!("{id} has not reached {name} of client {owner}"));
                }
            }
        }
        for address in &self.kept {
            let is_living = match (self.owners.get(address), name_in(address)) {
                (Some((owner, _)), _) => open.contains(owner),
                // Nobody has learned this address.
                (None, name) => {
                    self.used.iter().any(|(owner, used)| open.contains(owner) && Some(used) == name.as_ref())
                }
            };
            if !is_living {
                return broken("private", format!("{address} has no owner any more"));
            }
        }
        Ok(())
    }
}

impl Checker for Private {
    fn see(&mut self, event: &Event, _: Duration) -> Result<(), Violation> {
        match event {
            Event::Private(client, event) => match event {
                PrivateEvent::Asked { message, name } => {
                    self.used.insert((*client, name.clone()));
                    self.asked.insert(*message, (*client, name.clone()));
                }
                PrivateEvent::Addressed { message, address } => return self.learn(*message, address),
                PrivateEvent::Received(delivery) => return self.receive(*client, delivery),
            },
            Event::Requested(client, Request::SubscribeOwn(_, name)) => {
                self.used.insert((*client, name.clone()));
            }
            Event::Confirmed(client, Request::SubscribeOwn(id, name))
                if !self.ended.contains(&(*client, *id)) =>
            {
                self.subscriptions.insert((*client, *id), name.clone());
            }
            Event::Requested(client, Request::Unsubscribe(id)) => {
                self.ended.insert((*client, *id));
                self.subscriptions.remove(&(*client, *id));
            }
            Event::Requested(client, Request::Answer(message)) => self.send(*client, message),
            Event::Confirmed(_, Request::Answer(message)) if message.transaction.is_none() => {
                self.sent.entry(message.id).and_modify(|answer| answer.is_confirmed = true);
            }
            Event::Requested(client, Request::Commit(transaction)) => {
                let sent = self.open.get(&(*client, *transaction)).cloned().unwrap_or_default();
                sent.into_iter().for_each(|message| self.place(message));
            }
            Event::Confirmed(client, Request::Commit(transaction)) => {
                for message in self.open.remove(&(*client, *transaction)).unwrap_or_default() {
                    self.sent.entry(message).and_modify(|answer| answer.is_confirmed = true);
                }
            }
            Event::Damaged(message) => _ = self.damaged.insert(*message),
            Event::Kept(queues) => {
                self.kept = queues.iter().filter(|name| is_queue(name)).cloned().collect();
            }
            Event::Finished(open) => return self.finish(open),
            _ => {}
        }
        Ok(())
    }
}
