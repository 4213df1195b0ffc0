//! Subscriptions and messages to topics with retained messages.

use rand::Rng as _;
use rand::seq::IndexedRandom as _;

use super::Actor;
use crate::events::{AckMode, TransactionId};
use crate::frames::Version;
use crate::work::Retain;

/// The most subscriptions of a client.
const SUBSCRIPTIONS_MAX: usize = 8;

impl Actor<'_> {
    /// Subscribes or sends. Returns its name; `None` if nothing is possible.
    pub(super) fn act_with_retained(&mut self) -> Option<&'static str> {
        let weights = &self.options.weights;
        let has_room = self.client.subscriptions.len() < SUBSCRIPTIONS_MAX;
        let all = [
            ("last-subscribe", if has_room { 3 * weights.subscribe } else { 0 }),
            (
                "last-unsubscribe",
                if self.client.subscriptions.is_empty() { 0 } else { 2 + weights.unsubscribe },
            ),
            ("last-send", weights.send),
        ];
        let (name, _) = *all.choose_weighted(self.random, |(_, weight)| *weight).ok()?;
        match name {
            "last-subscribe" => {
                let names = &self.options.retained;
                let is_pattern = !names.patterns.is_empty() && self.random.random_ratio(1, 3);
                let list = if is_pattern { &names.patterns } else { &names.names };
                let destination = list.choose(self.random)?.clone();
                let (ack, prefetch) = self.credit_of_values();
                self.subscribe_with(destination, ack, prefetch)?;
            }
            "last-unsubscribe" => self.unsubscribe()?,
            _ => {
                for _ in 0..self.burst() {
                    self.send_value()?;
                }
            }
        }
        Some(name)
    }

    /// Draws how a subscription acknowledges. Before STOMP 1.2 an ACK cannot tell the two copies of a message apart that
    /// was set during the SUBSCRIBE.
    fn credit_of_values(&mut self) -> (AckMode, Option<u64>) {
        let acknowledges = self.client.version == Version::V12 && self.percent(self.options.acking.percent);
        if !acknowledges {
            return (AckMode::Auto, None);
        }
        let ack = if self.random.random_ratio(1, 2) { AckMode::Client } else { AckMode::Individual };
        (ack, self.random.random_ratio(2, 3).then(|| self.random.random_range(1..4)))
    }

    fn send_value(&mut self) -> Option<()> {
        let retained = &self.options.retained;
        let destination = retained.names.choose(self.random)?.clone();
        let (sets, removes) = (retained.sets, retained.removes);
        let transactions: Vec<TransactionId> = self.client.transactions.keys().copied().collect();
        let joins = self.random.random_ratio(1, 3);
        let transaction = if joins { transactions.choose(self.random).copied() } else { None };
        let drawn = self.random.random_range(0..100);
        let retain = match drawn {
            _ if drawn < sets => Some(Retain::Set),
            _ if drawn < sets + removes => Some(Retain::Remove),
            _ => None,
        };
        self.send_to(destination, transaction, retain.map(header).into_iter().collect())
    }

    /// Sets or removes the values of these topics.
    pub(crate) fn retain_at(&mut self, names: &[String], retain: Retain) {
        for name in names {
            self.send_to(name.clone(), None, vec![header(retain)]);
        }
    }

    /// Subscribes to a topic, or to a pattern.
    pub(crate) fn read_values(&mut self, destination: &str) {
        self.subscribe_with(destination.to_owned(), AckMode::Auto, None);
    }
}

fn header(retain: Retain) -> (&'static str, String) {
    ("retain", retain.name().to_owned())
}
