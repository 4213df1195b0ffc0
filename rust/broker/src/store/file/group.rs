//! Puts together what several shards tell into one group of entries, which is written and synced at once.
//!
//! A message that is kept and forgotten in one group is not written at all. A message may even be forgotten before its shard
//! tells that it is kept: then neither is written, and the log remembers the record until the message comes.
//!
//! Queues of durable subscriptions have the same messages: in one group the payload of such a message is written once.
//!
//! Messages come first in a group and what is forgotten last: a group of which only a part has reached the disk has forgotten
//! nothing whose message was to be kept elsewhere.

use std::ops::Range;

use super::batch::{Batch, Call, Commit, Piece};
use super::encode;
use super::entry::{Counts, GROUP_BYTES, Group, HEAD_BYTES, Message, Salt, SegmentNumber, messages_in};
use super::segments::Segments;
use super::table::{Place, Stored, Table, rounded};
use crate::door::{HashMap, planted};
use crate::ids::RecordId;

/// The segment of messages in the group that is being put together; no real one has this number.
const THIS_GROUP: SegmentNumber = 0;
/// More memory than this is given back after a group.
const SPARE_BYTES: usize = 4 << 20;
/// What a forgotten or a delivered record and the head of an entry take at most.
pub const CALL_BYTES: u64 = 48;

/// A message of the group.
#[derive(Clone, Copy, Debug)]
struct Kept {
    piece: Piece,
    /// The batch that has its bytes.
    batch: usize,
    /// The segment that has it already, and is about to be removed.
    moved_from: Option<SegmentNumber>,
    /// It is a part of a transaction, which has to be written as a whole.
    is_in_commit: bool,
    /// It is no longer needed, so it is not written.
    is_left_out: bool,
}

/// What is needed to put groups together.
#[derive(Debug, Default)]
pub struct Assembly {
    /// The group as it is written.
    bytes: Vec<u8>,
    kept: Vec<Kept>,
    commits: Vec<CommitPart>,
    forgotten: Vec<(SegmentNumber, RecordId)>,
    delivered: HashMap<RecordId, Counts>,
    /// Records that were forgotten before they were kept.
    early: HashMap<RecordId, ()>,
    /// Smaller records were all known when the log was opened: one of them that is not in the table will never come.
    pub(super) first_record: RecordId,
    /// Messages that were moved, with their places before: these are valid until the log is synced.
    pub(super) moved: Vec<(RecordId, Stored)>,
}

/// A transaction: its messages among those that are kept, and what it forgets.
#[derive(Debug)]
struct CommitPart {
    kept: Range<usize>,
    forgotten: Vec<(SegmentNumber, RecordId)>,
}

/// The most bytes that a group of these batches takes.
#[must_use]
pub fn bytes_max(batches: &[Batch]) -> u64 {
    let beside_messages = |call: &Call| match call {
        Call::Keep(_) => 0,
        // If it is forgotten meanwhile, that is written in its stead.
        Call::Move(piece, _) if piece.is_shared => CALL_BYTES,
        Call::Move(piece, _) => CALL_BYTES.saturating_sub((piece.end - piece.start) as u64),
        Call::Commit(commit) => CALL_BYTES * (1 + commit.forgotten.len() as u64),
        Call::Forget(_) | Call::Deliver(..) | Call::StayForgotten(..) => CALL_BYTES,
    };
    let of = |batch: &Batch| batch.bytes.len() as u64 + batch.calls.iter().map(beside_messages).sum::<u64>();
    GROUP_BYTES as u64 + 2 * CALL_BYTES + batches.iter().map(of).sum::<u64>()
}

impl Assembly {
    /// No group. Smaller records than this one were all known when the log was opened.
    #[must_use]
    pub fn new(first_record: RecordId) -> Self {
        Assembly { first_record, ..Assembly::default() }
    }

    /// Puts together a group, to be written at the end of the current segment, which has room for [`bytes_max`]. The table and
    /// the segments are changed as if it were written. Returns its bytes: none if there is nothing to write.
    pub fn assemble(
        &mut self,
        number: u64,
        synced: u64,
        batches: &[Batch],
        table: &mut Table,
        segments: &mut Segments,
    ) -> &[u8] {
        self.bytes.clear();
        self.bytes.shrink_to(SPARE_BYTES);
        let Some(current) = segments.current() else { return &[] };
        let (segment, start, salt) = (current.number, current.end, current.file.salt);
        let mut building = Building { assembly: self, batches, table, segments, segment, start, salt };
        building.note_kept();
        building.note_forgotten();
        building.append();
        let length = self.bytes.len() - GROUP_BYTES;
        if length == 0 {
            return &[];
        }
        let mut head = Vec::with_capacity(GROUP_BYTES);
        debug_assert!(u32::try_from(length).is_ok(), "batches are split before");
        encode::append_group(&mut head, Group { number, synced, length: length as u32 }, salt);
        self.bytes[..GROUP_BYTES].copy_from_slice(&head);
        &self.bytes
    }

    /// The bytes of the last group.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// A group that is being put together.
struct Building<'a> {
    assembly: &'a mut Assembly,
    batches: &'a [Batch],
    table: &'a mut Table,
    segments: &'a mut Segments,
    /// The segment and the offset at which the group will stand.
    segment: SegmentNumber,
    start: u64,
    /// The salt of the segment.
    salt: Salt,
}

impl Building<'_> {
    fn note_kept(&mut self) {
        self.assembly.kept.clear();
        self.assembly.commits.clear();
        for (at, batch) in self.batches.iter().enumerate() {
            for call in &batch.calls {
                match call {
                    Call::Keep(piece) => self.keep(at, *piece, None, false),
                    Call::Move(piece, from) => {
                        if let Some(stored) = self.table.find(piece.record).filter(|it| it.place == *from) {
                            self.segments.release(stored);
                            self.assembly.moved.push((piece.record, stored));
                            self.keep(at, *piece, Some(from.segment), false);
                        }
                    }
                    Call::Commit(Commit { kept, .. }) => {
                        let first = self.assembly.kept.len();
                        kept.iter().for_each(|piece| self.keep(at, *piece, None, true));
                        let kept = first..self.assembly.kept.len();
                        self.assembly.commits.push(CommitPart { kept, forgotten: Vec::new() });
                    }
                    Call::Forget(_) | Call::Deliver(..) | Call::StayForgotten(..) => {}
                }
            }
        }
    }

    fn keep(&mut self, batch: usize, piece: Piece, moved_from: Option<SegmentNumber>, is_in_commit: bool) {
        let is_left_out = self.assembly.early.remove(&piece.record).is_some();
        let offset = self.assembly.kept.len() as u64;
        if !is_left_out {
            self.table.set(piece.record, Place { segment: THIS_GROUP, offset }, 0);
        }
        self.assembly.kept.push(Kept { piece, batch, moved_from, is_in_commit, is_left_out });
    }

    fn note_forgotten(&mut self) {
        let mut commits = std::mem::take(&mut self.assembly.commits);
        let mut next = commits.iter_mut();
        for batch in self.batches {
            for call in &batch.calls {
                match call {
                    Call::Forget(record) => {
                        let found = self.forget(*record);
                        self.assembly.forgotten.extend(found);
                    }
                    Call::Deliver(record, counts) => {
                        let known = self.assembly.delivered.entry(*record).or_default();
                        *known = (*known).max(*counts);
                    }
                    Call::StayForgotten(segment, record) => {
                        if self.segments.find(*segment).is_some() {
                            self.assembly.forgotten.push((*segment, *record));
                        }
                    }
                    Call::Commit(commit) => {
                        if let Some(part) = next.next() {
                            part.forgotten
                                .extend(commit.forgotten.iter().filter_map(|record| self.forget(*record)));
                        }
                    }
                    Call::Keep(_) | Call::Move(..) => {}
                }
            }
        }
        drop(next);
        self.assembly.commits = commits;
    }

    /// Removes a record. Returns what has to be written: the segment that has its message.
    fn forget(&mut self, record: RecordId) -> Option<(SegmentNumber, RecordId)> {
        let Some(stored) = self.table.remove(record) else {
            if record >= self.assembly.first_record && !planted!("early-tombstone-lost") {
                self.assembly.early.insert(record, ());
            }
            return None;
        };
        if stored.place.segment != THIS_GROUP {
            self.segments.release(stored);
            return Some((stored.place.segment, record));
        }
        let kept = self.assembly.kept.get_mut(stored.place.offset as usize)?;
        if kept.is_in_commit {
            return Some((self.segment, record));
        }
        kept.is_left_out = true;
        kept.moved_from.map(|segment| (segment, record))
    }

    /// Appends everything to the bytes, and notes where it stands.
    fn append(&mut self) {
        self.assembly.bytes.resize(GROUP_BYTES, 0);
        for at in 0..self.assembly.kept.len() {
            let Kept { is_in_commit, is_left_out, piece, .. } = self.assembly.kept[at];
            if !is_in_commit && !is_left_out && !piece.is_shared {
                self.append_message(at);
            }
        }
        self.append_shared();
        for part in std::mem::take(&mut self.assembly.commits) {
            self.append_commit(part);
        }
        let table = &*self.table;
        let counts = self.assembly.delivered.drain().filter(|(record, _)| table.find(*record).is_some());
        let mut delivered: Vec<_> = counts.collect();
        let start = self.assembly.bytes.len();
        if !delivered.is_empty() && planted!("deliveries-not-written") {
            delivered.clear();
        }
        encode::append_delivered(&mut self.assembly.bytes, &mut delivered);
        if let Some(segment) = self.segments.find_mut(self.segment).filter(|_| !delivered.is_empty()) {
            segment.has_counts = true;
        }
        self.salt.change(&mut self.assembly.bytes[start..]);
        let mut forgotten = std::mem::take(&mut self.assembly.forgotten);
        if !forgotten.is_empty() && planted!("tombstone-lost") {
            forgotten.pop();
        }
        self.append_forgotten(&mut forgotten);
        forgotten.clear();
        self.assembly.forgotten = forgotten;
    }

    /// Appends messages of which several queues may have one: its payload is written once for all of them in the group.
    fn append_shared(&mut self) {
        let batches = self.batches;
        let message_of = |kept: &Kept| {
            let mut messages = messages_in(batches[kept.batch].bytes_of(kept.piece));
            messages.find(|message| message.record == kept.piece.record)
        };
        // Each message, with the first one that has the same payload.
        let (mut firsts, mut shared) = (HashMap::default(), Vec::new());
        for (at, kept) in self.assembly.kept.iter().enumerate() {
            if kept.piece.is_shared
                && !kept.is_in_commit
                && !kept.is_left_out
                && let Some(message) = message_of(kept)
            {
                let Message { sender, destination, id, headers, body, .. } = message;
                let first = *firsts.entry((id, destination, sender, headers, body)).or_insert(at);
                shared.push((first, at, message));
            }
        }
        shared.sort_unstable_by_key(|(first, at, _)| (*first, *at));
        for of_one in shared.chunk_by(|one, next| one.0 == next.0) {
            let start = self.assembly.bytes.len();
            let (_, _, first) = &of_one[0];
            match of_one {
                [_] => encode::append_message(&mut self.assembly.bytes, first),
                [_, further @ ..] => {
                    let further = further.iter().map(|(_, _, message)| *message);
                    encode::append_shared(&mut self.assembly.bytes, first, further);
                }
                [] => {}
            }
            self.salt.change(&mut self.assembly.bytes[start..]);
            let offset = self.start + start as u64;
            let length = (self.assembly.bytes.len() - start) as u64;
            for (_, _, message) in of_one {
                self.table.set(message.record, Place { segment: self.segment, offset }, length);
                if let Some(segment) = self.segments.find_mut(self.segment) {
                    match of_one.len() {
                        1 => segment.add(rounded(length)),
                        _ => segment.add_shared(offset, rounded(length)),
                    }
                }
            }
        }
    }

    fn append_message(&mut self, at: usize) {
        let Kept { piece, batch, .. } = self.assembly.kept[at];
        let offset = self.start + self.assembly.bytes.len() as u64;
        let start = self.assembly.bytes.len();
        self.assembly.bytes.extend_from_slice(self.batches[batch].bytes_of(piece));
        self.salt.change(&mut self.assembly.bytes[start..]);
        // A message of a transaction may be forgotten in the same group.
        if self.table.find(piece.record).is_some() {
            let length = (piece.end - piece.start) as u64;
            self.table.set(piece.record, Place { segment: self.segment, offset }, length);
            if let Some(segment) = self.segments.find_mut(self.segment) {
                segment.add(rounded(length));
            }
        }
    }

    fn append_commit(&mut self, CommitPart { kept, mut forgotten }: CommitPart) {
        let messages: Vec<usize> = kept.filter(|at| !self.assembly.kept[*at].is_left_out).collect();
        if messages.is_empty() && forgotten.is_empty() {
            return;
        }
        let start = self.assembly.bytes.len();
        self.assembly.bytes.resize(start + HEAD_BYTES, 0);
        messages.into_iter().for_each(|at| self.append_message(at));
        self.append_forgotten(&mut forgotten);
        encode::complete_transaction(&mut self.assembly.bytes[start..], self.salt);
    }

    fn append_forgotten(&mut self, forgotten: &mut [(SegmentNumber, RecordId)]) {
        let start = self.assembly.bytes.len();
        encode::append_forgotten(&mut self.assembly.bytes, forgotten);
        self.salt.change(&mut self.assembly.bytes[start..]);
        if let Some(segment) = self.segments.find_mut(self.segment) {
            segment.forgets.add_bytes((self.assembly.bytes.len() - start) as u64);
            for of_one in forgotten.chunk_by(|one, next| one.0 == next.0) {
                segment.forgets.add(of_one[0].0, of_one.len() as u64);
            }
        }
    }
}
