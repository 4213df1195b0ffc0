//! The contents of a simulated broker at one moment.

use crate::door::sync::Ordering;
use crate::held::Sums;

#[cfg(any(test, simulated))]
use crate::audit::{Audit, Before};
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
    /// Names of those in which messages wait.
    pub waiting: Vec<String>,
    /// Messages in queues, delivered and not settled ones included.
    pub queued: u64,
    /// Stale and retained messages.
    pub kept: usize,
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
    /// What the shards hold, each with the byte counts of its thread (see [`crate::held`]); one that has
    /// ended holds nothing.
    pub(crate) fn of<'a>(
        shared: &Shared,
        threads: impl Iterator<Item = (Option<&'a Shard>, Sums)>,
    ) -> Snapshot {
        let mut snapshot = Snapshot {
            connections: shared.totals.connections.load(Ordering::Relaxed),
            held_bytes: shared.totals.memory.load(Ordering::Relaxed),
            fan_out_work: shared.mailboxes.iter().map(|mailbox| mailbox.add_work(0)).sum(),
            ..Snapshot::default()
        };
        for (shard, sums) in threads {
            if let Some(shard) = shard {
                shard.add_to(&mut snapshot);
            }
            snapshot.message_bytes += sums.held;
        }
        snapshot
    }
}

/// Counts anew everything that the shards of a broker hold, each with the byte counts of its thread. Returns what is
/// inconsistent. It is called between two turns, before any shard has ended.
#[cfg(any(test, simulated))]
pub(crate) fn audit<'a>(
    shared: &Shared,
    threads: impl Iterator<Item = (&'a Shard, Sums)>,
    before: &mut Before,
) -> Vec<String> {
    let mut audit = Audit::of(shared.mailboxes.len());
    let (mut thread_bytes, mut owed_bytes) = (0, 0);
    for (shard, sums) in threads {
        shard.audit(&mut audit, sums);
        thread_bytes += sums.held;
        owed_bytes += sums.owed;
    }
    let totals = &shared.totals;
    audit.equal("bytes of messages and texts", thread_bytes, audit.message_bytes + audit.text_bytes);
    audit.equal("bytes owed to subscriptions", owed_bytes, audit.owed_bytes);
    let memory = totals.memory.load(Ordering::Relaxed);
    audit.equal("held bytes of all shards", memory, audit.memory + audit.batch_bytes);
    audit.equal(
        "unfinished input of all shards",
        totals.unfinished.load(Ordering::Relaxed),
        audit.unfinished,
    );
    audit.equal("connections of all shards", totals.connections.load(Ordering::Relaxed), audit.connections);
    audit.equal("queues of all shards", totals.queues.load(Ordering::Relaxed), audit.queues);
    audit.equal("retained messages of all shards", shared.retained.get(), audit.retained);
    audit.equal("stale messages of all shards", shared.stale.count.load(Ordering::Relaxed), audit.stale);
    audit.conclude(before)
}
