//! How long a turn kept the processor busy, for hardly any look at a clock that is dear to read.

use std::time::{Duration, Instant};

/// The thread's clock is read at most so often: it costs a system call, unlike the time of day.
const READ_EVERY: Duration = Duration::from_millis(1);

/// Processor time of this thread; zero where the system does not tell.
pub(crate) fn cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid, writable `timespec` for the whole call; clock_gettime keeps no pointer.
    if unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) } != 0 {
        return Duration::ZERO;
    }
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Tells the processor time of turns; others may have had the processor meanwhile.
#[derive(Debug, Default)]
pub(crate) struct CpuClock {
    /// The thread's processor time when it was read last, and when that was.
    read: Option<(Duration, Instant)>,
}

impl CpuClock {
    /// The processor time of a turn that ends now, at most [`READ_EVERY`] too much; that of some of the turns that
    /// were shorter is told with the next one.
    pub(crate) fn took(&mut self, began_at: Instant) -> Duration {
        self.took_by(began_at, Instant::now(), cpu_time)
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
    fn a_turn_that_had_to_wait_for_a_processor_took_only_what_it_had() {
        let start = Instant::now();
        let ms = Duration::from_millis;
        let mut clock = CpuClock::default();
        assert_eq!(
            clock.took_by(start, start + ms(2), || ms(5)),
            ms(2),
            "there is nothing to compare it with"
        );
        assert_eq!(clock.took_by(start + ms(2), start + ms(102), || ms(12)), ms(7));
        assert_eq!(
            clock.took_by(start + ms(200), start + ms(203), || ms(42)),
            ms(3),
            "never longer than it lasted"
        );
    }

    #[test]
    fn short_turns_are_told_of_together() {
        let start = Instant::now();
        let us = Duration::from_micros;
        let mut clock = CpuClock::default();
        clock.took_by(start, start + us(10), || us(10));
        let unread = || unreachable!("it was read less than a millisecond ago");
        assert_eq!(clock.took_by(start + us(20), start + us(900), unread), Duration::ZERO);
        assert_eq!(clock.took_by(start + us(910), start + us(1100), || us(1000)), us(190));
    }

    #[test]
    fn the_thread_s_own_clock_goes_on() {
        let before = cpu_time();
        while cpu_time() == before {
            std::hint::spin_loop();
        }
    }
}
