//! Reads a log again after the process has ended, in whatever way.
//!
//! Segments are read in their order. An entry that is damaged has one of two causes. If a later group says that it was synced,
//! the disk has failed: the damaged part is copied to a file of its own and passed over, the rest is served, and the report
//! names it. If no group says so, a crash has left it: it and everything behind it was never confirmed to anybody, and the log
//! ends before it.

use std::collections::BTreeMap;
use std::io;

use super::entry::{Counts, Entry, Found, GROUP_MARK, Group, HEAD_BYTES, SegmentNumber};
use super::scan::Scan;
use super::segment::{self, BadHeader, HEADER_BYTES, Header};
use super::segments::Segments;
use super::table::Table;
use crate::door::{Directory, DiskFile, HashMap};
use crate::ids::RecordId;

/// Why a directory cannot be opened as a store. Nothing in it was changed.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A file has a format that this version does not know.
    #[error(
        "'{file}' has version {version} of the format, and this stompica knows version {}",
        segment::VERSION
    )]
    Version {
        /// The file.
        file: String,
        /// Its version.
        version: u32,
    },
    /// The first segment is none.
    #[error("'{0}' is no segment of a stompica store")]
    Foreign(String),
    /// The disk fails.
    #[error("'{file}': {error}")]
    Io {
        /// The file.
        file: String,
        /// What the system says.
        error: io::Error,
    },
}

/// A message that waits in a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Its place in the queue.
    pub place: u64,
    /// Its record.
    pub record: RecordId,
    /// When it expires, in milliseconds since 1970; 0: never.
    pub expires_ms: u64,
    /// Destination, id, headers and body in bytes.
    pub bytes: u32,
}

/// A part of a segment that the disk has lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The segment.
    pub segment: SegmentNumber,
    /// Its first byte.
    pub from: u64,
    /// The byte behind it.
    pub to: u64,
    /// The file to which it was copied; `None`: that failed, too.
    pub copy: Option<String>,
}

/// What a log has.
#[derive(Debug, Default)]
pub struct Recovered {
    /// The messages of each queue, in their order.
    pub queues: BTreeMap<Vec<u8>, Vec<Waiting>>,
    /// How often messages were delivered, as far as they were.
    pub counts: HashMap<RecordId, Counts>,
    /// What the disk has lost.
    pub damages: Vec<Damage>,
    /// The bytes at the end that a crash has left incomplete.
    pub torn_bytes: u64,
}

/// A log as it was found.
#[derive(Debug)]
pub struct Opened {
    /// Its segments; none of them is written to any more.
    pub segments: Segments,
    /// The places of its messages.
    pub table: Table,
    /// All records are smaller.
    pub next_record: RecordId,
    /// The number of the next group.
    pub next_group: u64,
    /// What it has.
    pub recovered: Recovered,
}

/// Reads the log in a directory. `progress` is told the bytes that were read and all bytes.
///
/// # Errors
/// See [`OpenError`].
pub fn open(
    directory: Directory,
    segment_bytes: u64,
    mut progress: impl FnMut(u64, u64),
) -> Result<Opened, OpenError> {
    let found = find(&directory)?;
    let total = found.iter().map(|found| found.length).sum();
    let mut scan = Scan::default();
    let (mut done, mut contents) = (0, Vec::new());
    let mut found = found.into_iter();
    while let Some(next) = found.next() {
        let length = next.length;
        read_whole(&next, &mut contents)?;
        let goes_on = scan.read(&directory, next, &contents, found.as_slice())?;
        done += length;
        progress(done, total);
        if !goes_on {
            break; // the rest was written after what a crash has left incomplete
        }
    }
    // Only now that everything could be read is anything changed.
    for unused in scan.unused.drain(..).chain(found.map(|found| segment::name(found.number))) {
        directory.remove(&unused).map_err(|error| OpenError::Io { file: unused, error })?;
    }
    scan.end(directory, segment_bytes)
}

/// A segment's file that was found.
#[derive(Debug)]
pub(super) struct FoundFile {
    /// Its number.
    pub number: SegmentNumber,
    /// The file.
    pub file: DiskFile,
    /// Its length.
    pub length: u64,
    /// Its header.
    pub header: Result<Header, BadHeader>,
}

fn find(directory: &Directory) -> Result<Vec<FoundFile>, OpenError> {
    let io_error = |file: &str| {
        let file = file.to_owned();
        |error| OpenError::Io { file, error }
    };
    let names = directory.list().map_err(io_error(&directory.path().display().to_string()))?;
    let mut numbers: Vec<SegmentNumber> = names.iter().filter_map(|name| segment::number_of(name)).collect();
    numbers.sort_unstable();
    let mut all = Vec::new();
    for number in numbers {
        let name = segment::name(number);
        let file = directory.open(&name).map_err(io_error(&name))?;
        let length = file.length().map_err(io_error(&name))?;
        let mut head = [0; HEADER_BYTES as usize];
        let count = file.read_at(&mut head, 0).map_err(io_error(&name))?;
        let header = match Header::read(&head[..count]) {
            Err(BadHeader::Version(version)) => return Err(OpenError::Version { file: name, version }),
            Ok(header) if header.number != number => Err(BadHeader::Damaged),
            other => other,
        };
        all.push(FoundFile { number, file, length, header });
    }
    // A directory of something else is not touched.
    match all.first() {
        Some(first) if all.iter().all(|found| found.header == Err(BadHeader::Damaged)) => {
            Err(OpenError::Foreign(segment::name(first.number)))
        }
        _ => Ok(all),
    }
}

fn read_whole(found: &FoundFile, contents: &mut Vec<u8>) -> Result<(), OpenError> {
    contents.resize(usize::try_from(found.length).unwrap_or(usize::MAX), 0);
    let count = found.file.read_at(contents, 0);
    let count = count.map_err(|error| OpenError::Io { file: segment::name(found.number), error })?;
    contents.truncate(count);
    Ok(())
}

/// The next valid beginning of a group at or behind an offset.
pub(super) fn next_group(bytes: &[u8], from: usize) -> Option<(usize, Group)> {
    let marks = memchr::memmem::find_iter(bytes.get(from..)?, &GROUP_MARK);
    let starts =
        marks.filter_map(|mark| (from + mark).checked_sub(HEAD_BYTES)).filter(|start| *start >= from);
    starts.into_iter().find_map(|start| match Found::at(&bytes[start..]) {
        Found::Entry(Entry::Group(group), _) => Some((start, group)),
        _ => None,
    })
}

/// The last group that any group behind an offset calls synced; 0: none does.
pub(super) fn synced_behind(bytes: &[u8], mut from: usize) -> u64 {
    let mut synced = 0;
    while let Some((start, group)) = next_group(bytes, from) {
        synced = synced.max(group.synced);
        from = start + 1;
    }
    synced
}

/// The last group that was synced as far as these segments know.
pub(super) fn synced_before(later: &[FoundFile]) -> Result<u64, OpenError> {
    let (mut synced, mut contents) = (0, Vec::new());
    for found in later {
        if let Ok(header) = found.header {
            synced = synced.max(header.group.saturating_sub(1)); // a segment begins when all before it is synced
        }
        read_whole(found, &mut contents)?;
        synced = synced.max(synced_behind(&contents, 0));
    }
    Ok(synced)
}
