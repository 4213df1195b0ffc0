//! Of the last values of a topic, the newest one survives a crash: none that another one had replaced for certain.

use std::collections::BTreeMap;
use std::time::Duration;

use super::super::{Checker, broken};
use crate::events::{ClientId, Event, Message, MessageId, Request, Survivor, TransactionId, Violation};
use crate::work::{Retain, plain};

/// The number of an event.
type At = u64;

/// A SEND that sets or removes a value.
#[derive(Clone, Debug)]
struct Change {
    /// `None`: there is no value afterwards.
    value: Option<MessageId>,
    expires: bool,
    /// When it was requested.
    from: At,
    /// When it was confirmed.
    until: Option<(At, Duration)>,
}

/// Follows last values.
#[derive(Debug, Default)]
pub struct Values {
    now: At,
    /// The changes of each topic, the value that the last crash has left as the first one.
    topics: BTreeMap<String, Vec<Change>>,
    /// Those of open transactions.
    open: BTreeMap<(ClientId, TransactionId), Vec<Message>>,
    safe: Duration,
}

impl Values {
    fn change(&mut self, message: &Message) {
        let Some(retain) = message.retain else { return };
        let first = Change { value: None, expires: false, from: 0, until: Some((0, Duration::ZERO)) };
        let changes = self.topics.entry(message.destination.clone()).or_insert_with(|| vec![first]);
        changes.push(Change {
            value: Some(message.id).filter(|_| retain == Retain::Set),
            expires: message.expires.is_some(),
            from: self.now,
            until: None,
        });
    }

    fn confirm(&mut self, message: &Message, now: Duration) {
        let at = self.now;
        let changes = self.topics.get_mut(&message.destination).into_iter().flatten();
        // Removals have no number: that of the same publisher which was not confirmed comes first.
        let is_it = |change: &&mut Change| match message.retain {
            Some(Retain::Set) => change.value == Some(message.id),
            _ => change.value.is_none() && change.until.is_none(),
        };
        if message.retain.is_some()
            && let Some(change) = changes.into_iter().find(is_it)
        {
            change.until.get_or_insert((at, now));
        }
    }

    fn recover(&mut self, survivors: &[Survivor]) -> Result<(), Violation> {
        let mut values: BTreeMap<&str, (u64, Option<MessageId>)> = BTreeMap::new();
        for survivor in survivors.iter().filter(|survivor| survivor.queue == "retained\n") {
            let value = values.entry(&survivor.destination).or_default();
            *value = (*value).max((survivor.record, survivor.message));
        }
        for (topic, changes) in &mut self.topics {
            let found = values.get(&**topic).and_then(|(_, value)| *value);
            let safe = self.safe;
            let is_replaced = |change: &Change| {
                let end = change.until.map_or(At::MAX, |(at, _)| at);
                changes.iter().any(|other| other.from > end && other.until.is_some_and(|(_, at)| at <= safe))
            };
            let is_possible = changes.iter().any(|change| change.value == found && !is_replaced(change));
            if !is_possible && !changes.iter().any(|change| change.expires) {
                let text =
                    format!("after a crash the value of {topic} is {found:?}, of the changes {changes:?}");
                return broken("values", text);
            }
            let until = Some((self.now, Duration::ZERO));
            let expires = changes.iter().any(|change| change.expires && change.value == found);
            *changes = vec![Change { value: found, expires, from: self.now, until }];
        }
        self.open.clear();
        Ok(())
    }
}

impl Checker for Values {
    fn see(&mut self, event: &Event, now: Duration) -> Result<(), Violation> {
        self.now += 1;
        match event {
            Event::Requested(client, request) => match plain(request) {
                Request::Send(message) => match message.transaction {
                    Some(transaction) => {
                        self.open.entry((*client, transaction)).or_default().push(message.clone());
                    }
                    None => self.change(message),
                },
                Request::Commit(transaction) => {
                    for message in self.open.get(&(*client, *transaction)).cloned().unwrap_or_default() {
                        self.change(&message);
                    }
                }
                _ => {}
            },
            Event::Confirmed(client, request) => match plain(request) {
                Request::Send(message) if message.transaction.is_none() => self.confirm(message, now),
                Request::Commit(transaction) => {
                    for message in self.open.remove(&(*client, *transaction)).unwrap_or_default() {
                        self.confirm(&message, now);
                    }
                }
                _ => {}
            },
            Event::Crashed(safe) => self.safe = *safe,
            Event::Recovered(survivors) => return self.recover(survivors),
            _ => {}
        }
        Ok(())
    }
}
