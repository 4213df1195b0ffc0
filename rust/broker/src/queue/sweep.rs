//! Work on many queues or messages, a portion at a time: patterns that came or went, rules that changed, what deleted
//! queues held.

use super::home::Home;
use super::pending::Pending;
use super::types::{Effect, Queue};
use crate::ids::NO_RECORD;
use crate::ids::QueueKey;
use crate::message::OwnedMessage;

/// Messages that are dropped or released at once.
const AT_ONCE: usize = 256;

/// What is left of it.
#[derive(Debug, Default)]
pub(super) struct Sweep {
    /// The slot that comes next, and how many are left in this round.
    next: usize,
    left: usize,
    /// Slots there were when `left` was counted.
    slots: usize,
    /// Worker topics without a consumer that hold more than is released at once.
    unmatched: Vec<QueueKey>,
    /// What waited in queues that are gone.
    dropped: Vec<Pending>,
}

impl Home {
    /// Whether [`Home::proceed`] has something to do.
    #[must_use]
    pub fn is_sweeping(&self) -> bool {
        self.sweep.left > 0 || !self.sweep.unmatched.is_empty() || !self.sweep.dropped.is_empty()
    }

    /// Whether there is anything to do without being asked: to deliver, or to go on with what takes long.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.has_work() || self.is_sweeping()
    }

    /// Looks at all queues, from here on, once more.
    pub(super) fn sweep_all(&mut self) {
        self.sweep.slots = self.queues.slots();
        self.sweep.left = self.sweep.slots;
    }

    /// Goes on with what takes long, up to so many queues and messages.
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
        sweep.left += slots.saturating_sub(sweep.slots); // they stand between here and the beginning
        sweep.slots = slots;
        sweep.left -= 1;
        let at = if sweep.next < slots { sweep.next } else { 0 };
        sweep.next = at + 1;
        if let Some(key) = self.queues.key_at(at) {
            self.match_patterns(key);
            self.release_unmatched(key);
            self.rearm(key);
        }
    }

    /// Returns what waits in a worker topic without consumers to the caller.
    pub(super) fn release_unmatched(&mut self, key: QueueKey) {
        if !self.is_unmatched(key) {
            return;
        }
        let Some(queue) = self.queues.get_mut(key).filter(|queue| queue.pending.len() > 0) else { return };
        let released: Vec<OwnedMessage> =
            std::iter::from_fn(|| queue.pending.pop_any()).take(AT_ONCE).collect();
        let is_empty = queue.pending.len() == 0;
        self.visited += released.len();
        released.into_iter().for_each(|stored| self.leave_unmatched(stored));
        if !is_empty {
            self.sweep.unmatched.push(key);
        } else if self.queues.get(key).is_some_and(Queue::is_idle) {
            self.became_idle(key);
        }
    }

    /// A message of a worker topic has no consumer to go to. It keeps its place, but the store forgets it.
    pub(super) fn leave_unmatched(&mut self, mut stored: OwnedMessage) {
        self.forget(&stored);
        stored.record = NO_RECORD;
        self.effects.push(Effect::Unmatched(stored));
    }

    /// Drops what waited in a queue that is gone, now or a portion at a time.
    pub(super) fn drop_waiting(&mut self, mut pending: Pending) {
        self.counts.dropped += pending.len() as u64;
        // Many queues may go at once.
        if self.visited < AT_ONCE {
            self.drop_some(&mut pending);
        }
        if pending.len() > 0 {
            self.sweep.dropped.push(pending);
        }
    }

    fn drop_some(&mut self, pending: &mut Pending) {
        for stored in std::iter::from_fn(|| pending.pop_any()).take(AT_ONCE) {
            self.visited += 1;
            self.forget(&stored);
        }
    }
}
