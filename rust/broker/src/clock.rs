//! The broker's clock: milliseconds since its start, the same on all shards. A shard reads it once per turn.

#[cfg(any(test, feature = "simulation"))]
use std::sync::atomic::{AtomicU64, Ordering};

use crate::door::Instant;

/// A monotonic clock.
#[derive(Debug)]
pub struct Clock {
    started: Instant,
    /// Time that a test has skipped.
    #[cfg(any(test, feature = "simulation"))]
    skipped_ms: AtomicU64,
}

impl Clock {
    /// A clock that starts now.
    #[must_use]
    pub fn start() -> Self {
        Clock {
            started: Instant::now(),
            #[cfg(any(test, feature = "simulation"))]
            skipped_ms: AtomicU64::new(0),
        }
    }

    /// Milliseconds from the start to an instant.
    #[must_use]
    pub fn ms_at(&self, at: Instant) -> u64 {
        let ms = u64::try_from(at.saturating_duration_since(self.started).as_millis()).unwrap_or(u64::MAX);
        #[cfg(any(test, feature = "simulation"))]
        let ms = ms + self.skipped_ms.load(Ordering::Relaxed);
        ms
    }

    /// Advances the clock at once. It does not wake a thread that sleeps until a deadline.
    #[cfg(any(test, feature = "simulation"))]
    pub fn skip(&self, ms: u64) {
        self.skipped_ms.fetch_add(ms, Ordering::Relaxed);
    }
}
