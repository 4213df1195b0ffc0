//! What a home wants done: deliveries, once a turn ([`Shard::dispatch_queues`]), so that a burst is one batch, and the
//! rest of its [`Effect`]s.

use std::mem::take;

use super::Shard;
use crate::queue::types::Effect;
use crate::report::stages::Stage;

/// Queues and messages that are looked at in one go where there are many.
const SWEEP_VISITS: usize = 4000;

impl Shard {
    /// Whether [`Shard::dispatch_queues`] has something to do.
    pub(super) fn has_queue_work(&self) -> bool {
        self.queues.home.is_busy() || !self.deliveries.returning.is_empty()
    }

    /// Delivers what can be delivered, and goes on with what takes long, as far as this part of the turn allows.
    pub(super) fn dispatch_queues(&mut self) {
        self.proceed_with_returning();
        self.run_effects();
        self.settle();
        if !self.queues.home.is_busy() {
            return;
        }
        let began = self.turn.stages.begin(Stage::Encode);
        if self.queues.home.is_sweeping() && !self.turn.budget.is_exhausted() {
            self.queues.home.proceed(SWEEP_VISITS.min(self.turn.budget.left() / 2)); // the other half is for deliveries
            self.run_effects();
        }
        while self.queues.home.has_work() && !self.turn.budget.is_exhausted() {
            // In portions, so that memory is touched once while it is warm.
            self.queues.home.dispatch(64);
            self.run_effects();
            self.settle();
            self.peers.count_deliveries(&mut self.notes, &mut self.queues.home);
        }
        self.turn.stages.end(Stage::Encode, began);
    }

    /// Counts what the home looked at against the turn.
    pub(super) fn count_visits(&mut self) {
        self.queue().count_visits();
    }

    /// Does what the home wants done.
    pub(super) fn run_effects(&mut self) {
        self.count_visits();
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

    /// The same with all that follows from it.
    pub(super) fn run_all_effects(&mut self) {
        self.settle();
        while !self.queues.home.effects.is_empty() {
            self.run_effects();
            self.settle();
        }
    }

    fn run_effect(&mut self, effect: Effect) {
        match effect {
            Effect::Deliver(delivery) => self.carry_out(delivery),
            other => self.queue().run_effect(other),
        }
    }
}
