//! Work on many queues or messages, in portions: changes of patterns and settings, and messages of removed queues.

use super::home::Home;
use super::pending::Pending;
use super::types::{Effect, Queue};
use crate::door::planted;
use crate::ids::NO_RECORD;
use crate::ids::QueueKey;
use crate::message::OwnedMessage;

/// The maximum number of messages that are dropped or released at once.
const AT_ONCE: usize = 256;

/// The remaining work.
#[derive(Debug, Default)]
pub(super) struct Sweep {
    /// The next slot, and the number of slots that are left in this round.
    next: usize,
    left: usize,
    /// The number of slots when `left` was counted.
    slots: usize,
    /// Worker topics without a consumer that have more messages than are released at once.
    pub(super) unmatched: Vec<QueueKey>,
    /// The messages of removed queues.
    pub(super) dropped: Vec<Pending>,
}

impl Home {
    /// Whether [`Home::proceed`] has work to do.
    #[must_use]
    pub fn is_sweeping(&self) -> bool {
        self.sweep.left > 0 || !self.sweep.unmatched.is_empty() || !self.sweep.dropped.is_empty()
    }

    /// Whether there is work without another call: dispatch, or a sweep.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.has_work() || self.is_sweeping() || self.pacing.has_waiting()
    }

    /// Visits all queues once, beginning with the next slot.
    pub(super) fn sweep_all(&mut self) {
        self.sweep.slots = self.queues.slots();
        self.sweep.left = self.sweep.slots;
    }

    /// Continues the sweep, up to a number of visits of queues and messages.
    pub fn proceed(&mut self, visits_max: usize) {
        let end = self.visited.saturating_add(visits_max);
        while self.visited < end && self.is_sweeping() {
            self.visited += 1;
            if self.sweep.left > 0 {
                self.sweep_one();
            } else if let Some(key) = self.sweep.unmatched.pop() {
                self.release_unmatched(key);
            } else if let Some(mut pending) = self.sweep.dropped.pop() {
                self.drop_some(&mut pending);
                if pending.len() > 0 {
                    self.sweep.dropped.push(pending);
                }
            }
        }
    }

    fn sweep_one(&mut self) {
        let slots = self.queues.slots();
        let sweep = &mut self.sweep;
        sweep.left += slots.saturating_sub(sweep.slots); // new slots are between the next slot and the first one
        sweep.slots = slots;
        sweep.left -= 1;
        let at = if sweep.next < slots { sweep.next } else { 0 };
        sweep.next = at + 1;
        if let Some(key) = self.queues.key_at(at) {
            if !planted!("sweep-forgets-patterns") {
                self.match_patterns(key);
            }
            self.release_unmatched(key);
            if self.picks || self.queues.get(key).is_some_and(|queue| queue.pending.is_paged()) {
                self.mark_ready(key);
            }
            self.rearm(key);
        }
    }

    /// Releases the messages of a worker topic without consumers.
    pub(super) fn release_unmatched(&mut self, key: QueueKey) {
        if !self.is_unmatched(key) {
            return;
        }
        let Some(queue) = self.queues.get_mut(key).filter(|queue| queue.pending.len() > 0) else { return };
        let released: Vec<OwnedMessage> =
            std::iter::from_fn(|| queue.pending.pop_any()).take(AT_ONCE).collect();
        let is_empty = queue.pending.len() == 0;
        self.visited += released.len();
        released.into_iter().for_each(|message| self.leave_unmatched(message));
        if !is_empty {
            self.sweep.unmatched.push(key);
        } else if self.queues.get(key).is_some_and(Queue::is_idle) {
            self.became_idle(key);
        }
    }

    /// Releases a message of a worker topic without consumers. It keeps its place, but the store forgets it.
    pub(super) fn leave_unmatched(&mut self, mut message: OwnedMessage) {
        self.forget(&message);
        message.record = NO_RECORD;
        self.effects.push(Effect::Unmatched(message));
    }

    /// Drops the messages of a removed queue, now or in portions.
    pub(super) fn drop_waiting(&mut self, mut pending: Pending) {
        self.counts.dropped += pending.len() as u64;
        // Many queues may be removed at once.
        if self.visited < AT_ONCE {
            self.drop_some(&mut pending);
        }
        if pending.len() > 0 {
            self.sweep.dropped.push(pending);
        }
    }

    fn drop_some(&mut self, pending: &mut Pending) {
        for dropped in std::iter::from_fn(|| pending.drop_any()).take(AT_ONCE) {
            self.visited += 1;
            self.forget_dropped(dropped);
        }
    }
}
