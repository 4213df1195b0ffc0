//! Workloads: small TOML files, one each, in `bench/workloads`.
//!
//! A file also has fields that only the harness reads (`HARNESS_FIELDS`); `bench/README.md` explains them.

use std::path::Path;

use serde::Deserialize;

use crate::receiver::STREAM_MIN;

/// Fields that only the harness reads (`stompica.bench`).
const HARNESS_FIELDS: [&str; 7] = ["group", "about", "transports", "relay", "wanted", "settings", "sweep"];

/// How a workload is driven and what it measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Rounds of messages under a window: deliveries per second, CPU per delivery.
    Window,
    /// A fixed rate: latency percentiles, from the intended time of sending.
    Latency,
    /// Many idle connections: memory of each, CPU at rest, then one message to all.
    Idle,
    /// Publishers without subscribers, a receipt at the end.
    Fanin,
    /// One work queue, its producers under a window: messages per second, CPU per message.
    Queue,
    /// A queue without consumers: memory of each message.
    Backlog,
    /// Many queues that are empty: memory of each.
    Queues,
    /// No window, and one subscriber that never reads; compared with the same without it.
    Firehose,
    /// Persistent messages into a queue of each publisher, each with a receipt, under a window: receipts per second.
    Persist,
    /// The same at a fixed rate: latency of a RECEIPT.
    PersistRate,
    /// The two halves of `backlog` on their own, as persistent messages: the broker is started again between them.
    Recover,
}

/// How consumers of a work queue acknowledge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ack {
    /// Not at all.
    Auto,
    /// One ACK for each message.
    ClientIndividual,
}

/// What carries STOMP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// STOMP over TCP.
    Tcp,
    /// STOMP over WebSocket.
    Ws,
}

/// Subscription ids of the connections of one topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ids {
    /// Every connection numbers its own from `sub-0`, as clients do.
    Same,
    /// No two subscriptions share an id.
    Unique,
}

/// One workload.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Workload {
    /// Name on the command line and in results.
    pub name: String,
    /// How it is driven.
    pub kind: Kind,
    /// Publishers, each with its own destination: `/topic/bench-0`, …; for a work queue, its producers.
    pub publishers: usize,
    /// Connections that subscribe, for each publisher; for a work queue, its consumers.
    pub connections: usize,
    /// Subscriptions of each such connection.
    pub subscriptions: usize,
    /// Whether ids repeat between connections.
    pub ids: Ids,
    /// Subscribe to this pattern instead of the publisher's destination.
    pub pattern: Option<String>,
    /// The publisher's own connection is the one that subscribes.
    pub joint: bool,
    /// Number of topics `/topic/0`, … to send to in turn, instead of one destination.
    pub spread: usize,
    /// Octets of a body.
    pub body: usize,
    /// Start of each body (at most 8 octets); default: `pub-0000`, with the publisher's number.
    pub tag: Option<String>,
    /// How consumers of a work queue acknowledge.
    pub ack: Ack,
    /// `prefetch-count` of their SUBSCRIBE; 0: no such header.
    pub prefetch: u64,
    /// Messages have `persistent:true` (backlog; those of `persist` always have it).
    pub persistent: bool,
    /// Messages of each publisher in a round; for `queues`, the number of queues.
    pub messages: u64,
    /// A publisher is never more than this many messages ahead of its slowest subscription; for a work queue,
    /// ahead of what all consumers together have received from it; for `persist`, ahead of its RECEIPTs.
    pub window: u64,
    /// Messages per second (latency, persist-rate).
    pub rate: u64,
    /// Length of a repetition that is limited by time, not by messages.
    pub seconds: f64,
    /// Least CPU that the target uses in a repetition; 0: a repetition is one round.
    pub min_cpu_s: f64,
}

impl Default for Workload {
    fn default() -> Workload {
        Workload {
            name: String::new(),
            kind: Kind::Window,
            publishers: 1,
            connections: 1,
            subscriptions: 1,
            ids: Ids::Same,
            pattern: None,
            joint: false,
            spread: 0,
            body: 117,
            tag: None,
            ack: Ack::Auto,
            prefetch: 0,
            persistent: false,
            messages: 1,
            window: 1_000,
            rate: 1_000,
            seconds: 5.0,
            min_cpu_s: 1.0,
        }
    }
}

impl Workload {
    /// Whether each message has a receipt.
    pub fn has_receipts(&self) -> bool {
        matches!(self.kind, Kind::Persist | Kind::PersistRate)
    }

    /// Whether messages have `persistent:true`.
    pub fn is_persistent(&self) -> bool {
        self.persistent || self.has_receipts() || self.kind == Kind::Recover
    }

    /// Reads the workload of a file.
    pub fn load(path: &Path) -> Result<Workload, String> {
        let named = |error: String| format!("{}: {error}", path.display());
        let text = std::fs::read_to_string(path).map_err(|error| named(error.to_string()))?;
        let mut fields: toml::Table = toml::from_str(&text).map_err(|error| named(error.to_string()))?;
        fields.retain(|name, _| !HARNESS_FIELDS.contains(&name));
        let workload: Workload = fields.try_into().map_err(|error| named(error.to_string()))?;
        workload.check()?;
        if path.file_stem().is_none_or(|stem| stem != workload.name.as_str()) {
            return Err(named(format!("its name is {:?}", workload.name)));
        }
        Ok(workload)
    }

    /// Checks that it can be run over this transport.
    pub fn check_transport(&self, transport: Transport) -> Result<(), String> {
        if self.kind == Kind::Queues && transport != Transport::Tcp {
            return Err(format!("workload {}: queues are made over TCP", self.name));
        }
        Ok(())
    }

    fn check(&self) -> Result<(), String> {
        let wrong = |what: &str| Err(format!("workload {}: {what}", self.name));
        if self.tag.as_ref().is_some_and(|tag| tag.is_empty() || tag.len() > crate::body::TAG_MAX) {
            return wrong("tag must have 1 to 8 octets");
        }
        if self.publishers == 0 || self.connections == 0 || self.subscriptions == 0 {
            return wrong("publishers, connections and subscriptions are at least 1");
        }
        if self.messages == 0 || self.window == 0 || !(1..=1_000_000).contains(&self.rate) {
            return wrong("messages and window are at least 1, rate is 1 to 1,000,000");
        }
        let least = self.tag.as_ref().map_or(crate::body::TAG_MAX, String::len) + crate::body::DIGITS;
        if self.body < least {
            return wrong(&format!("body is at least {least}: the publisher's tag and the message's number"));
        }
        if !(0.1..=600.0).contains(&self.seconds) {
            return wrong("seconds is 0.1 to 600");
        }
        if self.joint && self.connections != 1 {
            return wrong("a joint connection is one connection");
        }
        self.check_queue().or_else(|what| wrong(&what))
    }

    fn check_queue(&self) -> Result<(), String> {
        let one_queue =
            matches!(self.kind, Kind::Queue | Kind::Backlog | Kind::Recover) || self.has_receipts();
        if one_queue && (self.joint || self.pattern.is_some() || self.spread > 0 || self.subscriptions != 1) {
            return Err(
                "a queue allows no joint connection, pattern or spread, and one subscription for each connection".to_owned()
            );
        }
        if self.kind == Kind::Queue && self.body >= STREAM_MIN {
            return Err(format!("bodies of a queue are smaller than {STREAM_MIN}"));
        }
        if self.kind != Kind::Queue && (self.ack != Ack::Auto || self.prefetch > 0) {
            return Err("ack and prefetch are for kind = \"queue\"".to_owned());
        }
        // With less, consumers would have no messages while producers wait for them.
        let credit = self.prefetch * self.connections as u64;
        if self.ack == Ack::ClientIndividual && self.window * self.publishers as u64 <= 2 * credit {
            return Err("all windows together are more than twice the prefetch of all consumers".to_owned());
        }
        if self.persistent && self.kind != Kind::Backlog {
            return Err("persistent is for kind = \"backlog\"".to_owned());
        }
        if self.kind == Kind::PersistRate && self.publishers != 1 {
            return Err("a rate is that of one publisher".to_owned());
        }
        if self.has_receipts() && self.connections != 1 {
            return Err("each queue of persist has one connection, which consumes it at the end".to_owned());
        }
        if matches!(self.kind, Kind::Backlog | Kind::Queues | Kind::Recover)
            && (self.publishers != 1 || self.connections != 1)
        {
            return Err("memory is measured with one publisher and one connection".to_owned());
        }
        Ok(())
    }
}
