//! The result of a repetition, as data.

use serde::Serialize;

use crate::latency::{LatencyResult, WindowResult};
use crate::series::Interval;

/// One repetition.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Outcome {
    /// The reason of the failure.
    pub fault: Option<String>,
    /// Start of the measurement, µs since 1970; 0 if unknown.
    pub begun_unix_us: u64,
    /// Time measured.
    pub seconds: f64,
    /// Rounds measured. Each starts when the one before is delivered.
    pub rounds: u64,
    /// Messages sent.
    pub messages: u64,
    /// Messages delivered and checked (`fanin`, `persist`: messages sent and confirmed by a RECEIPT).
    pub deliveries: u64,
    /// Deliveries per second.
    pub deliveries_per_s: f64,
    /// CPU the target's processes used.
    pub target_cpu_s: Option<f64>,
    /// CPU the generator used.
    pub generator_cpu_s: f64,
    /// The same, as a share of one core.
    pub generator_share: f64,
    /// CPU of the target per delivery.
    pub cpu_us_per_delivery: Option<f64>,
    /// Peak resident memory of the target's processes.
    pub peak_rss_bytes: Option<u64>,
    /// Throughput over time, if requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub series: Option<Vec<Interval>>,
    /// Latencies at a fixed rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency: Option<LatencyResult>,
    /// Latencies under a window. The loop is closed, so compare them only between runs with the same window.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window_latency: Option<WindowResult>,
    /// Figures of its kind of workload, if that has any.
    #[serde(flatten)]
    pub special: Option<Special>,
}

/// Figures that only one kind of workload has.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Special {
    /// Figures of idle connections.
    Idle(Idle),
    /// How a work queue's messages were shared.
    Shares(Shares),
    /// Memory of queued messages or of queues.
    Held(Held),
    /// The firehose with and without a subscriber that never reads.
    Firehose(Firehose),
    /// The broker's log, and the disk alone.
    Persist(Persist),
}

/// Idle connections.
#[derive(Debug, Clone, Serialize)]
pub struct Idle {
    /// Their number.
    pub connections: usize,
    /// Time until all had connected and subscribed.
    pub connect_s: f64,
    /// Growth of the broker's anonymous memory, divided by their number.
    pub user_bytes_per_connection: f64,
    /// Growth of the broker's resident memory, divided by their number.
    pub resident_bytes_per_connection: f64,
    /// As `user_bytes_per_connection`, after the message to all.
    pub user_bytes_per_connection_after: f64,
    /// CPU of the broker at rest, as a share of one core.
    pub idle_core_share: f64,
    /// From one SEND to its last delivery.
    pub message_to_all_ms: f64,
}

/// How a work queue's messages were shared.
#[derive(Debug, Clone, Serialize)]
pub struct Shares {
    /// Messages of each consumer, warm-up included.
    pub consumed: Vec<u64>,
}

/// Queued messages, or queues without messages.
#[derive(Debug, Clone, Serialize)]
pub struct Held {
    /// Their number.
    pub count: u64,
    /// Octets of each message's SEND frame; 0 for queues.
    pub frame_bytes: f64,
    /// Growth of the broker's resident memory, divided by their number.
    pub resident_bytes_each: f64,
    /// Growth of the broker's anonymous memory, divided by their number.
    pub user_bytes_each: f64,
    /// `resident_bytes_each` minus `frame_bytes`.
    pub resident_bytes_each_over_frame: f64,
    /// As `resident_bytes_each`, after all messages were consumed.
    pub resident_bytes_each_after: f64,
    /// Messages put into the queue per second.
    pub queued_per_s: f64,
    /// Messages consumed from it per second.
    pub consumed_per_s: f64,
}

/// What the broker's log did for persistent messages, and what the disk does without a broker. Groups are what the log makes
/// safe at once. What is unknown is left out.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Persist {
    /// RECEIPTs of a group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receipts_per_group: Option<f64>,
    /// Groups per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub groups_per_s: Option<f64>,
    /// `fdatasync`s, divided by the groups.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub syncs_by_groups_ratio: Option<f64>,
    /// Bytes written to the log, divided by those of the SEND frames without their receipts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub written_by_sent_ratio: Option<f64>,
    /// Bytes of each write of the bare loop: those of a group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bare_write_bytes: Option<u64>,
    /// Writes of the bare loop per second, each made safe.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bare_per_s: Option<f64>,
    /// Median time of one of them, µs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bare_p50_us: Option<f64>,
    /// 99 in 100 of them were faster, µs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bare_p99_us: Option<f64>,
    /// `groups_per_s` divided by `bare_per_s`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub groups_by_bare_ratio: Option<f64>,
}

/// Firehose with and without a subscriber that never reads.
#[derive(Debug, Clone, Serialize)]
pub struct Firehose {
    /// Deliveries per second to the others without it, over the second half of the time.
    pub alone_per_s: f64,
    /// The same with it: by then it is disconnected.
    pub beside_per_s: f64,
    /// `beside_per_s` divided by `alone_per_s`.
    pub ratio: f64,
    /// Longest time in which the others received nothing, without it.
    pub longest_stall_alone_ms: f64,
    /// Longest time in which the others received nothing, with it.
    pub longest_stall_ms: f64,
    /// Messages that the slow one had received, in order, when it was disconnected.
    pub slow_received: u64,
    /// How the slow one's connection ended.
    pub slow_ended: String,
}
