//! Latency end to end, from the moment a message was meant to be sent, so that a late send is counted too.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Latencies above ten minutes are recorded as that.
const HIGHEST_NS: u64 = 600_000_000_000;

/// Collects the latencies of one publisher's messages.
pub struct Latency {
    start: Instant,
    interval: Duration,
    /// When each message was given to the kernel, after `start`.
    written: Vec<Duration>,
    /// Messages before this one are warm-up.
    first: u64,
    from_intended: Histogram<u64>,
    from_write: Histogram<u64>,
}

impl Latency {
    /// Message `n` is meant to leave at `start + (n + 1) * interval`; those before `first` are not recorded.
    pub fn new(start: Instant, interval: Duration, first: u64) -> Latency {
        let histogram = || Histogram::new_with_bounds(1, HIGHEST_NS, 2).expect("bounds and digits are legal");
        Latency {
            start,
            interval,
            written: Vec::new(),
            first,
            from_intended: histogram(),
            from_write: histogram(),
        }
    }

    /// Messages that should have been sent by now.
    pub fn due(&self, now: Instant) -> u64 {
        let elapsed = now.saturating_duration_since(self.start).as_nanos();
        u64::try_from(elapsed / self.interval.as_nanos()).expect("not that long")
    }

    /// The moment at which a message is meant to be sent.
    pub fn intended(&self, sequence: u64) -> Instant {
        self.start + self.interval * u32::try_from(sequence + 1).expect("a run is short")
    }

    /// The next message is being written.
    pub fn writing(&mut self, now: Instant) {
        self.written.push(now.saturating_duration_since(self.start));
    }

    /// Messages `from..to` have arrived on one lane.
    pub fn arrived(&mut self, from: u64, to: u64, now: Instant) {
        let now = now.saturating_duration_since(self.start);
        for sequence in from.max(self.first)..to {
            let index = usize::try_from(sequence).expect("64-bit");
            let intended = self.interval * u32::try_from(sequence + 1).expect("a run is short");
            let nanos =
                |since: Duration| u64::try_from(now.saturating_sub(since).as_nanos()).unwrap_or(u64::MAX);
            self.from_intended.saturating_record(nanos(intended));
            if let Some(&written) = self.written.get(index) {
                self.from_write.saturating_record(nanos(written));
            }
        }
    }

    /// What was recorded.
    pub fn result(&self) -> LatencyResult {
        LatencyResult {
            from_intended: Percentiles::new(&self.from_intended),
            from_write: Percentiles::new(&self.from_write),
        }
    }
}

/// Latencies of one run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LatencyResult {
    /// Since the moment a message was meant to be sent: the figure to quote.
    pub from_intended: Percentiles,
    /// Since it was written: without what the generator itself was late.
    pub from_write: Percentiles,
}

/// Percentiles of a histogram, and the histogram.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Percentiles {
    /// Median, µs.
    pub p50_us: f64,
    /// 99 in 100 were faster, µs.
    pub p99_us: f64,
    /// 999 in 1,000 were faster, µs.
    pub p999_us: f64,
    /// Slowest, µs.
    pub max_us: f64,
    /// How many.
    pub count: u64,
    /// Upper bound in ns and count of each bucket that is not empty; two significant digits.
    pub buckets_ns: Vec<(u64, u64)>,
}

impl Percentiles {
    /// p50, p99, p99.9 and max in µs.
    pub fn figures(&self) -> [f64; 4] {
        [self.p50_us, self.p99_us, self.p999_us, self.max_us]
    }

    fn new(histogram: &Histogram<u64>) -> Percentiles {
        let micros = |nanos: u64| nanos as f64 / 1_000.0;
        let quantile = |quantile| micros(histogram.value_at_quantile(quantile));
        let bucket = |value: hdrhistogram::iterators::IterationValue<u64>| {
            (value.value_iterated_to(), value.count_at_value())
        };
        Percentiles {
            p50_us: quantile(0.5),
            p99_us: quantile(0.99),
            p999_us: quantile(0.999),
            max_us: micros(histogram.max()),
            count: histogram.len(),
            buckets_ns: histogram.iter_recorded().map(bucket).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_send_counts_from_the_intended_moment() {
        let (start, interval) = (Instant::now(), Duration::from_millis(1));
        let mut latency = Latency::new(start, interval, 1);
        latency.writing(start + interval);
        latency.writing(start + interval * 5);
        latency.arrived(0, 2, start + interval * 6);
        let result = latency.result();
        assert_eq!(result.from_intended.count, 1, "message 0 is warm-up");
        assert!((result.from_intended.max_us - 4_000.0).abs() < 50.0);
        assert!((result.from_write.max_us - 1_000.0).abs() < 20.0);
        assert_eq!(latency.due(start + interval * 3), 3);
    }
}
