//! When queues deliver, in a turn.

use super::Shard;

impl Shard {
    /// Whether [`Shard::dispatch_queues`] has something to do.
    pub(super) fn has_queue_work(&self) -> bool {
        self.queues.home.is_busy() || !self.deliveries.returning.is_empty()
    }

    /// Delivers what can be delivered, and goes on with what takes long, as far as this part of the turn allows.
    pub(super) fn dispatch_queues(&mut self) {
        self.delivery().proceed_with_returning();
        self.delivery().run_effects();
        self.settle();
        self.delivery().dispatch();
        self.settle();
    }

    /// Goes on with replays that have a window, one after the other, as far as the turn allows.
    pub(super) fn proceed_with_replays(&mut self) {
        while !self.turn.budget.is_exhausted() && self.queue().proceed_with_next_replay() {
            self.settle();
        }
    }

    /// Does all that homes want done, with all that follows from it.
    pub(super) fn run_all_effects(&mut self) {
        self.settle();
        while !self.queues.home.effects.is_empty() {
            self.delivery().run_effects();
            self.settle();
        }
    }
}
