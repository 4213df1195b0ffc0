//! Takes the entries of segments, one segment after the other.

use std::collections::BTreeMap;
use std::io;

use super::entry::{Counts, Entry, Found, Group, HEAD_BYTES, Message, SegmentNumber};
use super::recovery::{
    Damage, FoundFile, OpenError, Opened, Recovered, Waiting, next_group, synced_before, synced_behind,
};
use super::segment::{self, HEADER_BYTES, Segment};
use super::segments::Segments;
use super::table::{Place, Table, rounded};
use crate::door::{Directory, HashMap};
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
        directory: &Directory,
        found: FoundFile,
        bytes: &[u8],
        later: &[FoundFile],
    ) -> Result<bool, OpenError> {
        let FoundFile { number, file, header, .. } = found;
        if header.is_err()
            && next_group(bytes, 0).is_none()
            && later.iter().all(|found| found.header.is_err())
        {
            // Its header was never synced, so there are no entries: it was to be the next segment.
            self.unused.push(segment::name(number));
            return Ok(true);
        }
        self.next_record = self.next_record.max(header.map_or(0, |header| header.record));
        let mut at = if header.is_ok() { HEADER_BYTES as usize } else { 0 };
        self.segments.insert(number, Segment::new(number, file, bytes.len() as u64));
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
            match Found::at(rest) {
                Found::Entry(Entry::Group(begun), length) => {
                    self.take_all(number, &mut entries); // behind damage, one begins before the other has ended
                    (group, start) = (Some(begun), at);
                    at += length;
                    group_end = at + begun.length as usize;
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
                    let damaged = group.map_or(self.group + 1, |group| group.number);
                    if synced_behind(bytes, at).max(synced_before(later)?) < damaged {
                        self.recovered.torn_bytes += (bytes.len() - start) as u64;
                        self.end_segment(number, start);
                        return Ok(false);
                    }
                    let next = next_group(bytes, at).map_or(bytes.len(), |(start, _)| start);
                    self.set_aside(directory, number, at, &bytes[at..next]);
                    (at, group_end) = (next, next);
                }
            }
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
            Entry::Message(message) => self.add(place, message, length as u64),
            Entry::Forgotten(forgotten) => {
                for (segment, record) in *forgotten {
                    self.forget(place.segment, segment, record);
                }
            }
            Entry::Delivered(delivered) => {
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

    fn add(&mut self, place: Place, message: &Message<'_>, length: u64) {
        let record = message.record;
        self.next_record = self.next_record.max(record + 1);
        if self.early.remove(&record).is_some() {
            return;
        }
        let before = self.table.set(record, place, length);
        if let Some(segment) = self.segments.get_mut(&place.segment) {
            segment.add(rounded(length));
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
        self.next_record = self.next_record.max(record + 1);
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

    /// Copies a damaged part to a file of its own.
    fn set_aside(&mut self, directory: &Directory, number: SegmentNumber, at: usize, bytes: &[u8]) {
        let name = format!("damaged-{number:010}-{at}.bin");
        let written = match directory.create(&name, bytes.len() as u64) {
            Ok(file) => file.write_at(bytes, 0).and_then(|()| file.sync_all()).is_ok(),
            Err(error) => error.kind() == io::ErrorKind::AlreadyExists,
        };
        let (from, to) = (at as u64, (at + bytes.len()) as u64);
        let copy = written.then_some(name);
        self.recovered.damages.push(Damage { segment: number, from, to, copy });
        if let Some(segment) = self.segments.get_mut(&number) {
            segment.is_damaged = true;
        }
    }

    /// Cuts segments to what they have, and sorts the messages of queues.
    pub(super) fn end(mut self, directory: Directory, segment_bytes: u64) -> Result<Opened, OpenError> {
        for segment in self.segments.values_mut().filter(|segment| segment.room > segment.end) {
            let cut = segment.file.set_length(segment.end).and_then(|()| segment.file.sync_all());
            cut.map_err(|error| OpenError::Io { file: segment::name(segment.number), error })?;
            segment.room = segment.end;
        }
        let sync = directory.sync();
        sync.map_err(|error| OpenError::Io { file: directory.path().display().to_string(), error })?;
        let table = &self.table;
        for (name, mut queue) in self.queues.drain() {
            queue.retain(|waiting| table.find(waiting.record).is_some());
            queue.sort_unstable_by_key(|waiting| (waiting.place, waiting.record));
            queue.dedup_by_key(|waiting| waiting.record);
            if !queue.is_empty() {
                self.recovered.queues.insert(name, queue);
            }
        }
        self.recovered.counts.retain(|record, _| table.find(*record).is_some());
        Ok(Opened {
            segments: Segments::new(directory, segment_bytes, self.segments),
            table: self.table,
            next_record: self.next_record.max(1),
            next_group: self.group + 1,
            recovered: self.recovered,
        })
    }
}
