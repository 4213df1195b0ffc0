//! How much of its limits a simulated broker uses at one moment: what checkers compare with the settings.

use std::collections::BTreeSet;

use stompica_proto::session::AckMode;

use crate::connection::conn::Conn;
pub use crate::connection::pausing::Pause;
use crate::connection::pausing::Question;
use crate::door::sync::Ordering;
use crate::ids::ConnKey;
use crate::queue::QueueKind;
use crate::queue::consumer_state::ConsumerState;
use crate::shard::{Shard, Shared};

/// The work of the turns of one shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// The visits of all turns.
    pub all_visited: usize,
    /// The largest number of visits in one turn.
    pub visited: usize,
    /// The largest number of bytes encoded in one turn; a copy counts half.
    pub encoded: usize,
    /// The largest number of deliveries in one turn.
    pub deliveries: usize,
    /// The subscriptions that it has now.
    pub subscriptions: usize,
    /// The most held bytes by which anything was decided in the last turn.
    pub held_most: i64,
    /// Memory is short for it: see [`crate::turn::memory`].
    pub is_short: bool,
    /// The queries for diagnostics that its connections have sent. An answer has any size, and may follow at once.
    pub queries: u64,
}

/// One connection: what it keeps in memory, and what decides whether it is read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OfConnection {
    /// Its number.
    pub id: u64,
    /// The index of its shard.
    pub shard: usize,
    /// It is open, and does not end.
    pub is_open: bool,
    /// It gets answers to diagnostics, which are of any size.
    pub is_told: bool,
    /// It waits for the answer to a frame, which may be one more RECEIPT.
    pub asks: bool,
    /// Bytes of answers in its outbox.
    pub answers: usize,
    /// Memory of answers that wait for others.
    pub pending_answers: usize,
    /// Bytes of its input that are kept.
    pub input: usize,
    /// The memory that is kept for them.
    pub input_memory: usize,
    /// Deliveries that it has not acknowledged.
    pub unacked: u64,
    /// All deliveries to its consumers that acknowledge.
    pub delivered: u64,
    /// The sum of the keys of these consumers: another one means that some have ended or begun.
    pub consumers: u64,
    /// It waits because of memory: the place of this wait, which no other one has.
    pub wait: Option<(Pause, u64)>,
    /// The frame that it sends may arrive while those of others wait.
    pub has_turn: bool,
}

/// The largest use of a limit that many have, and who has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Largest {
    /// The use.
    pub amount: u64,
    /// Whose it is.
    pub owner: String,
}

impl Largest {
    fn note(&mut self, amount: u64, owner: impl FnOnce() -> String) {
        if amount > self.amount {
            *self = Largest { amount, owner: owner() };
        }
    }
}

/// What a broker uses at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// The work of each shard.
    pub work: Vec<Work>,
    /// Bytes that are counted against `memory_limit`.
    pub held_bytes: i64,
    /// Open connections; those that are only told that there are too many do not count.
    pub connections: usize,
    /// Connections that are only told that there are too many.
    pub refused: usize,
    /// Names and patterns of topics with subscriptions, and queues with a name: each once.
    pub destinations: usize,
    /// Those of other shards that a shard does not know yet: the mail about them is on the way.
    pub unknown: Vec<usize>,
    /// How many names each shard has ever learned from others: it may forget one and learn it again in one turn.
    pub learned: Vec<usize>,
    /// Subscriptions of one connection.
    pub subscriptions: Largest,
    /// Temporary destinations of one connection.
    pub temporary: Largest,
    /// Open transactions of one connection.
    pub transactions: Largest,
    /// Bytes in the open transactions of one connection.
    pub transaction_bytes: Largest,
    /// Messages in one queue. Only `/queue/…` is limited.
    pub queue_length: Largest,
    /// Bytes in one queue, likewise.
    pub queue_bytes: Largest,
    /// Retained messages.
    pub retained: usize,
    /// Stale messages.
    pub stale: usize,
    /// Each connection, in the order of numbers.
    pub each: Vec<OfConnection>,
}

impl Usage {
    /// What shards use that have not ended.
    pub(crate) fn of<'a>(shared: &Shared, shards: impl Iterator<Item = &'a Shard> + Clone) -> Usage {
        let totals = &shared.totals;
        let mut usage = Usage {
            held_bytes: totals.memory.load(Ordering::Relaxed),
            connections: totals.connections.load(Ordering::Relaxed),
            retained: shared.retained.get(),
            stale: shared.stale.count.load(Ordering::Relaxed),
            ..Usage::default()
        };
        let mut names: BTreeSet<&[u8]> = BTreeSet::new();
        shards.clone().for_each(|shard| names.extend(shard.router.subscribed_names()));
        usage.destinations = names.len();
        for shard in shards {
            let known = shard.router.known_names().filter(|name| names.contains(name)).count();
            usage.unknown.push(names.len() - known);
            usage.learned.push(shard.router.learned);
            add(shard, &mut usage);
        }
        usage.each.sort_unstable_by_key(|conn| conn.id);
        usage
    }
}

fn add(shard: &Shard, usage: &mut Usage) {
    let heaviest = &shard.turn.heaviest;
    usage.work.push(Work {
        all_visited: heaviest.all_visited,
        visited: heaviest.visited,
        encoded: heaviest.encoded,
        deliveries: heaviest.deliveries,
        subscriptions: shard.router.subscriptions.len(),
        held_most: shard.turn.memory.most_seen(),
        is_short: shard.turn.memory.is_short,
        queries: shard.diagnostics.last_number,
    });
    for (key, conn) in shard.connections.table.iter() {
        usage.each.push(of_connection(shard, key, conn));
        let owner = || format!("connection {}", conn.id);
        usage.refused += usize::from(conn.life.refused);
        usage.subscriptions.note(conn.subscriptions.len() as u64, owner);
        usage.temporary.note(conn.temporary.as_ref().map_or(0, |own| own.names.len()) as u64, owner);
        let (open, bytes) = conn.transactions.as_ref().map_or((0, 0), |open| open.used());
        usage.transactions.note(open as u64, owner);
        usage.transaction_bytes.note(bytes as u64, owner);
    }
    for queue in shard.queues.home.iter() {
        usage.destinations += usize::from(queue.kind != QueueKind::Private);
        if queue.kind == QueueKind::Work {
            let owner = || String::from_utf8_lossy(&queue.name).into_owned();
            let (length, bytes) = queue.used();
            usage.queue_length.note(length, owner);
            usage.queue_bytes.note(bytes, owner);
        }
    }
}

fn of_connection(shard: &Shard, key: ConnKey, conn: &Conn) -> OfConnection {
    let acknowledges = |consumer: &&ConsumerState| consumer.conn == key && consumer.ack != AckMode::Auto;
    let consumers = || shard.queues.consumers.iter().filter(acknowledges);
    let key_of = |it: &ConsumerState| u64::from(it.key.generation) << 32 | u64::from(it.key.index);
    let is_watched = |index: &u32| shard.is_watch(*index);
    OfConnection {
        id: conn.id,
        shard: usize::from(shard.turn.id.0),
        is_open: conn.is_served(),
        is_told: matches!(conn.wait.question(), Some(Question::Query(_)))
            || conn.subscriptions.iter().any(is_watched),
        asks: conn.wait.question().is_some() || conn.committing.is_some(),
        answers: conn.output.outbox.answer_bytes(),
        pending_answers: conn.answers.bytes(),
        input: conn.incomplete_bytes(),
        input_memory: conn.kept_bytes(),
        unacked: conn.pending_writes.as_ref().map_or(0, |writes| writes.unacked as u64),
        delivered: consumers().map(|it| it.number).sum(),
        consumers: consumers().map(key_of).fold(0, u64::wrapping_add),
        wait: conn.wait.for_memory(),
        has_turn: shard.connections.unfinished.has_turn(key),
    }
}
