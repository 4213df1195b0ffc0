//! A durable subscription keeps what is sent while it exists, for one holder after the other; nothing of before its
//! creation, nothing after its end. What it has kept follows the RECEIPT of the SUBSCRIBE that resumes it.

mod known;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use self::known::{At, Known};
use super::{Checker, broken};
use crate::events::{
    AckMode, ClientId, Delivery, End, Event, Message, MessageId, Request, SubscriptionId, TransactionId,
    Violation, is_topic,
};
use crate::options::Options;
use crate::patterns::Rules;

/// What is known of a message to a topic.
#[derive(Debug)]
struct Sent {
    message: Message,
    publisher: ClientId,
    /// When it was sent; a transaction's with its COMMIT.
    at: Option<At>,
    confirmed: Option<At>,
}

impl Sent {
    /// Whether a client has sent it before another of its requests. The broker carries out a client's frames in order.
    fn is_before(&self, client: ClientId, request: At) -> bool {
        self.publisher == client
            && self.message.transaction.is_none()
            && self.at.is_some_and(|at| at < request)
    }
}

/// Follows durable subscriptions.
#[derive(Debug)]
pub struct DurableSubscriptions {
    now: At,
    rules: Rules,
    /// Topics keep messages without a subscription.
    has_stale: bool,
    all: Vec<Known>,
    /// The durable subscription that a client's subscription holds.
    held: BTreeMap<(ClientId, SubscriptionId), usize>,
    sent: BTreeMap<MessageId, Sent>,
    open: BTreeMap<(ClientId, TransactionId), Vec<MessageId>>,
    /// Deliveries that are acknowledged in open transactions.
    acked: BTreeMap<(ClientId, TransactionId), Vec<(SubscriptionId, MessageId)>>,
    dead: BTreeSet<MessageId>,
    /// Messages with a record that the store cannot read.
    damaged: BTreeSet<MessageId>,
    /// Messages that clients have refused.
    refused: BTreeSet<MessageId>,
    /// Messages fail, too, if nobody acknowledges them in time.
    takes_back: bool,
    /// A dead letter may be dropped: its queue is full, or it has failed, too.
    drops_dead: bool,
    is_at_rest: bool,
}

impl DurableSubscriptions {
    /// Follows those of the options.
    #[must_use]
    pub fn new(options: &Options) -> Self {
        let names = options.keeping.durables.iter();
        DurableSubscriptions {
            now: 0,
            rules: options.rules(),
            has_stale: options.config.ttl_ms > 0,
            all: names.map(|it| Known::new(&it.stored(), &it.destination)).collect(),
            held: BTreeMap::new(),
            sent: BTreeMap::new(),
            open: BTreeMap::new(),
            acked: BTreeMap::new(),
            dead: BTreeSet::new(),
            damaged: BTreeSet::new(),
            refused: BTreeSet::new(),
            takes_back: options.config.ack_timeout_ms > 0,
            drops_dead: options.may_refuse_dead_letters(),
            is_at_rest: false,
        }
    }

    fn request(&mut self, client: ClientId, request: &Request) {
        match request {
            Request::Subscribe(subscription) => {
                if let Some(durable) = &subscription.durable {
                    self.held.insert((client, subscription.id), durable.number);
                    self.all[durable.number].subscribe(client, subscription, self.now);
                } else if subscription.destination.starts_with("/queue/dlq/") {
                    self.drops_dead |= self.takes_back && !self.is_at_rest;
                }
            }
            Request::Unsubscribe(id) => {
                let now = self.now;
                if let Some(number) = self.held.get(&(client, *id))
                    && let Some(holder) = self.all[*number].holder(client, *id)
                {
                    holder.left = Some(now);
                }
            }
            Request::EndDurable(number, _) => self.all[*number].end(client, self.now),
            Request::Send(message) if is_topic(&message.destination) => {
                let (publisher, id) = (client, message.id);
                self.sent.insert(id, Sent { message: message.clone(), publisher, at: None, confirmed: None });
                match message.transaction {
                    Some(transaction) => self.open.entry((client, transaction)).or_default().push(id),
                    None => self.send(id),
                }
            }
            Request::Nack(_, messages, _) | Request::Reject(_, messages, _) => self.refused.extend(messages),
            Request::Ack(id, messages, None) => {
                messages.iter().for_each(|message| self.settle(client, *id, *message));
            }
            Request::Ack(id, messages, Some(transaction)) => {
                let list = self.acked.entry((client, *transaction)).or_default();
                list.extend(messages.iter().map(|message| (*id, *message)));
            }
            Request::Commit(transaction) => {
                let sent = self.open.get(&(client, *transaction)).cloned().unwrap_or_default();
                sent.into_iter().for_each(|message| self.send(message));
                for (id, message) in self.acked.remove(&(client, *transaction)).unwrap_or_default() {
                    self.settle(client, id, message);
                }
            }
            _ => {}
        }
    }

    fn confirm(&mut self, client: ClientId, request: &Request) {
        let now = self.now;
        match request {
            Request::Subscribe(subscription) => {
                if let Some(durable) = &subscription.durable {
                    self.all[durable.number].subscribed(client, subscription.id, now);
                }
            }
            Request::Unsubscribe(id) => {
                if let Some(number) = self.held.get(&(client, *id))
                    && let Some(holder) = self.all[*number].holder(client, *id)
                {
                    holder.gone = Some(now);
                }
            }
            Request::EndDurable(number, _) => self.all[*number].ended(client, now),
            Request::Send(message) if message.transaction.is_none() => self.sent_is_confirmed(message.id),
            Request::Commit(transaction) => {
                let sent = self.open.remove(&(client, *transaction)).unwrap_or_default();
                sent.into_iter().for_each(|message| self.sent_is_confirmed(message));
            }
            _ => {}
        }
    }

    fn sent_is_confirmed(&mut self, id: MessageId) {
        if let Some(sent) = self.sent.get_mut(&id) {
            sent.confirmed = Some(self.now);
        }
    }

    fn send(&mut self, id: MessageId) {
        let Some(sent) = self.sent.get_mut(&id) else { return };
        sent.at = Some(self.now);
        if sent.message.expires.is_some() {
            return;
        }
        let (rules, destination) = (self.rules, &sent.message.destination);
        for known in
            self.all.iter_mut().filter(|known| known.exists && rules.matches(&known.destination, destination))
        {
            known.due.insert(id);
        }
    }

    fn settle(&mut self, client: ClientId, id: SubscriptionId, message: MessageId) {
        if let Some(number) = self.held.get(&(client, id)) {
            self.all[*number].settled.insert(message);
        }
    }

    fn deliver(&mut self, client: ClientId, delivery: &Delivery) -> Result<(), Violation> {
        if delivery.dead_letter.is_some() {
            self.dead.insert(delivery.message);
        }
        let (id, message) = (delivery.subscription, delivery.message);
        let Some(number) = self.held.get(&(client, id)).copied() else { return Ok(()) };
        let (known, has_stale) = (&mut self.all[number], self.has_stale);
        let (absent, last_end, creator) = (known.absent, known.last_end, known.sole_creator());
        let Some(holder) = known.holder(client, id) else { return Ok(()) };
        if holder.resumes && holder.has_receipt && holder.confirmed.is_none() && last_end < holder.at {
            let text = format!("client {client} got {message}, which was kept, before the RECEIPT");
            return broken("durable", text);
        }
        let (asked, is_sole_creator) = (holder.at, creator == Some(holder.at));
        if let Some(sent) = self.sent.get(&message) {
            let was_over = holder.confirmed.is_some_and(|confirmed| confirmed < absent.0);
            if was_over && sent.at.is_some_and(|at| at > absent.0) {
                let text = format!("client {client} got {message}, sent after the end of durable {number}");
                return broken("durable", text);
            }
            let created = absent.1.filter(|created| holder.at >= *created);
            let is_confirmed_before = created > sent.confirmed && sent.confirmed.is_some();
            let is_past = is_confirmed_before || (is_sole_creator && sent.is_before(client, asked));
            if is_past && !has_stale && !delivery.retained {
                let text = format!("client {client} got {message}, sent before durable {number} was created");
                return broken("durable", text);
            }
        }
        if holder.ack == AckMode::Auto {
            known.settled.insert(message);
        }
        Ok(())
    }

    fn refuse(&self, client: ClientId, code: &str) -> Result<(), Violation> {
        let is_right = match code {
            "E-DURABLE-IN-USE" => self.all.iter().any(|known| known.may_be_in_use(client)),
            "E-SUB-UNKNOWN" => self.all.iter().any(|known| known.may_be_unknown(client)),
            _ => code != "E-DURABLE-OTHER",
        };
        if is_right {
            Ok(())
        } else {
            broken("durable", format!("client {client} got {code} without reason"))
        }
    }

    fn finish(&self) -> Result<(), Violation> {
        for (number, known) in self.all.iter().enumerate() {
            let is_missing = |id: &&MessageId| {
                let is_confirmed = self.sent.get(id).is_some_and(|sent| sent.confirmed.is_some());
                let may_be_dropped = self.damaged.contains(id)
                    || self.drops_dead && (self.takes_back || self.refused.contains(id));
                is_confirmed && !known.settled.contains(id) && !self.dead.contains(id) && !may_be_dropped
            };
            if let Some(id) = known.due.iter().find(is_missing) {
                let publisher = self.sent.get(id).map(|sent| sent.publisher);
                let text = format!("{id} of client {publisher:?} is lost to durable subscription {number}");
                return broken("durable", text);
            }
        }
        Ok(())
    }
}

impl Checker for DurableSubscriptions {
    fn see(&mut self, event: &Event, _: Duration) -> Result<(), Violation> {
        if self.all.is_empty() {
            return Ok(());
        }
        self.now += 1;
        match event {
            Event::Requested(client, request) => self.request(*client, request),
            Event::Confirmed(client, request) => self.confirm(*client, request),
            Event::Delivered(client, delivery) => return self.deliver(*client, delivery),
            Event::Released(client) => {
                let now = self.now;
                self.all.iter_mut().for_each(|known| known.release(*client, now));
            }
            Event::Ended(client, end) => {
                self.all.iter_mut().for_each(|known| known.lose(*client));
                if let End::Closed(Some(code)) = end {
                    return self.refuse(*client, code);
                }
            }
            Event::Resting(open) => {
                self.is_at_rest = true;
                let rivals =
                    self.all.iter().enumerate().find_map(|(at, known)| Some((at, known.rivals(open)?)));
                if let Some((number, rivals)) = rivals {
                    return broken("durable", format!("{rivals:?} hold durable subscription {number}"));
                }
            }
            Event::Recovered(survivors) => {
                let is_there = |name: &str| survivors.iter().any(|survivor| survivor.name == name);
                self.all.iter_mut().filter(|known| is_there(&known.name)).for_each(Known::survive);
            }
            Event::Damaged(message) => _ = self.damaged.insert(*message),
            Event::Finished(_) => return self.finish(),
            _ => {}
        }
        Ok(())
    }
}
