//! Measures the processor time of turns with few reads of a clock that is expensive to read.

use std::time::Duration;

use crate::door::{Instant, thread_cpu_time};

/// The minimum time between two reads of the thread's clock: each costs a system call, unlike a read of the wall
/// clock.
const READ_EVERY: Duration = Duration::from_millis(1);

/// Estimates the processor time of turns. It differs from their duration when other threads had the processor.
#[derive(Debug, Default)]
pub(crate) struct CpuClock {
    /// The thread's processor time at the last read, and the time of that read.
    read: Option<(Duration, Instant)>,
}

impl CpuClock {
    /// The processor time of a turn that ends now, at most [`READ_EVERY`] too long. Shorter turns may be counted with
    /// the next one.
    pub(crate) fn took(&mut self, began_at: Instant) -> Duration {
        self.took_by(began_at, Instant::now(), thread_cpu_time)
    }

    fn took_by(&mut self, began_at: Instant, now: Instant, cpu_time: impl FnOnce() -> Duration) -> Duration {
        let lasted = now - began_at;
        if self.read.is_some_and(|(_, read_at)| now - read_at < READ_EVERY) {
            return Duration::ZERO;
        }
        let cpu = cpu_time();
        let before = self.read.replace((cpu, now));
        before.map_or(lasted, |(before, _)| (cpu - before).min(lasted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_for_a_processor_does_not_count_as_processor_time() {
        let start = Instant::now();
        let ms = Duration::from_millis;
        let mut clock = CpuClock::default();
        assert_eq!(clock.took_by(start, start + ms(2), || ms(5)), ms(2), "there was no earlier read");
        assert_eq!(clock.took_by(start + ms(2), start + ms(102), || ms(12)), ms(7));
        assert_eq!(
            clock.took_by(start + ms(200), start + ms(203), || ms(42)),
            ms(3),
            "at most the turn's duration"
        );
    }

    #[test]
    fn short_turns_are_counted_together() {
        let start = Instant::now();
        let us = Duration::from_micros;
        let mut clock = CpuClock::default();
        clock.took_by(start, start + us(10), || us(10));
        let unread = || unreachable!("it was read less than a millisecond ago");
        assert_eq!(clock.took_by(start + us(20), start + us(900), unread), Duration::ZERO);
        assert_eq!(clock.took_by(start + us(910), start + us(1100), || us(1000)), us(190));
    }
}
