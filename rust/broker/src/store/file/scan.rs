//! Takes the entries of segments, one segment after the other.

use std::collections::{BTreeMap, VecDeque};
use std::io;

use super::damage::{Broken, Damage, resume, synced_behind};
use super::encode;
use super::entry::{Counts, Entry, Found, GROUP_BYTES, Group, HEAD_BYTES, Message, Salt, SegmentNumber};
use super::recovery::{FoundFile, OpenError, Opened, Recovered, Waiting, synced_before};
use super::segment::{self, HEADER_BYTES, Segment, SegmentFile};
use super::segments::Segments;
use super::table::{Place, Table, rounded};
use crate::door::medium::Medium;
use crate::door::{HashMap, planted};
use crate::ids::RecordId;

/// What was read so far.
#[derive(Debug, Default)]
pub(super) struct Scan {
    segments: BTreeMap<SegmentNumber, Segment>,
    table: Table,
    queues: HashMap<Vec<u8>, Vec<Waiting>>,
    recovered: Recovered,
    /// The number of the last group.
    group: u64,
    /// The last group that was synced as far as the whole log knows, once that was needed.
    synced: Option<u64>,
    /// The groups at the end of the last segment that none calls synced, with their offsets.
    unsynced: VecDeque<(u64, u64)>,
    /// Whether the log was cut off where a group stood that says so.
    is_cut: bool,
    next_record: RecordId,
    /// Records that a transaction forgets which stands before the one that keeps them, in the same group.
    early: HashMap<RecordId, ()>,
    /// Files without entries.
    pub(super) unused: Vec<String>,
}

impl Scan {
    /// Reads a segment; `later` are those behind it. Returns false if the log ends in it.
    pub(super) fn read(
        &mut self,
        medium: &dyn Medium,
        found: FoundFile,
        bytes: &[u8],
        later: &[FoundFile],
    ) -> Result<bool, OpenError> {
        let FoundFile { number, file, header, .. } = found;
        let salt = segment::salt_of(header, bytes);
        if header.is_err() && bytes.iter().skip(HEADER_BYTES as usize).all(|byte| *byte == 0) {
            self.unused.push(segment::name(number)); // it was never written to
            return Ok(true);
        }
        self.next_record = self.next_record.max(header.map_or(0, |header| header.record));
        self.note_missing_groups(number, header.map_or(0, |header| header.group));
        // Segments with earlier groups may be gone.
        self.group = self.group.max(header.map_or(0, |header| header.group.saturating_sub(1)));
        let file = SegmentFile { file, salt: salt.unwrap_or(Salt::NONE) };
        self.segments.insert(number, Segment::new(number, file, bytes.len() as u64));
        let Some(salt) = salt else {
            self.set_aside(medium, number, 0, bytes, Broken::Unknown);
            self.end_segment(number, bytes.len());
            return Ok(true);
        };
        if header.is_err() {
            let header = &bytes[..HEADER_BYTES as usize];
            self.set_aside(medium, number, 0, header, Broken::GroupHead);
        }
        self.read_groups(medium, number, salt, bytes, later)
    }

    fn read_groups(
        &mut self,
        medium: &dyn Medium,
        number: SegmentNumber,
        salt: Salt,
        bytes: &[u8],
        later: &[FoundFile],
    ) -> Result<bool, OpenError> {
        let mut at = HEADER_BYTES as usize;
        self.unsynced.clear(); // a segment begins when all before it is safe
        // The current group, and its entries so far: they count only once all of them are there.
        let (mut group, mut group_end, mut start) = (None::<Group>, at, at);
        let mut entries = Vec::new();
        loop {
            if at >= group_end {
                self.take_all(number, &mut entries);
                self.group = group.take().map_or(self.group, |group| group.number);
                (start, group_end) = (at, at);
            }
            let rest = bytes.get(at..).unwrap_or_default();
            match Found::at(rest, salt) {
                Found::Entry(Entry::Group(begun), length) => {
                    self.take_all(number, &mut entries); // behind damage, one begins before the other has ended
                    (group, start) = (Some(begun), at);
                    self.unsynced.push_back((begun.number, at as u64));
                    while self.unsynced.front().is_some_and(|(number, _)| *number <= begun.synced) {
                        self.unsynced.pop_front();
                    }
                    at += length;
                    group_end = at.saturating_add(begun.length as usize);
                }
                Found::Entry(entry, length) => {
                    entries.push((at, entry, length));
                    at += length;
                }
                Found::End if group.is_none() && rest.iter().all(|byte| *byte == 0) => {
                    self.end_segment(number, at);
                    return Ok(true);
                }
                Found::End | Found::Damaged => {
                    let damaged = group.map_or(self.group.saturating_add(1), |group| group.number);
                    if self.last_synced(bytes, salt, later)? < damaged {
                        if !entries.is_empty() && planted!("torn-group-accepted") {
                            self.take_all(number, &mut entries);
                        }
                        self.recovered.torn_bytes += (bytes.len() - start) as u64;
                        self.end_segment(number, start);
                        self.is_cut = bytes.len() - start >= GROUP_BYTES;
                        return Ok(false);
                    }
                    let (next, broken) = resume(bytes, at, group.map(|_| group_end), salt);
                    self.set_aside(medium, number, at, bytes.get(at..next).unwrap_or_default(), broken);
                    at = next;
                    if at >= bytes.len() {
                        group_end = at; // whatever is missing at the end of the file is part of this damage
                    }
                }
            }
        }
    }

    /// The last group that was synced as far as the whole log knows: any group that says so proves it.
    fn last_synced(&mut self, bytes: &[u8], salt: Salt, later: &[FoundFile]) -> Result<u64, OpenError> {
        match self.synced {
            Some(synced) => Ok(synced),
            None => {
                let synced = synced_behind(bytes, 0, salt).max(synced_before(later)?);
                self.synced = Some(synced);
                Ok(synced)
            }
        }
    }

    /// Notes that groups are missing at the end of the segment before this one, which begins with group `first`.
    fn note_missing_groups(&mut self, number: SegmentNumber, first: u64) {
        let Some((before, segment)) = self.segments.last_key_value() else { return };
        // Segments in between, if there were any, were no longer needed.
        if !segment.is_damaged && before + 1 == number && self.group.saturating_add(1) < first {
            let mut damage = Damage::of(*before, segment.end, &[], Broken::Unknown);
            damage.to = damage.to.max(segment.room);
            self.recovered.damages.push(damage);
        }
    }

    /// Takes the entries of a group.
    fn take_all(&mut self, segment: SegmentNumber, entries: &mut Vec<(usize, Entry<'_>, usize)>) {
        for (at, entry, length) in entries.drain(..) {
            self.take(Place { segment, offset: at as u64 }, &entry, length);
        }
    }

    /// Takes an entry at a place.
    fn take(&mut self, place: Place, entry: &Entry<'_>, length: usize) {
        match entry {
            Entry::Group(_) => {} // in a transaction, where none is written
            Entry::Message(message) => self.add(place, message, length as u64, false),
            Entry::Shared(shared) => {
                shared.for_each(|message| self.add(place, &message, length as u64, true));
            }
            Entry::Forgotten(forgotten) => {
                for (segment, record) in *forgotten {
                    self.forget(place.segment, segment, record);
                }
                if let Some(here) = self.segments.get_mut(&place.segment) {
                    here.forgets.add_bytes(length as u64);
                }
            }
            Entry::Delivered(delivered) => {
                if let Some(here) = self.segments.get_mut(&place.segment) {
                    here.has_counts = true;
                }
                for (record, counts) in *delivered {
                    let known = self.recovered.counts.entry(record).or_default();
                    *known = (*known).max(counts);
                }
            }
            Entry::Transaction(entries) => {
                for (at, entry, length) in *entries {
                    let offset = place.offset + (HEAD_BYTES + at) as u64;
                    self.take(Place { offset, ..place }, &entry, length);
                }
            }
        }
    }

    fn add(&mut self, place: Place, message: &Message<'_>, length: u64, is_shared: bool) {
        let record = message.record;
        self.next_record = self.next_record.max(record.saturating_add(1));
        if self.early.remove(&record).is_some() {
            return;
        }
        let before = self.table.set(record, place, length);
        match self.segments.get_mut(&place.segment) {
            Some(segment) if is_shared => segment.add_shared(place.offset, rounded(length)),
            Some(segment) => segment.add(rounded(length)),
            None => {}
        }
        if message.counts != Counts::default() {
            let known = self.recovered.counts.entry(record).or_default();
            *known = (*known).max(message.counts);
        }
        match before {
            // It was moved, and the process ended before its old segment was removed.
            Some(before) => {
                if let Some(segment) = self.segments.get_mut(&before.place.segment) {
                    segment.release(before);
                    segment.is_superseded |= before.place.segment != place.segment;
                }
            }
            None => {
                let parts = [message.destination, message.id, message.headers, message.body];
                let bytes = parts.iter().map(|part| part.len()).sum::<usize>();
                let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
                let waiting = Waiting { place: message.place, record, expires_ms: message.expires_ms, bytes };
                match self.queues.get_mut(message.queue) {
                    Some(queue) => queue.push(waiting),
                    None => _ = self.queues.insert(message.queue.to_vec(), vec![waiting]),
                }
            }
        }
    }

    fn forget(&mut self, here: SegmentNumber, segment: SegmentNumber, record: RecordId) {
        self.next_record = self.next_record.max(record.saturating_add(1));
        if let Some(stored) = self.table.remove(record) {
            if let Some(segment) = self.segments.get_mut(&stored.place.segment) {
                segment.release(stored);
            }
        } else if segment == here {
            self.early.insert(record, ());
        }
        self.recovered.counts.remove(&record);
        if self.segments.contains_key(&segment)
            && let Some(here) = self.segments.get_mut(&here)
        {
            here.forgets.add(segment, 1);
        }
    }

    fn end_segment(&mut self, number: SegmentNumber, at: usize) {
        if let Some(segment) = self.segments.get_mut(&number) {
            segment.end = at as u64;
        }
    }

    /// Copies a damaged part to a file of its own. It stays where it is if that fails.
    fn set_aside(
        &mut self,
        medium: &dyn Medium,
        number: SegmentNumber,
        at: usize,
        bytes: &[u8],
        broken: Broken,
    ) {
        let name = format!("damaged-{number:010}-{at}.bin");
        let written = match medium.create(&name, bytes.len() as u64) {
            Ok(file) => file.write_at(bytes, 0).and_then(|()| file.sync_all()).is_ok(),
            Err(error) => error.kind() == io::ErrorKind::AlreadyExists,
        };
        let mut damage = Damage::of(number, at as u64, bytes, broken);
        damage.copy = written.then_some(name);
        self.recovered.damages.push(damage);
        if let Some(segment) = self.segments.get_mut(&number) {
            segment.is_damaged = true;
            segment.keeps_file |= !written;
        }
    }

    /// Writes an empty group in place of those that are cut off: without it, nothing would say that what is damaged in this
    /// segment was synced, and the next start would cut it off, too. It needs no room: longer groups stood there.
    fn keep_proof(&mut self) -> Result<(), OpenError> {
        let Some(mut last) = self.segments.last_entry() else { return Ok(()) };
        let segment = last.get_mut();
        let number = self.group.saturating_add(1);
        let group = Group { number, synced: self.synced.unwrap_or(0), length: 0 };
        let mut bytes = Vec::new();
        encode::append_group(&mut bytes, group, segment.file.salt);
        let written = segment.file.file.write_at(&bytes, segment.end);
        written.map_err(|error| OpenError::Io { file: segment::name(segment.number), error })?;
        segment.end += bytes.len() as u64;
        self.group = number;
        Ok(())
    }

    /// Writes again what may not be on the disk although it can be read: after a sync that has failed the system may call it
    /// clean, and a further sync would do nothing.
    fn write_tail_again(&self) -> Result<(), OpenError> {
        let Some((_, segment)) = self.segments.last_key_value() else { return Ok(()) };
        let Some((_, start)) = self.unsynced.front().filter(|(_, start)| *start < segment.end) else {
            return Ok(());
        };
        let mut bytes = vec![0; usize::try_from(segment.end - start).unwrap_or(usize::MAX)];
        let file = &segment.file.file;
        // What cannot be read is damaged, and stays as it is.
        let Ok(count) = file.read_at(&mut bytes, *start) else { return Ok(()) };
        let written = file.write_at(&bytes[..count], *start);
        written.map_err(|error| OpenError::Io { file: segment::name(segment.number), error })
    }

    /// Cuts segments to what they have, makes the last one safe, and sorts the messages of queues.
    pub(super) fn end(mut self, medium: Box<dyn Medium>, segment_bytes: u64) -> Result<Opened, OpenError> {
        if self.is_cut && self.segments.last_key_value().is_some_and(|(_, segment)| segment.is_damaged) {
            self.keep_proof()?;
        }
        self.write_tail_again()?;
        let last = self.segments.last_key_value().map(|(number, _)| *number);
        for segment in self.segments.values_mut() {
            let is_longer = segment.room > segment.end;
            // Earlier ones were made safe before the last one began.
            if is_longer || Some(segment.number) == last {
                let file = &segment.file.file;
                let cut = if is_longer { file.set_length(segment.end) } else { Ok(()) };
                let is_skipped = planted!("recovered-not-synced");
                let cut = cut.and_then(|()| if is_skipped { Ok(()) } else { file.sync_all() });
                cut.map_err(|error| OpenError::Io { file: segment::name(segment.number), error })?;
                segment.room = segment.end;
            }
        }
        let directory_error = |error| OpenError::Io { file: medium.name(), error };
        medium.sync().map_err(directory_error)?;
        let table = &self.table;
        for (name, mut queue) in self.queues.drain() {
            queue.retain(|waiting| table.find(waiting.record).is_some());
            if !(queue.len() > 1 && planted!("places-ignored")) {
                queue.sort_unstable_by_key(|waiting| (waiting.place, waiting.record));
            }
            queue.dedup_by_key(|waiting| waiting.record);
            if !queue.is_empty() {
                self.recovered.queues.insert(name, queue);
            }
        }
        self.recovered.counts.retain(|record, _| table.find(*record).is_some());
        let name = medium.name();
        let segments = Segments::new(medium, segment_bytes, self.segments);
        Ok(Opened {
            segments: segments.map_err(|error| OpenError::Io { file: name, error })?,
            table: self.table,
            next_record: self.next_record.max(1),
            next_group: self.group.saturating_add(1),
            recovered: self.recovered,
        })
    }
}
