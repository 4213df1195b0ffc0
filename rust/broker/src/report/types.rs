//! What one shard contributes to an answer, and how the parts of all shards make one.

use std::collections::BTreeSet;

use serde::Serialize;

use super::Query;
use super::answer::json;
use super::stages::{Histogram, Stage, Stages};
use crate::text::Weight;

/// Numbers that are added up over the shards, under the names and in the order of the answer.
macro_rules! sums {
    ($(#[doc = $doc:literal] $kind:ident { $($(#[doc = $field_doc:literal])* $name:ident,)* })*) => {$(
        #[doc = $doc]
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
        pub struct $kind { $($(#[doc = $field_doc])* pub $name: u64,)* }

        impl $kind {
            /// Adds those of another shard.
            pub fn add(&mut self, other: &Self) {
                $(self.$name += other.$name;)*
            }
        }
    )*};
}

sums! {
    /// Query `session`.
    Session {
        /// Open connections.
        clients,
        /// Those of them that speak WebSocket.
        websockets,
        /// Those of them that have connected by STOMP.
        stomp_connected,
        /// Subscriptions alive.
        subscriptions,
    }
    /// Query `ws_buffer`.
    WsBuffer {
        /// Buffers ever allocated.
        allocated,
        /// Times one was reused.
        hits,
        /// Times one had to be allocated.
        misses,
    }
    /// Query `stale`: messages that wait.
    Waiting {
        /// To be routed: between shards, and SENDs that are parked.
        r#in,
        /// In outboxes.
        out,
        /// For a subscriber (`TTL`).
        stale,
    }
    /// Query `network`.
    Network {
        /// Bytes received.
        bytes_in,
        /// Bytes written.
        bytes_out,
        /// STOMP frames received.
        frames_in,
        /// Messages published.
        messages_in,
        /// Messages handed to subscriptions.
        deliveries,
        /// Reads that returned something.
        reads,
        /// Writes that took something.
        writes,
        /// C stompica's; always 0: an invalid frame closes its connection.
        dropped_websocket_frames,
        /// C stompica's; always 0.
        fixed_underruns,
        /// Names without a subscription that stay resolved, now.
        cached_destinations,
        /// Connections open now.
        connections,
        /// Connections taken over.
        accepted,
        /// Connections refused.
        refused,
        /// Connections that ended.
        closed,
        /// ERROR frames, and WebSocket closes for violations.
        errors,
        /// Messages left out by `drop-oldest` and `drop-newest`.
        dropped,
    }
}

/// One shard, query `shards`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ShardRow {
    /// Its number, from 0.
    pub shard: u64,
    /// Connections it has now.
    pub connections: u64,
    /// Subscriptions it has now.
    pub subscriptions: u64,
    /// Queues that have their home here now; those of single subscriptions do not count.
    pub queues: u64,
    /// Turns of its loop.
    pub turns: u64,
    /// Messages of other shards in its mailbox now.
    pub mailbox_frames: u64,
    /// STOMP frames received.
    pub frames_in: u64,
    /// Messages handed to subscriptions.
    pub deliveries: u64,
    /// Times a SEND was parked.
    pub parked: u64,
    /// Deadlines that are set now.
    pub timers: u64,
    /// Processor time of its thread, in microseconds.
    pub cpu_us: u64,
    /// RECEIPTs, transactions, new subscriptions and questions that wait for other shards now.
    pub unanswered: u64,
    /// Most bytes encoded in one turn.
    pub max_turn_bytes: u64,
    /// Most messages handed to subscriptions in one turn.
    pub max_turn_deliveries: u64,
    /// Most queues, names, patterns and the like looked at in one turn.
    pub max_turn_visits: u64,
    /// Most processor time of one turn, in microseconds.
    pub max_turn_us: u64,
}

/// Query `memory`, in bytes, now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Memory {
    /// What all shards hold against the limit, as of their last turns.
    pub held_bytes: u64,
    /// Setting `memory_limit`.
    pub limit_bytes: u64,
    /// Whether publishers pause for want of memory.
    pub short: bool,
    /// Waiting to be written; what several connections share counts for each.
    pub outbox_bytes: u64,
    /// Received and not yet complete, and open transactions.
    pub input_bytes: u64,
    /// Buffers in use that frames are written from.
    pub chunk_bytes: u64,
    /// Messages in queues, those in flight included.
    pub queue_bytes: u64,
}

/// One queue, query `queues`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct QueueRow {
    /// Its name; of a temporary one as its owner knows it, of a durable subscription its name.
    pub name: String,
    /// `work`, `worker`, `temporary` or `durable`.
    pub kind: &'static str,
    /// Messages that wait or are in flight.
    pub size: u64,
    /// Bytes that wait.
    pub waiting_bytes: u64,
    /// Messages that consumers hold.
    pub in_flight: u64,
    /// Subscriptions that consume it.
    pub consumers: u64,
    /// Messages that ever came.
    pub enqueued: u64,
    /// Messages that were consumed.
    pub dequeued: u64,
}

/// One subscription that acknowledges, query `ack`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct AckRow {
    /// The connection's number.
    pub connection: u64,
    /// The subscription's id.
    pub subscription: String,
    /// What it subscribed to.
    pub destination: String,
    /// `client` or `client-individual`.
    pub mode: &'static str,
    /// Deliveries that it has not acknowledged.
    pub in_flight: u64,
    /// Age of the oldest of them, in milliseconds; 0 if there is none.
    pub oldest_ms: u64,
}

/// Query `store`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Store {
    /// Where messages are kept.
    pub kind: &'static str,
}

/// One slow consumer, query `slow`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SlowRow {
    /// The connection's number.
    pub connection: u64,
    /// Its address and port.
    pub peer: String,
    /// Bytes that wait for it.
    pub outbox_bytes: u64,
    /// How long its outbox has been full, in milliseconds; 0 if it is not.
    pub full_ms: u64,
    /// Messages it lost since the last one that it was sent.
    pub dropped: u64,
}

/// Query `benchmark`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Benchmark {
    /// How long times are still taken, unless somebody asks again.
    pub left_ms: u64,
    /// By stage, in the order of [`Stage::ALL`].
    pub stages: Vec<Histogram>,
}

impl Benchmark {
    /// What a shard has measured.
    #[must_use]
    pub fn of(stages: &Stages, now_ms: u64) -> Self {
        let histograms = Stage::ALL.into_iter().map(|stage| stages.histogram(stage).clone()).collect();
        Benchmark { left_ms: stages.left_ms(now_ms), stages: histograms }
    }
}

/// One shard's part of an answer, or several shards' together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// Of `session` and the sizes.
    Session(Session),
    /// Of `ws_buffer`.
    WsBuffer(WsBuffer),
    /// Of `stale`.
    Stale(Waiting),
    /// Of `subs`.
    Subs(BTreeSet<String>),
    /// Of `pubsub-size`: a hash of each name, the same on all shards.
    Subscribed(BTreeSet<u64>),
    /// Of `network`.
    Network(Box<Network>),
    /// Of `benchmark`.
    Benchmark(Benchmark),
    /// Of `shards`.
    Shards(Vec<ShardRow>),
    /// Of `memory`.
    Memory(Memory),
    /// Of `queues`.
    Queues(Vec<QueueRow>),
    /// Of `ack`.
    Ack(Vec<AckRow>),
    /// Of `store`.
    Store(Store),
    /// Of `slow`.
    Slow(Vec<SlowRow>),
}

/// A part on its way to whoever asked; it counts itself as held.
#[derive(Debug)]
pub struct ShardReport {
    /// The part.
    pub report: Report,
    /// Rows that there was no room for.
    pub left_out: u64,
    /// What the rows occupy, about.
    pub weight: Weight,
}

/// A row as it stands in an answer, under what it is sorted by.
pub type Row = ((u64, String), String);

impl Report {
    /// A part that nothing has been added to yet, of a query whose answer is gathered item by item.
    #[must_use]
    pub fn empty(query: Query) -> Report {
        match query {
            Query::Session | Query::SessionSize | Query::SessionEncodedSize | Query::SessionConnectedSize => {
                Report::Session(Session::default())
            }
            Query::WsBuffer => Report::WsBuffer(WsBuffer::default()),
            Query::Stale => Report::Stale(Waiting::default()),
            Query::PubsubSize => Report::Subscribed(BTreeSet::new()),
            Query::Subs => Report::Subs(BTreeSet::new()),
            Query::Network => Report::Network(Box::default()),
            Query::Benchmark => Report::Benchmark(Benchmark::default()),
            Query::Shards => Report::Shards(vec![ShardRow::default()]),
            Query::Memory => Report::Memory(Memory::default()),
            Query::Queues => Report::Queues(Vec::new()),
            Query::Ack => Report::Ack(Vec::new()),
            Query::Store => Report::Store(Store { kind: "memory" }),
            Query::Slow => Report::Slow(Vec::new()),
        }
    }

    /// How many rows it has that grow in number with what the broker holds.
    #[must_use]
    pub fn rows(&self) -> usize {
        match self {
            Report::Subs(names) => names.len(),
            Report::Subscribed(hashes) => hashes.len(),
            Report::Queues(rows) => rows.len(),
            Report::Ack(rows) => rows.len(),
            Report::Slow(rows) => rows.len(),
            _ => 0,
        }
    }

    /// Drops the row that was added last; of names, the last one.
    pub fn drop_last(&mut self) {
        match self {
            Report::Subs(names) => _ = names.pop_last(),
            Report::Queues(rows) => _ = rows.pop(),
            Report::Ack(rows) => _ = rows.pop(),
            Report::Slow(rows) => _ = rows.pop(),
            _ => {}
        }
    }

    /// Takes one of these rows out, as it stands in an answer; `of_queue` tells how one of queues does.
    pub fn pop_row(&mut self, of_queue: impl Fn(&QueueRow) -> String) -> Option<Row> {
        Some(match self {
            Report::Subs(names) => {
                let name = names.pop_last()?;
                ((0, name.clone()), name)
            }
            Report::Queues(rows) => {
                let row = rows.pop()?;
                let text = of_queue(&row);
                ((0, row.name), text)
            }
            Report::Ack(rows) => {
                let row = rows.pop()?;
                let text = json(&row);
                ((row.connection, row.subscription), text)
            }
            Report::Slow(rows) => {
                let row = rows.pop()?;
                ((row.connection, String::new()), json(&row))
            }
            _ => return None,
        })
    }

    /// Adds another shard's part of the same answer.
    pub fn merge(&mut self, other: Report) {
        match (self, other) {
            (Report::Session(all), Report::Session(one)) => all.add(&one),
            (Report::WsBuffer(all), Report::WsBuffer(one)) => all.add(&one),
            (Report::Stale(all), Report::Stale(one)) => all.add(&one),
            (Report::Subs(all), Report::Subs(one)) => all.extend(one),
            (Report::Subscribed(all), Report::Subscribed(one)) => all.extend(one),
            (Report::Network(all), Report::Network(one)) => all.add(&one),
            (Report::Benchmark(all), Report::Benchmark(one)) => {
                all.left_ms = all.left_ms.max(one.left_ms);
                all.stages.iter_mut().zip(&one.stages).for_each(|(sum, stage)| sum.merge(stage));
            }
            (Report::Shards(all), Report::Shards(one)) => all.extend(one),
            (Report::Memory(all), Report::Memory(one)) => {
                // What is held and its limit are the broker's, not a shard's.
                all.short |= one.short;
                all.outbox_bytes += one.outbox_bytes;
                all.input_bytes += one.input_bytes;
                all.chunk_bytes += one.chunk_bytes;
                all.queue_bytes += one.queue_bytes;
            }
            (Report::Queues(all), Report::Queues(one)) => all.extend(one),
            (Report::Ack(all), Report::Ack(one)) => all.extend(one),
            (Report::Slow(all), Report::Slow(one)) => all.extend(one),
            (all, one) => debug_assert_eq!(*all, one, "reports of one answer are of one kind"),
        }
    }

    /// Brings the rows into an order that does not depend on who answered first.
    pub fn sort(&mut self) {
        match self {
            Report::Shards(rows) => rows.sort_unstable_by_key(|row| row.shard),
            Report::Queues(rows) => rows.sort_by(|one, other| one.name.cmp(&other.name)),
            Report::Ack(rows) => rows.sort_by(|one, other| {
                (one.connection, &one.subscription).cmp(&(other.connection, &other.subscription))
            }),
            Report::Slow(rows) => rows.sort_by_key(|row| row.connection),
            _ => {}
        }
    }
}

/// The parts of all shards, made one; `None` if there are none.
#[must_use]
pub fn merge(reports: impl IntoIterator<Item = Report>) -> Option<Report> {
    let mut reports = reports.into_iter();
    let mut all = reports.next()?;
    reports.for_each(|report| all.merge(report));
    all.sort();
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_added_up() {
        let one = Session { clients: 1, websockets: 2, stomp_connected: 3, subscriptions: 4 };
        let Some(Report::Session(all)) = merge([Report::Session(one), Report::Session(one)]) else {
            panic!("a session is a session")
        };
        let expected = Session { clients: 2, websockets: 4, stomp_connected: 6, subscriptions: 8 };
        assert_eq!(all, expected);
        assert_eq!(merge([]), None);
    }

    #[test]
    fn memory_of_the_broker_is_not_counted_for_each_shard() {
        let report = |short, bytes| {
            Report::Memory(Memory {
                held_bytes: 9,
                limit_bytes: 10,
                short,
                queue_bytes: bytes,
                ..Memory::default()
            })
        };
        let expected =
            Memory { held_bytes: 9, limit_bytes: 10, short: true, queue_bytes: 7, ..Memory::default() };
        assert_eq!(merge([report(false, 3), report(true, 4)]), Some(Report::Memory(expected)));
    }

    #[test]
    fn rows_have_an_order_and_names_are_told_once() {
        let rows = |shards: &[u64]| {
            Report::Shards(
                shards.iter().map(|shard| ShardRow { shard: *shard, ..ShardRow::default() }).collect(),
            )
        };
        assert_eq!(merge([rows(&[2]), rows(&[0]), rows(&[1])]), Some(rows(&[0, 1, 2])));
        let names = |all: &[&str]| Report::Subs(all.iter().map(|name| (*name).to_owned()).collect());
        assert_eq!(merge([names(&["/b", "/a"]), names(&["/b"])]), Some(names(&["/a", "/b"])));
    }
}
