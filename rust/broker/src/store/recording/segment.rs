//! A segment of the recording: one file. It begins with a header; entries follow ([`block`](super::block)), and then zeros for
//! those to come.
//!
//! | offset | bytes | the header |
//! |---|---|---|
//! | 0 | 8 | [`MAGIC`] |
//! | 8 | 4 | the version of the format, [`VERSION`] |
//! | 12 | 4 | the number of the segment |
//! | 16 | 8 | the epoch that destinations get which have none when it is written |
//! | 24 | 8 | the number of the first group; all groups before are safe |
//! | 32 | 8 | the salt of its entries |
//! | 40 | 4 | CRC-32C of the bytes before |
//!
//! The header is safe before the file gets its name.

use crate::store::file::entry::{Salt, SegmentNumber};

/// The first bytes of every segment.
pub const MAGIC: [u8; 8] = *b"STOMPREC";
/// The version of the format.
pub const VERSION: u32 = 1;
/// The length of the header.
pub const HEADER_BYTES: u64 = 44;
/// The end of the names of segments.
const SUFFIX: &str = ".rec";

/// The header of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The number of the segment.
    pub number: SegmentNumber,
    /// The epoch that destinations get which have none.
    pub epoch: u64,
    /// The number of the first group.
    pub group: u64,
    /// The salt of its entries.
    pub salt: Salt,
}

/// Why a file is no segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadHeader {
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
        bytes[16..24].copy_from_slice(&self.epoch.to_le_bytes());
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
        let Some(bytes) = bytes.first_chunk::<{ HEADER_BYTES as usize }>() else {
            return Err(BadHeader::Damaged);
        };
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        if crc32c::crc32c(&bytes[..40]) != word(40) || bytes[..8] != MAGIC {
            return Err(BadHeader::Damaged);
        }
        if word(8) != VERSION {
            return Err(BadHeader::Version(word(8)));
        }
        Ok(Header { number: word(12), epoch: long(16), group: long(24), salt: Salt(long(32)) })
    }
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
    (name(number) == file).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: Header = Header { number: 3, epoch: 1 << 40, group: 99, salt: Salt(7 << 40) };

    #[test]
    fn a_header_is_read_as_it_was_written() {
        assert_eq!(Header::read(&HEADER.bytes()), Ok(HEADER));
    }

    #[test]
    fn other_files_are_told_apart() {
        for other in
            [&[0; 100][..], &[], &HEADER.bytes()[..20], b"#!/bin/sh\necho this is no segment of anything\n"]
        {
            assert_eq!(Header::read(other), Err(BadHeader::Damaged));
        }
        let mut newer = HEADER.bytes();
        newer[8] = 2;
        let checksum = crc32c::crc32c(&newer[..40]).to_le_bytes();
        newer[40..].copy_from_slice(&checksum);
        assert_eq!(Header::read(&newer), Err(BadHeader::Version(2)));
    }

    #[test]
    fn the_name_of_a_file_has_the_number_of_the_segment() {
        assert_eq!((name(7), number_of("0000000007.rec")), ("0000000007.rec".to_owned(), Some(7)));
        for other in ["7.rec", "lock", "0000000007.log", "+000000007.rec"] {
            assert_eq!(number_of(other), None, "{other}");
        }
    }
}
