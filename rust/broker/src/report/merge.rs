//! What one shard contributes to an answer, and how the contributions of all shards are merged.

use std::collections::BTreeSet;

use serde::Serialize;

use super::Query;
use super::answer::json;
use super::types::{
    AckRow, Benchmark, Memory, Network, QueueRow, RecordedRow, Session, ShardRow, SlowRow, Store, Waiting,
    WsBuffer,
};
use crate::text::Weight;

/// One shard's part of an answer, or the merged parts of several shards. It is serialized as what it holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Report {
    /// Of `session` and the sizes.
    Session(Session),
    /// Of `ws_buffer`.
    WsBuffer(WsBuffer),
    /// Of `stale`.
    Stale(Waiting),
    /// Of `subs`.
    Subs(BTreeSet<String>),
    /// Of `pubsub-size`: a hash of each name; all shards use the same hash function.
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
    Store(Box<Store>),
    /// Of `slow`.
    Slow(Vec<SlowRow>),
    /// Of `recorded`.
    Recorded(Vec<RecordedRow>),
}

/// A report on its way to the asking shard; its memory counts as held.
#[derive(Debug)]
pub struct ShardReport {
    /// The report.
    pub report: Report,
    /// Rows left out for lack of room.
    pub left_out: u64,
    /// Approximate memory of the rows.
    pub weight: Weight,
}

/// A row: its sort key and its text in the answer.
pub type Row = ((u64, String), String);

impl Report {
    /// An empty report, for a query whose answer is collected item by item.
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
            Query::Store => Report::Store(Box::default()),
            Query::Slow => Report::Slow(Vec::new()),
            Query::Recorded => Report::Recorded(Vec::new()),
        }
    }

    /// The number of its rows, for queries whose number of rows grows with the number of items in the broker.
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

    /// Drops the row that was added last, or the last name.
    pub fn drop_last(&mut self) {
        match self {
            Report::Subs(names) => _ = names.pop_last(),
            Report::Queues(rows) => _ = rows.pop(),
            Report::Ack(rows) => _ = rows.pop(),
            Report::Slow(rows) => _ = rows.pop(),
            _ => {}
        }
    }

    /// Removes one of these rows and returns it with its text; `of_queue` renders rows of queues.
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

    /// Adds another shard's report for the same query.
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
                // `held_bytes` and `limit_bytes` are of the whole broker, not of a shard.
                all.short |= one.short;
                all.outbox_bytes += one.outbox_bytes;
                all.input_bytes += one.input_bytes;
                all.chunk_bytes += one.chunk_bytes;
                all.queue_bytes += one.queue_bytes;
            }
            (Report::Store(all), Report::Store(one)) => all.status.add(one.status),
            (Report::Queues(all), Report::Queues(one)) => all.extend(one),
            (Report::Ack(all), Report::Ack(one)) => all.extend(one),
            (Report::Slow(all), Report::Slow(one)) => all.extend(one),
            (Report::Recorded(all), Report::Recorded(one)) => all.extend(one),
            (all, one) => debug_assert_eq!(*all, one, "reports of one answer are of one kind"),
        }
    }

    /// Sorts the rows, so that their order does not depend on which shard answered first.
    pub fn sort(&mut self) {
        match self {
            Report::Shards(rows) => rows.sort_unstable_by_key(|row| row.shard),
            Report::Queues(rows) => rows.sort_by(|one, other| one.name.cmp(&other.name)),
            Report::Ack(rows) => rows.sort_by(|one, other| {
                (one.connection, &one.subscription).cmp(&(other.connection, &other.subscription))
            }),
            Report::Slow(rows) => rows.sort_by_key(|row| row.connection),
            Report::Recorded(rows) => rows.sort_by(|one, other| one.name.cmp(&other.name)),
            _ => {}
        }
    }
}

/// Merges the reports of all shards; `None` if there are none.
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
    use super::super::types::{StoreFigures, StoreStatus};
    use super::*;

    #[test]
    fn numbers_are_summed() {
        let one = Session { clients: 1, websockets: 2, stomp_connected: 3, subscriptions: 4 };
        let Some(Report::Session(all)) = merge([Report::Session(one), Report::Session(one)]) else {
            panic!("reports of `session`")
        };
        let expected = Session { clients: 2, websockets: 4, stomp_connected: 6, subscriptions: 8 };
        assert_eq!(all, expected);
        assert_eq!(merge([]), None);
    }

    #[test]
    fn memory_of_the_broker_is_counted_once() {
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
    fn the_store_is_told_by_one_shard_and_its_paged_messages_by_all() {
        let of = |state, paged_messages, disk_bytes| {
            let figures = StoreFigures { paged_messages, disk_bytes, ..StoreFigures::default() };
            let status = StoreStatus { state, figures, ..StoreStatus::default() };
            Report::Store(Box::new(Store { kind: "file", status }))
        };
        assert_eq!(merge([of("", 3, 0), of("ready", 4, 9), of("", 0, 0)]), Some(of("ready", 7, 9)));
    }

    #[test]
    fn rows_are_sorted_and_names_are_unique() {
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
