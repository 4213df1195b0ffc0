//! The result of a repetition, as data.

use serde::Serialize;

use crate::latency::{LatencyResult, WindowResult};
use crate::series::Interval;

/// One repetition.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Outcome {
    /// Why it failed.
    pub fault: Option<String>,
    /// Begin of what was measured, µs since 1970; 0: unknown.
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
    /// Most memory that was ever resident in the target's processes.
    pub peak_rss_bytes: Option<u64>,
    /// CPU the generator used.
    pub generator_cpu_s: f64,
    /// The same as a share of one core.
    pub generator_share: f64,
    /// Throughput over time, when asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub series: Option<Vec<Interval>>,
    /// Latencies at a fixed rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency: Option<LatencyResult>,
    /// Latencies under a window: the loop is closed, so compare them only between runs with the same window.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window_latency: Option<WindowResult>,
    /// Figures of idle connections.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle: Option<Idle>,
    /// Who got how much of a work queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shares: Option<Shares>,
    /// Figures of queues at rest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held: Option<Held>,
    /// Figures of the firehose beside a subscriber that never reads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub firehose: Option<Firehose>,
}

/// Idle connections.
#[derive(Debug, Clone, Serialize)]
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
#[derive(Debug, Clone, Serialize)]
pub struct Shares {
    /// Messages of each consumer, warm-up included.
    pub consumed: Vec<u64>,
}

/// Queued messages, or queues without messages.
#[derive(Debug, Clone, Serialize)]
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
#[derive(Debug, Clone, Serialize)]
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
