//! Reads a log again after the process has ended, in whatever way.
//!
//! Segments are read in their order. An entry that is damaged has one of two causes. If a later group says that it was synced,
//! the disk has failed: the damaged part is copied to a file of its own and passed over, the rest is served, also the other
//! entries of its group, and the report names it. If no group says so, a crash has left it: it and everything behind it was
//! never confirmed to anybody, and the log ends before it.
//!
//! Nothing here needs room on a disk that is full: what cannot be copied is kept by another name when its segment goes.

use std::collections::BTreeMap;
use std::io;

use super::damage::{Damage, synced_behind};
use super::entry::{Counts, GROUP_BYTES, SegmentNumber};
use super::scan::Scan;
use super::segment::{self, BadHeader, HEADER_BYTES, Header};
use super::segments::Segments;
use super::table::{OFFSET_MAX, Table};
use crate::door::HashMap;
use crate::door::medium::{Medium, SharedFile, read_readable};
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
    /// The caller did not want to go on.
    #[error("it was not read to its end")]
    Stopped,
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

/// Reads the log in a directory. `progress` is told the bytes that were read and all bytes, and says whether to go on.
///
/// # Errors
/// See [`OpenError`].
pub fn open(
    medium: Box<dyn Medium>,
    segment_bytes: u64,
    mut progress: impl FnMut(u64, u64) -> bool,
) -> Result<Opened, OpenError> {
    let found = find(&*medium)?;
    let total = found.iter().map(|found| found.length).sum();
    let mut scan = Scan::default();
    let (mut done, mut contents) = (0, Vec::new());
    let mut found = found.into_iter();
    while let Some(next) = found.next() {
        let length = next.length;
        read_whole(&next, &mut contents)?;
        let goes_on = scan.read(&*medium, next, &contents, found.as_slice())?;
        done += length;
        if !progress(done, total) {
            return Err(OpenError::Stopped);
        }
        if !goes_on {
            break; // the rest was written after what a crash has left incomplete
        }
    }
    // Only now that everything could be read is anything changed.
    for unused in scan.unused.drain(..).chain(found.map(|found| segment::name(found.number))) {
        medium.remove(&unused).map_err(|error| OpenError::Io { file: unused, error })?;
    }
    scan.end(medium, segment_bytes)
}

/// Whether a directory may be opened, as far as the beginnings of its files tell. Changes nothing.
///
/// # Errors
/// See [`OpenError`].
pub fn check(medium: &dyn Medium) -> Result<(), OpenError> {
    find(medium).map(|_| ())
}

/// A segment's file that was found.
#[derive(Debug)]
pub(super) struct FoundFile {
    /// Its number.
    pub number: SegmentNumber,
    /// The file.
    pub file: SharedFile,
    /// Its length.
    pub length: u64,
    /// Its header.
    pub header: Result<Header, BadHeader>,
    /// Whether nothing shows that it is a segment.
    pub is_foreign: bool,
}

fn find(medium: &dyn Medium) -> Result<Vec<FoundFile>, OpenError> {
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
        let mut head = [0; HEADER_BYTES as usize + GROUP_BYTES];
        let count = read_readable(&*file, &mut head, 0);
        let header = match Header::read(&head[..count]) {
            Err(BadHeader::Version(version)) => return Err(OpenError::Version { file: name, version }),
            Ok(header) if header.number != number => Err(BadHeader::Damaged),
            other => other,
        };
        let is_foreign =
            header == Err(BadHeader::Damaged) && segment::salt_of(header, &head[..count]).is_none();
        all.push(FoundFile { number, file, length, header, is_foreign });
    }
    // A directory of something else is not touched.
    match all.first() {
        Some(first) if all.iter().all(|found| found.is_foreign) => {
            Err(OpenError::Foreign(segment::name(first.number)))
        }
        _ => Ok(all),
    }
}

/// Reads a whole segment; what the disk does not give is zeros.
fn read_whole(found: &FoundFile, contents: &mut Vec<u8>) -> Result<(), OpenError> {
    contents.clear();
    let length = usize::try_from(found.length.min(OFFSET_MAX)).unwrap_or(usize::MAX);
    contents.try_reserve_exact(length).map_err(|_| OpenError::Io {
        file: segment::name(found.number),
        error: io::ErrorKind::OutOfMemory.into(),
    })?;
    contents.resize(length, 0);
    let count = read_readable(&*found.file, contents, 0);
    contents.truncate(count);
    Ok(())
}

/// The last group that was synced as far as these segments know.
pub(super) fn synced_before(later: &[FoundFile]) -> Result<u64, OpenError> {
    let (mut synced, mut contents) = (0, Vec::new());
    for found in later {
        if let Ok(header) = found.header {
            synced = synced.max(header.group.saturating_sub(1)); // a segment begins when all before it is synced
        }
        read_whole(found, &mut contents)?;
        if let Some(salt) = segment::salt_of(found.header, &contents) {
            synced = synced.max(synced_behind(&contents, 0, salt));
        }
    }
    Ok(synced)
}
