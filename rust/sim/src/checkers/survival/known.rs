//! What is known of the persistent messages of queues: which are confirmed, and which may have ended.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::events::{AckMode, ClientId, Event, Message, MessageId, Request, SubscriptionId, TransactionId};
use crate::options::Options;
use crate::patterns::Rules;
use crate::work::plain;

/// A persistent message of a queue.
#[derive(Debug)]
pub(super) struct Sent {
    pub(super) message: Message,
    /// When its publisher knew that it is safe.
    confirmed: Option<Duration>,
    /// When its consumer knew that its ACK is safe.
    acknowledged: Option<Duration>,
    /// A consumer has done something in this life of the broker that may have ended it.
    may_be_over: bool,
}

impl Sent {
    /// Whether it was confirmed by this time.
    pub(super) fn is_confirmed(&self, safe: Duration) -> bool {
        self.confirmed.is_some_and(|at| at <= safe)
    }

    /// Whether its ACK was confirmed by this time.
    pub(super) fn is_acknowledged(&self, safe: Duration) -> bool {
        self.acknowledged.is_some_and(|at| at <= safe)
    }
}

/// A transaction's persistent messages to queues, and the messages that it acknowledges.
#[derive(Debug, Default)]
pub(super) struct Operations {
    pub(super) sends: Vec<MessageId>,
    pub(super) acks: Vec<MessageId>,
    /// Whether COMMIT was sent.
    pub(super) is_committed: bool,
}

/// All of them.
#[derive(Debug)]
pub(super) struct Known {
    rules: Rules,
    may_refuse: bool,
    pub(super) sent: BTreeMap<MessageId, Sent>,
    pub(super) open: BTreeMap<(ClientId, TransactionId), Operations>,
    /// Names and patterns that somebody consumes with ack auto.
    auto: BTreeSet<String>,
    /// Dead letters, as their consumers got them.
    dead: BTreeSet<(ClientId, SubscriptionId, MessageId)>,
    /// The largest number of a message so far.
    pub(super) last: MessageId,
}

impl Known {
    pub(super) fn new(options: &Options) -> Self {
        Known {
            rules: options.rules(),
            may_refuse: options.may_refuse_dead_letters(),
            sent: BTreeMap::new(),
            open: BTreeMap::new(),
            auto: BTreeSet::new(),
            dead: BTreeSet::new(),
            last: 0,
        }
    }

    /// Whether a message may have ended, or may have become a dead letter that was dropped.
    pub(super) fn is_excused(&self, id: MessageId) -> bool {
        let Some(sent) = self.sent.get(&id) else { return true };
        let destination = &sent.message.destination;
        let dead = destination.replacen("/queue/", "/queue/dlq/", 1);
        let is_auto = |name: &str| self.auto.iter().any(|pattern| self.rules.matches(pattern, name));
        sent.may_be_over
            || (sent.message.expires.is_some() && self.may_refuse)
            || is_auto(destination)
            || is_auto(&dead)
    }

    fn end(&mut self, messages: &[MessageId]) {
        for id in messages {
            if let Some(sent) = self.sent.get_mut(id) {
                sent.may_be_over = true;
            }
        }
    }

    fn confirm(&mut self, now: Duration, sends: &[MessageId], acks: &[MessageId]) {
        for id in sends {
            if let Some(sent) = self.sent.get_mut(id) {
                sent.confirmed.get_or_insert(now);
            }
        }
        for id in acks {
            if let Some(sent) = self.sent.get_mut(id) {
                sent.acknowledged.get_or_insert(now);
            }
        }
    }

    /// Follows an event, behind the checks of it.
    pub(super) fn see(&mut self, event: &Event, now: Duration) {
        match event {
            Event::Requested(client, request) => self.request(*client, plain(request)),
            Event::Confirmed(client, request) => self.confirmed(now, *client, plain(request)),
            Event::Delivered(client, delivery) if delivery.dead_letter.is_some() => {
                self.dead.insert((*client, delivery.subscription, delivery.message));
            }
            Event::Recovered(survivors) => {
                let there: BTreeSet<_> = survivors.iter().filter_map(|survivor| survivor.message).collect();
                self.open.clear();
                for (id, sent) in &mut self.sent {
                    // What the log has, another process has found there: it is safe.
                    let is_there = there.contains(id);
                    (sent.may_be_over, sent.acknowledged) = (!is_there, None);
                    sent.confirmed = is_there.then_some(Duration::ZERO);
                }
            }
            _ => {}
        }
    }

    fn request(&mut self, client: ClientId, request: &Request) {
        match request {
            Request::Send(message) => {
                self.last = self.last.max(message.id);
                if message.persistent && message.destination.starts_with("/queue/") {
                    let sent = Sent {
                        message: message.clone(),
                        confirmed: None,
                        acknowledged: None,
                        may_be_over: false,
                    };
                    self.sent.insert(message.id, sent);
                    if let Some(transaction) = message.transaction {
                        self.open.entry((client, transaction)).or_default().sends.push(message.id);
                    }
                }
            }
            Request::Answer(message) => self.last = self.last.max(message.id),
            Request::Subscribe(subscription) if subscription.ack == AckMode::Auto => {
                self.auto.insert(subscription.destination.clone());
            }
            Request::Ack(_, messages, None) => self.end(messages),
            Request::Ack(_, messages, Some(transaction)) => {
                self.open.entry((client, *transaction)).or_default().acks.extend(messages);
            }
            Request::Nack(subscription, messages, _) | Request::Reject(subscription, messages, _) => {
                let is_dropped =
                    |id: &&MessageId| self.may_refuse || self.dead.contains(&(client, *subscription, **id));
                let dropped: Vec<_> = messages.iter().filter(is_dropped).copied().collect();
                self.end(&dropped);
            }
            Request::Commit(transaction) => {
                let Some(operations) = self.open.get_mut(&(client, *transaction)) else { return };
                operations.is_committed = true;
                let acks = operations.acks.clone();
                self.end(&acks);
            }
            _ => {}
        }
    }

    fn confirmed(&mut self, now: Duration, client: ClientId, request: &Request) {
        match request {
            Request::Send(message) if message.transaction.is_none() => self.confirm(now, &[message.id], &[]),
            Request::Ack(_, messages, None) => self.confirm(now, &[], messages),
            Request::Commit(transaction) => {
                let Some(operations) = self.open.get(&(client, *transaction)) else { return };
                let (sends, acks) = (operations.sends.clone(), operations.acks.clone());
                self.confirm(now, &sends, &acks);
            }
            _ => {}
        }
    }
}
