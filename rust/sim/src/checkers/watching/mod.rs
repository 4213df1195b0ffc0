//! Diagnostics tell the truth: each answer belongs to its query, and its numbers are between what was true when it was asked
//! and when it came. A query that was sent reaches each subscription once, in order. Periodic answers come neither early
//! nor late.

mod facts;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use stompica_broker::config::SlowConsumer;

use self::facts::{Facts, Moment};
use super::{Checker, broken};
use crate::events::{Answer, ClientId, Event, Request, SubscriptionId, Violation, Watch, WatchEvent};
use crate::options::Options;
use crate::patterns::Rules;

/// How long an UNSUBSCRIBE may wait for what its client has sent before: its SENDs may wait for its own subscriptions, whose
/// ACKs come behind them.
const END_MAX: Duration = Duration::from_secs(600);

/// A query of a SEND.
#[derive(Debug)]
struct Published {
    client: ClientId,
    query: &'static str,
    destination: String,
    asked: Moment,
    is_confirmed: bool,
    /// Subscriptions that were confirmed when it was sent.
    due: Vec<(ClientId, SubscriptionId)>,
}

/// Periodic answers to one subscription.
#[derive(Debug)]
struct Pushed {
    watch: Watch,
    /// When the client asked for them.
    since: Duration,
    count: u64,
    /// The count when everything was at rest, and when that was.
    at_rest: Option<(u64, Duration)>,
}

/// Follows queries and answers.
#[derive(Debug)]
pub struct Watching {
    drops: bool,
    rules: Rules,
    facts: Facts,
    asked: BTreeMap<u64, Moment>,
    published: BTreeMap<u64, Published>,
    subscriptions: BTreeMap<(ClientId, SubscriptionId), Watch>,
    pushed: BTreeMap<(ClientId, SubscriptionId), Pushed>,
    ended: BTreeSet<(ClientId, SubscriptionId)>,
    received: BTreeSet<(ClientId, SubscriptionId, u64)>,
    last: BTreeMap<(ClientId, SubscriptionId, ClientId), u64>,
    /// When all clients ended their periodic answers.
    over: Option<Duration>,
}

impl Watching {
    /// Expects what the settings promise.
    #[must_use]
    pub fn new(options: &Options) -> Self {
        Watching {
            drops: !matches!(options.config.slow_consumer, SlowConsumer::Block(_)),
            rules: options.rules(),
            facts: Facts::new(options),
            asked: BTreeMap::new(),
            published: BTreeMap::new(),
            subscriptions: BTreeMap::new(),
            pushed: BTreeMap::new(),
            ended: BTreeSet::new(),
            received: BTreeSet::new(),
            last: BTreeMap::new(),
            over: None,
        }
    }

    fn request(&mut self, client: ClientId, request: &Request, now: Duration) {
        match request {
            Request::Diagnose(number, query) => _ = self.asked.insert(*number, self.facts.moment(query)),
            Request::Query { id, destination, query } => {
                let is_due = |watch: &Watch| self.rules.matches(&watch.destination, destination);
                let due = self.subscriptions.iter().filter(|(_, watch)| is_due(watch)).map(|(key, _)| *key);
                let published = Published {
                    client,
                    query,
                    destination: destination.clone(),
                    asked: self.facts.moment(query),
                    is_confirmed: false,
                    due: due.collect(),
                };
                self.published.insert(*id, published);
            }
            Request::Watch(watch) if watch.pushes.is_some() => {
                let pushed = Pushed { watch: watch.clone(), since: now, count: 0, at_rest: None };
                self.pushed.insert((client, watch.id), pushed);
            }
            Request::Unsubscribe(id) => {
                self.ended.insert((client, *id));
                self.subscriptions.remove(&(client, *id));
                self.pushed.entry((client, *id)).and_modify(|pushed| pushed.at_rest = None);
            }
            _ => {}
        }
    }

    fn told(
        &mut self,
        key: (ClientId, SubscriptionId),
        asked: u64,
        destination: &str,
        answer: &Answer,
    ) -> Result<(), Violation> {
        let Some(published) = self.published.get(&asked) else {
            return broken("watching", format!("{key:?} got an answer to a query of nobody: {answer:?}"));
        };
        if answer.query != published.query || destination != published.destination {
            let text = format!("{key:?} got {answer:?} of {destination}, but {published:?} was asked");
            return broken("watching", text);
        }
        if !self.received.insert((key.0, key.1, asked)) {
            return broken("watching", format!("{key:?} got the answer to {asked} twice"));
        }
        let last = self.last.insert((key.0, key.1, published.client), asked);
        if last.is_some_and(|last| last > asked) {
            return broken("watching", format!("{key:?} got the answer to {asked} after a later one"));
        }
        let moment = published.asked.clone();
        self.facts.compare(&moment, answer)
    }

    fn push(&mut self, key: (ClientId, SubscriptionId), query: &str, now: Duration) -> Result<(), Violation> {
        let Some(pushed) = self.pushed.get_mut(&key) else {
            return broken("watching", format!("{key:?} got a periodic answer to {query}"));
        };
        let Some((expected, interval)) = pushed.watch.pushes else { return Ok(()) };
        pushed.count += 1;
        if self.over.is_some_and(|over| now > over + END_MAX) {
            return broken("watching", format!("{key:?} still gets answers to {query}"));
        }
        // The broker counts in milliseconds, and its monitor has a clock of its own.
        let most = now.saturating_sub(pushed.since).as_millis() / interval.as_millis().max(1) + 2;
        if query != expected || u128::from(pushed.count) > most {
            let text =
                format!("{key:?} got {} answers to {query} instead of {most} to {expected}", pushed.count);
            return broken("watching", text);
        }
        Ok(())
    }

    /// Everything is at rest: from now on periodic answers come in time, until they are ended.
    fn begin_rest(&mut self, open: &[ClientId], now: Duration) {
        for ((client, _), pushed) in &mut self.pushed {
            // Before its first answer to a query the broker may wait for something else.
            let key = (*client, pushed.watch.id);
            let is_monitor = pushed.watch.pushes.is_some_and(|(query, _)| query == "monitor");
            let has_begun = pushed.count > 0 || (is_monitor && self.subscriptions.contains_key(&key));
            let is_counted = open.contains(client) && has_begun && !self.ended.contains(&key);
            pushed.at_rest = is_counted.then_some((pushed.count, now));
        }
    }

    fn end_rest(&self, open: &[ClientId], now: Duration) -> Result<(), Violation> {
        for (key, pushed) in &self.pushed {
            let (Some((before, since)), Some((query, interval))) = (pushed.at_rest, pushed.watch.pushes)
            else {
                continue;
            };
            let least = (now - since).as_millis() / interval.as_millis().max(1);
            let count = u128::from(pushed.count - before);
            if open.contains(&key.0) && count + 1 < least {
                let text = format!("{key:?} got {count} answers to {query} in {:?}", now - since);
                return broken("watching", text);
            }
        }
        Ok(())
    }

    fn finish(&mut self, open: &[ClientId]) -> Result<(), Violation> {
        for (id, published) in self.published.iter().filter(|(_, published)| published.is_confirmed) {
            for key in published.due.iter().filter(|key| !self.drops && open.contains(&key.0)) {
                if self.subscriptions.contains_key(key) && !self.received.contains(&(key.0, key.1, *id)) {
                    return broken("watching", format!("the answer to {id} has not reached {key:?}"));
                }
            }
        }
        self.facts.finish(open)
    }
}

impl Checker for Watching {
    fn see(&mut self, event: &Event, now: Duration) -> Result<(), Violation> {
        self.facts.see(event);
        match event {
            Event::Requested(client, request) => self.request(*client, request, now),
            Event::Confirmed(_, Request::Query { id, .. }) => {
                self.published.entry(*id).and_modify(|published| published.is_confirmed = true);
            }
            Event::Confirmed(client, Request::Watch(watch)) if !self.ended.contains(&(*client, watch.id)) => {
                self.subscriptions.insert((*client, watch.id), watch.clone());
            }
            Event::Watch(client, event) => match event {
                WatchEvent::Answered(number, answer) => {
                    let Some(moment) = self.asked.remove(number) else {
                        return broken(
                            "watching",
                            format!("client {client} got a second answer: {answer:?}"),
                        );
                    };
                    return self.facts.compare(&moment, answer);
                }
                WatchEvent::Told { subscription, asked: Some(asked), destination, answer } => {
                    return self.told((*client, *subscription), *asked, destination, answer);
                }
                WatchEvent::Told { subscription, asked: None, answer, .. } => {
                    return self.push((*client, *subscription), &answer.query, now);
                }
                WatchEvent::Text(subscription, _) => {
                    return self.push((*client, *subscription), "monitor", now);
                }
            },
            Event::WatchBegins(open) => self.begin_rest(open, now),
            Event::WatchEnds(open) => {
                self.over = Some(now);
                return self.end_rest(open, now);
            }
            Event::Finished(open) => return self.finish(open),
            _ => {}
        }
        Ok(())
    }
}
