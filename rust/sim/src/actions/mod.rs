//! The actions of clients: each writes frames that are allowed now, and tells what it requests.

mod acking;
mod keeping;
mod private;
mod retained;
mod timing;
mod watching;
mod workers;
mod write;

use rand::Rng as _;
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom as _;

use crate::client::{Client, Phase, Unacked};
use crate::events::{
    AckMode, Event, Message, MessageId, Request, Subscription, SubscriptionId, Terms, TransactionId,
};
use crate::frames::{Version, frame};
use crate::options::Options;
use crate::work::Retain;

/// Numbers that are unique in a run.
#[derive(Debug, Default)]
pub struct Numbers {
    message: MessageId,
    transaction: TransactionId,
    /// Addresses for answers, of ended connections, too.
    addresses: Vec<String>,
    query: u64,
    has_crowd: bool,
}

impl Numbers {
    fn next_query(&mut self) -> u64 {
        self.query += 1;
        self.query
    }
}

impl Numbers {
    /// The number of a new message.
    pub fn next_message(&mut self) -> MessageId {
        self.message += 1;
        self.message
    }
}

/// What one client does in one step.
pub struct Actor<'a> {
    /// The client.
    pub client: &'a mut Client,
    /// The options of the run.
    pub options: &'a Options,
    /// Numbers of the run.
    pub numbers: &'a mut Numbers,
    /// The random numbers of the step.
    pub random: &'a mut SmallRng,
    /// Where events go.
    pub events: &'a mut Vec<Event>,
}

/// Pairs of a header's name and value.
type Headers = Vec<(&'static str, String)>;

impl Actor<'_> {
    /// Does something that is possible now. Returns its name; `None` if nothing is.
    pub fn act(&mut self) -> Option<&'static str> {
        if self.client.phase != Phase::Open {
            return None;
        }
        let percent = self.options.private.percent;
        if percent > 0 && self.percent(percent) {
            return self.act_privately();
        }
        let percent = self.options.watching.percent;
        if percent > 0 && self.percent(percent) {
            return self.watch_something();
        }
        let percent = self.options.workers.percent;
        if percent > 0 && self.percent(percent) {
            return self.act_with_workers();
        }
        let percent = self.options.retained.percent;
        if percent > 0 && self.percent(percent) {
            return self.act_with_retained();
        }
        let weights = &self.options.weights;
        let has_unacked = self.client.subscriptions.values().any(|held| !held.unacked.is_empty());
        let has_transaction = !self.client.transactions.is_empty();
        let when = |is_possible: bool, weight: u32| if is_possible { weight } else { 0 };
        let all = [
            ("subscribe", when(self.client.subscriptions.len() < 6, weights.subscribe)),
            ("unsubscribe", when(!self.client.subscriptions.is_empty(), weights.unsubscribe)),
            ("send", weights.send),
            ("ack", when(has_unacked, weights.ack)),
            ("nack", when(has_unacked && self.client.version != Version::V10, weights.nack)),
            ("begin", when(self.client.transactions.len() < 3, weights.begin)),
            ("commit", when(has_transaction, weights.commit)),
            ("abort", when(has_transaction, weights.abort)),
            ("disconnect", weights.disconnect),
            ("finish", weights.finish),
            ("reset", weights.reset),
            ("abandon", weights.abandon),
            ("stall", weights.stall),
            ("keep", self.options.keeping.subscribe),
            ("end", self.options.keeping.end),
        ];
        let (name, _) = *all.choose_weighted(self.random, |(_, weight)| *weight).ok()?;
        match name {
            "subscribe" => self.subscribe()?,
            "unsubscribe" => self.unsubscribe()?,
            "send" => {
                for _ in 0..self.burst() {
                    self.send()?;
                }
            }
            "ack" => self.acknowledge("ACK")?,
            "nack" => self.acknowledge("NACK")?,
            "begin" => self.begin(),
            "commit" | "abort" => self.end_transaction(name)?,
            "disconnect" => self.disconnect(),
            "finish" => self.leave(|client| client.wire.finish()),
            "reset" => self.lose(|client| client.wire.reset()),
            "abandon" => self.lose(|client| client.wire.abandon()),
            "keep" => self.subscribe_durable()?,
            "end" => self.end_durable()?,
            _ => self.client.is_stalled = !self.client.is_stalled,
        }
        Some(name)
    }

    /// The number of messages that are sent together.
    fn burst(&mut self) -> u32 {
        match self.options.pressure.burst_max {
            1 => 1,
            most => self.random.random_range(1..=most),
        }
    }

    fn percent(&mut self, percent: u32) -> bool {
        self.random.random_range(0..100) < percent
    }

    fn subscribe(&mut self) -> Option<()> {
        let (topics, queues) = (&self.options.topics, &self.options.queues);
        let mut destination =
            topics.iter().chain(queues).collect::<Vec<_>>().choose(self.random)?.to_string();
        if self.options.patterns && self.random.random_ratio(1, 4) {
            destination = if destination.starts_with("/queue/") { "/queue/*" } else { "/topic/*" }.to_owned();
        }
        if self.percent(self.options.tree.patterns)
            && let Some(pattern) = self.options.tree.all.choose(self.random)
        {
            destination.clone_from(pattern);
        }
        let destination = self.maybe_dead_letters(destination);
        self.subscribe_at(destination)
    }

    fn subscribe_at(&mut self, destination: String) -> Option<()> {
        let (ack, prefetch) = self.credit(&destination)?;
        self.subscribe_with(destination, ack, prefetch)
    }

    fn subscribe_with(&mut self, destination: String, ack: AckMode, prefetch: Option<u64>) -> Option<()> {
        let id = self.client.next_subscription();
        let mut headers: Headers = vec![
            ("id", id.to_string()),
            ("destination", destination.clone()),
            ("ack", ack.name().to_owned()),
        ];
        headers.extend(prefetch.map(|count: u64| ("prefetch-count", count.to_string())));
        let mut terms = if ack == AckMode::Auto { Terms::default() } else { self.terms(&mut headers) };
        terms.policy = self.policy(&destination, &mut headers);
        let subscription = Subscription { id, destination, ack, prefetch, terms, durable: None };
        self.write("SUBSCRIBE", headers, b"", Request::Subscribe(subscription.clone()));
        self.client.subscriptions.insert(id, crate::client::Held::new(subscription));
        Some(())
    }

    fn unsubscribe(&mut self) -> Option<()> {
        let ids: Vec<SubscriptionId> = self.client.subscriptions.keys().copied().collect();
        let id = *ids.choose(self.random)?;
        self.forget(id)?;
        self.write("UNSUBSCRIBE", vec![("id", id.to_string())], b"", Request::Unsubscribe(id));
        Some(())
    }

    /// Notes that a subscription ends with the next frame.
    fn forget(&mut self, id: SubscriptionId) -> Option<()> {
        let held = self.client.subscriptions.remove(&id)?;
        self.client.ended.insert(id, (held.subscription, false));
        for taken in self.client.transactions.values_mut() {
            taken.retain(|(subscription, ..)| *subscription != id);
        }
        Some(())
    }

    fn send(&mut self) -> Option<()> {
        self.send_with(Vec::new())
    }

    /// Sends a message with further headers.
    fn send_with(&mut self, more: Headers) -> Option<()> {
        let (topics, queues) = (&self.options.topics, &self.options.queues);
        let destination = topics.iter().chain(queues).collect::<Vec<_>>().choose(self.random)?.to_string();
        let transactions: Vec<TransactionId> = self.client.transactions.keys().copied().collect();
        let transaction =
            if self.random.random_ratio(1, 2) { transactions.choose(self.random).copied() } else { None };
        self.send_to(destination, transaction, more)
    }

    /// Sends a message to each topic.
    pub(crate) fn send_to_each_topic(&mut self) {
        for topic in self.options.topics.clone() {
            self.send_to(topic, None, Vec::new());
        }
    }

    fn send_to(
        &mut self,
        destination: String,
        transaction: Option<TransactionId>,
        more: Headers,
    ) -> Option<()> {
        let id = self.numbers.next_message();
        let persistent =
            self.random.random_ratio(1, 4) || (self.options.store.is_on && self.random.random_ratio(1, 2));
        let odd = ["", "a", "a:b", "\\", "\n", "a\\n:\n\\c", "ü:\\"];
        let mut message = Message {
            id,
            destination: destination.clone(),
            persistent,
            expires: None,
            ttl: None,
            max_exceptions: None,
            retain: Retain::among(&more),
            transaction,
            header: match self.client.version {
                Version::V10 => "a".to_owned(),
                _ => (*odd.choose(self.random)?).to_owned(),
            },
            body_len: self.random.random_range(0..=self.options.body_max),
        };
        let body = message.body();
        let mut headers: Headers = vec![("destination", destination), ("x", message.header.clone())];
        headers.extend(more);
        headers.push(("content-length", body.len().to_string()));
        self.limit_life(&mut message, &mut headers);
        headers.extend(transaction.map(|transaction| ("transaction", transaction.to_string())));
        if persistent {
            headers.push(("persistent", "true".to_owned()));
        }
        self.write("SEND", headers, &body, Request::Send(message));
        Some(())
    }

    fn acknowledge(&mut self, command: &str) -> Option<()> {
        let ids: Vec<SubscriptionId> = self.client.subscriptions.keys().copied().collect();
        let id = *ids.choose(self.random)?;
        let count = self.client.subscriptions.get(&id)?.unacked.len();
        if count == 0 {
            return None;
        }
        let is_first =
            self.options.timing.is_late && self.options.weights.nack == 0 && self.random.random_ratio(2, 3);
        let at = if is_first { 0 } else { self.random.random_range(0..count) };
        let transaction = self.joined(id, command);
        self.acknowledge_at(id, at, command, transaction)
    }

    fn acknowledge_last(&mut self, id: SubscriptionId, command: &str) -> Option<()> {
        let last = self.client.subscriptions.get(&id)?.unacked.len().checked_sub(1)?;
        self.acknowledge_at(id, last, command, None)
    }

    fn acknowledge_at(
        &mut self,
        id: SubscriptionId,
        at: usize,
        command: &str,
        transaction: Option<TransactionId>,
    ) -> Option<()> {
        let held = self.client.subscriptions.get_mut(&id)?;
        let ack_id = held.unacked.get(at)?.1.clone();
        let taken: Vec<Unacked> = match held.subscription.ack {
            AckMode::Client => held.unacked.drain(..=at).collect(),
            _ => vec![held.unacked.remove(at)],
        };
        let mut headers: Headers = match self.client.version {
            Version::V12 => vec![("id", ack_id)],
            Version::V11 => vec![("message-id", ack_id), ("subscription", id.to_string())],
            Version::V10 => vec![("message-id", ack_id)],
        };
        if let Some(transaction) = transaction {
            headers.push(("transaction", transaction.to_string()));
            let list = self.client.transactions.get_mut(&transaction)?;
            list.extend(taken.iter().map(|(message, ack_id, at)| (id, *message, ack_id.clone(), *at)));
        }
        let in_time = taken.iter().filter(|(_, _, delivered)| !self.was_taken_back(*delivered));
        let messages: Vec<MessageId> = in_time.map(|(message, ..)| *message).collect();
        if command == "NACK" && self.percent(self.options.timing.rejects) {
            headers.push(("requeue", "false".to_owned()));
            self.write("NACK", headers, b"", Request::Reject(id, messages, transaction));
        } else if command == "NACK" {
            self.write("NACK", headers, b"", Request::Nack(id, messages, transaction));
        } else {
            self.write("ACK", headers, b"", Request::Ack(id, messages, transaction));
        }
        Some(())
    }

    fn begin(&mut self) {
        self.numbers.transaction += 1;
        let id = self.numbers.transaction;
        self.client.transactions.insert(id, Vec::new());
        self.write("BEGIN", vec![("transaction", id.to_string())], b"", Request::Begin(id));
    }

    fn end_transaction(&mut self, command: &str) -> Option<()> {
        let ids: Vec<TransactionId> = self.client.transactions.keys().copied().collect();
        let id = *ids.choose(self.random)?;
        let taken = self.client.transactions.remove(&id)?;
        let headers = vec![("transaction", id.to_string())];
        if command == "commit" {
            self.client.has_committed = true;
            self.write("COMMIT", headers, b"", Request::Commit(id));
            return Some(());
        }
        for (subscription, message, ack_id, delivered) in taken.into_iter().rev() {
            if let Some(held) = self.client.subscriptions.get_mut(&subscription) {
                held.hold_again((message, ack_id, delivered)); // its acknowledgement has no effect
            }
        }
        self.write("ABORT", headers, b"", Request::Abort(id));
        Some(())
    }

    /// Ends open transactions and acknowledges everything, as a client does that behaves. Returns whether it did anything.
    pub fn settle(&mut self) -> bool {
        if self.client.phase != Phase::Open {
            return false;
        }
        let before = self.events.len();
        while !self.client.transactions.is_empty() && self.end_transaction("abort").is_some() {}
        let ids: Vec<SubscriptionId> = self.client.subscriptions.keys().copied().collect();
        for id in ids {
            while self.acknowledge_last(id, "ACK").is_some() {}
        }
        self.events.len() > before
    }

    /// Consumes these queues.
    pub fn subscribe_to(&mut self, queues: Vec<String>) {
        for destination in queues {
            let id = self.client.next_subscription();
            // With so little credit it is not cut off as a slow consumer.
            let (ack, prefetch) = (AckMode::Client, Some(1));
            let mut headers = vec![("id", id.to_string()), ("destination", destination.clone())];
            headers.extend([("ack", "client".to_owned()), ("prefetch-count", "1".to_owned())]);
            let subscription =
                Subscription { id, destination, ack, prefetch, terms: Terms::default(), durable: None };
            self.write("SUBSCRIBE", headers, b"", Request::Subscribe(subscription.clone()));
            self.client.subscriptions.insert(id, crate::client::Held::new(subscription));
        }
    }

    pub(crate) fn disconnect(&mut self) {
        let receipt = self.client.expect_receipt(Request::Disconnect);
        self.client.send(&frame(self.client.version, "DISCONNECT", &[("receipt", &receipt)], b""));
        self.events.push(Event::Requested(self.client.id, Request::Disconnect));
        self.client.phase = Phase::Leaving;
        self.client.leaves = !self.options.store.is_on; // else its answers may wait for the store for too long
    }

    fn leave(&mut self, act: impl FnOnce(&Client)) {
        act(self.client);
        self.client.phase = Phase::Leaving;
        self.client.leaves = !self.options.store.is_on; // else its answers may wait for the store for too long
    }

    fn lose(&mut self, act: impl FnOnce(&Client)) {
        act(self.client);
        self.events.push(self.client.lose());
    }
}
