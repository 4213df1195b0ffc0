//! The log: takes what shards tell, writes it, and says when it is safe. It knows no threads and waits for nothing but the disk.

use std::io;

use super::batch::Batch;
use super::entry::SegmentNumber;
use super::group::{Assembly, bytes_max};
use super::recovery::{self, OpenError, Opened, Recovered};
use super::segment::Header;
use super::segments::Segments;
use super::table::{Stored, Table};
use crate::door::{Directory, DiskFile};
use crate::ids::RecordId;

/// Figures of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Groups that were written.
    pub groups: u64,
    /// Calls that made groups safe.
    pub syncs: u64,
    /// Bytes that were written.
    pub written_bytes: u64,
    /// The bytes of all files.
    pub disk_bytes: u64,
    /// The bytes of entries that are needed.
    pub needed_bytes: u64,
    /// Messages that are needed.
    pub messages: u64,
    /// Segments.
    pub segments: u64,
}

/// Where a message is.
#[derive(Debug)]
pub enum Lookup {
    /// In this file, at this place.
    At(DiskFile, Stored),
    /// In a segment that could not be read.
    Lost,
    /// It has not been written, or is no longer needed.
    Unknown,
}

/// A log that is open.
#[derive(Debug)]
pub struct Log {
    pub(super) segments: Segments,
    pub(super) table: Table,
    assembly: Assembly,
    /// The number of the next group.
    next_group: u64,
    /// The number of the last group that is safe.
    synced: u64,
    /// The segment of recovery, and those before it, are never written to.
    last_recovered: SegmentNumber,
    /// Records that were given out by now are smaller; for headers.
    next_record: RecordId,
    figures: Figures,
}

impl Log {
    /// Opens the log in a directory; see [`recovery`].
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(
        directory: Directory,
        segment_bytes: u64,
        progress: impl FnMut(u64, u64),
    ) -> Result<(Self, Recovered), OpenError> {
        let Opened { segments, table, next_record, next_group, recovered } =
            recovery::open(directory, segment_bytes, progress)?;
        let log = Log {
            last_recovered: segments.current().map_or(0, |segment| segment.number),
            segments,
            table,
            assembly: Assembly::default(),
            next_group,
            synced: next_group - 1,
            next_record,
            figures: Figures::default(),
        };
        Ok((log, recovered))
    }

    /// All records that were ever given out are smaller.
    #[must_use]
    pub fn next_record(&self) -> RecordId {
        self.next_record
    }

    /// Writes what was told as one group; `next_record`: all records given out are smaller. Returns whether anything was
    /// written. It is safe only after [`sync`](Log::sync).
    ///
    /// # Errors
    /// The disk fails, or is so full that not even the spare segment is there. The log cannot be used any more.
    pub fn write(&mut self, batches: &[Batch], next_record: RecordId) -> io::Result<bool> {
        self.next_record = self.next_record.max(next_record);
        if batches.iter().all(Batch::is_empty) {
            return Ok(false);
        }
        self.make_room(bytes_max(batches))?;
        let (number, synced) = (self.next_group, self.synced);
        let bytes = self.assembly.assemble(number, synced, batches, &mut self.table, &mut self.segments);
        if bytes.is_empty() {
            return Ok(false);
        }
        let Some(current) = self.segments.current_mut() else { return Ok(false) };
        current.file.write_at(bytes, current.end)?;
        current.end += bytes.len() as u64;
        self.next_group += 1;
        self.figures.groups += 1;
        self.figures.written_bytes += bytes.len() as u64;
        Ok(true)
    }

    fn make_room(&mut self, bytes: u64) -> io::Result<()> {
        let has_room = self.segments.current().is_some_and(|current| {
            current.number > self.last_recovered && current.end + bytes <= current.room
        });
        if has_room {
            return Ok(());
        }
        self.sync()?; // a segment begins when all before it is safe
        let header = Header { number: 0, record: self.next_record, group: self.next_group };
        self.segments.begin(bytes, header)
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
            current.file.sync_data()?;
            self.figures.syncs += 1;
            self.synced = last;
        }
        Ok(())
    }

    /// Whether something was written that is not safe.
    #[must_use]
    pub fn is_behind(&self) -> bool {
        self.synced + 1 < self.next_group
    }

    /// Reserves the next segment, so that a full disk is noticed early. Returns whether there is room.
    ///
    /// # Errors
    /// The disk fails otherwise than by being full.
    pub fn reserve(&mut self) -> io::Result<bool> {
        match self.segments.reserve() {
            Err(error) if is_full(&error) => Ok(false),
            other => other.map(|()| true),
        }
    }

    /// Where a message is.
    #[must_use]
    pub fn find(&self, record: RecordId) -> Lookup {
        let Some(stored) = self.table.find(record) else { return Lookup::Unknown };
        match self.segments.find(stored.place.segment) {
            Some(segment) => Lookup::At(segment.file.clone(), stored),
            None => Lookup::Lost,
        }
    }

    /// The length of a segment, unless one group needs more.
    #[must_use]
    pub fn segment_bytes(&self) -> u64 {
        self.segments.segment_bytes()
    }

    /// Its figures now.
    #[must_use]
    pub fn figures(&self) -> Figures {
        Figures {
            disk_bytes: self.segments.disk_bytes(),
            needed_bytes: self.segments.needed_bytes(),
            messages: self.table.len() as u64,
            segments: self.segments.iter().count() as u64,
            ..self.figures
        }
    }

    /// Ends in order: everything is safe, and says so.
    ///
    /// # Errors
    /// The disk fails.
    pub fn close(&mut self) -> io::Result<()> {
        self.sync()?;
        self.segments.close();
        Ok(())
    }
}

/// Whether an error says that there is no room.
#[must_use]
pub fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

#[cfg(test)]
#[path = "log_tests.rs"]
mod tests;
