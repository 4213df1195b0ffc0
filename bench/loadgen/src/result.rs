//! Results as data: one JSON line for each workload, transport and number of writers, with every repetition.

use serde::{Deserialize, Serialize};

use crate::latency::{LatencyResult, WindowResult};
use crate::machine::{Machine, Versions};
use crate::series::Interval;
use crate::workload::{Transport, Workload};

/// Version of this format.
pub const FORMAT: u32 = 1;

/// Share of its core above which the generator may have been the limit.
pub const GENERATOR_BUSY: f64 = 0.8;

/// One measured variant of a workload.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Record {
    /// [`FORMAT`].
    pub format: u32,
    /// The workload as it was run.
    pub workload: Workload,
    /// `broker` or `relay`.
    pub target: String,
    /// What carried STOMP.
    pub transport: Transport,
    /// `writers` setting; none: the default.
    pub writers: Option<usize>,
    /// Other settings of the broker, `key=value`.
    pub settings: Vec<String>,
    /// A smoke run: figures mean nothing.
    pub quick: bool,
    /// Commit of the code, and whether files differed from it.
    pub commit: String,
    /// Whether files of the code differed from the commit.
    pub changed: bool,
    /// Where it ran.
    pub machine: Machine,
    /// What ran.
    pub versions: Versions,
    /// When it began, seconds since 1970.
    pub started_unix_s: u64,
    /// Most memory that was ever resident in the broker.
    pub peak_rss_bytes: Option<u64>,
    /// Every repetition.
    pub runs: Vec<Run>,
    /// Medians over the repetitions; none if one failed.
    pub median: Option<Median>,
    /// The ideal relay under the same load, between the repetitions.
    pub relay: Option<Relay>,
}

/// The ideal relay's part of a record.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Relay {
    /// Every repetition.
    pub runs: Vec<Run>,
    /// Medians over the repetitions; none if one failed.
    pub median: Option<Median>,
    /// Median of the broker's deliveries per second by that of the relay.
    pub ratio: Option<f64>,
    /// Whether the relay was fast enough (15 M/s TCP, 10 M/s WebSocket) for the ratio to count.
    pub counts: bool,
}

/// One repetition.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Run {
    /// Why it failed.
    pub fault: Option<String>,
    /// Begin of what was measured, µs since 1970; 0: unknown.
    #[serde(default)]
    pub begun_unix_us: u64,
    /// Time measured.
    pub seconds: f64,
    /// Rounds measured; each begins when the one before is delivered.
    pub rounds: u64,
    /// Messages sent.
    pub messages: u64,
    /// Messages delivered and checked (for `fanin`: messages sent and receipted).
    pub deliveries: u64,
    /// Deliveries per second.
    pub deliveries_per_s: f64,
    /// CPU the target's processes used.
    pub target_cpu_s: Option<f64>,
    /// CPU of the target for each delivery.
    pub cpu_us_per_delivery: Option<f64>,
    /// CPU the generator used.
    pub generator_cpu_s: f64,
    /// The same as a share of one core.
    pub generator_share: f64,
    /// Throughput over time, when asked for.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub series: Option<Vec<Interval>>,
    /// Latencies at a fixed rate.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub latency: Option<LatencyResult>,
    /// Latencies under a window: the loop is closed, so compare them only between runs with the same window.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub window_latency: Option<WindowResult>,
    /// Figures of idle connections.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub idle: Option<Idle>,
    /// Who got how much of a work queue.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub shares: Option<Shares>,
    /// Figures of queues at rest.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub held: Option<Held>,
    /// Figures of the firehose beside a subscriber that never reads.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub firehose: Option<Firehose>,
}

/// Idle connections.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Idle {
    /// How many.
    pub connections: usize,
    /// Time until all were connected and subscribed.
    pub connect_s: f64,
    /// Anonymous memory the broker gained for each.
    pub user_bytes_per_connection: f64,
    /// Resident memory the broker gained for each.
    pub resident_bytes_per_connection: f64,
    /// The same as `user_bytes_per_connection`, after the message to all.
    pub user_bytes_per_connection_after: f64,
    /// CPU of the broker at rest, as a share of one core.
    pub idle_core_share: f64,
    /// From one SEND to its last delivery.
    pub message_to_all_ms: f64,
}

/// Who got how much of a work queue.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Shares {
    /// Messages of each consumer, warm-up included.
    pub consumed: Vec<u64>,
}

impl Shares {
    /// Messages of the consumer that had least, by those of the one that had most.
    pub fn least_by_most(&self) -> f64 {
        let least = self.consumed.iter().min().copied().unwrap_or_default();
        let most = self.consumed.iter().max().copied().unwrap_or_default();
        least as f64 / most.max(1) as f64
    }
}

/// Queued messages, or queues without messages.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Held {
    /// How many.
    pub count: u64,
    /// Octets of the SEND frame of each message; 0 for queues.
    pub frame_bytes: f64,
    /// Resident memory the broker gained for each.
    pub resident_bytes_each: f64,
    /// Anonymous memory the broker gained for each.
    pub user_bytes_each: f64,
    /// `resident_bytes_each` without `frame_bytes`.
    pub resident_bytes_each_over_frame: f64,
    /// Resident memory that was left for each after all messages were consumed.
    pub resident_bytes_each_after: f64,
}

/// Firehose with and without a subscriber that never reads.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Firehose {
    /// Deliveries per second to the others, without it; like the next, over the second half of the time.
    pub alone_per_s: f64,
    /// Deliveries per second to the others, after it was disconnected.
    pub beside_per_s: f64,
    /// The second by the first.
    pub ratio: f64,
    /// Longest time in which the others got nothing, without it.
    pub longest_stall_alone_ms: f64,
    /// Longest time in which the others got nothing, with it.
    pub longest_stall_ms: f64,
    /// Messages the slow one had before it was cut, in order.
    pub slow_received: u64,
    /// How it ended for the slow one.
    pub slow_ended: String,
}

/// Medians.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Median {
    /// Deliveries per second.
    pub deliveries_per_s: f64,
    /// CPU of the target for each delivery.
    pub cpu_us_per_delivery: Option<f64>,
    /// Least CPU the target used in a repetition.
    pub least_target_cpu_s: Option<f64>,
    /// Generator's share of its core.
    pub generator_share: f64,
    /// Latency from the intended moment: p50, p99, p99.9, max in µs, each the median over the repetitions.
    pub latency_us: Option<[f64; 4]>,
    /// The same from the write on.
    pub latency_from_write_us: Option<[f64; 4]>,
}

impl Median {
    /// Medians of the repetitions; `None` if there is none or one failed.
    pub fn of(runs: &[Run]) -> Option<Median> {
        if runs.is_empty() || runs.iter().any(|run| run.fault.is_some()) {
            return None;
        }
        let over = |value: &dyn Fn(&Run) -> Option<f64>| {
            let values: Option<Vec<f64>> = runs.iter().map(value).collect();
            values.map(median)
        };
        let latencies = |pick: &dyn Fn(&LatencyResult) -> [f64; 4]| {
            let of = |at: usize| over(&|run| run.latency.as_ref().map(|latency| pick(latency)[at]));
            Some([of(0)?, of(1)?, of(2)?, of(3)?])
        };
        let least = runs.iter().filter_map(|run| run.target_cpu_s).reduce(f64::min);
        Some(Median {
            deliveries_per_s: over(&|run| Some(run.deliveries_per_s))?,
            cpu_us_per_delivery: over(&|run| run.cpu_us_per_delivery),
            least_target_cpu_s: least,
            generator_share: over(&|run| Some(run.generator_share))?,
            latency_us: latencies(&|latency| latency.from_intended.figures()),
            latency_from_write_us: latencies(&|latency| latency.from_write.figures()),
        })
    }
}

/// Median of a list that is not empty.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { f64::midpoint(values[middle - 1], values[middle]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_of_odd_and_even_counts() {
        assert!((median(vec![3.0, 1.0, 2.0]) - 2.0).abs() < 1e-9);
        assert!((median(vec![4.0, 1.0, 2.0, 3.0]) - 2.5).abs() < 1e-9);
    }

    #[test]
    fn a_failed_repetition_leaves_no_median() {
        let good = Run { deliveries_per_s: 5.0, ..Run::default() };
        let failed = Run { fault: Some("lost".into()), deliveries_per_s: 50.0, ..Run::default() };
        assert!(Median::of(&[good.clone(), failed]).is_none());
        assert!(Median::of(&[good]).is_some_and(|median| (median.deliveries_per_s - 5.0).abs() < 1e-9));
        assert!(Median::of(&[]).is_none());
    }
}
