//! Places in the recording, and how much of a destination is recorded.

use std::sync::Arc;

use super::block::Span;
use crate::door::medium::SharedFile;
use crate::store::file::entry::{Salt, SegmentNumber};

/// A place in the recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The segment.
    pub segment: SegmentNumber,
    /// The offset in its file.
    pub offset: u64,
}

/// Where to read.
#[derive(Debug)]
pub struct Located {
    /// The file.
    pub file: SharedFile,
    /// The salt of its entries.
    pub salt: Salt,
    /// From here on.
    pub place: Place,
    /// Blocks that begin before this offset.
    pub until: u64,
    /// Where the entries of the segment end.
    pub end: u64,
}

/// How much of a destination is recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The destination.
    pub name: Arc<[u8]>,
    /// The epoch of its last message.
    pub epoch: u64,
    /// The first message that is there; the next one, if there is none.
    pub first: u64,
    /// The number behind the last message that was written.
    pub next: u64,
    /// The number behind the last message that is safe.
    pub durable: u64,
    /// The time of its last message.
    pub last_ms: u64,
    /// Its bytes.
    pub bytes: u64,
    /// Its epochs.
    pub spans: Vec<Span>,
}

/// A block that was written.
#[derive(Clone, Copy, Debug)]
pub struct Written<'a> {
    /// The destination.
    pub name: &'a Arc<[u8]>,
    /// The epoch of its numbers.
    pub epoch: u64,
    /// The first number.
    pub first: u64,
    /// The number behind the last one.
    pub next: u64,
    /// When the first one was recorded.
    pub time_ms: u64,
    /// When the last one was.
    pub last_ms: u64,
    /// The length of its entry.
    pub bytes: u64,
    /// Where it stands.
    pub place: Place,
}
