//! What SENDs and COMMITs have asked for about the values of topics, and which of it took effect before what.

use std::collections::BTreeMap;

use crate::events::{ClientId, Event, Message, MessageId, Request, TransactionId};
use crate::work::Retain;

/// A place in the sequence of events.
pub type Moment = u64;

/// A SEND with `retain`, once nothing holds it back: its transaction, if any, has its COMMIT.
#[derive(Clone, Debug)]
struct Change {
    message: MessageId,
    publisher: ClientId,
    sets: bool,
    may_expire: bool,
    requested: Moment,
    /// It has had its effect.
    confirmed: Option<Moment>,
    /// It has had its effect, or never will.
    over: Option<Moment>,
}

impl Change {
    /// Whether this one had its effect before another one, if both had one.
    fn is_before(&self, other: &Change) -> bool {
        let same_publisher = self.publisher == other.publisher && self.requested < other.requested;
        same_publisher || self.over.is_some_and(|over| over < other.requested)
    }
}

/// The changes of all topics.
#[derive(Debug, Default)]
pub struct History {
    moment: Moment,
    topics: BTreeMap<String, Vec<Change>>,
    open: BTreeMap<(ClientId, TransactionId), Vec<Message>>,
    committed: BTreeMap<(ClientId, TransactionId), Vec<Message>>,
    /// When each message was confirmed.
    confirmed: BTreeMap<MessageId, Moment>,
}

impl History {
    /// The present; each event and each change has a moment of its own.
    pub fn now(&self) -> Moment {
        self.moment
    }

    /// Follows an event. Returns the messages that are published now.
    pub fn see(&mut self, event: &Event) -> Vec<MessageId> {
        self.moment += 1;
        match event {
            Event::Requested(client, Request::Send(message)) => match message.transaction {
                Some(transaction) => {
                    self.open.entry((*client, transaction)).or_default().push(message.clone());
                }
                None => {
                    self.change(*client, message);
                    return vec![message.id];
                }
            },
            Event::Requested(client, Request::Commit(transaction)) => {
                let messages = self.open.remove(&(*client, *transaction)).unwrap_or_default();
                messages.iter().for_each(|message| self.change(*client, message));
                let ids = messages.iter().map(|message| message.id).collect();
                self.committed.insert((*client, *transaction), messages);
                return ids;
            }
            Event::Confirmed(_, Request::Send(message)) if message.transaction.is_none() => {
                self.confirm(message);
            }
            Event::Confirmed(client, Request::Commit(transaction)) => {
                let messages = self.committed.remove(&(*client, *transaction)).unwrap_or_default();
                messages.iter().for_each(|message| self.confirm(message));
            }
            // Nothing is on its way any more.
            Event::Resting(_) => {
                let changes = self.topics.values_mut().flatten();
                changes.for_each(|change| _ = change.over.get_or_insert(self.moment));
            }
            _ => {}
        }
        Vec::new()
    }

    fn change(&mut self, publisher: ClientId, message: &Message) {
        self.moment += 1;
        let Some(retain) = message.retain else { return };
        self.topics.entry(message.destination.clone()).or_default().push(Change {
            message: message.id,
            publisher,
            sets: retain == Retain::Set,
            may_expire: message.expires.is_some(),
            requested: self.moment,
            confirmed: None,
            over: None,
        });
    }

    fn confirm(&mut self, message: &Message) {
        self.confirmed.insert(message.id, self.moment);
        let changes = self.topics.get_mut(&message.destination);
        if let Some(change) = changes.into_iter().flatten().find(|change| change.message == message.id) {
            (change.confirmed, change.over) = (Some(self.moment), Some(self.moment));
        }
    }

    /// Whether a message was confirmed before a moment.
    pub fn is_confirmed(&self, message: MessageId, before: Moment) -> bool {
        self.confirmed.get(&message).is_some_and(|confirmed| *confirmed < before)
    }

    /// Whether a value was requested to be set before a moment.
    pub fn is_requested(&self, message: MessageId, before: Moment) -> bool {
        let mut changes = self.topics.values().flatten();
        changes.any(|change| change.message == message && change.requested < before)
    }

    /// Whether a value had been set before a moment.
    pub fn has_set(&self, before: Moment) -> bool {
        let mut changes = self.topics.values().flatten();
        let is_there = |change: &Change| change.sets && !change.may_expire;
        changes.any(|change| is_there(change) && change.confirmed.is_some_and(|confirmed| confirmed < before))
    }

    /// Why a message cannot be the value of a topic at or after a moment.
    pub fn objection(&self, topic: &str, message: MessageId, at: Moment) -> Option<String> {
        let changes = self.topics.get(topic).map_or(&[][..], Vec::as_slice);
        let Some(own) = changes.iter().find(|change| change.message == message && change.sets) else {
            return Some("nobody has set it".to_owned());
        };
        let is_later =
            |other: &&Change| own.is_before(other) && other.confirmed.is_some_and(|confirmed| confirmed < at);
        let later = changes.iter().find(is_later)?;
        let what = if later.sets { "set" } else { "removed" };
        Some(format!("{} had {what} the value before", later.message))
    }

    /// The topics that have the same value at each moment from one to another, and that value.
    pub fn values(&self, from: Moment, to: Moment) -> impl Iterator<Item = (&str, MessageId)> {
        self.topics.iter().filter_map(move |(topic, changes)| {
            let is_known = |change: &&Change| {
                let is_there = change.sets && !change.may_expire;
                is_there && change.confirmed.is_some_and(|confirmed| confirmed < from)
            };
            let is_last = |own: &&Change| {
                let mut others = changes.iter().filter(|other| other.message != own.message);
                others.all(|other| other.is_before(own) || other.requested > to)
            };
            let value = changes.iter().filter(is_known).find(is_last)?;
            Some((topic.as_str(), value.message))
        })
    }
}
