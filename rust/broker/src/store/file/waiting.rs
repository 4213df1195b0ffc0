//! What shards have told and the log has not written, in order.
//!
//! Usually this is what has arrived since the last group. On a full disk it is what has to wait for room: then what makes room
//! is taken out of it and written first. A message that is forgotten while it waits is dropped.

use std::collections::VecDeque;

use super::batch::{Batch, Call, Commit};
use super::group::bytes_max;
use crate::door::HashMap;
use crate::ids::RecordId;
use crate::store::Position;

/// What a shard has told.
#[derive(Debug)]
pub struct Told {
    /// The shard.
    pub shard: usize,
    /// What it has told.
    pub batch: Batch,
    /// Its position after that; `None`: the rest of its batch follows.
    pub position: Option<Position>,
    /// The bytes that it counts for in the inbox.
    pub bytes: u64,
}

/// Batches that make up one group, and what else is known of them.
#[derive(Debug, Default)]
pub struct Gathered {
    /// What is written.
    pub batches: Vec<Batch>,
    /// The rest.
    pub told: Vec<Done>,
    /// How many of the first ones have nothing that makes room.
    sifted: usize,
}

/// What is known of a batch that is written: its shard, its position, its bytes.
pub type Done = (usize, Option<Position>, u64);

/// What waits to be written.
#[derive(Debug, Default)]
pub struct Waiting {
    told: VecDeque<Told>,
    /// How many of the first batches have nothing that makes room.
    sifted: usize,
}

impl Waiting {
    /// Adds what a shard has told. Its calls are spread over several groups if they take more than `group_bytes`.
    pub fn push(&mut self, shard: usize, batch: Batch, position: Position, group_bytes: u64) {
        let bytes = batch.bytes.len() as u64;
        if bytes_max(std::slice::from_ref(&batch)) <= group_bytes {
            return self.told.push_back(Told { shard, batch, position: Some(position), bytes });
        }
        let mut parts = split(batch, group_bytes).into_iter().peekable();
        while let Some(batch) = parts.next() {
            let is_last = parts.peek().is_none();
            let (position, bytes) = if is_last { (Some(position), bytes) } else { (None, 0) };
            self.told.push_back(Told { shard, batch, position, bytes });
        }
    }

    /// Whether nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.told.is_empty()
    }

    /// The messages that wait.
    #[must_use]
    pub fn messages(&self) -> usize {
        let kept = |call: &Call| match call {
            Call::Keep(_) => 1,
            Call::Commit(commit) => commit.kept.len(),
            _ => 0,
        };
        self.told.iter().flat_map(|told| &told.batch.calls).map(kept).sum()
    }

    /// Takes the first batches, as many as go into one group: one at least, if there is one.
    pub fn gather(&mut self, group_bytes: u64) -> Gathered {
        let (mut gathered, mut bytes) = (Gathered::default(), 0);
        while let Some(next) = self.told.front() {
            bytes += bytes_max(std::slice::from_ref(&next.batch));
            if bytes > group_bytes && !gathered.batches.is_empty() {
                break;
            }
            let Some(Told { shard, batch, position, bytes }) = self.told.pop_front() else { break };
            gathered.batches.push(batch);
            gathered.told.push((shard, position, bytes));
        }
        gathered.sifted = self.sifted.min(gathered.batches.len());
        self.sifted -= gathered.sifted;
        gathered
    }

    /// Puts back what was [gathered](Waiting::gather) last and could not be written.
    pub fn put_back(&mut self, gathered: Gathered) {
        let Gathered { batches, told, sifted } = gathered;
        self.sifted += sifted;
        for (batch, (shard, position, bytes)) in batches.into_iter().zip(told).rev() {
            self.told.push_front(Told { shard, batch, position, bytes });
        }
    }

    /// Moves what makes room to another batch: what is forgotten outside of transactions that also keep messages, and the
    /// counts of deliveries of messages that are `known`. A message that waits and is forgotten is dropped. What is forgotten
    /// directly behind a message stays there: this takes its place.
    pub fn sift(&mut self, urgent: &mut Vec<Call>, known: impl Fn(RecordId) -> bool) {
        let mut unknown = HashMap::default();
        for told in self.told.iter_mut().skip(self.sifted) {
            let mut is_kept = false;
            for call in std::mem::take(&mut told.batch.calls) {
                let replaces = is_kept && matches!(call, Call::Forget(_));
                is_kept = matches!(call, Call::Keep(_));
                match call {
                    _ if replaces => told.batch.calls.push(call),
                    Call::Forget(record) if !known(record) => _ = unknown.insert(record, ()),
                    Call::Forget(_) => urgent.push(call),
                    Call::Deliver(record, _) if known(record) => urgent.push(call),
                    Call::Commit(Commit { ref kept, .. }) if kept.is_empty() => urgent.push(call),
                    _ => told.batch.calls.push(call),
                }
            }
        }
        self.sifted = self.told.len();
        if !unknown.is_empty() {
            self.drop_messages(&mut unknown);
        }
        // Their messages come later, or stand in a transaction.
        let mut left: Vec<RecordId> = unknown.into_keys().collect();
        left.sort_unstable();
        urgent.extend(left.into_iter().map(Call::Forget));
    }

    /// Drops messages outside of transactions, and takes their records out of the table.
    fn drop_messages(&mut self, records: &mut HashMap<RecordId, ()>) {
        for told in &mut self.told {
            let batch = &mut told.batch;
            let before = batch.calls.len();
            batch.calls.retain(|call| match call {
                Call::Keep(piece) => records.remove(&piece.record).is_none(),
                _ => true,
            });
            if batch.calls.len() < before && batch.calls.is_empty() {
                batch.bytes = Vec::new();
            }
        }
    }

    /// Takes what has nothing left to write and nothing of the same shard before it.
    pub fn take_done(&mut self) -> Vec<Done> {
        let (mut done, mut behind) = (Vec::new(), HashMap::default());
        let mut sifted = 0;
        let mut at = 0;
        self.told.retain(|told| {
            at += 1;
            let is_done = told.batch.is_empty() && !behind.contains_key(&told.shard);
            if is_done {
                done.push((told.shard, told.position, told.bytes));
                sifted += usize::from(at <= self.sifted);
            } else {
                behind.insert(told.shard, ());
            }
            !is_done
        });
        self.sifted -= sifted;
        done
    }

    /// The batches that wait.
    pub fn batches(&self) -> impl Iterator<Item = &Batch> {
        self.told.iter().map(|told| &told.batch)
    }
}

/// The entries of those messages of these batches that are wanted.
pub fn find<'a>(
    batches: impl Iterator<Item = &'a Batch>,
    wanted: impl Fn(RecordId) -> bool,
) -> Vec<(RecordId, Vec<u8>)> {
    let mut found = Vec::new();
    for batch in batches {
        let pieces = batch.calls.iter().flat_map(|call| match call {
            Call::Keep(piece) => std::slice::from_ref(piece),
            Call::Commit(commit) => &commit.kept,
            _ => &[],
        });
        let pieces = pieces.filter(|piece| wanted(piece.record));
        found.extend(pieces.map(|piece| (piece.record, batch.bytes_of(*piece).to_vec())));
    }
    found
}

/// Batches with the calls of one, each of which takes so many bytes at most, unless one call takes more. A message stays
/// together with what it replaces, which is forgotten directly behind it.
fn split(batch: Batch, group_bytes: u64) -> Vec<Batch> {
    let Batch { bytes, calls } = batch;
    let mut parts = vec![Batch::default()];
    let mut size = 0;
    for mut call in calls {
        let mut own = Batch::default();
        let mut copy = |piece: &mut super::batch::Piece| {
            let start = own.bytes.len();
            own.bytes.extend_from_slice(&bytes[piece.start..piece.end]);
            (piece.start, piece.end) = (start, own.bytes.len());
        };
        match &mut call {
            Call::Keep(piece) | Call::Move(piece, _) => copy(piece),
            Call::Commit(commit) => commit.kept.iter_mut().for_each(copy),
            _ => {}
        }
        own.calls.push(call);
        size += bytes_max(std::slice::from_ref(&own));
        let is_behind_message = |part: &Batch| {
            matches!((part.calls.last(), &own.calls[0]), (Some(Call::Keep(_)), Call::Forget(_)))
        };
        if size > group_bytes && parts.last().is_some_and(|part| !part.is_empty() && !is_behind_message(part))
        {
            parts.push(Batch::default());
            size = bytes_max(std::slice::from_ref(&own));
        }
        if let Some(part) = parts.last_mut() {
            part.append(own);
        }
    }
    parts
}

#[cfg(test)]
#[path = "waiting_tests.rs"]
mod tests;
