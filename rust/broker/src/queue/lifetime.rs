//! Time-dependent changes of queues: delays end, messages expire, idle queues are removed.

use std::hash::BuildHasher as _;
use std::mem::take;

use super::QueueKind;
use super::home::Home;
use super::types::{Effect, Queue};
use crate::collections::keyed::Keyed;
use crate::door::planted;
use crate::ids::QueueKey;

/// The number of due messages of one queue that are handled at once; the rest follows in the same turn if possible.
const AT_ONCE: usize = 256;

impl Home {
    /// The queues of all kinds, by slots.
    #[must_use]
    pub fn table(&self) -> &Keyed<Queue> {
        &self.queues
    }

    /// Handles what is due for one queue: delayed messages, expired messages, and its removal if it has been idle.
    pub fn handle_due(&mut self, key: QueueKey) {
        let Some(queue) = self.queues.get_mut(key) else { return };
        if queue.deadline_ms > self.now_ms {
            return; // an earlier timer has fired; if it were renewed as well, timers would accumulate
        }
        queue.deadline_ms = u64::MAX;
        let was_idle = queue.is_idle();
        let mut expired = Vec::new();
        self.visited += queue.pending.advance(self.now_ms, AT_ONCE, &mut expired);
        let is_paged = queue.pending.is_paged();
        for message in expired {
            self.expire(key, message);
        }
        if is_paged {
            self.read_ahead(key); // for stubs that have expired
        }
        self.release_unmatched(key);
        self.mark_ready(key);
        self.return_revoked_credit();
        if !was_idle && self.queues.get(key).is_some_and(Queue::is_idle) {
            self.became_idle(key);
        }
        let Some(queue) = self.queues.get(key) else { return };
        if queue.is_idle() && self.expires_idle(queue) <= self.now_ms {
            self.delete(key);
        } else {
            self.rearm(key);
        }
    }

    pub(super) fn became_idle(&mut self, key: QueueKey) {
        let now_ms = self.now_ms;
        if let Some(queue) = self.queues.get_mut(key) {
            queue.idle_since_ms = now_ms;
            // It may stay idle: a hundred thousand queues that were used once are not unusual.
            queue.pending.shrink();
            queue.ready.shrink_to_fit();
        }
        self.rearm(key);
    }

    /// The time at which an idle queue is removed; only kinds that are created on demand are removed.
    fn expires_idle(&self, queue: &Queue) -> u64 {
        match queue.kind {
            QueueKind::Work | QueueKind::Worker => queue.idle_since_ms.saturating_add(self.rules.idle_ms),
            _ => u64::MAX,
        }
    }

    /// Sets the timer for a queue's next deadline, unless an earlier one is set.
    pub(super) fn rearm(&mut self, key: QueueKey) {
        let Some(queue) = self.queues.get(key) else { return };
        let idle = if queue.is_idle() { self.expires_idle(queue) } else { u64::MAX };
        // Overdue messages do not precede the overdue messages of other queues.
        let next_ms = queue.pending.next_ms().unwrap_or(u64::MAX).min(idle).max(self.now_ms);
        if let Some(queue) = self.queues.get_mut(key)
            && next_ms < queue.deadline_ms
        {
            queue.deadline_ms = next_ms;
            self.effects.push(Effect::Timer(next_ms, key));
        }
    }

    /// The number of messages in queues that outlive their clients, and that the store does not keep.
    #[must_use]
    pub fn held_for_later(&self) -> u64 {
        let stays = |queue: &&Queue| queue.kind.survives();
        match self.store.is_durable() {
            true => self.iter().filter(stays).map(|queue| queue.pending.not_kept()).sum(),
            false => self.iter().filter(stays).map(Queue::size).sum(),
        }
    }

    /// Removes a queue that is empty and has no consumer of its own.
    pub fn delete_unused(&mut self, key: QueueKey) {
        if self.queues.get(key).is_some_and(Queue::is_idle) {
            self.delete(key);
        }
    }

    /// Removes a queue and all its pending messages.
    pub fn delete(&mut self, key: QueueKey) {
        let Some(mut queue) = self.queues.remove(key) else { return };
        if queue.deadline_ms != u64::MAX {
            self.effects.push(Effect::Timer(u64::MAX, key));
        }
        self.copies.private -= usize::from(queue.kind == QueueKind::Private);
        self.name_bytes -= queue.name.len();
        self.references -= queue.patterns.len();
        self.drop_waiting(take(&mut queue.pending));
        let hash = self.hasher.hash_one(&*queue.name);
        if !queue.name.is_empty() && planted!("name-outlives-queue") {
            return;
        }
        self.names.remove(hash, |at| at == key);
    }
}
