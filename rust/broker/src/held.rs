//! The bytes of messages at rest, names and other values that count themselves, as a sum for each thread.
//!
//! A value may be dropped on another thread than the one that created it, so only the sum over all threads is the
//! memory held; a shard adds the difference to the broker's total once per turn.

use std::cell::Cell;

use crate::door::sync::per_thread;

per_thread! {
    static HELD: Cell<i64> = const { Cell::new(0) };
}
per_thread! {
    static OWED: Cell<i64> = const { Cell::new(0) };
}

/// Bytes that were added on this thread minus those removed on it.
#[must_use]
#[inline]
pub fn bytes() -> i64 {
    HELD.with(Cell::get)
}

/// Adds bytes to the sum of this thread; a negative number removes them.
#[inline]
pub fn add(bytes: i64) {
    HELD.with(|held| held.set(held.get() + bytes));
}

/// The bytes of messages that wait in private queues of subscriptions, or for their ACKs: those that began to wait on this
/// thread minus those that ended. A message that several of them share counts once, for all threads together.
#[must_use]
#[inline]
pub fn owed() -> i64 {
    OWED.with(Cell::get)
}

/// Adds to these bytes; a negative number removes them.
#[inline]
pub fn add_owed(bytes: i64) {
    OWED.with(|owed| owed.set(owed.get() + bytes));
}

/// The sums of one thread.
#[cfg(any(test, feature = "simulation", simulated))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// See [`bytes`].
    pub held: i64,
    /// See [`owed`].
    pub owed: i64,
}

/// Replaces the sums of this thread, to simulate another thread; returns the previous ones.
#[cfg(any(test, feature = "simulation", simulated))]
pub fn swap(sums: Sums) -> Sums {
    Sums { held: HELD.with(|held| held.replace(sums.held)), owed: OWED.with(|owed| owed.replace(sums.owed)) }
}
