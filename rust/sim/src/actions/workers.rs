//! Subscriptions and messages to worker topics, and to topics whose messages become stale.

use rand::Rng as _;
use rand::seq::IndexedRandom as _;

use super::Actor;
use crate::events::TransactionId;

/// The most subscriptions of a client.
const SUBSCRIPTIONS_MAX: usize = 8;

impl Actor<'_> {
    /// Subscribes or sends. Returns its name; `None` if nothing is possible.
    pub(super) fn act_with_workers(&mut self) -> Option<&'static str> {
        let weights = &self.options.weights;
        let has_room = self.client.subscriptions.len() < SUBSCRIPTIONS_MAX;
        let all = [
            ("work-subscribe", if has_room { weights.subscribe } else { 0 }),
            ("work-unsubscribe", if self.client.subscriptions.is_empty() { 0 } else { weights.unsubscribe }),
            ("work-send", weights.send),
        ];
        let (name, _) = *all.choose_weighted(self.random, |(_, weight)| *weight).ok()?;
        match name {
            "work-subscribe" => {
                let names = &self.options.workers;
                let list = if self.random.random_ratio(1, 4) { &names.patterns } else { &names.names };
                let destination = list.choose(self.random)?.clone();
                self.subscribe_at(destination)?;
            }
            "work-unsubscribe" => self.unsubscribe()?,
            _ => {
                for _ in 0..self.burst() {
                    self.send_work()?;
                }
            }
        }
        Some(name)
    }

    fn send_work(&mut self) -> Option<()> {
        let destination = self.options.workers.names.choose(self.random)?.clone();
        let transactions: Vec<TransactionId> = self.client.transactions.keys().copied().collect();
        let joins = self.random.random_ratio(1, 3);
        let transaction = if joins { transactions.choose(self.random).copied() } else { None };
        self.send_to(destination, transaction, Vec::new())
    }
}
