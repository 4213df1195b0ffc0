//! Time spent by stage, as histograms of one shard, while somebody asks (query `benchmark`).
//!
//! Off, a stage costs a branch per read, flush or turn and no look at the clock; nothing per message. Asking switches
//! it on for [`ENABLED_MS`].

use std::time::Instant;

/// How long the times are taken after somebody has asked.
pub const ENABLED_MS: u64 = 60_000;

/// Where time is spent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// One read from a socket.
    Read,
    /// Finding the frames of one read.
    Parse,
    /// What one frame does, without the encoding: session, receivers, queues.
    Route,
    /// One message into the outboxes of this shard; of queues, all that one turn delivers.
    Encode,
    /// One write to a socket.
    Write,
    /// One turn of the loop, without the wait.
    Turn,
}

impl Stage {
    /// All of them, in the order of a message's way.
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

/// Buckets per power of two: a bucket is at most 1/16 of its value wide.
const SUB: u64 = 16;
/// Values from here on share the last bucket: 2^36 ns, 69 s.
const VALUE_MAX: u64 = 1 << 36;
const BUCKETS: usize = (SUB * 33) as usize;

/// How often which times were seen, in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    /// How many values.
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
    // The four bits behind the leading one choose among the buckets of its power of two.
    let shift = 59 - u64::from(value.leading_zeros());
    (shift * SUB + (value >> shift)) as usize
}

/// The first value of a bucket.
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

    /// Adds what another one has seen.
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

    /// The buckets with something in them: first value, first value behind it, how many.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64, u64)> {
        let used = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        used.map(|(bucket, count)| (low_of(bucket), low_of(bucket + 1), *count))
    }
}

/// The histograms of one shard. They are kept when the time is over: they count from the broker's start.
#[derive(Debug, Default)]
pub struct Stages {
    on: bool,
    until_ms: u64,
    histograms: [Histogram; 6],
    /// Time spent in handling frames, and within that in encoding: to be taken off the stages around them.
    handled_ns: u64,
    encoded_ns: u64,
}

/// When a stage began, and what the stages within it had taken before.
#[derive(Clone, Copy, Debug)]
pub struct Began {
    at: Instant,
    within_ns: u64,
}

impl Stages {
    /// Whether times are taken.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.on
    }

    /// Takes the times from now on, for [`ENABLED_MS`].
    pub fn switch_on(&mut self, now_ms: u64) {
        self.on = true;
        self.until_ms = now_ms.saturating_add(ENABLED_MS);
    }

    /// How long it goes on.
    #[must_use]
    pub fn left_ms(&self, now_ms: u64) -> u64 {
        if self.on { self.until_ms.saturating_sub(now_ms) } else { 0 }
    }

    /// Ends it when its time has come; returns whether it has.
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

    /// Begins a stage; `None` while nobody asks.
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

    /// Ends it.
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
    fn buckets_follow_each_other_without_a_gap() {
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
        fn merged_histograms_are_those_of_all_values(
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
    fn nothing_is_measured_until_somebody_asks_and_not_for_ever() {
        let mut stages = Stages::default();
        assert!(stages.begin(Stage::Read).is_none() && stages.left_ms(5) == 0 && !stages.expire(5));
        stages.switch_on(5);
        let began = stages.begin(Stage::Read);
        assert!(began.is_some() && stages.left_ms(5) == ENABLED_MS);
        assert!(!stages.expire(4 + ENABLED_MS) && stages.is_on());
        assert!(stages.expire(5 + ENABLED_MS) && !stages.is_on());
        stages.end(Stage::Read, began); // what was begun is counted
        assert_eq!(stages.histogram(Stage::Read).count, 1);
    }

    #[test]
    fn a_stage_does_not_count_those_within_it() {
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
