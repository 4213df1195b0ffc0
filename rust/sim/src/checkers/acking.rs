//! A subscription to a topic that acknowledges gets each message once, and again only behind a NACK or `ack_timeout`: with
//! the next number, after its delay, as often as allowed. What it refuses comes again, before later messages, or becomes a
//! dead letter. It never holds more than its prefetch.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use stompica_broker::config::Compat;
use stompica_broker::simulated::outside::Written;

use super::slowness::Slowness;
use super::{Checker, broken};
use crate::events::{
    AckMode, ClientId, Delivery, Event, Message, MessageId, Request, Subscription, SubscriptionId,
    TransactionId, Violation, is_topic,
};
use crate::frames::Version;
use crate::options::Options;

/// The longest delay.
const DELAY_MAX: Duration = Duration::from_secs(10);
/// The broker counts in milliseconds, from the beginning of a turn.
const PRECISION: Duration = Duration::from_millis(2);

/// A subscription of a client.
type Key = (ClientId, SubscriptionId);

/// How a client has answered a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Ack,
    Nack,
    /// NACK with `requeue:false`.
    Reject,
}

/// An answer in a transaction.
type Answered = (Key, MessageId, Answer);

/// The last delivery of a message to a subscription.
#[derive(Clone, Copy, Debug)]
struct Last {
    count: u64,
    written: Written,
    len: u64,
    /// The answer, and when it was sent; in a transaction, when COMMIT was.
    answer: Option<(Answer, Duration)>,
    /// When the client knew that its NACK had taken effect.
    refused: Option<Duration>,
}

/// Follows what subscriptions to topics hold.
#[derive(Debug)]
pub struct Acking {
    prefetch: u64,
    failures_max: u64,
    delay: Duration,
    /// `ack_timeout`.
    timeout: Option<Duration>,
    slowness: Slowness,
    /// Dead letters may be refused.
    refuses: bool,
    sent: BTreeMap<MessageId, Message>,
    subscriptions: BTreeMap<Key, Subscription>,
    last: BTreeMap<(Key, MessageId), Last>,
    open: BTreeMap<(ClientId, TransactionId), Vec<Answered>>,
    /// Messages whose dead letters have arrived.
    buried: BTreeSet<MessageId>,
}

impl Acking {
    /// Expects what the settings promise.
    #[must_use]
    pub fn new(options: &Options) -> Self {
        let config = &options.config;
        let timeout = config.ack_timeout_ms;
        Acking {
            prefetch: u64::from(config.prefetch),
            failures_max: u64::from(config.max_deliveries),
            delay: config.redelivery_delay,
            timeout: (timeout > 0).then(|| Duration::from_millis(timeout)),
            slowness: Slowness::new(options),
            refuses: options.may_refuse_dead_letters() || config.compat != Compat::None,
            sent: BTreeMap::new(),
            subscriptions: BTreeMap::new(),
            last: BTreeMap::new(),
            open: BTreeMap::new(),
            buried: BTreeSet::new(),
        }
    }

    /// The number of failures at which a message of a subscription becomes a dead letter.
    fn limit(&self, subscription: &Subscription, message: MessageId) -> u64 {
        let own = subscription.terms.max_deliveries.unwrap_or(u64::MAX);
        let exceptions = self.sent.get(&message).and_then(|message| message.max_exceptions);
        own.min(self.failures_max).min(exceptions.unwrap_or(u64::MAX))
    }

    fn deliver(&mut self, client: ClientId, delivery: &Delivery) -> Result<(), Violation> {
        let (key, message) = ((client, delivery.subscription), delivery.message);
        let Some(subscription) = self.subscriptions.get(&key).cloned() else { return Ok(()) };
        // In STOMP 1.1 an ACK names the message, so a late one may mean its next delivery.
        if delivery.retained || (self.timeout.is_some() && delivery.version == Version::V11) {
            return Ok(());
        }
        let (count, written) = (delivery.count, delivery.written);
        let previous = self.last.get(&(key, message)).copied();
        if let Some(what) = self.is_wrong(&subscription, previous, delivery) {
            let text = format!(
                "client {client} got {message} {what} (count {count}): {previous:?}, {subscription:?}"
            );
            return broken("acking", text);
        }
        let last = Last { count, written, len: delivery.body.len() as u64, answer: None, refused: None };
        self.last.insert((key, message), last);
        if let Some(other) = self.overtaken(key, &subscription, last) {
            let text =
                format!("client {client} got {message} before {other}, which it has refused: {last:?}");
            return broken("acking", text);
        }
        self.check_credit(key, &subscription, last)
    }

    /// The delay behind so many failures.
    fn delay(&self, subscription: &Subscription, failures: u64) -> Duration {
        let own = subscription.terms.delay.unwrap_or_default();
        let doubled = 1_u32 << (failures - 1).min(20);
        self.delay.max(own).saturating_mul(doubled).min(DELAY_MAX)
    }

    /// An earlier message whose delay was over when the broker decided to deliver this one, which is new.
    fn overtaken(&self, key: Key, subscription: &Subscription, new: Last) -> Option<MessageId> {
        let all = (key, MessageId::MIN)..=(key, MessageId::MAX);
        let mut waiting = self.last.range(all).filter(|((_, message), last)| {
            let is_over = last.count >= self.limit(subscription, *message);
            let expires = self.sent.get(message).is_none_or(|message| message.expires.is_some());
            let end = last.refused.map(|at| at + self.delay(subscription, last.count) + PRECISION);
            !is_over
                && !expires
                && !self.slowness.drops(subscription)
                && end.is_some_and(|end| end < new.written.decided_from)
        });
        if new.count > 1 || self.timeout.is_some() {
            return None;
        }
        waiting.next().map(|((_, message), _)| *message)
    }

    /// What is wrong with a delivery behind the previous one of its message.
    fn is_wrong(
        &self,
        subscription: &Subscription,
        previous: Option<Last>,
        delivery: &Delivery,
    ) -> Option<&'static str> {
        let count = delivery.count;
        if delivery.redelivered != (count > 1) {
            return Some("with a wrong header redelivered");
        }
        let before = previous.map_or(0, |last| last.count);
        // What was taken back before it was written has a number, too.
        if count <= before || (count > before + 1 && self.timeout.is_none()) {
            return Some("with a wrong count");
        }
        let last = previous.filter(|_| count == before + 1)?;
        if count > self.limit(subscription, delivery.message) {
            return Some("behind its last failure");
        }
        let delay = self.delay(subscription, before);
        let refused = last.answer.filter(|(answer, _)| *answer == Answer::Nack).map(|(_, at)| at + delay);
        let late = self.timeout.map(|timeout| last.written.encoded_from + timeout + delay);
        let Some(earliest) = refused.into_iter().chain(late).min() else {
            return Some("again, without a NACK");
        };
        (delivery.written.at + PRECISION < earliest).then_some("again too early")
    }

    /// Checks that the newest delivery is within the prefetch. Others may have been taken back meanwhile.
    fn check_credit(&self, key: Key, subscription: &Subscription, newest: Last) -> Result<(), Violation> {
        let is_held = |last: &&Last| {
            let until = self.timeout.map_or(Duration::MAX, |timeout| {
                last.written.encoded_from + timeout.saturating_sub(Duration::from_millis(1))
            });
            last.answer.is_none() && newest.written.at < until
        };
        let all = (key, MessageId::MIN)..=(key, MessageId::MAX);
        let held: Vec<&Last> = self.last.range(all).map(|(_, last)| last).filter(is_held).collect();
        let prefetch = subscription.prefetch.unwrap_or(self.prefetch);
        // The last message may exceed the bound in bytes.
        let before = held.iter().map(|last| last.len).sum::<u64>().saturating_sub(newest.len);
        let is_over = subscription.terms.window.is_some_and(|window| held.len() > 1 && before >= window);
        if self.slowness.forgets(subscription) {
            return Ok(());
        }
        if is_over || (prefetch > 0 && held.len() as u64 > prefetch) {
            let (client, count) = (key.0, held.len());
            let text = format!("client {client} got more than its prefetch ({count}): {subscription:?}");
            return broken("acking", text);
        }
        Ok(())
    }

    fn answer(&mut self, key: Key, message: MessageId, answer: Answer, now: Duration) {
        if let Some(last) = self.last.get_mut(&(key, message)) {
            last.answer.get_or_insert((answer, now));
        }
    }

    fn answer_all(
        &mut self,
        client: ClientId,
        (subscription, messages, transaction): (SubscriptionId, &[MessageId], Option<TransactionId>),
        answer: Answer,
        now: Duration,
    ) {
        let key = (client, subscription);
        for message in messages {
            match transaction {
                None => self.answer(key, *message, answer, now),
                Some(transaction) => {
                    self.open.entry((client, transaction)).or_default().push((key, *message, answer));
                }
            }
        }
    }

    fn request(&mut self, client: ClientId, request: &Request, now: Duration) {
        match request {
            Request::Subscribe(it) if is_acked(it) => {
                self.subscriptions.insert((client, it.id), it.clone());
            }
            Request::Unsubscribe(id) => _ = self.subscriptions.remove(&(client, *id)),
            Request::Send(message) if is_topic(&message.destination) => {
                self.slowness.send(message);
                self.sent.insert(message.id, message.clone());
            }
            Request::Ack(id, messages, transaction) => {
                self.answer_all(client, (*id, messages, *transaction), Answer::Ack, now);
            }
            Request::Nack(id, messages, transaction) => {
                self.answer_all(client, (*id, messages, *transaction), Answer::Nack, now);
            }
            Request::Reject(id, messages, transaction) => {
                self.answer_all(client, (*id, messages, *transaction), Answer::Reject, now);
            }
            Request::Commit(transaction) => {
                for (key, message, answer) in self.open.remove(&(client, *transaction)).unwrap_or_default() {
                    self.answer(key, message, answer, now);
                }
            }
            _ => {}
        }
    }

    /// What connections that are open until now have refused has come again, or has become a dead letter.
    fn finish(&self, open: &[ClientId]) -> Result<(), Violation> {
        for (((client, id), message), last) in &self.last {
            let Some(subscription) = self.subscriptions.get(&(*client, *id)) else { continue };
            let expires = self.sent.get(message).is_none_or(|message| message.expires.is_some());
            if !open.contains(client)
                || self.timeout.is_some()
                || self.slowness.drops(subscription)
                || expires
            {
                continue;
            }
            let is_over = last.count >= self.limit(subscription, *message);
            match last.answer {
                Some((Answer::Nack, _)) if !is_over => {
                    let text = format!("{message} has not come again to client {client}: {last:?}");
                    return broken("acking", text);
                }
                Some((Answer::Nack | Answer::Reject, _))
                    if !self.refuses && !self.buried.contains(message) =>
                {
                    let text =
                        format!("{message}, which client {client} has refused, has no dead letter: {last:?}");
                    return broken("acking", text);
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// Whether a subscription is one to a topic that acknowledges.
fn is_acked(subscription: &Subscription) -> bool {
    is_topic(&subscription.destination) && subscription.ack != AckMode::Auto && subscription.durable.is_none()
}

impl Checker for Acking {
    fn see(&mut self, event: &Event, now: Duration) -> Result<(), Violation> {
        match event {
            Event::Requested(client, request) => self.request(*client, request, now),
            Event::Delivered(client, delivery) => {
                if delivery.dead_letter.is_some() {
                    self.buried.insert(delivery.message);
                }
                return self.deliver(*client, delivery);
            }
            Event::Confirmed(client, Request::Nack(id, messages, None)) => {
                for message in messages {
                    let last = self.last.get_mut(&((*client, *id), *message));
                    let nacked = last.filter(|last| matches!(last.answer, Some((Answer::Nack, _))));
                    nacked.into_iter().for_each(|last| last.refused = Some(now));
                }
            }
            // Somebody else may have got its dead letter.
            Event::Unread(_, _, message) | Event::Damaged(message) => _ = self.buried.insert(*message),
            Event::Finished(open) => return self.finish(open),
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "acking_tests.rs"]
mod tests;
