//! Reads a recording again after the process has ended, in whatever way.
//!
//! Damage has one of two causes, as in the store: if a later group or segment says that the group was synced, the disk has
//! failed, and the damaged part is copied to a file of its own, passed over and reported; readers of that destination find a
//! gap. Otherwise a crash has left it: no RECEIPT waited for it, and the recording ends before it.

use std::sync::Arc;

use super::block::{Part, Standing};
use super::catalog::{Catalog, Place, Segment, Written};
use super::log::{NEW, RecordLog};
use super::segment::{self, BadHeader, HEADER_BYTES, Header};
use crate::door::HashMap;
use crate::door::medium::{Medium, SharedFile, read_readable};
use crate::store::file::damage::{groups, next_group, synced_behind};
use crate::store::file::entry::{Salt, SegmentNumber};
use crate::store::file::recovery::OpenError;

/// A part that the disk has lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hole {
    /// The segment.
    pub segment: SegmentNumber,
    /// Its first byte.
    pub from: u64,
    /// The byte behind it.
    pub to: u64,
    /// The file to which it was copied; `None`: that failed.
    pub copy: Option<String>,
}

/// What was found.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Recorded messages.
    pub messages: u64,
    /// What the disk has lost.
    pub holes: Vec<Hole>,
    /// The bytes at the end that a crash has left incomplete.
    pub torn_bytes: u64,
}

#[derive(Debug)]
struct Found {
    number: SegmentNumber,
    file: SharedFile,
    length: u64,
    header: Option<Header>,
}

fn find(medium: &dyn Medium) -> Result<Vec<Found>, OpenError> {
    let io_error = |file: &str| {
        let file = file.to_owned();
        |error| OpenError::Io { file, error }
    };
    let names = medium.list().map_err(io_error(&medium.name()))?;
    let mut numbers: Vec<SegmentNumber> = names.iter().filter_map(|name| segment::number_of(name)).collect();
    numbers.sort_unstable();
    let mut all = Vec::new();
    for number in numbers {
        let name = segment::name(number);
        let file = medium.open(&name).map_err(io_error(&name))?;
        let length = file.length().map_err(io_error(&name))?;
        let mut head = [0; HEADER_BYTES as usize];
        let count = read_readable(&*file, &mut head, 0);
        let header = match Header::read(&head[..count]) {
            Err(BadHeader::Version(version)) => return Err(OpenError::Version { file: name, version }),
            other => other.ok().filter(|header| header.number == number),
        };
        all.push(Found { number, file, length, header });
    }
    match all.first() {
        Some(first) if all.iter().all(|found| found.header.is_none()) => {
            Err(OpenError::Foreign(segment::name(first.number)))
        }
        _ => Ok(all),
    }
}

/// Whether a directory may be opened, as far as the beginnings of its files tell. Changes nothing.
///
/// # Errors
/// See [`OpenError`].
pub fn check(medium: &dyn Medium) -> Result<(), OpenError> {
    find(medium).map(|_| ())
}

/// Opens the recording in a directory. New destinations get an epoch that is at least `epoch_min` and larger than all before.
/// `progress` is told the bytes that were read and all bytes, and says whether to go on.
///
/// # Errors
/// See [`OpenError`].
pub fn open(
    medium: Box<dyn Medium>,
    segment_bytes: u64,
    epoch_min: u64,
    progress: impl FnMut(u64, u64) -> bool,
) -> Result<(RecordLog, Report), OpenError> {
    let mut scan = Scan::of(&*medium);
    scan.read_all(progress)?;
    let Scan { mut catalog, report, group, number, .. } = scan;
    catalog.epoch = epoch_min.max(catalog.epoch.saturating_add(1));
    catalog.all_durable();
    _ = medium.remove(NEW);
    let log = RecordLog::new(medium, catalog, segment_bytes, number + 1, group + 1)
        .map_err(|error| OpenError::Io { file: segment::name(number + 1), error })?;
    Ok((log, report))
}

struct Scan<'a> {
    medium: &'a dyn Medium,
    catalog: Catalog,
    report: Report,
    /// The last group.
    group: u64,
    /// The last segment.
    number: SegmentNumber,
    /// One text for each destination.
    names: HashMap<Box<[u8]>, Arc<[u8]>>,
}

impl<'a> Scan<'a> {
    fn of(medium: &'a dyn Medium) -> Self {
        Scan {
            medium,
            catalog: Catalog::closed(),
            report: Report::default(),
            group: 0,
            number: 0,
            names: HashMap::default(),
        }
    }

    fn read_all(&mut self, mut progress: impl FnMut(u64, u64) -> bool) -> Result<(), OpenError> {
        let all = find(self.medium)?;
        let total: u64 = all.iter().map(|found| found.length).sum();
        let (mut done, mut bytes) = (0, Vec::new());
        for (at, found) in all.iter().enumerate() {
            bytes.clear();
            bytes.resize(usize::try_from(found.length).unwrap_or(usize::MAX), 0);
            let count = read_readable(&*found.file, &mut bytes, 0);
            bytes.truncate(count);
            // The groups before the next segment are safe.
            let next = all[at + 1..].iter().find_map(|later| later.header);
            let synced = next.map_or(0, |header| header.group.saturating_sub(1));
            let end = self.read_segment(found, &bytes, synced);
            if at + 1 == all.len() {
                self.make_safe(found, &bytes, end)?;
            }
            done += found.length;
            if !progress(done, total) {
                return Err(OpenError::Stopped);
            }
        }
        self.names.clear();
        Ok(())
    }

    /// Returns where the entries end.
    fn read_segment(&mut self, found: &Found, bytes: &[u8], synced: u64) -> u64 {
        let Found { number, file, header, .. } = found;
        self.number = *number;
        let Some(header) = header else {
            self.set_aside(*number, 0, bytes);
            return bytes.len() as u64;
        };
        self.catalog.epoch = self.catalog.epoch.max(header.epoch);
        self.catalog.was_closed = false;
        self.group = self.group.max(header.group.saturating_sub(1));
        let (salt, room) = (header.salt, bytes.len() as u64);
        self.catalog.segments.insert(*number, Segment::new(Arc::clone(file), salt, HEADER_BYTES, room));
        let own = synced_behind(bytes, HEADER_BYTES as usize, salt);
        let end = self.read_groups(*number, salt, bytes, synced.max(own));
        if let Some(segment) = self.catalog.segments.get_mut(number) {
            segment.end = end;
            if end < room && file.set_length(end).is_ok() {
                segment.room = end;
            }
        }
        end
    }

    /// Makes the last segment safe: the header of the next one will say that it is. Earlier ones are, since this one exists. It
    /// writes the groups again that none calls synced: after a sync that has failed the system may call them clean although
    /// they are not on the disk, and a further sync would do nothing.
    fn make_safe(&self, last: &Found, bytes: &[u8], end: u64) -> Result<(), OpenError> {
        let Some(header) = last.header else { return Ok(()) };
        let bytes = bytes.get(..usize::try_from(end).unwrap_or(usize::MAX)).unwrap_or(bytes);
        let first = HEADER_BYTES as usize;
        let synced = synced_behind(bytes, first, header.salt);
        let unsynced = groups(bytes, first, header.salt).find(|(_, group)| group.number > synced);
        let written = match unsynced {
            Some((start, _)) => last.file.write_at(&bytes[start..], start as u64),
            None => Ok(()),
        };
        let safe = written.and_then(|()| last.file.sync_all());
        safe.map_err(|error| OpenError::Io { file: segment::name(last.number), error })
    }

    /// Returns where the entries end.
    fn read_groups(&mut self, number: SegmentNumber, salt: Salt, bytes: &[u8], synced: u64) -> u64 {
        let mut at = HEADER_BYTES as usize;
        let (mut start, mut group_end, mut group) = (at, at, self.group);
        let mut parts: Vec<(usize, Part<'_>, usize)> = Vec::new();
        loop {
            if at >= group_end {
                self.take(number, &mut parts);
                self.group = self.group.max(group);
                (start, group_end) = (at, at);
            }
            let rest = bytes.get(at..).unwrap_or_default();
            match Standing::at(rest, salt) {
                Standing::Part(Part::Group(begun), length) => {
                    self.take(number, &mut parts);
                    (group, start) = (begun.number, at);
                    at += length;
                    group_end = at.saturating_add(begun.length as usize);
                }
                Standing::Part(part, length) => {
                    parts.push((at, part, length));
                    at += length;
                }
                Standing::End if at >= group_end && rest.iter().all(|byte| *byte == 0) => {
                    // Groups that are known to be safe are missing.
                    if synced > self.group {
                        self.set_aside(number, at as u64, &[]);
                    }
                    return at as u64;
                }
                Standing::End | Standing::Damaged => {
                    let damaged = if at < group_end { group } else { self.group + 1 };
                    if synced < damaged {
                        self.report.torn_bytes += (bytes.len() - start) as u64;
                        return start as u64;
                    }
                    let end = if at < group_end { Some(group_end.min(bytes.len())) } else { None };
                    let next = resume(bytes, at, end, salt);
                    self.set_aside(number, at as u64, &bytes[at..next]);
                    at = next;
                    if at >= bytes.len() {
                        self.take(number, &mut parts);
                        return at as u64;
                    }
                }
            }
        }
    }

    fn take(&mut self, number: SegmentNumber, parts: &mut Vec<(usize, Part<'_>, usize)>) {
        for (at, part, length) in parts.drain(..) {
            self.catalog.was_closed = matches!(part, Part::Closed);
            match part {
                Part::Group(_) | Part::Closed => {}
                Part::Block(head) => {
                    let name = match self.names.get(head.name) {
                        Some(name) => Arc::clone(name),
                        None => {
                            let name: Arc<[u8]> = head.name.into();
                            self.names.insert(head.name.into(), Arc::clone(&name));
                            name
                        }
                    };
                    self.report.messages += head.count;
                    let place = Place { segment: number, offset: at as u64 };
                    self.catalog.add(&Written {
                        name: &name,
                        epoch: head.epoch,
                        first: head.first,
                        next: head.first + head.count,
                        time_ms: head.time_ms,
                        last_ms: head.last_ms(),
                        bytes: length as u64,
                        place,
                    });
                }
                Part::Notes(notes) => notes.into_iter().for_each(|note| self.catalog.note(number, note)),
                Part::Leases(leases) => self.catalog.restore_leases(leases),
            }
        }
    }

    /// Copies a damaged part to a file of its own.
    fn set_aside(&mut self, segment: SegmentNumber, from: u64, bytes: &[u8]) {
        let name = format!("damaged-{segment:010}-{from}.bin");
        let copied = || {
            let file = self.medium.create(&name, bytes.len().max(1) as u64)?;
            file.write_at(bytes, 0)?;
            file.sync_all()
        };
        let is_known = self.medium.list().is_ok_and(|names| names.contains(&name));
        let is_copied = is_known || (!bytes.is_empty() && copied().is_ok());
        let to = from + bytes.len() as u64;
        if let Some(segment) = self.catalog.segments.get_mut(&segment)
            && to > from
        {
            segment.holes.push((from, to));
        }
        self.report.holes.push(Hole { segment, from, to, copy: is_copied.then_some(name) });
    }
}

/// Where to go on behind what is no valid entry: at the next one if its own length tells that, or at the next group.
fn resume(bytes: &[u8], at: usize, group_end: Option<usize>, salt: Salt) -> usize {
    let length = bytes[at..].first_chunk::<4>().map(|length| u32::from_le_bytes(*length) as usize);
    let next = length.filter(|length| *length > 0).and_then(|length| at.checked_add(8 + length));
    let is_entry = |next: &usize| {
        group_end.is_none_or(|end| *next <= end)
            && (Some(*next) == group_end
                || bytes
                    .get(*next..)
                    .is_some_and(|rest| matches!(Standing::at(rest, salt), Standing::Part(..))))
    };
    next.filter(is_entry)
        .unwrap_or_else(|| next_group(bytes, at + 1, salt).map_or(bytes.len(), |(start, _)| start))
}

#[cfg(test)]
#[path = "recovery_tests.rs"]
mod tests;
