//! The bytes of messages at rest, names and other values that count themselves, as a sum for each thread.
//!
//! A value may be dropped on another thread than the one that created it, so only the sum over all threads is the
//! memory held; a shard adds the difference to the broker's total once per turn.

use std::cell::Cell;

use crate::door::sync::per_thread;

per_thread! {
    static HELD: Cell<i64> = const { Cell::new(0) };
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

/// Replaces the sum of this thread, to simulate another thread; returns the previous sum.
#[cfg(any(test, feature = "simulation", simulated))]
pub fn swap(bytes: i64) -> i64 {
    HELD.with(|held| held.replace(bytes))
}
