//! Dispatches queues, once a turn ([`Owners::dispatch`]) so that a burst is one batch; carries out other [`Effect`]s
//! of a home; and handles notes of other homes to consumers of this shard.

use std::mem::take;

use super::Owners;
use crate::connection::pausing::Pause;
use crate::ids::ShardId;
use crate::queue::mail::ConsumerNote;
use crate::queue::types::Effect;
use crate::report::stages::Stage;

/// The visits of one step of long work in queues.
const SWEEP_VISITS: usize = 4000;

impl Owners<'_> {
    /// Handles a note to a consumer of this shard.
    pub(crate) fn read_consumer_note(&mut self, from: ShardId, note: ConsumerNote) {
        match note {
            ConsumerNote::Deliver(delivery) => self.receive(from, delivery),
            ConsumerNote::CreditRequest(key, consumer) => self.credit_requested(from, key, consumer),
            ConsumerNote::CreditReturn(key, messages) => self.credit_returned(key, messages),
            ConsumerNote::Opens(conn, token, credit) => {
                // A durable subscription gets its credit once the RECEIPT of its SUBSCRIBE has been sent.
                if let Some(conn) = self.connections.table.get_mut(conn)
                    && !conn.answers.open_behind(token, from, credit)
                {
                    self.queue().report(from, credit);
                }
            }
            ConsumerNote::Replayed(key, message, retained) => self.take_replayed(key, message, retained),
            ConsumerNote::ReplayPause(key) => self.replay_paused(from, key),
            ConsumerNote::ReplayEnd(key) => self.replay_ended(from, key),
        }
    }

    /// Dispatches queues, and continues their long work, as far as this part of the turn allows.
    pub fn dispatch(&mut self) {
        self.allow_copies();
        if !self.queues.home.is_busy() {
            return;
        }
        let began = self.turn.stages.begin(Stage::Encode);
        if self.queues.home.is_sweeping() && !self.turn.budget.is_exhausted() {
            self.queues.home.proceed(SWEEP_VISITS.min(self.turn.budget.left() / 2)); // the other half is for deliveries
            self.run_effects();
        }
        while self.queues.home.has_work() && !self.turn.budget.is_exhausted() {
            // In portions, so that the memory is still in the cache.
            self.queues.home.dispatch(64);
            self.run_effects();
            if self.queues.home.holds_copies_back() {
                self.allow_copies();
            }
            self.peers.count_deliveries(self.notes, &mut self.queues.home);
        }
        self.turn.stages.end(Stage::Encode, began);
    }

    /// Carries out the effects of the home.
    pub fn run_effects(&mut self) {
        self.queue().count_visits();
        while !self.queues.home.effects.is_empty() {
            let mut effects = take(&mut self.queues.home.effects);
            for effect in effects.drain(..) {
                self.run_effect(effect);
            }
            if self.queues.home.effects.is_empty() {
                self.queues.home.effects = effects;
            }
        }
    }

    fn run_effect(&mut self, effect: Effect) {
        let own = self.turn.id;
        match effect {
            Effect::Deliver(delivery) => self.carry_out(delivery),
            Effect::CreditRequest(subscriber, consumer) if subscriber.shard == own => {
                self.credit_requested(own, subscriber.key, consumer);
            }
            Effect::CreditReturn(subscriber, messages) if subscriber.shard == own => {
                self.credit_returned(subscriber.key, messages);
            }
            Effect::Unreadable(..) => {
                // A frame may have waited for this message.
                self.connections.retry_parked(&[Pause::Deferred]);
                self.queue().run_effect(effect);
            }
            other => self.queue().run_effect(other),
        }
    }
}
