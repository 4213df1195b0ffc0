//! Headers that concern time: when a message expires, and when it comes again.

use std::time::Duration;

use rand::Rng as _;
use rand::seq::IndexedRandom as _;
use stompica_broker::config::SlowConsumer;
use stompica_broker::simulated::outside;

use super::{Actor, Headers};
use crate::events::{AckMode, Message, SubscriptionId, Terms, TransactionId, is_topic};

/// The time at which simulated runs begin, in milliseconds since 1970.
fn epoch_ms() -> u64 {
    (outside::wall_clock() - outside::now()).as_millis() as u64
}

impl Actor<'_> {
    /// Draws when a message expires, and how often it may fail.
    pub(super) fn limit_life(&mut self, message: &mut Message, headers: &mut Headers) {
        if self.percent(self.options.expiring) {
            let ttl_ms = self.random.random_range(1..2_000_u64);
            let odd = self.percent(self.options.timing.odd_expiries);
            match if odd { self.random.random_range(1..6) } else { 0 } {
                0 => expire_after(message, headers, "expiration", ttl_ms),
                1 => expire_after(message, headers, "ttl", ttl_ms),
                2 => expire_after(message, headers, "ttl", 0),
                3 => expire_at(message, headers, outside::now() + Duration::from_millis(ttl_ms)),
                4 => {
                    expire_at(message, headers, outside::now().saturating_sub(Duration::from_millis(ttl_ms)))
                }
                _ => headers.push(("expires", "0".to_owned())), // never
            }
        }
        if self.percent(self.options.timing.exceptions) {
            let count = self.random.random_range(1..4);
            message.max_exceptions = Some(count);
            headers.push(("max-exceptions", count.to_string()));
        }
    }

    /// Draws what a subscription that acknowledges asks for.
    pub(super) fn terms(&mut self, headers: &mut Headers) -> Terms {
        let mut terms = Terms::default();
        if self.percent(self.options.timing.terms) {
            match self.random.random_range(0..3) {
                0 => {
                    let bytes = self.random.random_range(1..=2 * self.options.body_max as u64 + 200);
                    terms.window = Some(bytes);
                    headers.push(("consumer-window-size", bytes.to_string()));
                }
                1 => {
                    let count = self.random.random_range(1..4);
                    terms.max_deliveries = Some(count);
                    headers.push(("max-deliveries", count.to_string()));
                }
                _ => {
                    let ms = self.random.random_range(0..3_000);
                    terms.delay = Some(Duration::from_millis(ms));
                    headers.push(("redelivery-delay", ms.to_string()));
                }
            }
        }
        terms
    }

    /// Draws what a subscription to topics asks for in case that it reads slowly.
    pub(super) fn policy(&mut self, destination: &str, headers: &mut Headers) -> Option<SlowConsumer> {
        let percent = self.options.policies.percent;
        if percent == 0 || !is_topic(destination) || !self.percent(percent) {
            return None;
        }
        let policy = *self.options.policies.asked.choose(self.random)?;
        headers.push(("slow-consumer", name_of(policy)));
        Some(policy)
    }

    /// Sometimes the dead-letter queue instead of the queue.
    pub(super) fn maybe_dead_letters(&mut self, destination: String) -> String {
        let name = destination.strip_prefix("/queue/").map(str::to_owned);
        match name.filter(|_| self.percent(self.options.timing.dead_letters)) {
            Some(name) => format!("/queue/dlq/{name}"),
            None => destination,
        }
    }

    /// The transaction that an acknowledgement joins, if any. In the mode `client`, one outside would cover messages that
    /// an open transaction has acknowledged, so the next ones have to join it, too.
    pub(super) fn joined(&mut self, id: SubscriptionId, command: &str) -> Option<TransactionId> {
        let transactions: Vec<TransactionId> = self.client.transactions.keys().copied().collect();
        let is_individual = self.client.subscriptions.get(&id)?.subscription.ack == AckMode::Individual;
        if self.options.timing.joins == 0 {
            let every = if self.options.pressure.transactional { 1 } else { 3 };
            let joins = command == "ACK" && is_individual && self.random.random_ratio(1, every);
            return if joins { transactions.choose(self.random).copied() } else { None };
        }
        let has = |taken: &Vec<(SubscriptionId, _, _, _)>| taken.iter().any(|(other, ..)| *other == id);
        let begun = self.client.transactions.iter().find(|(_, taken)| has(taken)).map(|(begun, _)| *begun);
        if let Some(begun) = begun.filter(|_| !is_individual) {
            return Some(begun);
        }
        if self.percent(self.options.timing.joins) { transactions.choose(self.random).copied() } else { None }
    }

    /// Whether the broker has taken back for certain what was delivered at this time.
    pub(super) fn was_taken_back(&self, delivered: Duration) -> bool {
        let timeout = self.options.timing.ack_timeout;
        // In STOMP 1.1 an ACK names the message, so a late one may mean its next delivery.
        timeout > Duration::ZERO
            && !self.client.has_committed
            && self.client.version != crate::frames::Version::V11
            && outside::quiet() > delivered + timeout + Duration::from_millis(1)
    }
}

fn name_of(policy: SlowConsumer) -> String {
    match policy {
        SlowConsumer::Block(time) => format!("block:{}ms", time.as_millis()),
        SlowConsumer::DropOldest => "drop-oldest".to_owned(),
        SlowConsumer::DropNewest => "drop-newest".to_owned(),
        SlowConsumer::Disconnect => "disconnect".to_owned(),
    }
}

fn expire_after(message: &mut Message, headers: &mut Headers, name: &'static str, ttl_ms: u64) {
    let ttl = Duration::from_millis(ttl_ms);
    (message.expires, message.ttl) = (Some(outside::now() + ttl), Some(ttl));
    headers.push((name, ttl_ms.to_string()));
}

fn expire_at(message: &mut Message, headers: &mut Headers, at: Duration) {
    message.expires = Some(at);
    headers.push(("expires", (epoch_ms() + at.as_millis() as u64).to_string()));
}
