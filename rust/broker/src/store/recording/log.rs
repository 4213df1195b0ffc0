//! Writes the recording: blocks are put together into groups, written at once, synced at once. It knows no threads and waits
//! for nothing but the disk.

use std::io;
use std::mem::take;
use std::sync::Arc;

use super::block::{Block, append_closed, append_leases, append_notes};
use super::catalog::{Catalog, Place, Segment, Written};
use super::segment::{self, HEADER_BYTES, Header};
use crate::door::medium::{Medium, SharedFile, is_no_room};
use crate::door::sync::{Mutex, MutexGuard, PoisonError};
use crate::door::{HashMap, random_bytes};
use crate::store::file::encode;
use crate::store::file::entry::{GROUP_BYTES, Group, Salt, SegmentNumber};

/// The name of a file that is about to become a segment.
pub(super) const NEW: &str = "new";
/// The bytes of the blocks of a group at most, unless one block is longer.
const GROUP_BYTES_MAX: usize = 4 << 20;
/// Segments that are removed at a time.
const REMOVED_MAX: usize = 16;

/// The segment that is written to.
#[derive(Debug)]
struct Current {
    number: SegmentNumber,
    file: SharedFile,
    salt: Salt,
    end: u64,
    room: u64,
}

/// How much is kept.
#[derive(Clone, Copy, Debug)]
pub struct Retention {
    /// Segments whose last message is older than this are removed.
    pub age_ms: u64,
    /// With more bytes than this, the oldest segments are removed.
    pub bytes: u64,
}

/// The recording as it is written.
#[derive(Debug)]
pub struct RecordLog {
    medium: Box<dyn Medium>,
    catalog: Arc<Mutex<Catalog>>,
    segment_bytes: u64,
    current: Option<Current>,
    next_number: SegmentNumber,
    next_group: u64,
    /// The last group that is safe.
    synced: u64,
    /// The number behind the last message of each destination that is written and not safe.
    unsynced: HashMap<Arc<[u8]>, u64>,
    out: Vec<u8>,
}

pub(super) fn lock(catalog: &Mutex<Catalog>) -> MutexGuard<'_, Catalog> {
    catalog.lock().unwrap_or_else(PoisonError::into_inner)
}

impl RecordLog {
    /// Goes on behind what was found, in a new segment.
    ///
    /// # Errors
    /// The disk fails or is full.
    pub(super) fn new(
        medium: Box<dyn Medium>,
        catalog: Catalog,
        segment_bytes: u64,
        next_number: SegmentNumber,
        next_group: u64,
    ) -> io::Result<Self> {
        let mut log = RecordLog {
            medium,
            catalog: Arc::new(Mutex::new(catalog)),
            segment_bytes,
            current: None,
            next_number,
            next_group,
            synced: next_group - 1,
            unsynced: HashMap::default(),
            out: Vec::new(),
        };
        // Before any number is given out: without it, a crash would look like the ordered end of the process before.
        log.begin(0)?;
        Ok(log)
    }

    /// What is recorded.
    #[must_use]
    pub fn catalog(&self) -> &Arc<Mutex<Catalog>> {
        &self.catalog
    }

    /// Writes blocks, in order. Returns how many of them are written: fewer than all if there is no room for the next one.
    ///
    /// # Errors
    /// The disk fails. The recording cannot be written any more.
    pub fn write(&mut self, blocks: &[Arc<Block>]) -> io::Result<usize> {
        let mut done = 0;
        while let Some(rest) = blocks.get(done..).filter(|rest| !rest.is_empty()) {
            let mut bytes = 0;
            let count = rest.iter().take_while(|block| {
                let is_first = bytes == 0;
                bytes += block.bytes() + block.name.len() + 64;
                is_first || bytes <= GROUP_BYTES_MAX
            });
            let count = count.count();
            if !self.write_group(&rest[..count], &[], false)? {
                break;
            }
            done += count;
        }
        Ok(done)
    }

    /// Writes a group. Returns false if there is no room for it.
    fn write_group(
        &mut self,
        blocks: &[Arc<Block>],
        notes: &[super::block::Note],
        is_last: bool,
    ) -> io::Result<bool> {
        let bytes: usize = blocks.iter().map(|block| block.bytes() + block.name.len() + 64).sum();
        let noted: usize = notes.iter().map(|note| note.name.len() + 64 + 30 * note.spans.len()).sum();
        let leases: usize = {
            let catalog = lock(&self.catalog);
            catalog.leases().iter().map(|lease| lease.name.len() + lease.destination.len() + 40).sum()
        };
        if !self.make_room((bytes + noted + leases + 2 * GROUP_BYTES) as u64)? {
            return Ok(false);
        }
        let Some(current) = &mut self.current else { return Ok(false) };
        let mut out = take(&mut self.out);
        out.clear();
        out.resize(GROUP_BYTES, 0);
        let mut written = Vec::with_capacity(blocks.len());
        for block in blocks {
            let from = out.len() as u64;
            block.append(&mut out, current.salt);
            let place = Place { segment: current.number, offset: current.end + from };
            written.push((block, place, out.len() as u64 - from));
        }
        if !notes.is_empty() {
            append_notes(&mut out, notes, current.salt);
        }
        {
            let mut catalog = lock(&self.catalog);
            if (take(&mut catalog.leases_changed) || is_last) && !catalog.leases().is_empty() {
                append_leases(&mut out, catalog.leases().iter(), current.salt);
            }
        }
        if is_last {
            append_closed(&mut out, current.salt);
        }
        let length = u32::try_from(out.len() - GROUP_BYTES).unwrap_or(u32::MAX);
        let mut head = Vec::with_capacity(GROUP_BYTES);
        let group = Group { number: self.next_group, synced: self.synced, length };
        encode::append_group(&mut head, group, current.salt);
        out[..GROUP_BYTES].copy_from_slice(&head);
        let outcome = current.file.write_at(&out, current.end);
        let bytes = out.len() as u64;
        self.out = out;
        if self.out.capacity() > 2 * GROUP_BYTES_MAX {
            self.out = Vec::new();
        }
        outcome?;
        current.end += bytes;
        self.next_group += 1;
        let mut catalog = lock(&self.catalog);
        if let Some(segment) = catalog.segments.get_mut(&current.number) {
            segment.end = current.end;
        }
        for (block, place, bytes) in written {
            let Block { name, epoch, first, time_ms, last_ms, .. } = &**block;
            let (epoch, first, time_ms, last_ms) = (*epoch, *first, *time_ms, *last_ms);
            catalog.add(&Written { name, epoch, first, next: block.next(), time_ms, last_ms, bytes, place });
            self.unsynced.insert(Arc::clone(name), block.next());
        }
        for note in notes {
            catalog.note(current.number, note.clone());
        }
        Ok(true)
    }

    fn make_room(&mut self, bytes: u64) -> io::Result<bool> {
        let is_enough = self.current.as_ref().is_some_and(|current| current.room - current.end >= bytes);
        if is_enough {
            return Ok(true);
        }
        self.sync()?; // a segment begins when all before it is safe
        match self.begin(bytes) {
            Ok(()) => Ok(true),
            Err(error) if is_no_room(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Begins a segment with room for so many bytes.
    fn begin(&mut self, bytes: u64) -> io::Result<()> {
        let room = self.segment_bytes.max(HEADER_BYTES + bytes);
        _ = self.medium.remove(NEW);
        let file = self.medium.create(NEW, room)?;
        let salt = Salt(u64::from_le_bytes(random_bytes()));
        let (number, epoch) = (self.next_number, lock(&self.catalog).epoch);
        let written = file
            .write_at(&Header { number, epoch, group: self.next_group, salt }.bytes(), 0)
            .and_then(|()| file.sync_data())
            .and_then(|()| self.medium.rename(NEW, &segment::name(number)))
            .and_then(|()| self.medium.sync());
        if let Err(error) = written {
            _ = self.medium.remove(NEW);
            return Err(error);
        }
        self.next_number += 1;
        let before =
            self.current.replace(Current { number, file: Arc::clone(&file), salt, end: HEADER_BYTES, room });
        let mut catalog = lock(&self.catalog);
        if let Some(before) = before {
            // Its rest is free again; if that fails, it is as long as before.
            _ = before.file.set_length(before.end);
            if let Some(segment) = catalog.segments.get_mut(&before.number) {
                segment.room = segment.end;
            }
        }
        catalog.leases_changed = true; // the segment that has them may go
        catalog.segments.insert(number, Segment::new(file, salt, HEADER_BYTES, room));
        Ok(())
    }

    /// Makes everything that was written safe.
    ///
    /// # Errors
    /// The disk fails. What is safe is then unknown: the recording cannot be written any more.
    pub fn sync(&mut self) -> io::Result<()> {
        let last = self.next_group - 1;
        if self.synced < last
            && let Some(current) = &self.current
        {
            current.file.sync_data()?;
            self.synced = last;
            let mut catalog = lock(&self.catalog);
            for (name, next) in self.unsynced.drain() {
                catalog.set_durable(&name, next);
            }
        }
        Ok(())
    }

    /// Whether something was written that is not safe.
    #[must_use]
    pub fn is_behind(&self) -> bool {
        self.synced + 1 < self.next_group
    }

    /// Removes segments that are too old or too many.
    ///
    /// # Errors
    /// The disk fails otherwise than by being full.
    pub fn retain(&mut self, now_ms: u64, retention: Retention) -> io::Result<()> {
        lock(&self.catalog).expire_leases(now_ms);
        if lock(&self.catalog).leases_changed && !self.write_group(&[], &[], false)? {
            return Ok(());
        }
        for _ in 0..REMOVED_MAX {
            let oldest_ms = now_ms.saturating_sub(retention.age_ms);
            let Some(number) = lock(&self.catalog).removable(oldest_ms, retention.bytes) else {
                return Ok(());
            };
            if self.current.as_ref().is_some_and(|current| current.number == number) {
                let has_messages =
                    lock(&self.catalog).segments.get(&number).is_some_and(|segment| segment.last_ms > 0);
                if !has_messages {
                    return Ok(());
                }
                self.sync()?;
                match self.begin(0) {
                    Err(error) if is_no_room(&error) => return Ok(()),
                    other => other?,
                }
            }
            let notes = lock(&self.catalog).notes_of(number);
            if !notes.is_empty() {
                if !self.write_group(&[], &notes, false)? {
                    return Ok(());
                }
                self.sync()?;
            }
            self.medium.remove(&segment::name(number))?;
            lock(&self.catalog).remove(number);
        }
        Ok(())
    }

    /// Ends in order: everything is safe, and says so.
    ///
    /// # Errors
    /// The disk fails or is full.
    pub fn close(&mut self) -> io::Result<()> {
        self.sync()?;
        if !self.write_group(&[], &[], true)? {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.sync()?;
        if let Some(current) = &self.current {
            current.file.set_length(current.end)?;
            current.file.sync_all()?;
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "log_tests.rs"]
mod tests;
