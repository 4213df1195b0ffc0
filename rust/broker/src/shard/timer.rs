//! Deadlines: one entry for whatever has one, so that there are never more of them than of what they are for.
//!
//! A heart-beat is not re-armed with every byte: its entry fires at the earliest possible deadline, and the shard then
//! sees from the time of the last byte whether there is anything to do.

use std::collections::BTreeSet;

use crate::ids::ConnKey;
use crate::queue::{QueueKey, SubscriptionKey};
use crate::spread::{Map, give_back};

/// No deadline.
pub const NEVER: u64 = u64::MAX;

/// The poll counts in 32 bits, so a later deadline is waited for in steps.
pub const POLL_MAX_MS: u64 = 3_600_000;

/// What an entry occupies in the sorted set, about: its nodes are half full, since most deadlines come in their order.
const SORTED_BYTES: usize = size_of::<(u64, Due)>() * 5 / 2;

/// What is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
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
    sorted: BTreeSet<(u64, Due)>,
    /// The entry of each; `sorted` has no others.
    times: Map<Due, u64>,
}

impl Timers {
    /// Sets the deadline, in place of the one there was; [`NEVER`] is none.
    pub fn set(&mut self, at_ms: u64, due: Due) {
        let before = if at_ms == NEVER { self.times.remove(&due) } else { self.times.insert(due, at_ms) };
        if before == Some(at_ms) {
            return;
        }
        if let Some(before_ms) = before {
            self.sorted.remove(&(before_ms, due));
        }
        if at_ms != NEVER {
            self.sorted.insert((at_ms, due));
        }
        give_back(&mut self.times);
    }

    /// What it was for is gone, or nothing is due any more.
    pub fn cancel(&mut self, due: Due) {
        if !self.times.is_empty() {
            self.set(NEVER, due);
        }
    }

    /// Takes the first deadline that has passed.
    pub fn pop_due(&mut self, now_ms: u64) -> Option<(u64, Due)> {
        if self.next_ms()? > now_ms {
            return None;
        }
        let (at_ms, due) = self.sorted.pop_first()?;
        self.times.remove(&due);
        give_back(&mut self.times);
        Some((at_ms, due))
    }

    /// When the first deadline comes due.
    #[must_use]
    pub fn next_ms(&self) -> Option<u64> {
        self.sorted.first().map(|(at_ms, _)| *at_ms)
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.times.len()
    }

    /// Bytes they occupy, about.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        SORTED_BYTES * self.sorted.len() + (size_of::<(Due, u64)>() + 1) * self.times.capacity() * 8 / 7
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conn(index: u32) -> Due {
        Due::Conn(ConnKey { index, generation: 0 })
    }

    #[test]
    fn deadlines_come_due_in_order() {
        let mut timers = Timers::default();
        for (at, index) in [(30, 3), (10, 1), (20, 2)] {
            timers.set(at, conn(index));
        }
        assert_eq!(timers.next_ms(), Some(10));
        assert_eq!(timers.pop_due(9), None);
        assert_eq!(timers.pop_due(25), Some((10, conn(1))));
        assert_eq!(timers.pop_due(25), Some((20, conn(2))));
        assert_eq!(timers.pop_due(25), None);
    }

    #[test]
    fn whatever_has_a_deadline_has_one_entry() {
        let mut timers = Timers::default();
        for at_ms in (1000..2000).rev() {
            timers.set(at_ms, conn(1));
        }
        timers.set(5000, conn(2));
        assert_eq!((timers.len(), timers.sorted.len(), timers.next_ms()), (2, 2, Some(1000)));
        timers.set(3000, conn(1));
        assert_eq!((timers.len(), timers.next_ms(), timers.pop_due(2999)), (2, Some(3000), None));
    }

    #[test]
    fn one_that_is_cancelled_or_never_due_leaves_nothing_behind() {
        let mut timers = Timers::default();
        (0..10_000).for_each(|index| timers.set(u64::from(index), conn(index)));
        timers.set(NEVER, conn(10_000));
        (0..10_000).for_each(|index| timers.cancel(conn(index)));
        timers.cancel(conn(10_000));
        assert_eq!((timers.len(), timers.next_ms(), timers.pop_due(NEVER)), (0, None, None));
        assert!(timers.held_bytes() < 64 << 10, "{} bytes", timers.held_bytes());
    }
}
