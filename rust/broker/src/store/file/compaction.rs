//! Gives back room: a segment of which little is needed is written again at the end of the log, and removed.
//!
//! The emptiest segment comes first. Its messages are read in steps, each of which becomes a [`Batch`] that is written like
//! those of shards, so what shards forget meanwhile is not written again. Only when all steps are safe is the segment removed.
//!
//! On a full disk everything that is less than full is replaced, into the reserve.

use std::{io, iter};

use super::batch::{Batch, Call, Piece};
use super::damage::resume;
use super::entry::{ENTRY_BYTES_MAX, Entry, Found, HEAD_BYTES, SegmentNumber};
use super::group::CALL_BYTES;
use super::log::Log;
use super::segment::{HEADER_BYTES, Segment, SegmentFile};
use super::table::Place;
use crate::door::medium::{is_no_room, read_readable};
use crate::door::planted;
use crate::ids::RecordId;

/// How much of a segment is read at a time, unless one entry is larger.
const STEP_BYTES: u64 = 1 << 20;
/// A step reads this part of a segment at most, as a divisor of its length: the end of the current segment, where a step does
/// not fit any more, is lost.
const STEP_SHARE: u64 = 4;
/// What a replacement takes beside the needed bytes, at most: the heads of its groups.
const STEP_SLACK: u64 = 60 * STEP_SHARE;
/// What a segment holds of needed bytes, in thousandths, if it is not worth the effort to write these again.
const FULL_ENOUGH: u64 = 800;

/// So many segments are few.
const SEGMENTS_FEW: u64 = 16;

/// A segment that is being replaced.
#[derive(Debug)]
pub struct Replacing {
    segment: SegmentNumber,
    file: SegmentFile,
    /// Where the next step begins, and where the last one ends.
    at: u64,
    end: u64,
    /// How much is read at a time.
    step_bytes: u64,
}

/// What a step of compaction is.
#[derive(Debug)]
pub enum Step {
    /// There is nothing to replace.
    Nothing,
    /// This is to be written, and made safe before the last step.
    Write(Batch),
    /// All of a segment was written again: once that is safe, this segment is to be removed.
    Remove(SegmentNumber),
}

impl Log {
    /// The segment to replace: one whose replacement a crash has ended, an empty or a damaged one, or the emptiest one if more
    /// than twice what is needed is on disk, or if the disk is full.
    fn choose(&self, is_full: bool) -> Option<&Segment> {
        let current = self.segments.current()?.number;
        let closed = || self.segments.iter().filter(|segment| segment.number != current);
        if let Some(superseded) = closed().find(|segment| segment.is_superseded) {
            return Some(superseded);
        }
        // Counts of deliveries are written again. If they may be many, that alone is no reason: it would never end.
        let counts_are_few = self.table.len() as u64 * CALL_BYTES <= self.segment_bytes() / 2;
        let is_empty =
            |segment: &&Segment| segment.needed_bytes() == 0 && (counts_are_few || !segment.has_counts);
        if let Some(empty) = closed().find(is_empty) {
            return Some(empty);
        }
        if let Some(damaged) = closed().find(|segment| segment.is_damaged) {
            return Some(damaged);
        }
        // The current and the spare segment come on top: twice what is needed and three segments in all.
        let used: u64 = closed().map(|segment| segment.room).sum();
        let share = |segment: &&Segment| segment.needed_bytes().saturating_mul(1000) / segment.room.max(1);
        let is_too_much = used > 2 * self.segments.needed_bytes() + self.segment_bytes();
        // Each start begins a segment: many short ones are put together.
        let count_max = SEGMENTS_FEW + 2 * self.segments.needed_bytes() / self.segment_bytes();
        if !is_full && closed().count() as u64 > count_max {
            let mut shortest: Vec<&Segment> = closed().collect();
            shortest.sort_unstable_by_key(|segment| segment.room);
            // Two that do not fit together would be written again and again, and stay two.
            if let [first, second, ..] = shortest[..]
                && first.room + second.room <= self.segment_bytes() / 2
            {
                return Some(first);
            }
        }
        let room = if is_full { self.segments.free_bytes() } else { u64::MAX };
        let fitting = || closed().filter(|segment| segment.needed_bytes() + STEP_SLACK <= room);
        fitting()
            .min_by_key(share)
            .filter(|emptiest| (is_too_much || is_full) && share(emptiest) < FULL_ENOUGH)
    }

    /// The next step of replacing a segment; `is_full`: the disk is.
    pub fn compact(&self, replacing: &mut Option<Replacing>, is_full: bool) -> Step {
        if replacing.is_none() {
            let Some(segment) = self.choose(is_full) else { return Step::Nothing };
            let is_needed = segment.needed_bytes() > 0 || segment.has_counts;
            let end = if is_needed { segment.end } else { HEADER_BYTES };
            let (number, file) = (segment.number, segment.file.clone());
            let step_bytes = STEP_BYTES.min(self.segment_bytes() / STEP_SHARE).max(1);
            *replacing = Some(Replacing { segment: number, file, at: HEADER_BYTES, end, step_bytes });
        }
        let Some(current) = replacing else { return Step::Nothing };
        while current.at < current.end {
            let batch = current.read(self);
            if !batch.is_empty() {
                return Step::Write(batch);
            }
        }
        let segment = current.segment;
        *replacing = None;
        Step::Remove(segment)
    }

    /// Removes a segment that was replaced. Returns how many of its messages could not be read: its file is kept then, under
    /// another name. It may be called again after an error.
    ///
    /// # Errors
    /// The disk fails.
    pub fn remove(&mut self, segment: SegmentNumber) -> io::Result<u64> {
        match self.segments.remove(segment) {
            Err(error) if !is_no_room(&error) => Err(self.fail(error)),
            other => other,
        }
    }
}

impl Replacing {
    /// Reads what the next step has of what the log still needs. What is damaged, also zeros, is passed over: the messages in it
    /// stay in the table.
    fn read(&mut self, log: &Log) -> Batch {
        let mut bytes = vec![0; self.step_bytes.min(self.end - self.at) as usize];
        let mut batch = Batch::default();
        let mut done = 0;
        self.fill(&mut bytes);
        // What stands for many records in a few bytes may take more when it is put together again.
        let is_enough = |batch: &Batch| {
            batch.bytes.len() as u64 + CALL_BYTES * batch.calls.len() as u64 > 2 * self.step_bytes
        };
        while done < bytes.len() && !is_enough(&batch) {
            match Found::at(&bytes[done..], self.file.salt) {
                Found::Entry(entry, length) => {
                    let offset = self.at + done as u64;
                    self.take(log, &mut batch, offset, &entry, &bytes[done..done + length]);
                    done += length;
                }
                Found::End | Found::Damaged if done > 0 => break,
                // It may be longer than what was read, or damaged.
                Found::End | Found::Damaged => {
                    let left = usize::try_from(self.end - self.at).unwrap_or(usize::MAX);
                    if bytes.len() < left.min(ENTRY_BYTES_MAX + 8) {
                        bytes.resize(left.min(bytes.len().saturating_mul(4)), 0);
                        self.fill(&mut bytes);
                    } else {
                        // The table knows what is needed: where groups end does not matter.
                        done = resume(&bytes, 0, Some(bytes.len()), self.file.salt).0;
                    }
                }
            }
        }
        self.at += done as u64;
        batch
    }

    /// Reads the bytes where the next step begins; those that cannot be read are zeros.
    fn fill(&self, bytes: &mut [u8]) {
        let count = read_readable(&*self.file.file, bytes, self.at);
        bytes[count..].fill(0);
    }

    fn take(&self, log: &Log, batch: &mut Batch, offset: u64, entry: &Entry<'_>, bytes: &[u8]) {
        match entry {
            Entry::Message(_) if planted!("message-not-moved") => {}
            Entry::Message(message) => {
                let is_shared = message.queue != message.destination;
                self.take_messages(log, batch, offset, iter::once(message.record), bytes, is_shared);
            }
            Entry::Shared(shared) => {
                let records = shared.map(|message| message.record);
                self.take_messages(log, batch, offset, records, bytes, true);
            }
            Entry::Forgotten(_) if planted!("tombstones-not-moved") => {}
            Entry::Forgotten(forgotten) => {
                let is_needed = |segment| segment != self.segment && log.segments.find(segment).is_some();
                let others = forgotten.filter(|(segment, _)| is_needed(*segment));
                batch.calls.extend(others.map(|(segment, record)| Call::StayForgotten(segment, record)));
            }
            Entry::Delivered(_) if planted!("deliveries-not-moved") => {}
            Entry::Delivered(delivered) => {
                let waiting = delivered.filter(|(record, _)| log.table.find(*record).is_some());
                batch.calls.extend(waiting.map(|(record, counts)| Call::Deliver(record, counts)));
            }
            Entry::Transaction(entries) => {
                for (at, entry, length) in *entries {
                    let start = HEAD_BYTES + at;
                    self.take(log, batch, offset + start as u64, &entry, &bytes[start..start + length]);
                }
            }
            Entry::Group(_) => {}
        }
    }

    /// Takes the messages of an entry that are needed at its place: its bytes, once.
    fn take_messages(
        &self,
        log: &Log,
        batch: &mut Batch,
        offset: u64,
        records: impl Iterator<Item = RecordId>,
        bytes: &[u8],
        is_shared: bool,
    ) {
        let place = Place { segment: self.segment, offset };
        let (start, before) = (batch.bytes.len(), batch.calls.len());
        let end = start + bytes.len();
        for record in records.filter(|it| log.table.find(*it).is_some_and(|stored| stored.place == place)) {
            batch.calls.push(Call::Move(Piece { record, start, end, is_shared }, place));
        }
        if batch.calls.len() > before {
            batch.bytes.extend_from_slice(bytes);
            self.file.salt.change(&mut batch.bytes[start..]);
        }
    }
}
