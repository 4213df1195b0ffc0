//! A refused message comes again after its delay and not before, as often as the limits allow, and then becomes a dead
//! letter, once, with the right headers. So does one that was not acknowledged within `ack_timeout`. A lost consumer does
//! not count.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::{Checker, broken};
use crate::events::{
    AckMode, ClientId, Delivery, Event, Message, MessageId, Request, Subscription, SubscriptionId,
    TransactionId, Violation, is_queue,
};
use crate::frames::Version;
use crate::options::Options;

/// The longest delay.
const DELAY_MAX: Duration = Duration::from_secs(10);
/// The broker counts in milliseconds, from the beginning of a turn.
const PRECISION: Duration = Duration::from_millis(2);

/// A subscription of a client.
type Key = (ClientId, SubscriptionId);

/// A message that a subscription refuses, and whether with `requeue:false`.
type Refused = (Key, MessageId, bool);

/// How a client has refused a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Refusal {
    /// When it was sent; in a transaction, when COMMIT was.
    at: Duration,
    /// A RECEIPT has confirmed it.
    is_confirmed: bool,
    /// `requeue:false`.
    is_final: bool,
}

/// A delivery.
#[derive(Clone, Debug)]
struct Seen {
    key: Key,
    encoded_from: Duration,
    /// In STOMP 1.1 a NACK names a message, not a delivery.
    version: Version,
    refusal: Option<Refusal>,
}

/// A message of a queue.
#[derive(Debug)]
struct Life {
    message: Message,
    deliveries: BTreeMap<u64, Seen>,
    /// When its dead letter was written.
    dead: Option<Duration>,
    /// The first delivery of its dead letter has come.
    has_died: bool,
}

/// Follows the deliveries of each message.
#[derive(Debug)]
pub struct Redelivery {
    failures_max: u64,
    delay: Duration,
    /// `ack_timeout`.
    timeout: Option<Duration>,
    lives: BTreeMap<MessageId, Life>,
    subscriptions: BTreeMap<Key, Subscription>,
    /// When a client has ended a subscription, or all of them.
    ended: BTreeMap<Key, Duration>,
    left: BTreeMap<ClientId, Duration>,
    open: BTreeMap<(ClientId, TransactionId), Vec<Refused>>,
    /// When a subscription first refused something.
    refusing: BTreeMap<Key, Duration>,
    /// Those that refused something with `requeue:false`.
    rejecting: BTreeSet<Key>,
    /// Wrong if the connection turns out to be open in the end.
    suspicions: Vec<(ClientId, String)>,
}

impl Redelivery {
    /// Expects what the settings promise.
    #[must_use]
    pub fn new(options: &Options) -> Self {
        let timeout = options.config.ack_timeout_ms;
        Redelivery {
            failures_max: u64::from(options.config.max_deliveries),
            delay: options.config.redelivery_delay,
            timeout: (timeout > 0).then(|| Duration::from_millis(timeout)),
            lives: BTreeMap::new(),
            subscriptions: BTreeMap::new(),
            ended: BTreeMap::new(),
            left: BTreeMap::new(),
            open: BTreeMap::new(),
            refusing: BTreeMap::new(),
            rejecting: BTreeSet::new(),
            suspicions: Vec::new(),
        }
    }

    /// The delay behind so many failures, the last one at a subscription.
    fn delay(&self, key: Key, failures: u64) -> Duration {
        let own = self.subscriptions.get(&key).and_then(|it| it.terms.delay).unwrap_or_default();
        let doubled = 1_u32 << (failures.max(1) - 1).min(20);
        self.delay.max(own).saturating_mul(doubled).min(DELAY_MAX)
    }

    /// The number of failures at which a message becomes a dead letter.
    fn limit(&self, key: Key) -> u64 {
        let own = self.subscriptions.get(&key).and_then(|it| it.terms.max_deliveries);
        own.unwrap_or(u64::MAX).min(self.failures_max)
    }

    /// Notes how a client has refused a delivery, or that this is confirmed.
    fn refuse(&mut self, key: Key, message: MessageId, refusal: Refusal) {
        if !refusal.is_confirmed {
            self.refusing.entry(key).or_insert(refusal.at);
            if refusal.is_final {
                self.rejecting.insert(key);
            }
        }
        let Some(life) = self.lives.get_mut(&message) else { return };
        let mut own = life.deliveries.values_mut().filter(|seen| seen.key == key);
        if refusal.is_confirmed {
            let open = own.filter_map(|seen| seen.refusal.as_mut()).find(|known| !known.is_confirmed);
            open.into_iter().for_each(|known| known.is_confirmed = true);
        } else if let Some(last) = own.next_back() {
            last.refusal.get_or_insert(refusal);
        }
    }

    fn deliver(&mut self, client: ClientId, delivery: &Delivery) -> Result<(), Violation> {
        if let Some(reason) = &delivery.dead_letter {
            return self.die(delivery, reason);
        }
        if !is_queue(&delivery.destination) {
            return Ok(());
        }
        let key = (client, delivery.subscription);
        let (id, count, written) = (delivery.message, delivery.count, delivery.written);
        let Some(life) = self.lives.get_mut(&id) else { return Ok(()) };
        let seen = Seen { key, encoded_from: written.encoded_from, version: delivery.version, refusal: None };
        life.deliveries.insert(count, seen);
        let Some(life) = self.lives.get(&id) else { return Ok(()) };
        if life.dead.is_some_and(|dead| dead < written.encoded_from) {
            return broken("redelivery", format!("client {client} got {id} behind its dead letter"));
        }
        let before: Vec<(&u64, &Seen)> = life.deliveries.range(..count).collect();
        let confirmed = |seen: &Seen| seen.refusal.is_some_and(|refusal| refusal.is_confirmed);
        let failures = before.iter().filter(|(_, seen)| confirmed(seen)).count() as u64;
        let Some((last, previous)) = before.last().map(|(count, seen)| (**count, *seen)) else {
            return Ok(());
        };
        if confirmed(previous) {
            let is_over = failures >= self.limit(previous.key)
                || life.message.max_exceptions.is_some_and(|max| failures >= max)
                || previous.refusal.is_some_and(|refusal| refusal.is_final);
            if is_over {
                return broken(
                    "redelivery",
                    format!("client {client} got {id} after {failures} failures: {life:?}"),
                );
            }
        }
        if last + 1 < count {
            return Ok(()); // nobody has read the delivery before
        }
        // Earlier ones on the same connection were handled before.
        let sure = |seen: &Seen| confirmed(seen) || (seen.refusal.is_some() && seen.key.0 == previous.key.0);
        let failures = before.iter().filter(|(at, seen)| **at < last && sure(seen)).count() as u64 + 1;
        let delay = self.delay(previous.key, failures);
        let ended = [self.ended.get(&previous.key), self.left.get(&previous.key.0)];
        let own = previous.refusal.map(|refusal| refusal.at);
        let refused = own.into_iter().chain(self.late_refusal(&before)).min().map(|at| at + delay);
        let late = self.timeout.map(|timeout| previous.encoded_from + timeout + delay);
        let earliest = ended.into_iter().flatten().copied().chain(refused).chain(late).min();
        if earliest.is_none_or(|earliest| written.at + PRECISION < earliest) {
            let text = format!(
                "{id} came again at {:?}, not from {earliest:?} on (failure {failures}): {previous:?}",
                written.at
            );
            self.suspicions.push((previous.key.0, text));
        }
        Ok(())
    }

    /// When the last of these deliveries can have been refused by a NACK that was meant for an earlier one, and came so late
    /// that it named this one.
    fn late_refusal(&self, deliveries: &[(&u64, &Seen)]) -> Option<Duration> {
        let ((_, last), earlier) = deliveries.split_last()?;
        self.timeout.filter(|_| last.version == Version::V11)?;
        let of_message =
            || earlier.iter().filter(|(_, seen)| seen.key == last.key).find_map(|(_, seen)| seen.refusal);
        let at = match self.is_cumulative(last.key) {
            true => self.refusing.get(&last.key).copied(), // it may have named another message
            false => of_message().map(|refusal| refusal.at),
        };
        at.map(|at| at.max(last.encoded_from))
    }

    fn is_cumulative(&self, key: Key) -> bool {
        self.subscriptions.get(&key).is_some_and(|it| it.ack == AckMode::Client)
    }

    /// Whether a NACK with `requeue:false` that was meant for an earlier delivery of another message can have named a
    /// later one, and with it this message.
    fn late_rejection(&self, id: MessageId) -> bool {
        let may_cover = |seen: &Seen| {
            seen.version == Version::V11 && self.rejecting.contains(&seen.key) && self.is_cumulative(seen.key)
        };
        let mut seen = self.lives.get(&id).into_iter().flat_map(|life| life.deliveries.values());
        self.timeout.is_some() && seen.any(may_cover)
    }

    /// A dead letter has arrived.
    fn die(&mut self, delivery: &Delivery, reason: &str) -> Result<(), Violation> {
        let id = delivery.message;
        // Without an answer in time a message fails at consumers that have never read it.
        let seen = self.lives.get(&id).into_iter().flat_map(|life| life.deliveries.values());
        let refused = seen.filter(|seen| seen.refusal.is_some()).map(|seen| seen.key);
        let limit = match self.timeout {
            None => refused.map(|key| self.limit(key)).min(),
            Some(_) => self.subscriptions.keys().map(|key| self.limit(*key)).min(),
        };
        let limit = limit.unwrap_or(self.failures_max);
        let has_timeout = self.timeout.is_some();
        let may_be_rejected = self.late_rejection(id);
        let Some(life) = self.lives.get_mut(&id) else { return Ok(()) };
        let wrong =
            |what: &str| broken("redelivery", format!("{what} of the dead letter {id}: {delivery:?}"));
        if !delivery.redelivered && std::mem::replace(&mut life.has_died, true) {
            return wrong("a second copy");
        }
        let at = delivery.written.at;
        life.dead = Some(life.dead.map_or(at, |dead| dead.min(at)));
        if delivery.original.as_ref() != Some(&life.message.destination) {
            return wrong("original-destination");
        }
        let refusals = life.deliveries.iter().filter(|(_, seen)| seen.refusal.is_some());
        let possible = match has_timeout {
            true => delivery.dead_count.unwrap_or(0),
            false => refusals.clone().count() as u64,
        };
        let has_cause = match reason {
            "expired" => life.message.expires.is_some(),
            "rejected" => {
                let is_final = |seen: &Seen| seen.refusal.is_some_and(|refusal| refusal.is_final);
                may_be_rejected || refusals.clone().any(|(_, seen)| is_final(seen))
            }
            "max-deliveries" => possible >= limit,
            "max-exceptions" => life.message.max_exceptions.is_some_and(|max| possible >= max),
            _ => false,
        };
        if !has_cause {
            return wrong("dead-letter-reason");
        }
        let seen_max = life.deliveries.last_key_value().map_or(0, |(count, _)| *count);
        let refused_max = refusals.map(|(count, _)| *count).max();
        let is_right = delivery.dead_count.is_some_and(|count| match refused_max {
            Some(refused_max) if reason != "expired" && !has_timeout => count == refused_max,
            _ => count >= seen_max,
        });
        if is_right { Ok(()) } else { wrong("delivery-count") }
    }

    fn request(&mut self, client: ClientId, request: &Request, now: Duration) {
        let is_final = matches!(request, Request::Reject(..));
        match request {
            Request::Subscribe(subscription) => {
                self.subscriptions.insert((client, subscription.id), subscription.clone());
            }
            Request::Unsubscribe(subscription) => _ = self.ended.insert((client, *subscription), now),
            Request::Disconnect => _ = self.left.entry(client).or_insert(now),
            Request::Send(message) if is_queue(&message.destination) => {
                let life = Life {
                    message: message.clone(),
                    deliveries: BTreeMap::new(),
                    dead: None,
                    has_died: false,
                };
                self.lives.insert(message.id, life);
            }
            Request::Nack(subscription, messages, transaction)
            | Request::Reject(subscription, messages, transaction) => {
                let key = (client, *subscription);
                for message in messages {
                    match transaction {
                        None => {
                            let refusal = Refusal { at: now, is_confirmed: false, is_final };
                            self.refuse(key, *message, refusal);
                        }
                        Some(transaction) => {
                            let list = self.open.entry((client, *transaction)).or_default();
                            list.push((key, *message, is_final));
                        }
                    }
                }
            }
            Request::Commit(transaction) => self.commit((client, *transaction), now, false),
            _ => {}
        }
    }

    fn commit(&mut self, transaction: (ClientId, TransactionId), now: Duration, is_confirmed: bool) {
        for (key, message, is_final) in self.open.get(&transaction).cloned().unwrap_or_default() {
            self.refuse(key, message, Refusal { at: now, is_confirmed, is_final });
        }
    }

    fn confirm(&mut self, client: ClientId, request: &Request, now: Duration) {
        match request {
            // With ack_timeout it may have come too late.
            _ if self.timeout.is_some() => {}
            Request::Nack(subscription, messages, None) | Request::Reject(subscription, messages, None) => {
                let is_final = matches!(request, Request::Reject(..));
                for message in messages {
                    self.refuse(
                        (client, *subscription),
                        *message,
                        Refusal { at: now, is_confirmed: true, is_final },
                    );
                }
            }
            Request::Commit(transaction) => self.commit((client, *transaction), now, true),
            _ => {}
        }
    }
}

impl Checker for Redelivery {
    fn see(&mut self, event: &Event, now: Duration) -> Result<(), Violation> {
        match event {
            Event::Requested(client, request) => self.request(*client, request, now),
            Event::Confirmed(client, request) => self.confirm(*client, request, now),
            Event::Delivered(client, delivery) => return self.deliver(*client, delivery),
            Event::Released(client) | Event::Ended(client, _) => _ = self.left.entry(*client).or_insert(now),
            Event::Finished(open) => {
                let open: BTreeSet<&ClientId> = open.iter().collect();
                if let Some((_, text)) = self.suspicions.iter().find(|(client, _)| open.contains(client)) {
                    return broken("redelivery", text.clone());
                }
            }
            _ => {}
        }
        Ok(())
    }
}
