//! A segment: one file of the log. It begins with a header; entries follow, and then zeros for those to come.
//!
//! | offset | bytes | the header |
//! |---|---|---|
//! | 0 | 8 | [`MAGIC`] |
//! | 8 | 4 | the version of the format, [`VERSION`] |
//! | 12 | 4 | the number of the segment |
//! | 16 | 8 | all records in earlier segments are smaller than this one |
//! | 24 | 8 | the number of the first group |
//! | 32 | 8 | the salt of its entries |
//! | 40 | 4 | CRC-32C of the bytes before |
//!
//! The header is safe before the file gets its name, so a file of a segment has no header only if it is damaged. The first
//! group, which follows at once, contains the salt, too.

use std::collections::hash_map::Entry;

use super::entry::{self, Found, GROUP_BYTES, HEAD_BYTES, Salt, SegmentNumber};
use super::table::{SEGMENT_MAX, Stored};
use crate::door::HashMap;
use crate::door::medium::SharedFile;
use crate::ids::RecordId;

/// The first bytes of every segment.
pub const MAGIC: [u8; 8] = *b"STOMPICA";
/// The version of the format.
pub const VERSION: u32 = 1;
/// The length of the header.
pub const HEADER_BYTES: u64 = 44;
/// The end of the names of segments.
const SUFFIX: &str = ".log";

/// The header of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The number of the segment.
    pub number: SegmentNumber,
    /// All records in earlier segments are smaller.
    pub record: RecordId,
    /// The number of the first group.
    pub group: u64,
    /// The salt of its entries.
    pub salt: Salt,
}

/// Why a file is no segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadHeader {
    /// It was created, and a crash came before the header was safe.
    Unwritten,
    /// It is damaged, or something else.
    Damaged,
    /// It has another version of the format.
    Version(u32),
}

impl Header {
    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> [u8; HEADER_BYTES as usize] {
        let mut bytes = [0; HEADER_BYTES as usize];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.number.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.record.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.group.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.salt.0.to_le_bytes());
        let checksum = crc32c::crc32c(&bytes[..40]);
        bytes[40..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// The header of a file that begins with these bytes.
    ///
    /// # Errors
    /// See [`BadHeader`].
    pub fn read(bytes: &[u8]) -> Result<Self, BadHeader> {
        let is_unwritten = MAGIC.iter().zip(bytes).all(|(magic, byte)| *byte == *magic || *byte == 0);
        let bad = if is_unwritten { BadHeader::Unwritten } else { BadHeader::Damaged };
        let Some(bytes) = bytes.first_chunk::<{ HEADER_BYTES as usize }>() else { return Err(bad) };
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        if crc32c::crc32c(&bytes[..40]) != word(40) || bytes[..8] != MAGIC {
            return Err(bad);
        }
        if word(8) != VERSION {
            return Err(BadHeader::Version(word(8)));
        }
        Ok(Header { number: word(12), record: long(16), group: long(24), salt: Salt(long(32)) })
    }
}

/// The salt of a segment with these bytes: that of its header, or, if that is damaged, that of its first group. `None`: both
/// are damaged, so that nothing in it can be read.
#[must_use]
pub fn salt_of(header: Result<Header, BadHeader>, bytes: &[u8]) -> Option<Salt> {
    if let Ok(header) = header {
        return Some(header.salt);
    }
    let group = bytes.get(HEADER_BYTES as usize..)?;
    let salt = Salt(u64::from_le_bytes(*group.get(HEAD_BYTES..GROUP_BYTES)?.first_chunk::<8>()?));
    matches!(Found::at(group, salt), Found::Entry(entry::Entry::Group(_), _)).then_some(salt)
}

/// The name of a segment's file.
#[must_use]
pub fn name(number: SegmentNumber) -> String {
    format!("{number:010}{SUFFIX}")
}

/// The number of the segment in a file of this name; `None`: it is something else.
#[must_use]
pub fn number_of(file: &str) -> Option<SegmentNumber> {
    let number = file.strip_suffix(SUFFIX)?.parse().ok()?;
    (name(number) == file && number <= SEGMENT_MAX).then_some(number)
}

/// The file of a segment, as it is needed to read an entry; clones are the same file.
#[derive(Clone, Debug)]
pub struct SegmentFile {
    /// The file.
    pub file: SharedFile,
    /// The salt of its entries.
    pub salt: Salt,
}

/// A segment, and how much of it is still needed.
#[derive(Debug)]
pub struct Segment {
    /// Its number.
    pub number: SegmentNumber,
    /// Its file.
    pub file: SegmentFile,
    /// Where its entries end.
    pub end: u64,
    /// Where its file ends.
    pub room: u64,
    /// The number of messages in it that are needed.
    pub messages: u64,
    /// Their bytes, approximately.
    pub bytes: u64,
    /// How many messages that are needed share an entry, by its offset. Its bytes are counted once.
    pub shared: HashMap<u64, u32>,
    /// What is forgotten here: it is needed as long as the segments that have the messages exist.
    pub forgets: Forgets,
    /// Whether it has counts of deliveries, which may be needed however few messages it has.
    pub has_counts: bool,
    /// Whether a part of it was damaged, so that it has to be replaced.
    pub is_damaged: bool,
    /// Whether its file is kept under another name instead of being removed: damage in it could not be copied.
    pub keeps_file: bool,
    /// Whether some of its messages stand in a later segment, too, because a crash has ended its replacement. It is replaced
    /// before anything else: as long as it exists, these messages would return if what forgets them were removed.
    pub is_superseded: bool,
}

/// Which segments' messages are forgotten in a segment, and how many.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Forgets {
    counts: Vec<(SegmentNumber, u64)>,
    /// How many were ever added, and the bytes of their entries.
    added: u64,
    bytes: u64,
}

impl Forgets {
    /// Adds messages of a segment.
    pub fn add(&mut self, segment: SegmentNumber, count: u64) {
        self.added += count;
        match self.counts.binary_search_by_key(&segment, |(number, _)| *number) {
            Ok(at) => self.counts[at].1 += count,
            Err(at) => self.counts.insert(at, (segment, count)),
        }
    }

    /// What was added takes so many bytes.
    pub fn add_bytes(&mut self, bytes: u64) {
        self.bytes += bytes;
    }

    /// The messages of a segment no longer have to be forgotten, because it is gone.
    pub fn remove(&mut self, segment: SegmentNumber) {
        self.counts.retain(|(number, _)| *number != segment);
    }

    /// The number of messages that have to stay forgotten.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().map(|(_, count)| count).sum()
    }

    /// The bytes that are needed for that, approximately.
    #[must_use]
    pub fn needed_bytes(&self) -> u64 {
        let bytes = u128::from(self.bytes) * u128::from(self.count());
        u64::try_from(bytes.div_ceil(u128::from(self.added.max(1)))).unwrap_or(u64::MAX)
    }
}

impl Segment {
    /// A segment without entries.
    #[must_use]
    pub fn new(number: SegmentNumber, file: SegmentFile, room: u64) -> Self {
        Segment {
            number,
            file,
            end: HEADER_BYTES,
            room,
            messages: 0,
            bytes: 0,
            shared: HashMap::default(),
            forgets: Forgets::default(),
            has_counts: false,
            is_damaged: false,
            keeps_file: false,
            is_superseded: false,
        }
    }

    /// A message in it is needed.
    pub fn add(&mut self, length: u64) {
        self.messages += 1;
        self.bytes += length;
    }

    /// A message in it is needed, whose entry at this offset may have others.
    pub fn add_shared(&mut self, offset: u64, length: u64) {
        let sharing = self.shared.entry(offset).or_default();
        *sharing += 1;
        match *sharing {
            1 => self.add(length),
            _ => self.messages += 1,
        }
    }

    /// A message in it is no longer needed.
    pub fn release(&mut self, stored: Stored) {
        if !self.shared.is_empty()
            && let Entry::Occupied(mut sharing) = self.shared.entry(stored.place.offset)
        {
            if *sharing.get() > 1 {
                *sharing.get_mut() -= 1;
                self.messages -= 1;
                return;
            }
            sharing.remove();
        }
        self.messages = self.messages.saturating_sub(1);
        self.bytes = if self.messages == 0 { 0 } else { self.bytes.saturating_sub(stored.length) };
    }

    /// The bytes that would have to be written again if it were removed.
    #[must_use]
    pub fn needed_bytes(&self) -> u64 {
        self.bytes + self.forgets.needed_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: Header = Header { number: 3, record: 1 << 40, group: 99, salt: Salt(7 << 40) };

    #[test]
    fn a_header_is_read_as_it_was_written() {
        assert_eq!(Header::read(&HEADER.bytes()), Ok(HEADER));
    }

    #[test]
    fn other_files_are_told_apart() {
        for unwritten in [&[0; 100][..], &[0; 10], &[], &HEADER.bytes()[..20]] {
            assert_eq!(Header::read(unwritten), Err(BadHeader::Unwritten));
        }
        assert_eq!(Header::read(b"#!/bin/sh\necho this is no segment of a log\n"), Err(BadHeader::Damaged));
        let mut newer = HEADER.bytes();
        newer[8] = 2;
        let checksum = crc32c::crc32c(&newer[..40]).to_le_bytes();
        newer[40..].copy_from_slice(&checksum);
        assert_eq!(Header::read(&newer), Err(BadHeader::Version(2)));
        for damaged in [0, 20, 34] {
            let mut bytes = HEADER.bytes();
            bytes[damaged] ^= 1;
            assert!(Header::read(&bytes).is_err());
        }
    }

    #[test]
    fn the_name_of_a_file_has_the_number_of_the_segment() {
        assert_eq!(name(7), "0000000007.log");
        assert_eq!(number_of("0000000007.log"), Some(7));
        for other in
            ["7.log", "lock", "000000000x.log", "0000000007.log.old", "+000000007.log", "4294967295.log"]
        {
            assert_eq!(number_of(other), None, "{other}");
        }
    }

    #[test]
    fn what_is_forgotten_is_needed_until_its_segment_is_gone() {
        let mut forgets = Forgets::default();
        [(2, 10), (1, 5), (2, 1)].into_iter().for_each(|(segment, count)| forgets.add(segment, count));
        forgets.add_bytes(64);
        assert_eq!((forgets.count(), forgets.needed_bytes()), (16, 64));
        forgets.remove(2);
        assert_eq!((forgets.count(), forgets.needed_bytes()), (5, 20));
        forgets.remove(1);
        assert_eq!((forgets.count(), forgets.needed_bytes()), (0, 0));
    }
}
