//! End-to-end latency from the intended time of sending, so that a late send counts as well.

mod window;

use std::path::Path;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::series::{Series, Span, micros};

pub use window::{WindowLatency, WindowResult};

/// Latencies above ten minutes count as ten minutes.
const HIGHEST_NS: u64 = 600_000_000_000;

/// Collects the latencies of one publisher's messages.
pub struct Latency {
    start: Instant,
    interval: Duration,
    /// The time at which each message was written, relative to `start`.
    written: Vec<Duration>,
    /// Messages before this one are warm-up.
    first: u64,
    from_intended: Histogram<u64>,
    from_write: Histogram<u64>,
    over_time: Option<OverTime>,
    samples: Option<Vec<(u64, u32)>>,
}

/// Latencies in µs, interval by interval.
struct OverTime {
    begun: Instant,
    interval: Duration,
    intervals: Vec<[Histogram<u64>; 2]>,
}

impl OverTime {
    /// The histograms of the interval that contains `now`, and µs since the first interval began.
    fn at(&mut self, now: Instant) -> (&mut [Histogram<u64>; 2], u64) {
        let since = now.saturating_duration_since(self.begun);
        let index = usize::try_from(since.as_nanos() / self.interval.as_nanos()).expect("a run is short");
        // Two digits of whole µs: below 256 µs each value has its own bucket.
        let empty =
            || Histogram::new_with_bounds(1, HIGHEST_NS / 1_000, 2).expect("bounds and digits are legal");
        while self.intervals.len() <= index {
            self.intervals.push([empty(), empty()]);
        }
        (&mut self.intervals[index], micros(since))
    }

    fn result(&self) -> Vec<LatencyInterval> {
        let duration_us = micros(self.interval);
        let one = |(number, [intended, write]): (usize, &[Histogram<u64>; 2])| LatencyInterval {
            span: Span { at_us: number as u64 * duration_us, duration_us },
            intended_us: buckets(intended),
            write_us: buckets(write),
        };
        self.intervals.iter().enumerate().map(one).filter(|one| !one.intended_us.is_empty()).collect()
    }
}

/// Upper bound and count of each bucket that is not empty.
fn buckets(histogram: &Histogram<u64>) -> Vec<(u64, u64)> {
    let bucket = |value: hdrhistogram::iterators::IterationValue<u64>| {
        (value.value_iterated_to(), value.count_at_value())
    };
    histogram.iter_recorded().map(bucket).collect()
}

impl Latency {
    /// Message `n` is to be sent at `start + (n + 1) * interval`; messages before `first` are not recorded.
    pub fn new(start: Instant, interval: Duration, first: u64) -> Latency {
        let histogram = || Histogram::new_with_bounds(1, HIGHEST_NS, 2).expect("bounds and digits are legal");
        Latency {
            start,
            interval,
            written: Vec::new(),
            first,
            from_intended: histogram(),
            from_write: histogram(),
            over_time: None,
            samples: None,
        }
    }

    /// Also records a histogram for each interval of `series`, and with `samples` every single latency.
    pub fn over_time(mut self, series: Option<&Series>, samples: bool) -> Latency {
        self.over_time = series.map(|series| OverTime {
            begun: series.begun,
            interval: series.interval,
            intervals: Vec::new(),
        });
        self.samples = samples.then(Vec::new);
        self
    }

    /// Messages that should have been sent by now.
    pub fn due(&self, now: Instant) -> u64 {
        let elapsed = now.saturating_duration_since(self.start).as_nanos();
        u64::try_from(elapsed / self.interval.as_nanos()).expect("a run is short")
    }

    /// The intended time of sending a message.
    pub fn intended(&self, sequence: u64) -> Instant {
        self.start + self.interval * u32::try_from(sequence + 1).expect("a run is short")
    }

    /// The next message is written now.
    pub fn writing(&mut self, now: Instant) {
        self.written.push(now.saturating_duration_since(self.start));
    }

    /// Messages `from..to` have arrived on one subscription.
    pub fn arrived(&mut self, from: u64, to: u64, now: Instant) {
        let mut over_time = self.over_time.as_mut().map(|over_time| over_time.at(now));
        let now = now.saturating_duration_since(self.start);
        for sequence in from.max(self.first)..to {
            let index = usize::try_from(sequence).expect("64-bit");
            let intended = self.interval * u32::try_from(sequence + 1).expect("a run is short");
            let nanos =
                |since: Duration| u64::try_from(now.saturating_sub(since).as_nanos()).unwrap_or(u64::MAX);
            self.from_intended.saturating_record(nanos(intended));
            if let Some((histograms, at_us)) = &mut over_time {
                histograms[0].saturating_record(nanos(intended) / 1_000);
                if let Some(samples) = &mut self.samples {
                    let latency_us = u32::try_from(nanos(intended) / 1_000).unwrap_or(u32::MAX);
                    samples.push((*at_us, latency_us.min(u32::MAX >> 1)));
                }
            }
            if let Some(&written) = self.written.get(index) {
                self.from_write.saturating_record(nanos(written));
                if let Some((histograms, _)) = &mut over_time {
                    histograms[1].saturating_record(nanos(written) / 1_000);
                }
            }
        }
    }

    /// The recorded latencies.
    pub fn result(&self) -> LatencyResult {
        LatencyResult {
            from_intended: Percentiles::new(&self.from_intended, 1),
            from_write: Percentiles::new(&self.from_write, 1),
            intervals: self.over_time.as_ref().map(OverTime::result),
        }
    }

    /// Writes the single latencies: their number (8 octets), times in µs since the start of the repetition (8 octets
    /// each), latencies in µs (4 octets each); little-endian.
    pub fn write_samples(&self, path: &Path) -> std::io::Result<()> {
        let samples = self.samples.as_deref().unwrap_or_default();
        let mut bytes = (samples.len() as u64).to_le_bytes().to_vec();
        bytes.extend(samples.iter().flat_map(|sample| sample.0.to_le_bytes()));
        bytes.extend(samples.iter().flat_map(|sample| sample.1.to_le_bytes()));
        std::fs::write(path, bytes)
    }
}

/// Latencies of one repetition.
#[derive(Debug, Clone, Serialize)]
pub struct LatencyResult {
    /// From the intended time of sending: the figure to quote.
    pub from_intended: Percentiles,
    /// From the write: without the generator's own delay.
    pub from_write: Percentiles,
    /// Both over time, if requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub intervals: Option<Vec<LatencyInterval>>,
}

/// Latencies of the deliveries of one interval: upper bound in µs and count of each bucket that is not empty.
#[derive(Debug, Clone, Serialize)]
pub struct LatencyInterval {
    /// The time span of the interval.
    #[serde(flatten)]
    pub span: Span,
    /// From the intended time of sending, rounded down.
    pub intended_us: Vec<(u64, u64)>,
    /// From the write, rounded down.
    pub write_us: Vec<(u64, u64)>,
}

/// Percentiles of a histogram, and the histogram.
#[derive(Debug, Clone, Serialize)]
pub struct Percentiles {
    /// Median, µs.
    pub p50_us: f64,
    /// 99 in 100 were faster, µs.
    pub p99_us: f64,
    /// 999 in 1,000 were faster, µs.
    pub p999_us: f64,
    /// Slowest, µs.
    pub max_us: f64,
    /// Number of latencies.
    pub count: u64,
    /// Upper bound in ns and count of each bucket that is not empty; two significant digits.
    pub buckets_ns: Vec<(u64, u64)>,
}

impl Percentiles {
    /// From a histogram whose values have this unit and are rounded down.
    fn new(histogram: &Histogram<u64>, unit_ns: u64) -> Percentiles {
        let micros = |value: u64| (value * unit_ns) as f64 / 1_000.0;
        let quantile = |quantile| micros(histogram.value_at_quantile(quantile));
        let buckets = buckets(histogram).into_iter();
        Percentiles {
            p50_us: quantile(0.5),
            p99_us: quantile(0.99),
            p999_us: quantile(0.999),
            max_us: micros(histogram.max()),
            count: histogram.len(),
            buckets_ns: buckets.map(|(high, count)| ((high + 1) * unit_ns - 1, count)).collect(),
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

    #[test]
    fn intervals_and_samples_add_up_to_the_whole() {
        let (start, interval) = (Instant::now(), Duration::from_millis(1));
        let series = Series::new(Duration::from_millis(10), start, 0, 0);
        let mut latency = Latency::new(start, interval, 0).over_time(Some(&series), true);
        for sequence in 0..30 {
            latency.writing(start + interval * (sequence + 1));
            let sequence = u64::from(sequence);
            latency.arrived(sequence, sequence + 1, latency.intended(sequence) + Duration::from_micros(200));
        }
        let intervals = latency.result().intervals.expect("asked for");
        assert_eq!(
            intervals.iter().map(|one| one.span.at_us).collect::<Vec<_>>(),
            [0, 10_000, 20_000, 30_000]
        );
        let counted = intervals.iter().flat_map(|one| &one.intended_us);
        assert!(counted.clone().all(|bucket| bucket.0 == 200));
        assert_eq!(counted.map(|bucket| bucket.1).sum::<u64>(), 30);
        let path = std::env::temp_dir().join(format!("stompica-samples-{}", std::process::id()));
        latency.write_samples(&path).expect("the temporary folder can be written");
        let bytes = std::fs::read(&path).expect("it was written");
        let _ = std::fs::remove_file(&path);
        assert_eq!(bytes.len(), 8 + 30 * 12);
        assert_eq!(bytes[bytes.len() - 4..], 200_u32.to_le_bytes());
    }
}
