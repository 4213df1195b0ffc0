//! Places and room in queues that are reserved for transactions.

use super::home::Home;
use super::types::Queue;
use crate::ids::{NO_RECORD, QueueKey};
use crate::message::OwnedMessage;

impl Home {
    /// Reserves room for a transaction in a queue, at places after its messages: no later message is delivered before
    /// [`Home::release`] releases the room. Returns the first place.
    pub fn reserve(&mut self, key: QueueKey, count: u64, bytes: u64) -> u64 {
        let Some(queue) = self.queues.get_mut(key) else { return 0 };
        queue.reserved += count;
        queue.reserved_bytes += bytes;
        let first = queue.next_seq;
        queue.next_seq += count;
        queue.barriers.insert(first);
        first
    }

    /// Gives up the room of one message of a transaction, which is added now and counts itself. Its place stays reserved.
    pub fn fill(&mut self, key: QueueKey, bytes: u64) {
        if let Some(queue) = self.queues.get_mut(key) {
            queue.reserved -= 1.min(queue.reserved);
            queue.reserved_bytes -= bytes.min(queue.reserved_bytes);
        }
    }

    /// Releases the places and the rest of the room that [`Home::reserve`] reserved.
    pub fn release(&mut self, key: QueueKey, first: u64, count: u64, bytes: u64) {
        let Some(queue) = self.queues.get_mut(key) else { return };
        queue.reserved -= count.min(queue.reserved);
        queue.reserved_bytes -= bytes.min(queue.reserved_bytes);
        queue.barriers.remove(&first);
        self.mark_ready(key);
        if self.queues.get(key).is_some_and(Queue::is_idle) {
            self.became_idle(key);
        }
    }

    /// Adds a message of a transaction at its reserved place.
    pub fn enqueue_at(&mut self, key: QueueKey, mut message: OwnedMessage, seq: u64) {
        let Some(queue) = self.queues.get_mut(key) else {
            self.counts.dropped += 1;
            return self.forget(&message);
        };
        if message.is_expired(self.now_ms) {
            return self.expire(key, message);
        }
        message.seq = seq;
        if message.record == NO_RECORD {
            // The asking shard has not written a record of the whole transaction.
            self.store.move_to(&queue.name, queue.kind.survives(), &mut message);
        }
        queue.enqueued += 1;
        self.counts.enqueued += 1;
        self.visited += queue.pending.place(message);
        self.rearm(key);
        self.mark_ready(key);
    }
}
