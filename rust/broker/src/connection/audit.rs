//! Counts anew what the connections of a shard hold, and compares it with their own counts.

use std::collections::BTreeSet;

use super::Connections;
use super::answers::{Answer, Answers};
use super::conn::{Conn, Flush};
use super::deferred::{Deferred, Waiting};
use super::outbox::{Kind, Outbox};
use super::pausing::{Reason, Wait};
use super::pending_writes::{PendingWrite, PendingWrites};
use super::transaction::{Commit, Committing, Operation, Transactions};
use super::{Effect, pausing};
use crate::audit::{Amount, Audit};
use crate::door::HashMap;
use crate::ids::ConnKey;
use crate::message::chunk::ChunkId;
use crate::router::fan_out::FanOutKey;

impl Conn {
    /// Whether its subscriptions get messages.
    #[must_use]
    pub fn is_served(&self) -> bool {
        self.life.is_open() && self.life.leaving.is_none() && !self.life.ending
    }
}

#[cfg(simulated)]
impl Wait {
    /// The reason of a wait for memory, and the place of the wait, which no other one has.
    #[must_use]
    pub fn for_memory(&self) -> Option<(pausing::Pause, u64)> {
        use pausing::Pause::{Arriving, Kept, Memory};
        match self.reason {
            Some(Reason::Room(pause @ (Memory | Kept | Arriving), place, _)) => Some((pause, place)),
            _ => None,
        }
    }
}

/// What connections refer to in other tables.
#[derive(Debug, Default)]
pub struct References {
    /// Chunks, each with the number of references.
    pub chunks: HashMap<ChunkId, u32>,
    /// Fan-outs, each with the number of deferred copies.
    pub copies: HashMap<FanOutKey, usize>,
}

impl References {
    /// Counts a reference to a chunk.
    pub fn chunk(&mut self, chunk: ChunkId) {
        *self.chunks.entry(chunk).or_default() += 1;
    }
}

impl Connections {
    /// Visits all connections and lists of them. The owners of other references have added theirs.
    pub fn audit(&self, audit: &mut Audit, references: &mut References) {
        let (mut input, mut unfinished) = (0, 0);
        for (key, conn) in self.table.iter() {
            audit.conn = Some(conn.id);
            conn.audit(audit, references, key);
            audit.conn = None;
            input += conn.input.counted_bytes;
            unfinished += conn.input.counted_input as i64;
            self.audit_wait(audit, key, &conn.wait);
        }
        audit.equal("bytes of input", self.input_bytes, input);
        audit.equal("bytes of unfinished input", self.unfinished.bytes, unfinished);
        audit.unfinished += self.unfinished.published;
        self.audit_lists(audit);
        for effect in &self.effects {
            match effect {
                Effect::AbandonsCommit(commit) => commit.audit(audit),
                Effect::DiscardsTransactions(open) => open.audit(audit),
                Effect::AsksForRoundTrips(to, shards) => {
                    (0..shards.count_ones()).for_each(|_| audit.answer(*to))
                }
                Effect::Credits(home, progress) => progress.audit(audit, *home),
                Effect::RetriesCommit | Effect::StopsWaiting(_) | Effect::Leaves(_) => {}
            }
        }
        audit.equal("effects of connections after the turn", self.effects.len(), 0);
        if let Some(range) = &self.pending_range {
            audit.find(format!("a pending range after the turn: {range:?}"));
        }
        audit.require(self.pending_copies.is_empty(), || "pending copies after the turn".to_owned());
    }

    /// Lists of connections contain those that are marked, and no other.
    fn audit_lists(&self, audit: &mut Audit) {
        let undrained: BTreeSet<ConnKey> = self.undrained.iter().copied().collect();
        let refill: BTreeSet<ConnKey> = self.refill.iter().copied().collect();
        let dirty: BTreeSet<ConnKey> = self.dirty.iter().copied().collect();
        let paced: BTreeSet<ConnKey> = self.paced.iter().copied().collect();
        for (key, conn) in self.table.iter() {
            let mut same = |what: &str, is_marked: bool, is_listed: bool| {
                audit.require(is_marked == is_listed, || {
                    format!(
                        "connection {} is marked as {what}: {is_marked}, and on the list: {is_listed}",
                        conn.id
                    )
                });
            };
            same("readable", conn.input.is_listed, undrained.contains(&key));
            let is_listed = conn.output.deferred.as_ref().is_some_and(|deferred| deferred.is_listed);
            if is_listed && conn.life.leaving.is_none() {
                same("having room", true, refill.contains(&key)); // the list may name others, too
            }
            match conn.output.flush {
                Flush::Idle => {}
                Flush::Prompt => same("dirty", true, dirty.contains(&key)),
                Flush::Paced => same("paced", true, paced.contains(&key)),
            }
        }
        let waiting = self.table.iter().filter(|(_, conn)| conn.wait.pause().is_some()).count();
        audit.equal("connections that wait for room", self.parking.len(), waiting);
    }

    fn audit_wait(&self, audit: &mut Audit, key: ConnKey, wait: &Wait) {
        if let Some(Reason::Room(pause, place, _)) = wait.reason {
            let listed = self.parking.waiting[pause as usize].at(place);
            audit.require(listed == Some(&key), || {
                format!("{key:?} waits for {pause:?} at the place of {listed:?}")
            });
        }
        if let Some(pausing::Question::Login(_)) = wait.question() {
            audit.require(self.logins.is_awaited(key), || format!("nobody checks the login of {key:?}"));
        }
    }
}

impl Conn {
    fn audit(&self, audit: &mut Audit, references: &mut References, key: ConnKey) {
        self.output.outbox.audit(audit, references);
        let is_settled = !self.output.outbox.has_passed_mark() || self.output.flush != Flush::Idle;
        audit.require(is_settled, || {
            "a message of a queue was written, and is not settled by the next flush".to_owned()
        });
        self.output.deferred.iter().for_each(|deferred| deferred.audit(audit, references));
        self.answers.audit(audit, key);
        self.transactions.iter().for_each(|open| open.audit(audit));
        if let Some(Committing::Deciding(commit)) = &self.committing {
            commit.audit(audit);
            audit.awaited(key, commit.token, commit.waiting as u32);
        }
        if let Some(pending_writes) = &self.pending_writes {
            pending_writes.audit(audit);
            let marked = self.output.outbox.write_markers.positions.len();
            audit.equal("write markers", marked, pending_writes.writes.len());
        }
        if let Some(own) = &self.temporary {
            own.names.iter().chain(&own.answered).for_each(|name| audit.text(name));
        }
        audit.equal("input of a connection", self.input.counted_bytes, self.input_bytes());
        audit.equal("unfinished input of a connection", self.input.counted_input, self.kept_bytes());
    }
}

impl Outbox {
    fn audit(&self, audit: &mut Audit, references: &mut References) {
        let bytes = |kind: Option<Kind>| -> usize {
            let ranges = self.ranges.iter().filter(|range| kind.is_none_or(|kind| range.kind == kind));
            ranges.map(|range| (range.end - range.start) as usize).sum()
        };
        audit.equal("bytes of an outbox", self.bytes, bytes(None));
        audit.equal("bytes of answers in an outbox", self.answer_bytes, bytes(Some(Kind::Answer)));
        self.ranges.iter().for_each(|range| references.chunk(range.chunk));
        self.private.iter().for_each(|chunk| references.chunk(*chunk));
        let last = self.write_markers.positions.back();
        let is_within = last.is_none_or(|last| *last <= self.end());
        audit.require(is_within, || format!("a write marker at {last:?} is behind the end {}", self.end()));
    }
}

impl Deferred {
    /// Visits the deliveries.
    pub fn audit(&self, audit: &mut Audit, references: &mut References) {
        for (_, waiting) in self.topics.iter() {
            match waiting {
                Waiting::Copy(fan_out, _) => *references.copies.entry(*fan_out).or_default() += 1,
                Waiting::Range(chunk, ..) => references.chunk(*chunk),
                Waiting::Queued(_) => audit.find("a message of a queue is among those of topics".to_owned()),
            }
        }
        for (key, list) in &self.queued {
            list.iter().for_each(|(_, queued)| queued.1.audit(audit, queued.0));
            let first = list.front().map(|(place, _)| *place);
            let is_found = first.is_some_and(|place| self.firsts.iter().any(|at| at.0 == (place, *key)));
            audit.require(is_found, || format!("deferred messages of {key:?} are not in order"));
        }
        audit.equal(
            "deferred messages of queues",
            self.of_queues,
            self.queued.values().map(|list| list.len()).sum(),
        );
    }
}

impl Answers {
    fn audit(&self, audit: &mut Audit, key: ConnKey) {
        let bytes = self.pending.iter().map(|pending| pending.answer.bytes()).sum();
        audit.equal("bytes of answers", self.bytes, bytes);
        for pending in &self.pending {
            audit.awaited(key, pending.token, pending.waiting);
            if let Answer::Opening(_, home, progress) = &pending.answer {
                progress.audit(audit, *home);
            }
        }
        let is_stuck = self.pending.front().is_some_and(|first| first.waiting == 0);
        audit.require(!is_stuck, || format!("the next answer of {key:?} is ready, and was not sent"));
    }
}

impl Transactions {
    fn audit(&self, audit: &mut Audit) {
        for open in &self.open {
            open.operations.iter().for_each(|operation| operation.audit(audit));
            audit.equal(
                "bytes of a transaction",
                open.bytes,
                open.operations.iter().map(Operation::bytes).sum(),
            );
        }
        audit.equal("bytes of transactions", self.bytes, self.open.iter().map(|open| open.bytes).sum());
    }
}

impl Commit {
    fn audit(&self, audit: &mut Audit) {
        self.operations.iter().for_each(|operation| operation.audit(audit));
    }
}

impl Operation {
    /// Visits the message of a SEND.
    pub fn audit(&self, audit: &mut Audit) {
        if let Operation::Send(message, _) = self {
            message.audit(audit);
        }
    }
}

impl PendingWrites {
    fn audit(&self, audit: &mut Audit) {
        self.writes.iter().for_each(|write| write.audit(audit));
        let is_last = |(id, at): &&(u64, u32)| self.requeued.get(id).is_some_and(|(_, last)| last == at);
        let in_order = self.order.iter().filter(is_last).count();
        audit.equal("ids of requeued deliveries", in_order, self.requeued.len());
    }
}

impl PendingWrite {
    /// Visits a delivery that is not written, or a part of several that are not.
    pub fn audit(&self, audit: &mut Audit) {
        let origin = self.origin;
        let mut credit = Amount::new(0, self.bytes as i64);
        if let Some(message) = &self.message {
            message.audit(audit);
            audit.in_flight(origin.home, origin.queue, 1, message.size() as u64);
            credit.messages = 1;
        }
        audit.credit(origin.home, origin.consumer, credit);
    }
}
