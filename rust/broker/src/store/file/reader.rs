//! Reads messages again, on a thread of its own, so that a slow disk delays no group.

use std::io;

use super::entry::{ENTRY_BYTES_MAX, Entry, Found};
use super::inbox::Inbox;
use super::segment::SegmentFile;
use super::table::Stored;
use crate::ids::RecordId;
use crate::store::Unreadable;

/// A message that is wanted, and where it is.
#[derive(Clone, Debug)]
pub struct Request {
    /// The shard that wants it.
    pub shard: usize,
    /// Its record.
    pub record: RecordId,
    /// The file of its segment: open even if the segment is removed meanwhile, and closed with the last such request.
    pub file: SegmentFile,
    /// Its place in it.
    pub stored: Stored,
}

impl Request {
    /// Reads the entry of the message, and takes the salt from it.
    ///
    /// # Errors
    /// The disk fails, or the entry is damaged or that of another record.
    pub fn read(&self) -> io::Result<Vec<u8>> {
        let offset = self.stored.place.offset;
        // The length that is known may be too small by an eighth.
        let mut bytes = vec![0; (self.stored.length + self.stored.length / 7 + 8) as usize];
        let SegmentFile { file, salt } = &self.file;
        let mut count = file.read_at(&mut bytes, offset)?;
        let damaged = || io::Error::from(io::ErrorKind::InvalidData);
        let length = bytes.first_chunk::<4>().map(|length| u32::from_le_bytes(*length) as usize);
        let length = length.filter(|length| *length <= ENTRY_BYTES_MAX).ok_or_else(damaged)? + 8;
        if length > bytes.len() {
            bytes.resize(length, 0);
            count = file.read_at(&mut bytes, offset)?;
        }
        bytes.truncate(count.min(length));
        match Found::at(&bytes, *salt) {
            Found::Entry(Entry::Message(message), _) if message.record == self.record => {}
            _ => return Err(damaged()),
        }
        salt.change(&mut bytes);
        Ok(bytes)
    }

    /// Reads the message, and gives it to the shard that wants it.
    pub fn answer(&self, inbox: &Inbox) {
        inbox.give(self.shard, (self.record, self.read().map_err(|_| Unreadable)));
    }
}
