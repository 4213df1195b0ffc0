//! A repetition over time: what was sent and delivered in each interval.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::Serialize;

/// The time span of an interval of a repetition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Span {
    /// Its start, relative to the start of the repetition, µs.
    pub at_us: u64,
    /// Its length, µs.
    pub duration_us: u64,
}

/// One interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Interval {
    /// The time span of the interval.
    #[serde(flatten)]
    pub span: Span,
    /// Messages sent.
    pub messages: u64,
    /// Messages delivered.
    pub deliveries: u64,
}

/// Collects intervals.
pub struct Series {
    /// Length of an interval.
    pub interval: Duration,
    /// Start of the repetition.
    pub begun: Instant,
    next: Instant,
    last: (u64, u64, u64),
    intervals: Vec<Interval>,
}

impl Series {
    /// Starts at `now`, with this many messages sent and delivered before.
    pub fn new(interval: Duration, now: Instant, messages: u64, deliveries: u64) -> Series {
        let last = (0, messages, deliveries);
        Series { interval, begun: now, next: now + interval, last, intervals: Vec::new() }
    }

    /// Whether an interval is over.
    pub fn is_due(&self, now: Instant) -> bool {
        now >= self.next
    }

    /// Ends the interval; `messages` and `deliveries` are totals since the connections were opened.
    pub fn end_interval(&mut self, now: Instant, messages: u64, deliveries: u64) {
        let at_us = micros(now.saturating_duration_since(self.begun));
        let (begun_us, sent, delivered) = self.last;
        if at_us > begun_us {
            let span = Span { at_us: begun_us, duration_us: at_us - begun_us };
            let (messages, deliveries) = (messages - sent, deliveries - delivered);
            self.intervals.push(Interval { span, messages, deliveries });
        }
        self.last = (at_us, messages, deliveries);
        while self.next <= now {
            self.next += self.interval;
        }
    }

    /// The intervals.
    pub fn result(self) -> Vec<Interval> {
        self.intervals
    }
}

/// Whole microseconds.
pub fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// µs since 1970.
pub fn now_unix_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_have_no_gaps_and_add_up() {
        let (start, ms) = (Instant::now(), Duration::from_millis);
        let mut series = Series::new(ms(10), start, 5, 50);
        assert!(!series.is_due(start + ms(9)) && series.is_due(start + ms(10)));
        series.end_interval(start + ms(12), 7, 70);
        assert!(!series.is_due(start + ms(19)));
        series.end_interval(start + ms(45), 8, 80);
        assert!(!series.is_due(start + ms(49)));
        series.end_interval(start + ms(46), 8, 81);
        let found = series.result();
        assert_eq!(found.iter().map(|one| one.span.at_us).collect::<Vec<_>>(), [0, 12_000, 45_000]);
        assert_eq!(found.iter().map(|one| one.span.duration_us).sum::<u64>(), 46_000);
        assert_eq!(found.iter().map(|one| one.messages).sum::<u64>(), 3);
        assert_eq!(found.iter().map(|one| one.deliveries).sum::<u64>(), 31);
    }
}
