//! What the store has written is right at each moment, as if the process ended now: it has each persistent message that
//! was confirmed, none whose ACK was confirmed, and of a COMMIT everything or nothing. In the end it has nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::{Checker, broken};
use crate::events::{
    AckMode, Change, ClientId, Event, Message, MessageId, Request, SubscriptionId, TransactionId, Violation,
    is_queue,
};
use crate::options::Options;
use crate::patterns::Rules;

/// A transaction's persistent messages to queues, and the messages that it acknowledges.
#[derive(Debug, Default)]
struct Operations {
    sends: Vec<MessageId>,
    acks: Vec<MessageId>,
}

/// Follows what the store has written.
#[derive(Debug)]
pub struct Durability {
    /// Whether RECEIPTs wait for the store.
    is_durable: bool,
    /// Queues may refuse dead letters, which are dropped then.
    may_refuse: bool,
    /// When a delivery ends with `ack_timeout` at the earliest; a message may fail too often then.
    taken_back_after: Option<Duration>,
    /// Somebody consumes dead letters: what fails there too often is dropped.
    has_dead_consumers: bool,
    rules: Rules,
    has_failed: bool,
    now: Duration,
    /// Messages, and when they were sent.
    sent: BTreeMap<MessageId, (Message, Duration)>,
    open: BTreeMap<(ClientId, TransactionId), Operations>,
    committed: BTreeMap<MessageId, (ClientId, TransactionId)>,
    /// Names and patterns that somebody consumes with ack auto: their messages end when they are written.
    auto: BTreeSet<String>,
    /// Messages that need no record any more, or may have lost it.
    excused: BTreeSet<MessageId>,
    /// Messages that the store cannot read any more; their records stay.
    damaged: BTreeSet<MessageId>,
    /// Messages whose ACK was confirmed.
    acknowledged: BTreeSet<MessageId>,
    /// Dead letters, as their consumers got them.
    dead: BTreeSet<(ClientId, SubscriptionId, MessageId)>,
    /// The message of each record that the store has, if it is in a queue.
    records: BTreeMap<u64, Option<MessageId>>,
    /// Records that were forgotten before they were kept.
    tombstones: BTreeSet<u64>,
    /// The number of records of each message that was ever kept.
    live: BTreeMap<MessageId, usize>,
}

impl Durability {
    /// Expects what the settings promise.
    #[must_use]
    pub fn new(options: &Options) -> Self {
        Durability {
            is_durable: options.store.is_durable && options.store.log.is_none(),
            may_refuse: options.may_refuse_dead_letters(),
            taken_back_after: Some(options.config.ack_timeout_ms)
                .filter(|ms| *ms > 0)
                .map(|ms| Duration::from_millis(ms - 1)), // the broker counts in milliseconds
            has_dead_consumers: false,
            rules: options.rules(),
            has_failed: false,
            now: Duration::ZERO,
            sent: BTreeMap::new(),
            open: BTreeMap::new(),
            committed: BTreeMap::new(),
            auto: BTreeSet::new(),
            excused: BTreeSet::new(),
            damaged: BTreeSet::new(),
            acknowledged: BTreeSet::new(),
            dead: BTreeSet::new(),
            records: BTreeMap::new(),
            tombstones: BTreeSet::new(),
            live: BTreeMap::new(),
        }
    }

    fn is_live(&self, message: MessageId) -> bool {
        self.live.get(&message).is_some_and(|count| *count > 0)
    }

    /// Whether a message that was sent then may be missing.
    fn is_excused(&self, message: &Message, sent: Duration) -> bool {
        let may_fail = self.taken_back_after.is_some_and(|after| self.now >= sent + after);
        let dead = message.destination.replacen("/queue/", "/queue/dlq/", 1);
        let is_auto = |name: &str| self.auto.iter().any(|pattern| self.rules.matches(pattern, name));
        self.excused.contains(&message.id)
            || (message.expires.is_some() && self.may_refuse)
            || (may_fail && (self.has_dead_consumers || self.may_refuse))
            || is_auto(&message.destination)
            || is_auto(&dead)
    }

    fn check_kept(&self, id: MessageId, why: &str) -> Result<(), Violation> {
        match self.sent.get(&id) {
            Some((message, sent)) if !self.is_live(id) && !self.is_excused(message, *sent) => {
                broken("durability", format!("the store has lost {id} to {}: {why}", message.destination))
            }
            _ => Ok(()),
        }
    }

    fn check_gone(&self, id: MessageId, why: &str) -> Result<(), Violation> {
        match self.is_live(id) {
            true => broken("durability", format!("the store still has {id}: {why}")),
            false => Ok(()),
        }
    }

    fn write(&mut self, changes: &[Change]) -> Result<(), Violation> {
        let (mut new, mut changed) = (Vec::new(), Vec::new());
        for change in changes {
            match change {
                Change::Kept { record, queue, message } => {
                    // Copies of one message may become several dead letters of topics.
                    let is_copy = queue.starts_with("/queue/dlq/topic/");
                    let message = message.filter(|_| is_queue(queue) && !is_copy);
                    if let Some(id) = message.filter(|id| !self.live.contains_key(id)) {
                        self.live.insert(id, 0);
                        // A dead letter is an effect of its own, which may be written before the transaction.
                        new.extend(Some(id).filter(|_| !queue.starts_with("/queue/dlq/")));
                    }
                    if !self.tombstones.remove(record) {
                        self.records.insert(*record, message);
                        changed.extend(message);
                        message.into_iter().for_each(|id| *self.live.entry(id).or_default() += 1);
                    }
                }
                Change::Forgotten(record) => match self.records.remove(record) {
                    Some(message) => {
                        changed.extend(message);
                        message.into_iter().for_each(|id| *self.live.entry(id).or_default() -= 1);
                    }
                    None => _ = self.tombstones.insert(*record),
                },
            }
        }
        for id in changed {
            self.check_kept(id, "nobody has consumed it")?;
            if self.acknowledged.contains(&id) {
                self.check_gone(id, "its ACK was confirmed before")?;
            }
        }
        if self.is_durable {
            for id in new {
                self.check_whole(id)?;
            }
        }
        Ok(())
    }

    /// All of a transaction is written together.
    fn check_whole(&self, id: MessageId) -> Result<(), Violation> {
        let Some(operations) = self.committed.get(&id).and_then(|key| self.open.get(key)) else {
            return Ok(());
        };
        if let Some(other) = operations.sends.iter().find(|other| !self.live.contains_key(other)) {
            return broken("durability", format!("{id} is written without {other} of its transaction"));
        }
        let text = format!("its ACK belongs to the transaction of {id}");
        operations.acks.iter().try_for_each(|acked| self.check_gone(*acked, &text))
    }

    fn confirm(&mut self, client: ClientId, request: &Request) -> Result<(), Violation> {
        match request {
            Request::Send(message)
                if message.persistent && message.transaction.is_none() && is_queue(&message.destination) =>
            {
                self.check_kept(message.id, "its SEND is confirmed")
            }
            Request::Ack(_, messages, None) => self.acknowledge(messages),
            Request::Commit(transaction) => {
                let Some(operations) = self.open.get(&(client, *transaction)) else { return Ok(()) };
                let (sends, acks) = (operations.sends.clone(), operations.acks.clone());
                sends.iter().try_for_each(|id| self.check_kept(*id, "its COMMIT is confirmed"))?;
                self.acknowledge(&acks)
            }
            _ => Ok(()),
        }
    }

    fn acknowledge(&mut self, messages: &[MessageId]) -> Result<(), Violation> {
        self.acknowledged.extend(messages);
        messages.iter().try_for_each(|id| self.check_gone(*id, "its ACK is confirmed"))
    }

    fn request(&mut self, client: ClientId, request: &Request) {
        match request {
            Request::Send(message) if message.persistent && is_queue(&message.destination) => {
                self.sent.insert(message.id, (message.clone(), self.now));
                if let Some(transaction) = message.transaction {
                    self.open.entry((client, transaction)).or_default().sends.push(message.id);
                }
            }
            Request::Subscribe(subscription) if subscription.destination.starts_with("/queue/dlq/") => {
                self.has_dead_consumers = true;
                if subscription.ack == AckMode::Auto {
                    self.auto.insert(subscription.destination.clone());
                }
            }
            Request::Subscribe(subscription) if subscription.ack == AckMode::Auto => {
                self.auto.insert(subscription.destination.clone());
            }
            Request::Ack(_, messages, None) => self.excused.extend(messages),
            Request::Ack(_, messages, Some(transaction)) => {
                self.open.entry((client, *transaction)).or_default().acks.extend(messages);
            }
            Request::Nack(subscription, messages, _) | Request::Reject(subscription, messages, _) => {
                let is_dropped =
                    |id: &&MessageId| self.may_refuse || self.dead.contains(&(client, *subscription, **id));
                self.excused.extend(messages.iter().filter(is_dropped));
            }
            Request::Commit(transaction) => {
                let Some(operations) = self.open.get(&(client, *transaction)) else { return };
                self.excused.extend(&operations.acks);
                self.committed.extend(operations.sends.iter().map(|id| (*id, (client, *transaction))));
            }
            _ => {}
        }
    }
}

impl Checker for Durability {
    fn see(&mut self, event: &Event, now: Duration) -> Result<(), Violation> {
        self.now = now;
        match event {
            Event::Requested(client, request) => self.request(*client, request),
            Event::Confirmed(client, request) if self.is_durable => return self.confirm(*client, request),
            Event::Delivered(client, delivery) if delivery.dead_letter.is_some() => {
                self.dead.insert((*client, delivery.subscription, delivery.message));
            }
            Event::Written(changes) => return self.write(changes),
            Event::Damaged(message) => {
                self.excused.insert(*message);
                self.damaged.insert(*message);
            }
            Event::StoreFailed => self.has_failed = true,
            Event::Finished(_) if !self.has_failed => {
                let kept = self.records.iter().find(|(_, message)| {
                    message.is_some_and(|id| self.sent.contains_key(&id) && !self.damaged.contains(&id))
                });
                if let Some((record, message)) = kept {
                    let text = format!("record {record} of {message:?} is left in the store");
                    return broken("durability", text);
                }
            }
            _ => {}
        }
        Ok(())
    }
}
