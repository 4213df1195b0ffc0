//! Profiling: time spent in each stage, as histograms of one shard, on request (query `benchmark`).
//!
//! When profiling is off, a stage costs one branch per read, flush or turn, no clock access, and nothing per message. A
//! query enables profiling for [`ENABLED_MS`].

use crate::door::Instant;

/// How long profiling stays enabled after a query.
pub const ENABLED_MS: u64 = 60_000;

/// A stage of processing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// One read from a socket.
    Read,
    /// Finding the frames of one read.
    Parse,
    /// Handling of one frame without encoding: session, receivers, queues.
    Route,
    /// Encoding one message into the outboxes of this shard; for queues, all deliveries of one turn.
    Encode,
    /// One write to a socket.
    Write,
    /// One turn of the loop, without waiting in the poll.
    Turn,
}

impl Stage {
    /// All stages, in the order in which a message passes them.
    pub const ALL: [Stage; 6] =
        [Stage::Read, Stage::Parse, Stage::Route, Stage::Encode, Stage::Write, Stage::Turn];

    /// Its name in the answer.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Stage::Read => "read",
            Stage::Parse => "parse",
            Stage::Route => "route",
            Stage::Encode => "encode",
            Stage::Write => "write",
            Stage::Turn => "turn",
        }
    }
}

/// Buckets per power of two: the width of a bucket is at most 1/16 of its value.
const SUB: u64 = 16;
/// Values from here on are in the last bucket: 2^36 ns, 69 s.
const VALUE_MAX: u64 = 1 << 36;
const BUCKETS: usize = (SUB * 33) as usize;

/// A histogram of times in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    /// The number of values.
    pub count: u64,
    /// Their sum.
    pub total_ns: u64,
    counts: Vec<u64>,
}

fn bucket_of(value: u64) -> usize {
    let value = value.min(VALUE_MAX - 1);
    if value < SUB {
        return value as usize;
    }
    // The four bits after the leading one select among the buckets of its power of two.
    let shift = 59 - u64::from(value.leading_zeros());
    (shift * SUB + (value >> shift)) as usize
}

/// The lowest value of a bucket.
fn low_of(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < SUB {
        return bucket;
    }
    let shift = bucket / SUB - 1;
    (SUB + bucket % SUB) << shift
}

impl Histogram {
    /// Adds a value.
    pub fn add(&mut self, value_ns: u64) {
        if self.counts.is_empty() {
            self.counts = vec![0; BUCKETS];
        }
        self.count += 1;
        self.total_ns = self.total_ns.saturating_add(value_ns);
        self.counts[bucket_of(value_ns)] += 1;
    }

    /// Adds the values of another histogram.
    pub fn merge(&mut self, other: &Histogram) {
        if self.counts.is_empty() {
            self.counts.clone_from(&other.counts);
        } else {
            for (sum, count) in self.counts.iter_mut().zip(&other.counts) {
                *sum += count;
            }
        }
        self.count += other.count;
        self.total_ns = self.total_ns.saturating_add(other.total_ns);
    }

    /// The non-empty buckets: lowest value, lowest value of the next bucket, count.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64, u64)> {
        let used = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        used.map(|(bucket, count)| (low_of(bucket), low_of(bucket + 1), *count))
    }
}

/// The histograms of one shard. They are kept when profiling ends, and count from the broker's start.
#[derive(Debug, Default)]
pub struct Stages {
    on: bool,
    until_ms: u64,
    histograms: [Histogram; 6],
    /// Time spent in handling frames, and within that in encoding; subtracted from the enclosing stages.
    handled_ns: u64,
    encoded_ns: u64,
}

/// The start of a stage, and the time that its nested stages had taken before.
#[derive(Clone, Copy, Debug)]
pub struct Began {
    at: Instant,
    within_ns: u64,
}

impl Stages {
    /// Whether profiling is active.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.on
    }

    /// Enables profiling for [`ENABLED_MS`].
    pub fn switch_on(&mut self, now_ms: u64) {
        self.on = true;
        self.until_ms = now_ms.saturating_add(ENABLED_MS);
    }

    /// How much longer profiling stays enabled.
    #[must_use]
    pub fn left_ms(&self, now_ms: u64) -> u64 {
        if self.on { self.until_ms.saturating_sub(now_ms) } else { 0 }
    }

    /// Disables profiling when its time is over; returns whether it did.
    pub fn expire(&mut self, now_ms: u64) -> bool {
        let over = self.on && now_ms >= self.until_ms;
        self.on &= !over;
        over
    }

    /// The histogram of one stage.
    #[must_use]
    pub fn histogram(&self, stage: Stage) -> &Histogram {
        &self.histograms[stage as usize]
    }

    /// Starts a stage; `None` while profiling is off.
    #[must_use]
    #[inline]
    pub fn begin(&self, stage: Stage) -> Option<Began> {
        if self.on { Some(self.begin_now(stage)) } else { None }
    }

    #[cold]
    fn begin_now(&self, stage: Stage) -> Began {
        Began { at: Instant::now(), within_ns: self.within_ns(stage) }
    }

    fn within_ns(&self, stage: Stage) -> u64 {
        match stage {
            Stage::Parse => self.handled_ns,
            Stage::Route => self.encoded_ns,
            Stage::Read | Stage::Encode | Stage::Write | Stage::Turn => 0,
        }
    }

    /// Ends a stage.
    #[inline]
    pub fn end(&mut self, stage: Stage, began: Option<Began>) {
        if let Some(began) = began {
            self.end_now(stage, began);
        }
    }

    #[cold]
    fn end_now(&mut self, stage: Stage, began: Began) {
        let all_ns = u64::try_from(began.at.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let within_ns = self.within_ns(stage) - began.within_ns;
        match stage {
            Stage::Route => self.handled_ns += all_ns,
            Stage::Encode => self.encoded_ns += all_ns,
            Stage::Read | Stage::Parse | Stage::Write | Stage::Turn => {}
        }
        self.histograms[stage as usize].add(all_ns.saturating_sub(within_ns));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn buckets_are_adjacent() {
        for bucket in 0..BUCKETS {
            let (low, next) = (low_of(bucket), low_of(bucket + 1));
            assert_eq!((bucket_of(low), bucket_of(next - 1)), (bucket, bucket));
            assert!(next - low <= (low / SUB).max(1), "a bucket is narrow");
        }
        assert_eq!(low_of(BUCKETS), VALUE_MAX);
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    proptest! {
        #[test]
        fn merged_histograms_equal_the_histogram_of_all_values(
            one in prop::collection::vec(0..VALUE_MAX, 0..50),
            other in prop::collection::vec(0..VALUE_MAX, 0..50),
        ) {
            let of = |values: &[u64]| {
                let mut histogram = Histogram::default();
                values.iter().for_each(|value| histogram.add(*value));
                histogram
            };
            let mut merged = of(&one);
            merged.merge(&of(&other));
            let all = [one, other].concat();
            prop_assert_eq!(&merged, &of(&all));
            prop_assert_eq!(merged.count, all.len() as u64);
            prop_assert_eq!(merged.total_ns, all.iter().sum::<u64>());
            for (low, high, count) in merged.buckets() {
                let within = all.iter().filter(|value| (low..high).contains(*value)).count();
                prop_assert_eq!(within as u64, count);
            }
        }
    }

    #[test]
    fn profiling_is_off_until_a_query_and_ends_by_itself() {
        let mut stages = Stages::default();
        assert!(stages.begin(Stage::Read).is_none() && stages.left_ms(5) == 0 && !stages.expire(5));
        stages.switch_on(5);
        let began = stages.begin(Stage::Read);
        assert!(began.is_some() && stages.left_ms(5) == ENABLED_MS);
        assert!(!stages.expire(4 + ENABLED_MS) && stages.is_on());
        assert!(stages.expire(5 + ENABLED_MS) && !stages.is_on());
        stages.end(Stage::Read, began); // a stage that was started is counted
        assert_eq!(stages.histogram(Stage::Read).count, 1);
    }

    #[test]
    fn a_stage_excludes_its_nested_stages() {
        let mut stages = Stages::default();
        stages.switch_on(0);
        let parse = stages.begin(Stage::Parse);
        let route = stages.begin(Stage::Route);
        let encode = stages.begin(Stage::Encode);
        let spun = Instant::now();
        while spun.elapsed().as_micros() < 200 {}
        stages.end(Stage::Encode, encode);
        stages.end(Stage::Route, route);
        stages.end(Stage::Parse, parse);
        let total = |stage| stages.histogram(stage).total_ns;
        assert!(total(Stage::Encode) >= 200_000);
        assert_eq!(stages.handled_ns, total(Stage::Route) + total(Stage::Encode));
    }
}
