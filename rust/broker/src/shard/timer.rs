//! Deadlines: one pending entry for whatever has one, looked at again when it comes due.
//!
//! A heart-beat is not re-armed with every byte: its entry fires at the earliest possible deadline, and the shard then
//! sees from the time of the last byte whether there is anything to do.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::ids::ConnKey;
use crate::queue::{QueueKey, SubscriptionKey};

/// No deadline.
pub const NEVER: u64 = u64::MAX;

/// What is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Due {
    /// Something of a connection.
    Conn(ConnKey),
    /// A redelivery, an expiry, the end of an idle queue.
    Queue(QueueKey),
    /// The oldest unacknowledged delivery (`ack_timeout`).
    Subscription(SubscriptionKey),
    /// The stale or retained message that expires first.
    Waiting,
    /// The next text for `/queue/monitor`.
    Monitor,
    /// The next answer to a subscription to diagnostics.
    Diagnostics(SubscriptionKey),
}

/// The deadlines of one shard, in milliseconds since the broker's start.
#[derive(Debug, Default)]
pub struct Timers {
    heap: BinaryHeap<Reverse<(u64, Due)>>,
}

impl Timers {
    /// Adds a deadline.
    pub fn add(&mut self, at_ms: u64, due: Due) {
        self.heap.push(Reverse((at_ms, due)));
    }

    /// Takes the first deadline that has passed.
    pub fn pop_due(&mut self, now_ms: u64) -> Option<(u64, Due)> {
        if self.next_ms()? > now_ms {
            return None;
        }
        self.heap.pop().map(|Reverse(entry)| entry)
    }

    /// When the first deadline comes due.
    #[must_use]
    pub fn next_ms(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse((at_ms, _))| *at_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadlines_come_due_in_order() {
        let key = |index| Due::Conn(ConnKey { index, generation: 0 });
        let mut timers = Timers::default();
        for (at, index) in [(30, 3), (10, 1), (20, 2)] {
            timers.add(at, key(index));
        }
        assert_eq!(timers.next_ms(), Some(10));
        assert_eq!(timers.pop_due(9), None);
        assert_eq!(timers.pop_due(25), Some((10, key(1))));
        assert_eq!(timers.pop_due(25), Some((20, key(2))));
        assert_eq!(timers.pop_due(25), None);
    }
}
