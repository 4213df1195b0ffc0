//! The contents of a simulated broker at one moment.

use std::sync::atomic::Ordering;

use crate::shard::{Shard, Shared};

/// The contents of a broker at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Open connections.
    pub connections: usize,
    /// Subscriptions, including those of durable subscriptions and of private queues.
    pub subscriptions: usize,
    /// Subscribed names and patterns, counted once for each shard that knows them.
    pub filters: usize,
    /// Names of queues; the name of a private queue is empty.
    pub queues: Vec<String>,
    /// Messages in queues, delivered and not settled ones included.
    pub queued: u64,
    /// Requests that wait for an answer.
    pub unanswered: usize,
    /// Deliveries of large fan-outs that are counted at mailboxes.
    pub fan_out_work: usize,
    /// Deadlines.
    pub timers: usize,
    /// Bytes of owned messages and of names.
    pub message_bytes: i64,
    /// Bytes counted against `memory_limit`.
    pub held_bytes: i64,
}

impl Snapshot {
    /// What the shards hold, each with the byte count of its thread (see [`crate::message::held_bytes`]); one that has
    /// ended holds nothing.
    pub(crate) fn of<'a>(
        shared: &Shared,
        threads: impl Iterator<Item = (Option<&'a Shard>, i64)>,
    ) -> Snapshot {
        let mut snapshot = Snapshot {
            connections: shared.totals.connections.load(Ordering::Relaxed),
            held_bytes: shared.totals.memory.load(Ordering::Relaxed),
            fan_out_work: shared.mailboxes.iter().map(|mailbox| mailbox.add_work(0)).sum(),
            ..Snapshot::default()
        };
        for (shard, message_bytes) in threads {
            if let Some(shard) = shard {
                shard.add_to(&mut snapshot);
            }
            snapshot.message_bytes += message_bytes;
        }
        snapshot
    }
}
