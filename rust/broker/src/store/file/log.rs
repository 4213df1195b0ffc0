//! The log: takes what shards tell, writes it, and says when it is safe. It knows no threads and waits for nothing but the disk.

use std::io;
use std::time::Duration;

use super::batch::Batch;
use super::encode;
use super::entry::{GROUP_BYTES, Group, SegmentNumber};
use super::group::{Assembly, bytes_max};
use super::recovery::{self, OpenError, Opened, Recovered};
use super::segment::SegmentFile;
use super::segments::{Purpose, Segments};
use super::table::{Stored, Table};
use crate::door::Instant;
use crate::door::medium::{Medium, is_no_room};
use crate::ids::RecordId;
use crate::report::types::StoreFigures;

/// Where a message is.
#[derive(Debug)]
pub enum Lookup {
    /// In this file, at this place.
    At(SegmentFile, Stored),
    /// In a segment that could not be read.
    Lost,
    /// It has not been written, or is no longer needed.
    Unknown,
}

/// What has become of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// There was nothing to write.
    Nothing,
    /// It is written.
    Done,
    /// There is no room for it. Nothing has changed.
    NoRoom,
    /// The log has taken it, but the disk was full before all of it was written. Nothing else can be written until
    /// [`Log::finish`] has done that.
    Stuck,
}

/// A log that is open.
#[derive(Debug)]
pub struct Log {
    pub(super) segments: Segments,
    pub(super) table: Table,
    assembly: Assembly,
    /// Whether the last group that was put together is not written.
    is_stuck: bool,
    /// The number of the next group.
    next_group: u64,
    /// The number of the last group that is safe.
    synced: u64,
    /// The segment of recovery, and those before it, are never written to.
    last_recovered: SegmentNumber,
    /// Records that were given out by now are smaller; for headers.
    next_record: RecordId,
    /// Those that only grow; the others are 0.
    counters: StoreFigures,
    /// How long the syncs took since they were taken last.
    sync_times: Vec<Duration>,
}

impl Log {
    /// As [`open_with_reserve`](Log::open_with_reserve), with the smallest reserve.
    ///
    /// # Errors
    /// See [`OpenError`].
    #[cfg(test)]
    pub fn open(
        directory: impl Medium + 'static,
        segment_bytes: u64,
        progress: impl FnMut(u64, u64) -> bool,
    ) -> Result<(Self, Recovered), OpenError> {
        Self::open_with_reserve(directory, segment_bytes, 0, progress)
    }

    /// Opens the log in a directory; see [`recovery`]. So many bytes are kept free for what makes room on a full disk, rounded
    /// to whole segments: two at least.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open_with_reserve(
        directory: impl Medium + 'static,
        segment_bytes: u64,
        reserve_bytes: u64,
        progress: impl FnMut(u64, u64) -> bool,
    ) -> Result<(Self, Recovered), OpenError> {
        let Opened { mut segments, table, next_record, next_group, recovered } =
            recovery::open(Box::new(directory), segment_bytes, progress)?;
        segments.set_reserve(reserve_bytes);
        let damages = recovered.damages.len() as u64;
        let log = Log {
            last_recovered: segments.current().map_or(0, |segment| segment.number),
            segments,
            table,
            assembly: Assembly::new(next_record),
            is_stuck: false,
            next_group,
            synced: next_group - 1,
            next_record,
            counters: StoreFigures { damages, ..StoreFigures::default() },
            sync_times: Vec::new(),
        };
        Ok((log, recovered))
    }

    /// All records that were ever given out are smaller.
    #[must_use]
    pub fn next_record(&self) -> RecordId {
        self.next_record
    }

    /// Begins a segment, so that those which were found can be compacted.
    ///
    /// # Errors
    /// There is no room, or the disk fails.
    pub fn begin_segment(&mut self) -> io::Result<()> {
        match self.segments.current().filter(|current| current.number > self.last_recovered) {
            Some(_) => Ok(()),
            None => self.segments.begin(GROUP_BYTES as u64, self.next_record, self.next_group),
        }
    }

    /// Writes what was told as one group; `next_record`: all records given out are smaller. It is safe only after
    /// [`sync`](Log::sync).
    ///
    /// # Errors
    /// The disk fails otherwise than by being full. The log cannot be used any more.
    pub fn write(
        &mut self,
        batches: &[Batch],
        next_record: RecordId,
        purpose: Purpose,
    ) -> io::Result<Written> {
        self.next_record = self.next_record.max(next_record);
        if self.is_stuck {
            return Ok(Written::NoRoom);
        }
        if batches.iter().all(Batch::is_empty) {
            return Ok(Written::Nothing);
        }
        if !self.make_room(bytes_max(batches), purpose)? {
            return Ok(Written::NoRoom);
        }
        let (number, synced) = (self.next_group, self.synced);
        let bytes = self.assembly.assemble(number, synced, batches, &mut self.table, &mut self.segments);
        if bytes.is_empty() {
            return Ok(Written::Nothing);
        }
        self.is_stuck = true;
        match self.finish()? {
            true => Ok(Written::Done),
            false => Ok(Written::Stuck),
        }
    }

    /// Writes the group that the log has taken: the same bytes at the same place. Returns whether it is written.
    ///
    /// # Errors
    /// As for [`write`](Log::write).
    pub fn finish(&mut self) -> io::Result<bool> {
        let bytes = self.assembly.bytes();
        if let Some(current) = self.segments.current_mut().filter(|_| self.is_stuck) {
            match current.file.file.write_at(bytes, current.end) {
                Err(error) if is_no_room(&error) => return Ok(false),
                Err(error) => return Err(self.fail(error)),
                Ok(()) => {}
            }
            current.end += bytes.len() as u64;
            self.next_group = self.next_group.saturating_add(1);
            self.counters.groups += 1;
            self.counters.written_bytes += bytes.len() as u64;
            self.is_stuck = false;
        }
        Ok(true)
    }

    /// The disk has failed: what was moved and may not be there is read from its old place.
    pub(super) fn fail(&mut self, error: io::Error) -> io::Error {
        for (record, stored) in self.assembly.moved.drain(..).rev() {
            if self.table.find(record).is_some() {
                self.table.set(record, stored.place, stored.length);
            }
        }
        error
    }

    fn make_room(&mut self, bytes: u64, purpose: Purpose) -> io::Result<bool> {
        let fits = |log: &Self| {
            let current = log.segments.current().filter(|current| current.number > log.last_recovered);
            let free = current.map_or(0, |current| current.room.saturating_sub(current.end));
            (free >= bytes, log.segments.may_take(bytes, free, purpose))
        };
        if !fits(self).1 {
            self.segments.reserve_again().map_err(|error| self.fail(error))?;
        }
        match fits(self) {
            (_, false) => Ok(false),
            (true, true) => Ok(true),
            (false, true) => {
                self.sync()?; // a segment begins when all before it is safe
                match self.segments.begin(bytes, self.next_record, self.next_group) {
                    Err(error) if is_no_room(&error) => Ok(false),
                    Err(error) => Err(self.fail(error)),
                    Ok(()) => Ok(true),
                }
            }
        }
    }

    /// Makes everything that was written safe.
    ///
    /// # Errors
    /// The disk fails. What is safe is then unknown, and trying again would hide that: the log cannot be used any more.
    pub fn sync(&mut self) -> io::Result<()> {
        let last = self.next_group - 1;
        if self.synced < last
            && let Some(current) = self.segments.current()
        {
            let began = Instant::now();
            current.file.file.sync_data().map_err(|error| self.fail(error))?;
            self.sync_times.push(began.elapsed());
            self.counters.syncs += 1;
            self.synced = last;
        }
        if !self.is_stuck {
            self.assembly.moved.clear();
        }
        Ok(())
    }

    /// Whether a group waits for [`finish`](Log::finish).
    #[must_use]
    pub fn is_stuck(&self) -> bool {
        self.is_stuck
    }

    /// Whether something was written that is not safe.
    #[must_use]
    pub fn is_behind(&self) -> bool {
        self.synced + 1 < self.next_group
    }

    /// Reserves room ahead, so that a full disk is noticed early. Returns whether there is room for messages.
    ///
    /// # Errors
    /// The disk fails otherwise than by being full.
    pub fn reserve(&mut self) -> io::Result<bool> {
        self.segments.reserve().map_err(|error| self.fail(error))
    }

    /// Whether there is no room for messages.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.segments.is_full()
    }

    /// Whether a record that is unknown will never come: it was given out before the log was opened.
    #[must_use]
    pub fn is_old(&self, record: RecordId) -> bool {
        record < self.assembly.first_record
    }

    /// Where a message is.
    #[must_use]
    pub fn find(&self, record: RecordId) -> Lookup {
        let Some(stored) = self.table.find(record) else { return Lookup::Unknown };
        match self.segments.find(stored.place.segment) {
            Some(segment) if stored.place.offset >= segment.end => Lookup::Unknown, // its group is not written
            Some(segment) => Lookup::At(segment.file.clone(), stored),
            None => Lookup::Lost,
        }
    }

    /// The bytes of the spare files.
    #[must_use]
    pub fn spare_bytes(&self) -> u64 {
        self.segments.spare_bytes()
    }

    /// The length of a segment, unless one group needs more.
    #[must_use]
    pub fn segment_bytes(&self) -> u64 {
        self.segments.segment_bytes()
    }

    /// Its segments, for people: number, length, needed bytes, messages, forgotten ones.
    #[must_use]
    #[cfg(simulated)]
    pub fn describe(&self) -> String {
        let segments = self.segments.iter().map(|it| {
            let (messages, forgotten) = (it.messages, it.forgets.count());
            let (number, end, room, needed) = (it.number, it.end, it.room, it.needed_bytes());
            format!("{number}: {end}/{room}, {needed} needed, {messages}+{forgotten}")
        });
        segments.collect::<Vec<_>>().join("; ")
    }

    /// Its figures now: one walk over the segments.
    #[must_use]
    pub fn figures(&self) -> StoreFigures {
        let (mut rooms, mut needed, mut count) = (0, 0, 0);
        for segment in self.segments.iter() {
            rooms += segment.room;
            needed += segment.needed_bytes();
            count += 1;
        }
        let reserve_bytes = self.segments.reserve_bytes();
        StoreFigures {
            disk_bytes: (rooms + self.segments.spare_bytes()).saturating_sub(reserve_bytes),
            reserve_bytes,
            needed_bytes: needed,
            segments: count,
            messages: self.table.len() as u64,
            ..self.counters
        }
    }

    /// How long the syncs took since the last call.
    pub fn take_sync_times(&mut self) -> impl Iterator<Item = Duration> {
        self.sync_times.drain(..)
    }

    /// Ends in order: everything is safe, and says so.
    ///
    /// # Errors
    /// The disk fails.
    pub fn close(&mut self) -> io::Result<()> {
        if !self.finish()? {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.sync()?;
        // An empty group says so: without it, damage of the last group would look like what a crash has left.
        let group = Group { number: self.next_group, synced: self.synced, length: 0 };
        if let Some(current) = self.segments.current_mut()
            && current.number > self.last_recovered
            && current.room.saturating_sub(current.end) >= GROUP_BYTES as u64
        {
            let mut bytes = Vec::new();
            encode::append_group(&mut bytes, group, current.file.salt);
            if current.file.file.write_at(&bytes, current.end).is_ok() {
                current.end += bytes.len() as u64;
                self.next_group = self.next_group.saturating_add(1);
            }
        }
        self.sync()?;
        self.segments.close();
        Ok(())
    }
}

#[cfg(test)]
#[path = "log_tests.rs"]
mod tests;
