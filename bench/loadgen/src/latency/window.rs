//! Latency under a window: from the write of a message's batch to its delivery.
//!
//! A publisher under a window writes batches. Each batch has one time stamp, and so has everything that one read of a
//! connection brings: the generator reads the clock twice for hundreds of messages. The loop is closed: the publisher waits for its
//! slowest subscription, so the latency includes the queueing that the window allows.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::Serialize;

use super::{HIGHEST_NS, Percentiles, buckets};
use crate::series::{Span, micros};

/// Batches kept for each publisher. A window holds about ten, since each is at least an eighth of it.
const BATCHES_MAX: usize = 1_024;

/// The messages from the end of the batch before up to `end` were written at `at`.
#[derive(Debug, Clone, Copy)]
struct Batch {
    end: u64,
    at: Instant,
}

/// Collects the latencies of all publishers' messages, in whole µs.
pub struct WindowLatency {
    batches: Vec<VecDeque<Batch>>,
    begun: Instant,
    /// Length of the intervals, if they are recorded.
    interval: Option<Duration>,
    /// Index of the interval that `current` belongs to.
    index: u64,
    current: Histogram<u64>,
    whole: Histogram<u64>,
    intervals: Vec<WindowInterval>,
}

impl WindowLatency {
    /// Starts at `begun`, when everything sent before is delivered.
    pub fn new(publishers: usize, begun: Instant, interval: Option<Duration>) -> WindowLatency {
        let histogram =
            || Histogram::new_with_bounds(1, HIGHEST_NS / 1_000, 2).expect("bounds and digits are legal");
        WindowLatency {
            batches: vec![VecDeque::new(); publishers],
            begun,
            interval,
            index: 0,
            current: histogram(),
            whole: histogram(),
            intervals: Vec::new(),
        }
    }

    /// A publisher starts to write its messages up to `end`.
    pub fn writing(&mut self, publisher: usize, end: u64, at: Instant) {
        let batches = &mut self.batches[publisher];
        if batches.len() == BATCHES_MAX {
            batches.pop_front();
        }
        batches.push_back(Batch { end, at });
    }

    /// Messages `from..to` of a publisher have arrived on this many subscriptions.
    #[inline]
    pub fn arrived(&mut self, publisher: usize, from: u64, to: u64, subscriptions: u64, now: Instant) {
        self.go_on_to(now);
        let batches = &self.batches[publisher];
        let mut from = from;
        let first = batches.partition_point(|batch| batch.end <= from);
        for &Batch { end, at } in batches.range(first..) {
            if from >= to {
                break;
            }
            let count = (end.min(to) - from) * subscriptions;
            self.current.saturating_record_n(micros(now.saturating_duration_since(at)), count);
            from = end;
        }
    }

    /// Ends the interval if `now` is in a later one.
    #[inline]
    fn go_on_to(&mut self, now: Instant) {
        let Some(interval) = self.interval else { return };
        let since = now.saturating_duration_since(self.begun);
        if since >= interval * u32::try_from(self.index + 1).expect("a run is short") {
            self.end_interval();
            self.index = u64::try_from(since.as_nanos() / interval.as_nanos()).expect("a run is short");
        }
    }

    fn end_interval(&mut self) {
        if let Some(interval) = self.interval.filter(|_| !self.current.is_empty()) {
            let duration_us = micros(interval);
            let window_us = buckets(&self.current);
            let span = Span { at_us: self.index * duration_us, duration_us };
            self.intervals.push(WindowInterval { span, window_us });
        }
        self.whole.add(&self.current).expect("both have the same bounds");
        self.current.reset();
    }

    /// The recorded latencies.
    pub fn result(mut self) -> WindowResult {
        self.end_interval();
        let asked = self.interval.is_some();
        WindowResult {
            from_batch: Percentiles::new(&self.whole, 1_000),
            intervals: asked.then_some(self.intervals),
        }
    }
}

/// Latencies of the deliveries of one interval: upper bound in µs and count of each bucket that is not empty.
#[derive(Debug, Clone, Serialize)]
pub struct WindowInterval {
    /// The time span of the interval.
    #[serde(flatten)]
    pub span: Span,
    /// From the start of writing a message's batch, rounded down.
    pub window_us: Vec<(u64, u64)>,
}

/// Latencies of one repetition under a window.
#[derive(Debug, Clone, Serialize)]
pub struct WindowResult {
    /// From the start of writing a message's batch; includes queueing in the window.
    pub from_batch: Percentiles,
    /// The same over time, if requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub intervals: Option<Vec<WindowInterval>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_message_counts_from_the_write_of_its_batch() {
        let start = Instant::now();
        let mut latency = WindowLatency::new(2, start, None);
        latency.writing(1, 100, start);
        latency.writing(1, 150, start + MS * 3);
        // Three subscriptions got 120 messages, up to a place within the second batch; a fourth got 20.
        latency.arrived(1, 0, 120, 3, start + MS * 4);
        latency.arrived(1, 0, 20, 1, start + MS * 4);
        let result = latency.result().from_batch;
        assert_eq!(result.count, 380);
        let counts: Vec<(u64, u64)> = result.buckets_ns.clone();
        assert_eq!(counts.len(), 2);
        assert_eq!(counts[0].1, 60, "20 messages of the second batch on three subscriptions");
        assert!((1_000_000..1_010_000).contains(&counts[0].0), "1 ms behind their write");
        assert_eq!(counts[1].1, 320);
        assert!((4_000_000..4_040_000).contains(&counts[1].0), "4 ms behind their write");
    }

    #[test]
    fn intervals_add_up_to_the_whole() {
        let start = Instant::now();
        let mut latency = WindowLatency::new(1, start, Some(MS * 10));
        for message in 0..30_u32 {
            let at = start + MS * message;
            latency.writing(0, u64::from(message) + 1, at);
            let number = u64::from(message);
            latency.arrived(0, number, number + 1, 1, at + Duration::from_micros(200));
        }
        let result = latency.result();
        let intervals = result.intervals.expect("asked for");
        assert_eq!(intervals.iter().map(|one| one.span.at_us).collect::<Vec<_>>(), [0, 10_000, 20_000]);
        assert!(intervals.iter().all(|one| one.window_us == [(200, 10)]));
        assert_eq!(result.from_batch.count, 30);
    }

    #[test]
    fn old_batches_are_dropped() {
        let start = Instant::now();
        let mut latency = WindowLatency::new(1, start, None);
        let written = BATCHES_MAX as u64 + 5;
        for end in 1..=written {
            latency.writing(0, end, start);
        }
        assert_eq!(latency.batches[0].len(), BATCHES_MAX);
        latency.arrived(0, written - 1, written, 1, start + MS);
        assert_eq!(latency.result().from_batch.count, 1);
    }
}
