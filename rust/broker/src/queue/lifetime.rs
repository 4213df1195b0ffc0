//! What happens to queues as time goes by: delays end, messages expire, idle queues go.

use std::hash::BuildHasher as _;
use std::mem::take;

use super::QueueKind;
use super::home::Home;
use super::types::{Effect, Queue};
use crate::collections::keyed::Keyed;
use crate::ids::QueueKey;

/// Messages of one queue whose time has come that are dealt with at once; the others follow at once, in their turn.
const AT_ONCE: usize = 256;

impl Home {
    /// The queues of all kinds, by slots.
    #[must_use]
    pub fn table(&self) -> &Keyed<Queue> {
        &self.queues
    }

    /// What is due at this time for one queue: delays that end, messages that expire, an idle queue that goes.
    pub fn meet(&mut self, key: QueueKey) {
        let Some(queue) = self.queues.get_mut(key) else { return };
        if queue.deadline_ms > self.now_ms {
            return; // another timer was there before; were this one renewed too, they would pile up
        }
        queue.deadline_ms = u64::MAX;
        let was_idle = queue.is_idle();
        let mut expired = Vec::new();
        self.visited += queue.pending.advance(self.now_ms, AT_ONCE, &mut expired);
        for stored in expired {
            self.expire(key, stored);
        }
        self.release_unmatched(key);
        self.touch(key);
        self.return_reclaimed();
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
            // It may stay so: a hundred thousand queues that were used once are no rarity.
            queue.pending.shrink();
            queue.ready.shrink_to_fit();
        }
        self.rearm(key);
    }

    /// When an idle queue goes; only kinds that come back by themselves do.
    fn expires_idle(&self, queue: &Queue) -> u64 {
        match queue.kind {
            QueueKind::Work | QueueKind::Worker => queue.idle_since_ms.saturating_add(self.rules.idle_ms),
            _ => u64::MAX,
        }
    }

    /// Puts a queue's next deadline into the timers, unless an earlier one is there.
    pub(super) fn rearm(&mut self, key: QueueKey) {
        let Some(queue) = self.queues.get(key) else { return };
        let idle = if queue.is_idle() { self.expires_idle(queue) } else { u64::MAX };
        // What is overdue here queues up behind what is overdue elsewhere.
        let next_ms = queue.pending.next_ms().unwrap_or(u64::MAX).min(idle).max(self.now_ms);
        if let Some(queue) = self.queues.get_mut(key)
            && next_ms < queue.deadline_ms
        {
            queue.deadline_ms = next_ms;
            self.effects.push(Effect::Timer(next_ms, key));
        }
    }

    /// Removes a queue that holds nothing and has no consumer of its own.
    pub fn delete_unused(&mut self, key: QueueKey) {
        if self.queues.get(key).is_some_and(Queue::is_idle) {
            self.delete(key);
        }
    }

    /// Removes a queue and all that waits in it.
    pub fn delete(&mut self, key: QueueKey) {
        let Some(mut queue) = self.queues.remove(key) else { return };
        if queue.deadline_ms != u64::MAX {
            self.effects.push(Effect::Timer(u64::MAX, key));
        }
        self.name_bytes -= queue.name.len();
        self.references -= queue.patterns.len();
        self.drop_waiting(take(&mut queue.pending));
        let hash = self.hasher.hash_one(&*queue.name);
        self.names.remove(hash, |at| at == key);
    }
}
