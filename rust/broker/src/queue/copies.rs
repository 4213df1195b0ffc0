//! Queues of subscriptions to topics. Many of them may hold the same message: its bytes are in memory once, but each
//! delivery adds a copy to an outbox. So while memory is used up and outboxes hold a relevant part of it, these queues hold
//! their messages back ([`Home::allow_copies`]).

use std::mem::take;

use super::QueueKind;
use super::consumers::STALE_MAX;
use super::home::Home;
use crate::ids::QueueKey;

/// The queues of subscriptions to topics of one home.
#[derive(Debug)]
pub(super) struct Copies {
    /// The number of private queues.
    pub(super) private: usize,
    /// The bytes that may still be delivered. The last message may exceed them.
    left: usize,
    /// Queues that hold messages back, marked as ready. Some of them may have been removed.
    held: Vec<QueueKey>,
}

impl Default for Copies {
    fn default() -> Self {
        Copies { private: 0, left: usize::MAX, held: Vec::new() }
    }
}

impl Copies {
    /// Counts a message that is delivered.
    #[inline]
    pub(super) fn count(&mut self, kind: QueueKind, bytes: usize) {
        if kind.shares_messages() {
            self.left = self.left.saturating_sub(bytes);
        }
    }

    /// Queues that hold messages back.
    #[cfg(any(test, simulated))]
    pub(super) fn held(&self) -> &[QueueKey] {
        &self.held
    }

    /// The approximate memory of its list.
    pub(super) fn held_bytes(&self) -> usize {
        self.held.capacity() * size_of::<QueueKey>()
    }

    /// Permits any number of bytes; returns what was left.
    pub(super) fn unbounded(&mut self) -> usize {
        std::mem::replace(&mut self.left, usize::MAX)
    }

    /// Ends that: only `left` bytes are permitted, minus those that were delivered meanwhile.
    pub(super) fn bound(&mut self, left: usize) {
        self.left = left.saturating_sub(usize::MAX - self.left);
    }

    /// Whether a queue of this kind has to hold back what it would deliver now.
    #[inline]
    pub(super) fn must_hold_back(&self, kind: QueueKind) -> bool {
        self.left == 0 && kind.shares_messages()
    }
}

impl Home {
    /// The number of private queues.
    #[must_use]
    pub fn private_queues(&self) -> usize {
        self.copies.private
    }

    /// Permits the queues of subscriptions to topics to deliver this number of bytes; the last message may exceed it.
    pub fn allow_copies(&mut self, bytes: usize) {
        self.copies.left = bytes;
        if bytes > 0 {
            self.ready_queues.extend(take(&mut self.copies.held));
        }
    }

    /// Whether queues of subscriptions to topics hold messages back.
    #[must_use]
    pub fn holds_copies_back(&self) -> bool {
        !self.copies.held.is_empty()
    }

    /// Lets a queue continue once it may deliver messages again.
    #[cold]
    pub(super) fn hold_back(&mut self, key: QueueKey) {
        let Some(queue) = self.queues.get_mut(key) else { return };
        if queue.is_ready {
            return; // it is listed
        }
        queue.is_ready = true;
        self.copies.held.push(key);
        if self.copies.held.len() > STALE_MAX + 2 * self.queues.len() {
            let queues = &self.queues;
            self.copies.held.retain(|at| queues.get(*at).is_some());
        }
    }
}
