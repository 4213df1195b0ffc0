//! The temporary destinations of one connection, as its client knows them.

use std::collections::{BTreeMap, BTreeSet};

use super::Client;
use crate::events::{Event, PrivateEvent, Request, SubscriptionId};
use crate::frames::Frame;
use crate::patterns::Rules;

/// The temporary destinations of one connection.
#[derive(Debug, Default)]
pub struct Private {
    /// The rules of patterns.
    pub rules: Rules,
    /// Its names that exist: some SUBSCRIBE or `reply-to` named them.
    pub names: BTreeSet<String>,
    /// Its explicit subscriptions, to a name or a pattern.
    pub subscriptions: BTreeMap<SubscriptionId, String>,
    /// Ended ones; with `true`, UNSUBSCRIBE is confirmed.
    ended: BTreeMap<SubscriptionId, (String, bool)>,
    /// Names of queues that have a consumer without a SUBSCRIBE now.
    pub implicit: BTreeSet<String>,
    /// The number of the last `reply-to` with each name, and of the last confirmed request that ended its implicit consumer.
    asked: BTreeMap<String, u64>,
    left: BTreeMap<String, u64>,
    /// Requests that end implicit consumers, and are not confirmed.
    leaving: BTreeMap<SubscriptionId, (Vec<String>, u64)>,
    last: u64,
    /// Addresses for answers that arrived and that others do not know yet.
    pub addresses: Vec<String>,
}

impl Private {
    /// Whether a queue has a consumer.
    #[must_use]
    pub fn is_consumed(&self, name: &str) -> bool {
        self.implicit.contains(name)
            || self.subscriptions.values().any(|pattern| self.rules.matches(pattern, name))
    }

    /// Notes a `reply-to`.
    pub fn ask(&mut self, name: &str) {
        self.last += 1;
        self.names.insert(name.to_owned());
        self.asked.insert(name.to_owned(), self.last);
        if name.starts_with("/temp-queue/") && !self.is_consumed(name) {
            self.implicit.insert(name.to_owned());
        }
    }

    /// Notes a SUBSCRIBE: it replaces implicit consumers.
    pub fn subscribe(&mut self, id: SubscriptionId, name: &str) {
        if !name.contains('*') {
            self.names.insert(name.to_owned());
        }
        self.subscriptions.insert(id, name.to_owned());
        let rules = self.rules;
        self.leave(id, |other| rules.matches(name, other));
    }

    /// Notes an UNSUBSCRIBE; id 0 with a name ends an implicit consumer.
    pub fn unsubscribe(&mut self, id: SubscriptionId, name: &str) {
        self.subscriptions.remove(&id);
        self.ended.insert(id, (name.to_owned(), false));
    }

    /// Notes that a request with this id ends the implicit consumers of these names.
    pub fn leave(&mut self, id: SubscriptionId, is_left: impl Fn(&str) -> bool) {
        self.implicit.retain(|name| !is_left(name));
        let names = self.asked.keys().filter(|name| is_left(name)).cloned().collect();
        self.leaving.insert(id, (names, self.last));
    }

    /// Notes a RECEIPT.
    pub(super) fn confirm(&mut self, request: &Request) {
        let (Request::SubscribeOwn(id, _) | Request::Unsubscribe(id)) = request else { return };
        if let Request::Unsubscribe(_) = request
            && let Some((_, is_confirmed)) = self.ended.get_mut(id)
        {
            *is_confirmed = true;
        }
        let (names, at) = self.leaving.remove(id).unwrap_or_default();
        names.into_iter().for_each(|name| _ = self.left.insert(name, at));
    }

    /// The number of the subscription of a MESSAGE if it comes from a temporary destination: 0 without a SUBSCRIBE.
    ///
    /// # Errors
    /// The subscription does not exist, or gets messages of others.
    pub(super) fn subscription_of(&self, frame: &Frame) -> Result<Option<SubscriptionId>, String> {
        let (Some(text), Some(destination)) = (frame.header("subscription"), frame.header("destination"))
        else {
            return Ok(None);
        };
        if text.starts_with("/temp-") {
            let (asked, left) = (self.asked.get(text), self.left.get(text).unwrap_or(&0));
            let may_come = asked.is_some_and(|asked| asked > left);
            return match may_come && text == destination {
                true => Ok(Some(0)),
                false => Err(format!("MESSAGE of {destination} for {text}; asked {asked:?}, left {left}")),
            };
        }
        let Ok(id) = text.parse() else { return Ok(None) };
        let pattern = match (self.subscriptions.get(&id), self.ended.get(&id)) {
            (Some(pattern), _) | (None, Some((pattern, false))) => pattern,
            (None, Some((_, true))) => {
                return Err(format!("MESSAGE for subscription {id} after the RECEIPT of its UNSUBSCRIBE"));
            }
            (None, None) => return Ok(None),
        };
        match self.rules.matches(pattern, destination) {
            true => Ok(Some(id)),
            false => Err(format!("MESSAGE of {destination} for a subscription to {pattern}")),
        }
    }
}

impl Client {
    /// Notes the address in a request that has arrived.
    pub(super) fn read_reply_to(&mut self, frame: &Frame, events: &mut Vec<Event>, message: u64) {
        if let Some(address) = frame.header("reply-to") {
            self.private.addresses.push(address.to_owned());
            let address = address.to_owned();
            events.push(Event::Private(self.id, PrivateEvent::Addressed { message, address }));
        }
    }
}
