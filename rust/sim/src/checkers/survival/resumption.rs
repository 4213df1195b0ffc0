//! Durable subscriptions survive crashes, with the persistent messages that wait for them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::super::{Checker, broken};
use crate::events::{AckMode, ClientId, Delivery, Event, Message, MessageId, Request, SubscriptionId};
use crate::events::{Survivor, TransactionId, Violation, is_topic};
use crate::options::Options;
use crate::patterns::Rules;
use crate::work::plain;

/// What is known of one of them.
#[derive(Debug, Default)]
struct Known {
    /// Its name, as the store knows it.
    name: String,
    destination: String,
    /// SUBSCRIBEs that were not answered, since the last request for its end: that may have come before.
    asked: BTreeSet<(ClientId, SubscriptionId)>,
    /// Requests for its end that were not answered.
    ends: u64,
    /// Since when it certainly exists.
    exists: Option<Duration>,
    /// Since when it certainly does not.
    absent: Option<Duration>,
    /// Persistent messages that were sent meanwhile, and when that was confirmed.
    due: BTreeMap<MessageId, Option<Duration>>,
    /// Whether a holder with ack auto has asked for it in this life: what was written to it is consumed, read or not.
    has_auto: bool,
    /// Messages that holders have acknowledged, refused, or got with ack auto.
    settled: BTreeSet<MessageId>,
    acknowledged: BTreeMap<MessageId, Duration>,
    /// What the last crash has left, and what holders have got since then.
    left: BTreeSet<MessageId>,
    seen: BTreeSet<MessageId>,
}

/// Follows durable subscriptions over all lives of the broker.
#[derive(Debug)]
pub struct Resumption {
    rules: Rules,
    all: Vec<Known>,
    held: BTreeMap<(ClientId, SubscriptionId), (usize, AckMode)>,
    /// Messages and acknowledgements of open transactions.
    sent: BTreeMap<(ClientId, TransactionId), Vec<Message>>,
    acked: BTreeMap<(ClientId, TransactionId), Vec<(SubscriptionId, MessageId)>>,
    safe: Duration,
    /// Messages that expire: they may end at any time.
    expiring: BTreeSet<MessageId>,
    first: MessageId,
    last: MessageId,
}

impl Resumption {
    /// Follows those of the options.
    #[must_use]
    pub fn new(options: &Options) -> Self {
        let all = options.keeping.durables.iter().map(|durable| Known {
            name: durable.stored(),
            destination: durable.destination.clone(),
            ..Known::default()
        });
        Resumption {
            rules: options.rules(),
            all: all.collect(),
            held: BTreeMap::new(),
            sent: BTreeMap::new(),
            acked: BTreeMap::new(),
            safe: Duration::ZERO,
            expiring: BTreeSet::new(),
            first: 0,
            last: 0,
        }
    }

    fn request(&mut self, client: ClientId, request: &Request) {
        match request {
            Request::Subscribe(subscription) => {
                if let Some(durable) = &subscription.durable {
                    let known = &mut self.all[durable.number];
                    known.absent = None;
                    known.has_auto |= subscription.ack == AckMode::Auto;
                    if known.ends == 0 {
                        known.asked.insert((client, subscription.id));
                    }
                    self.held.insert((client, subscription.id), (durable.number, subscription.ack));
                }
            }
            Request::EndDurable(number, _) => {
                let known = &mut self.all[*number];
                known.ends += 1;
                known.asked.clear();
                (known.exists, known.absent) = (None, None);
                known.due.clear();
                // They may come before its end, and need not.
                known.settled.extend(known.left.iter().copied());
            }
            Request::Send(message) => {
                self.last = self.last.max(message.id);
                if message.expires.is_some() {
                    self.expiring.insert(message.id);
                }
                match message.transaction {
                    Some(transaction) => {
                        self.sent.entry((client, transaction)).or_default().push(message.clone());
                    }
                    None => self.send(message),
                }
            }
            Request::Ack(id, messages, None) => messages.iter().for_each(|it| self.settle(client, *id, *it)),
            Request::Ack(id, messages, Some(transaction)) => {
                let list = self.acked.entry((client, *transaction)).or_default();
                list.extend(messages.iter().map(|message| (*id, *message)));
            }
            Request::Nack(id, messages, _) | Request::Reject(id, messages, _) => {
                messages.iter().for_each(|it| self.settle(client, *id, *it));
            }
            Request::Commit(transaction) => {
                for message in self.sent.get(&(client, *transaction)).cloned().unwrap_or_default() {
                    self.send(&message);
                }
                for (id, message) in self.acked.get(&(client, *transaction)).cloned().unwrap_or_default() {
                    self.settle(client, id, message);
                }
            }
            _ => {}
        }
    }

    fn send(&mut self, message: &Message) {
        if !message.persistent || message.expires.is_some() || !is_topic(&message.destination) {
            return;
        }
        let rules = self.rules;
        for known in self.all.iter_mut().filter(|known| known.exists.is_some()) {
            if rules.matches(&known.destination, &message.destination) {
                known.due.insert(message.id, None);
            }
        }
    }

    fn settle(&mut self, client: ClientId, id: SubscriptionId, message: MessageId) {
        if let Some((number, _)) = self.held.get(&(client, id)) {
            self.all[*number].settled.insert(message);
        }
    }

    fn confirm(&mut self, client: ClientId, request: &Request, now: Duration) {
        match request {
            Request::Subscribe(subscription) => {
                if let Some(durable) = &subscription.durable {
                    let known = &mut self.all[durable.number];
                    if known.asked.remove(&(client, subscription.id)) && known.ends == 0 {
                        known.exists.get_or_insert(now);
                    }
                }
            }
            Request::EndDurable(number, _) => {
                let known = &mut self.all[*number];
                known.ends = known.ends.saturating_sub(1);
                // Another SUBSCRIBE may be on its way.
                let is_wanted = self.held.iter().any(|(_, (held, _))| held == number);
                known.absent = Some(now).filter(|_| known.ends == 0 && !is_wanted);
            }
            Request::Send(message) if message.transaction.is_none() => {
                self.sent_is_confirmed(message.id, now)
            }
            Request::Ack(id, messages, None) => {
                messages.iter().for_each(|message| self.ack_is_confirmed(client, *id, *message, now));
            }
            Request::Commit(transaction) => {
                for message in self.sent.remove(&(client, *transaction)).unwrap_or_default() {
                    self.sent_is_confirmed(message.id, now);
                }
                for (id, message) in self.acked.remove(&(client, *transaction)).unwrap_or_default() {
                    self.ack_is_confirmed(client, id, message, now);
                }
            }
            _ => {}
        }
    }

    fn sent_is_confirmed(&mut self, id: MessageId, now: Duration) {
        for known in &mut self.all {
            if let Some(confirmed) = known.due.get_mut(&id) {
                confirmed.get_or_insert(now);
            }
        }
    }

    fn ack_is_confirmed(&mut self, client: ClientId, id: SubscriptionId, message: MessageId, now: Duration) {
        if let Some((number, _)) = self.held.get(&(client, id)) {
            self.all[*number].acknowledged.entry(message).or_insert(now);
        }
    }

    fn recover(&mut self, survivors: &[Survivor]) -> Result<(), Violation> {
        let safe = self.safe;
        for (number, known) in self.all.iter_mut().enumerate() {
            let is_there = survivors.iter().any(|it| it.queue == "definitions\n" && it.name == known.name);
            if known.exists.is_some_and(|at| at <= safe) && !is_there {
                return broken("resumption", format!("durable subscription {number} is lost by a crash"));
            }
            if known.absent.is_some_and(|at| at <= safe) && is_there {
                return broken(
                    "resumption",
                    format!("durable subscription {number} has returned after its end"),
                );
            }
            let own = survivors.iter().filter(|it| it.queue == known.name);
            let left: BTreeSet<MessageId> = own.filter_map(|survivor| survivor.message).collect();
            let is_lost = |(id, confirmed): &(&MessageId, &Option<Duration>)| {
                confirmed.is_some_and(|at| at <= safe)
                    && !known.has_auto
                    && !known.settled.contains(id)
                    && !left.contains(id)
                    && !self.expiring.contains(id)
            };
            if let Some((id, _)) = known.due.iter().find(is_lost).filter(|_| is_there) {
                let text = format!("{id} is lost to durable subscription {number} by a crash");
                return broken("resumption", text);
            }
            if let Some(id) = left.iter().find(|id| known.acknowledged.get(id).is_some_and(|at| *at <= safe))
            {
                let text = format!("{id} is kept for durable subscription {number}: its ACK was confirmed");
                return broken("resumption", text);
            }
            known.due = left.iter().filter(|_| is_there).map(|id| (*id, Some(Duration::ZERO))).collect();
            known.left = if is_there { left } else { BTreeSet::new() };
            (known.exists, known.absent) =
                if is_there { (Some(Duration::ZERO), None) } else { (None, Some(Duration::ZERO)) };
            (known.asked, known.ends, known.has_auto) = (BTreeSet::new(), 0, false);
            (known.settled, known.acknowledged, known.seen) = Default::default();
        }
        (self.held, self.sent, self.acked) = Default::default();
        self.first = self.last + 1;
        Ok(())
    }

    fn deliver(&mut self, client: ClientId, delivery: &Delivery) -> Result<(), Violation> {
        let id = delivery.message;
        let Some((number, ack)) = self.held.get(&(client, delivery.subscription)) else { return Ok(()) };
        let known = &mut self.all[*number];
        known.seen.insert(id);
        if *ack == AckMode::Auto {
            known.settled.insert(id);
        }
        if id < self.first && !known.left.contains(&id) {
            let text =
                format!("durable subscription {number} gets {id}, which the log did not have after a crash");
            return broken("resumption", text);
        }
        Ok(())
    }

    fn finish(&self) -> Result<(), Violation> {
        for (number, known) in self.all.iter().enumerate().filter(|(_, known)| known.exists.is_some()) {
            let is_missing = |id: &&MessageId| {
                !(known.has_auto
                    || known.seen.contains(id)
                    || known.settled.contains(id)
                    || self.expiring.contains(id))
            };
            if let Some(id) = known.left.iter().find(is_missing) {
                let text =
                    format!("{id} was in the log for durable subscription {number}, and nobody gets it");
                return broken("resumption", text);
            }
        }
        Ok(())
    }
}

impl Checker for Resumption {
    fn see(&mut self, event: &Event, now: Duration) -> Result<(), Violation> {
        if self.all.is_empty() {
            return Ok(());
        }
        match event {
            Event::Requested(client, request) => self.request(*client, plain(request)),
            Event::Confirmed(client, request) => self.confirm(*client, plain(request), now),
            Event::Delivered(client, delivery) => return self.deliver(*client, delivery),
            Event::Crashed(safe) => self.safe = *safe,
            Event::Recovered(survivors) => return self.recover(survivors),
            Event::Finished(_) => return self.finish(),
            _ => {}
        }
        Ok(())
    }
}
