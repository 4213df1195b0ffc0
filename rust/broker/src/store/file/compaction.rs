//! Gives back room: a segment of which little is needed is written again at the end of the log, and removed.
//!
//! The emptiest segment comes first. Its messages are read in steps, each of which becomes a [`Batch`] that is written like
//! those of shards, so what shards forget meanwhile is not written again. Only when all steps are safe is the segment removed.

use std::io;

use super::batch::{Batch, Call, Piece};
use super::entry::{Entry, Found, HEAD_BYTES, SegmentNumber};
use super::log::Log;
use super::segment::{HEADER_BYTES, Segment};
use super::table::Place;
use crate::door::DiskFile;

/// How much of a segment is read at a time, unless one entry is larger.
const STEP_BYTES: usize = 1 << 20;
/// What a segment holds of needed bytes, in thousandths, if it is not worth the effort to write these again.
const FULL_ENOUGH: u64 = 800;

/// A segment that is being replaced.
#[derive(Debug)]
pub struct Replacing {
    segment: SegmentNumber,
    file: DiskFile,
    /// Where the next step begins, and where the last one ends.
    at: u64,
    end: u64,
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
    /// The segment to replace: a damaged one, or the emptiest one if more than twice what is needed is on disk.
    fn choose(&self) -> Option<&Segment> {
        let current = self.segments.current()?.number;
        let closed = || self.segments.iter().filter(|segment| segment.number != current);
        if let Some(empty) = closed().find(|segment| segment.needed_bytes() == 0) {
            return Some(empty);
        }
        if let Some(damaged) = closed().find(|segment| segment.is_damaged) {
            return Some(damaged);
        }
        // The current and the spare segment come on top: twice what is needed and three segments in all.
        let used: u64 = closed().map(|segment| segment.room).sum();
        let share = |segment: &&Segment| segment.needed_bytes() * 1000 / segment.room.max(1);
        let is_too_much = used > 2 * self.segments.needed_bytes() + self.segment_bytes();
        closed().min_by_key(share).filter(|emptiest| is_too_much && share(emptiest) < FULL_ENOUGH)
    }

    /// The next step of replacing a segment.
    ///
    /// # Errors
    /// The segment cannot be read.
    pub fn compact(&self, replacing: &mut Option<Replacing>) -> io::Result<Step> {
        if replacing.is_none() {
            let Some(segment) = self.choose() else { return Ok(Step::Nothing) };
            let end = if segment.needed_bytes() == 0 { HEADER_BYTES } else { segment.end };
            let (number, file) = (segment.number, segment.file.clone());
            *replacing = Some(Replacing { segment: number, file, at: HEADER_BYTES, end });
        }
        let Some(current) = replacing else { return Ok(Step::Nothing) };
        while current.at < current.end {
            let batch = current.read()?;
            if !batch.is_empty() {
                return Ok(Step::Write(batch));
            }
        }
        let segment = current.segment;
        *replacing = None;
        Ok(Step::Remove(segment))
    }

    /// Removes a segment that was replaced. Returns how many of its messages could not be read: its file is kept then, under
    /// another name.
    ///
    /// # Errors
    /// The disk fails.
    pub fn remove(&mut self, segment: SegmentNumber) -> io::Result<u64> {
        self.segments.remove(segment)
    }
}

impl Replacing {
    /// Reads what the next step has.
    fn read(&mut self) -> io::Result<Batch> {
        let mut bytes = vec![0; STEP_BYTES.min((self.end - self.at) as usize)];
        let mut batch = Batch::default();
        let mut done = 0;
        self.file.read_at(&mut bytes, self.at)?;
        loop {
            match Found::at(&bytes[done..]) {
                Found::Entry(entry, length) => {
                    self.take(&mut batch, self.at + done as u64, &entry, &bytes[done..done + length]);
                    done += length;
                }
                Found::End | Found::Damaged if done > 0 => break,
                Found::End => {
                    self.at = self.end;
                    return Ok(batch);
                }
                // It may be longer than what was read, or damaged.
                Found::Damaged => {
                    let left = (self.end - self.at) as usize;
                    if bytes.len() < left {
                        bytes.resize(left.min(bytes.len() * 4), 0);
                        self.file.read_at(&mut bytes, self.at)?;
                    } else {
                        done = super::recovery::next_group(&bytes, 1).map_or(left, |(start, _)| start);
                        break;
                    }
                }
            }
            if done == bytes.len() {
                break;
            }
        }
        self.at += done as u64;
        Ok(batch)
    }

    fn take(&self, batch: &mut Batch, offset: u64, entry: &Entry<'_>, bytes: &[u8]) {
        match entry {
            Entry::Message(message) => {
                let start = batch.bytes.len();
                batch.bytes.extend_from_slice(bytes);
                let piece = Piece { record: message.record, start, end: batch.bytes.len() };
                batch.calls.push(Call::Move(piece, Place { segment: self.segment, offset }));
            }
            Entry::Forgotten(forgotten) => {
                let others = forgotten.filter(|(segment, _)| *segment != self.segment);
                batch.calls.extend(others.map(|(segment, record)| Call::StayForgotten(segment, record)));
            }
            Entry::Delivered(delivered) => {
                batch.calls.extend(delivered.map(|(record, counts)| Call::Deliver(record, counts)));
            }
            Entry::Transaction(entries) => {
                for (at, entry, length) in *entries {
                    let start = HEAD_BYTES + at;
                    self.take(batch, offset + start as u64, &entry, &bytes[start..start + length]);
                }
            }
            Entry::Group(_) => {}
        }
    }
}
