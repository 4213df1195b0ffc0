//! Deliveries that are taken back from a client, or forgotten, before it has acknowledged them. Their ids are remembered: a
//! late ACK is not an error.

use std::hash::BuildHasher as _;

use stompica_proto::Version;

use super::Owners;
use crate::ids::{ConnKey, SubscriptionKey};
use crate::queue::consumer_state::Retries;
use crate::queue::unacked::TakenOnes;
use crate::router::group::SubscriptionIndex;

/// Deliveries of one subscription that are forgotten in one turn.
const FORGOTTEN_MAX: usize = 256;

impl Owners<'_> {
    /// Remembers the ids of deliveries to a subscription that are requeued, by their numbers and the hashes of their
    /// `message-id`s.
    pub(crate) fn remember_requeued(
        &mut self,
        key: ConnKey,
        subscription: SubscriptionKey,
        taken: impl Iterator<Item = (u64, u64)>,
    ) {
        let Some(found) = self.router.subscriptions.get(subscription.index as usize) else { return };
        let by_message = self
            .connections
            .table
            .get(key)
            .is_some_and(|conn| conn.protocol.session.version() == Version::V1_1);
        let hashes: Vec<u64> = taken
            .map(|(number, id_hash)| match by_message {
                true => self.connections.hash_by_message(&found.id, id_hash),
                false => self.connections.subscription_hasher.hash_one((subscription.index, number)),
            })
            .collect();
        let is_short = self.turn.memory.is_short;
        if let Some(pending_writes) =
            self.connections.table.get_mut(key).and_then(|conn| conn.pending_writes.as_mut())
        {
            hashes.into_iter().for_each(|hash| pending_writes.take_back(hash, subscription, is_short));
        }
        self.connections.count_input(self.turn, key);
    }

    /// Remembers deliveries of STOMP 1.1 that late ACKs settle alone, by their numbers and the hashes of their `message-id`s.
    pub(crate) fn remember_settled(
        &mut self,
        key: ConnKey,
        subscription: SubscriptionKey,
        taken: impl Iterator<Item = (u64, u64)>,
    ) {
        let Some(found) = self.router.subscriptions.get(subscription.index as usize) else { return };
        let hashes: Vec<(u64, u64)> = taken
            .map(|(number, id_hash)| (self.connections.hash_by_message(&found.id, id_hash), number))
            .collect();
        let conn = self.connections.table.get_mut(key);
        if let Some(writes) = conn.and_then(|conn| conn.pending_writes.as_mut()) {
            hashes.into_iter().for_each(|(hash, number)| writes.settle_late(hash, subscription, number));
        }
        self.connections.count_input(self.turn, key);
    }

    /// Requeues deliveries that were taken from a subscription because their ACK did not come in time.
    pub(crate) fn time_out(&mut self, key: SubscriptionKey, taken: TakenOnes) {
        let Some(consumer) = self.queues.consumers.get_mut(key) else { return };
        let (conn, retries) = (consumer.conn, Retries::of(consumer));
        if let Some(last) = taken.last() {
            consumer.timed_out = last.number; // the oldest ones are taken first
        }
        self.turn.counters.timed_out += taken.len() as u64;
        let ids = taken.iter().map(|taken| (taken.number, taken.id_hash));
        self.remember_requeued(conn, key, ids);
        if let Some(pending_writes) =
            self.connections.table.get_mut(conn).and_then(|conn| conn.pending_writes.as_mut())
        {
            pending_writes.unacked -= taken.len();
        }
        self.give_back_failed(key, retries, taken);
    }

    /// Forgets the oldest deliveries of a subscription to a topic that its client has not acknowledged, as if it had: up to so
    /// many bytes, as far as a turn allows. It has them, or gets them, but none of them can come again. An ACK that is on its
    /// way does nothing.
    pub(super) fn forget_in_flight(&mut self, key: ConnKey, index: SubscriptionIndex, bytes: usize) {
        let Some(consumer) = self.queues.consumers.at_mut(index) else { return };
        let (subscription, mut left, mut taken_ones) = (consumer.key, bytes, TakenOnes::new());
        while left > 0
            && taken_ones.len() < FORGOTTEN_MAX
            && let Some(taken) = consumer.unacked.pop()
        {
            left = left.saturating_sub(taken.message.size());
            taken_ones.push(taken);
        }
        // Their ids take no memory: every unknown one counts as forgotten from now on.
        if let Some(pending_writes) =
            self.connections.table.get_mut(key).and_then(|conn| conn.pending_writes.as_mut())
        {
            pending_writes.unacked -= taken_ones.len();
            pending_writes.accepts_unknown |= !taken_ones.is_empty();
        }
        self.turn.budget.visit(taken_ones.len());
        self.settle_all(subscription, taken_ones);
    }
}
