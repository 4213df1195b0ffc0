//! Retained messages: a new subscription gets the last value of each topic that it matches, once, before its RECEIPT, and
//! no older one; and all messages to these topics are delivered as those to others.
//!
//! Other checkers do not see these messages, because a topic without `retain` promises other things. Some of these
//! checkers follow them here, as a second copy of each.

mod history;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use self::history::{History, Moment};
use super::slowness::Slowness;
use super::{Checker, broken, content, expiry, farewell, gaps, identity, matching, transactions};
use crate::events::{
    AckMode, ClientId, Delivery, End, Event, MessageId, Request, Subscription, SubscriptionId, Violation,
    is_topic,
};
use crate::options::Options;
use crate::patterns::Rules;
use crate::work::unwrapped;

/// With this `max_retained` nobody is refused.
const RETAINED_MANY: usize = 1000;

/// A subscription to these topics.
#[derive(Debug)]
struct Newcomer {
    subscription: Subscription,
    requested: Moment,
    confirmed: Option<Moment>,
    has_ended: bool,
    /// The values that it has received.
    values: BTreeSet<MessageId>,
    /// The live messages that it has received.
    live: BTreeSet<MessageId>,
    /// The last one from each publisher, by place.
    last: BTreeMap<ClientId, usize>,
}

/// Follows values and who reads them; nothing in a run without retained messages.
#[derive(Default)]
pub struct Retained {
    is_on: bool,
    rules: Rules,
    /// Checkers of all messages, and those of live ones only.
    all: Vec<Box<dyn Checker>>,
    live: Vec<Box<dyn Checker>>,
    slowness: Slowness,
    has_room: bool,
    history: History,
    newcomers: BTreeMap<(ClientId, SubscriptionId), Newcomer>,
    /// Publisher and place of each message that was published.
    places: BTreeMap<MessageId, (ClientId, usize)>,
    /// Everything is at rest since then, and these connections are open.
    rests: Option<(Moment, Vec<ClientId>)>,
}

impl Retained {
    /// Expects what the settings promise.
    #[must_use]
    pub fn new(options: &Options) -> Self {
        if options.retained.percent == 0 {
            return Retained::default();
        }
        Retained {
            is_on: true,
            rules: options.rules(),
            all: vec![
                Box::new(content::Content::default()),
                Box::new(identity::Identity::default()),
                Box::new(matching::Matching::new(options)),
                Box::new(expiry::Expiry::new(options)),
                Box::new(transactions::Transactions::new(options)),
            ],
            live: vec![Box::new(gaps::Gaps::new(options)), Box::new(farewell::Farewell::new(options))],
            slowness: Slowness::new(options),
            has_room: options.config.max_retained >= RETAINED_MANY,
            ..Retained::default()
        }
    }

    fn end(&mut self, client: ClientId, id: Option<SubscriptionId>) {
        let own =
            self.newcomers.iter_mut().filter(|(key, _)| key.0 == client && id.is_none_or(|id| key.1 == id));
        own.for_each(|(_, newcomer)| newcomer.has_ended = true);
    }

    /// The RECEIPT of a SUBSCRIBE has come: so have the values, unless they wait for acknowledgements.
    fn confirm(&mut self, key: (ClientId, SubscriptionId)) -> Result<(), Violation> {
        let now = self.history.now();
        let Some(newcomer) = self.newcomers.get_mut(&key).filter(|newcomer| !newcomer.has_ended) else {
            return Ok(());
        };
        newcomer.confirmed = Some(now);
        if newcomer.subscription.ack != AckMode::Auto {
            return Ok(());
        }
        let newcomer = &self.newcomers[&key];
        self.expect_values(key, (newcomer.requested, now), |value| newcomer.values.contains(&value))
    }

    /// A subscription has received each value that its topics have from one moment to another.
    fn expect_values(
        &self,
        key: (ClientId, SubscriptionId),
        (from, to): (Moment, Moment),
        has: impl Fn(MessageId) -> bool,
    ) -> Result<(), Violation> {
        let subscription = &self.newcomers[&key].subscription;
        let pattern = &subscription.destination;
        let mut due = self.history.values(from, to).filter(|(topic, _)| self.rules.matches(pattern, topic));
        match due.find(|(_, value)| !self.slowness.drops(subscription) && !has(*value)) {
            Some((topic, value)) => {
                broken("retained", format!("{key:?} has not got {value}, the value of {topic}"))
            }
            None => Ok(()),
        }
    }

    /// Everything is acknowledged: each subscription has got the last values, those that were set after its SUBSCRIBE as such
    /// or as live messages.
    ///
    /// One that was set before the RECEIPT may be missed if nothing had ever been retained until then: such a SUBSCRIBE awaits
    /// no values.
    fn expect_rest(&self, rested: Moment, open: &[ClientId]) -> Result<(), Violation> {
        for (key, newcomer) in &self.newcomers {
            let Some(confirmed) = newcomer.confirmed.filter(|_| open.contains(&key.0) && !newcomer.has_ended)
            else {
                continue;
            };
            let awaits = self.history.has_set(newcomer.requested);
            let may_be_missed = |value| !awaits && self.history.is_requested(value, confirmed);
            let has = |value| newcomer.values.contains(&value) || newcomer.live.contains(&value);
            self.expect_values(*key, (rested, rested), |value| has(value) || may_be_missed(value))?;
        }
        Ok(())
    }

    fn deliver(&mut self, client: ClientId, delivery: &Delivery) -> Result<(), Violation> {
        let key = (client, delivery.subscription);
        let Some(newcomer) = self.newcomers.get_mut(&key) else { return Ok(()) };
        if delivery.redelivered || delivery.dead_letter.is_some() {
            return Ok(());
        }
        let (message, topic) = (delivery.message, &delivery.destination);
        if !delivery.retained {
            if self.history.is_confirmed(message, newcomer.requested) {
                return broken(
                    "retained",
                    format!("{key:?} got {message}, which was confirmed before its SUBSCRIBE"),
                );
            }
            newcomer.live.insert(message);
            let Some((publisher, place)) = self.places.get(&message) else { return Ok(()) };
            let last = newcomer.last.insert(*publisher, *place);
            return match last.filter(|last| last >= place) {
                Some(_) => broken("retained", format!("{key:?} got {message} late, or twice")),
                None => Ok(()),
            };
        }
        if newcomer.confirmed.is_some() && newcomer.subscription.ack == AckMode::Auto {
            return broken("retained", format!("{key:?} got the value {message} after its RECEIPT"));
        }
        if !newcomer.values.insert(message) {
            return broken("retained", format!("{key:?} got the value {message} twice"));
        }
        match self.history.objection(topic, message, newcomer.requested) {
            Some(text) => {
                broken("retained", format!("{key:?} got {message} as the value of {topic}: {text}"))
            }
            None => Ok(()),
        }
    }

    fn follow(&mut self, event: &Event) -> Result<(), Violation> {
        if let Event::Requested(_, Request::Send(message)) = event {
            self.slowness.send(message);
        }
        let published = self.history.see(event);
        if let Event::Requested(client, _) = event {
            for message in published {
                self.places.insert(message, (*client, self.places.len()));
            }
        }
        match event {
            Event::Requested(client, Request::Subscribe(it)) if is_topic(&it.destination) => {
                let newcomer = Newcomer {
                    subscription: it.clone(),
                    requested: self.history.now(),
                    confirmed: None,
                    has_ended: false,
                    values: BTreeSet::new(),
                    live: BTreeSet::new(),
                    last: BTreeMap::new(),
                };
                self.newcomers.insert((*client, it.id), newcomer);
            }
            Event::Confirmed(client, Request::Subscribe(it)) => return self.confirm((*client, it.id)),
            Event::Requested(client, Request::Unsubscribe(id)) => self.end(*client, Some(*id)),
            Event::Ended(client, End::Closed(Some(code))) if code == "E-RETAINED-COUNT" && self.has_room => {
                return broken("retained", format!("client {client} was refused: {code}"));
            }
            Event::Requested(client, Request::Disconnect)
            | Event::Ended(client, _)
            | Event::Released(client) => self.end(*client, None),
            Event::Delivered(client, delivery) => return self.deliver(*client, delivery),
            Event::Resting(open) => self.rests = Some((self.history.now(), open.clone())),
            // Queues are empty by then, so that no value waits for memory.
            Event::Requested(_, Request::Send(_)) | Event::Finished(_) => {
                if let Some((rested, open)) = self.rests.take() {
                    return self.expect_rest(rested, &open);
                }
            }
            _ => {}
        }
        Ok(())
    }
}

impl Checker for Retained {
    fn see(&mut self, event: &Event, now: Duration) -> Result<(), Violation> {
        let Some(event) = unwrapped(event).filter(|_| self.is_on) else { return Ok(()) };
        self.follow(&event)?;
        let is_value = matches!(&event, Event::Delivered(_, delivery) if delivery.retained);
        // An acknowledgement does not tell a value from the same message as a live one.
        let acknowledges =
            |request: &Request| matches!(request, Request::Ack(..) | Request::Nack(..) | Request::Reject(..));
        if matches!(&event, Event::Requested(_, it) | Event::Confirmed(_, it) if acknowledges(it)) {
            return Ok(());
        }
        let live = self.live.iter_mut().filter(|_| !is_value);
        for checker in self.all.iter_mut().chain(live) {
            if let Err(violation) = checker.see(&event, now) {
                return broken("retained", format!("{}: {}", violation.checker, violation.text));
            }
        }
        Ok(())
    }
}
