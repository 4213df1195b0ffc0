//! The broker's clock: milliseconds since its start, the same on all shards. A shard reads it once per turn.
//!
//! It can be set ahead of the system's clocks, by which a test of a client lets hours pass at once.

use std::time::Duration;

use crate::door::Instant;
use crate::door::sync::{AtomicU64, Ordering};

/// The maximum by which the clock can be ahead, about a thousand years: sums with times never overflow.
const AHEAD_MS_MAX: u64 = 1 << 45;

/// A monotonic clock.
#[derive(Debug)]
pub struct Clock {
    started: Instant,
    /// How far it is ahead of the system's clocks.
    ahead_ms: AtomicU64,
}

impl Clock {
    /// A clock that starts now.
    #[must_use]
    pub fn start() -> Self {
        Clock { started: Instant::now(), ahead_ms: AtomicU64::new(0) }
    }

    /// Milliseconds by which it is ahead of the system's clocks. A shard reads them once per turn, so that all times of
    /// a turn agree.
    #[must_use]
    pub fn ahead_ms(&self) -> u64 {
        self.ahead_ms.load(Ordering::Relaxed)
    }

    /// Milliseconds from the start to an instant of a turn.
    #[must_use]
    pub fn ms_at(&self, at: Instant, ahead_ms: u64) -> u64 {
        let ms = u64::try_from(at.saturating_duration_since(self.started).as_millis()).unwrap_or(u64::MAX);
        ms.saturating_add(ahead_ms)
    }

    /// Sets it ahead by some time more. It does not wake a thread that sleeps until a deadline.
    pub fn advance(&self, time: Duration) {
        let ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let add = |ahead_ms: u64| Some(ahead_ms.saturating_add(ms).min(AHEAD_MS_MAX));
        _ = self.ahead_ms.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_ahead_by_the_sum_of_all_advances_up_to_a_limit() {
        let clock = Clock::start();
        let at = clock.started + Duration::from_millis(7);
        assert_eq!((clock.ahead_ms(), clock.ms_at(at, clock.ahead_ms())), (0, 7));
        [2, 3].into_iter().for_each(|seconds| clock.advance(Duration::from_secs(seconds)));
        assert_eq!(clock.ms_at(at, clock.ahead_ms()), 5007);
        [Duration::MAX; 2].into_iter().for_each(|time| clock.advance(time));
        assert_eq!(clock.ahead_ms(), AHEAD_MS_MAX);
    }
}
