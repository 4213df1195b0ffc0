//! Reads messages again, on a thread of its own, so that a slow disk delays no group.

use std::io;

use super::encode::append_message;
use super::entry::{ENTRY_BYTES_MAX, Entry, Found};
use super::inbox::Inbox;
use super::segment::SegmentFile;
use super::table::Stored;
use crate::ids::RecordId;
use crate::store::Unreadable;

/// The most bytes between two messages that are read at once.
const GAP_MAX: u64 = 4096;
/// The most bytes that are read at once, except of one message.
const SPAN_MAX: u64 = 256 << 10;

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
    /// The most bytes that the entry may have: the length that is known may be too small by an eighth.
    fn length_max(&self) -> u64 {
        self.stored.length + self.stored.length / 7 + 8
    }

    /// Reads the entry of the message, and takes the salt from it.
    ///
    /// # Errors
    /// The disk fails, or the entry is damaged or that of another record.
    pub fn read(&self) -> io::Result<Vec<u8>> {
        let offset = self.stored.place.offset;
        let mut bytes = vec![0; self.length_max() as usize];
        let file = &self.file.file;
        let mut count = file.read_at(&mut bytes, offset)?;
        let damaged = || io::Error::from(io::ErrorKind::InvalidData);
        let length = length_of(&bytes).ok_or_else(damaged)?;
        if length > bytes.len() {
            bytes.resize(length, 0);
            count = file.read_at(&mut bytes, offset)?;
        }
        bytes.truncate(count);
        self.find(&bytes).ok_or_else(damaged)
    }

    /// The message at the beginning of these bytes as an entry of its own without salt, if that is there and complete.
    fn find(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        let salt = self.file.salt;
        match Found::at(bytes, salt) {
            Found::Entry(Entry::Message(message), length) if message.record == self.record => {
                let mut entry = bytes[..length].to_vec();
                salt.change(&mut entry);
                Some(entry)
            }
            Found::Entry(Entry::Shared(mut shared), length) => {
                let message = shared.find(|message| message.record == self.record)?;
                let mut entry = Vec::with_capacity(length);
                append_message(&mut entry, &message);
                Some(entry)
            }
            _ => None,
        }
    }

    /// Reads the message, and gives it to the shard that wants it.
    pub fn answer(&self, inbox: &Inbox) {
        inbox.give(self.shard, (self.record, self.read().map_err(|_| Unreadable)));
    }

    /// Whether the message stands a little behind another one that the same shard wants.
    fn follows(&self, other: &Request) -> bool {
        let end = other.stored.place.offset + other.stored.length;
        let place = self.stored.place;
        self.shard == other.shard
            && place.segment == other.stored.place.segment
            && (end..end + other.stored.length / 7 + GAP_MAX).contains(&place.offset)
    }
}

/// The length of the entry that begins with these bytes, with its head; `None`: it is too long to be one.
fn length_of(bytes: &[u8]) -> Option<usize> {
    let length = u32::from_le_bytes(*bytes.first_chunk::<4>()?) as usize;
    (length <= ENTRY_BYTES_MAX).then_some(length + 8)
}

/// Reads all of these messages, and gives them to the shards that want them. Neighbours in the log are read at once, and their
/// shard is woken once for them.
pub fn answer_all(requests: &[Request], inbox: &Inbox) {
    let mut rest = requests;
    while let Some(first) = rest.first() {
        let start = first.stored.place.offset;
        let fits = |request: &Request| request.stored.place.offset + request.length_max() - start <= SPAN_MAX;
        let neighbours = rest.windows(2).take_while(|pair| pair[1].follows(&pair[0]) && fits(&pair[1]));
        let (together, others) = rest.split_at(1 + neighbours.count());
        match together {
            [alone] => alone.answer(inbox),
            _ => answer_together(together, inbox),
        }
        rest = others;
    }
}

fn answer_together(requests: &[Request], inbox: &Inbox) {
    let ([first, ..], [.., last]) = (requests, requests) else { return };
    let start = first.stored.place.offset;
    let mut bytes = vec![0; (last.stored.place.offset + last.length_max() - start) as usize];
    let count = first.file.file.read_at(&mut bytes, start).unwrap_or(0);
    bytes.truncate(count);
    let read = |request: &Request| {
        let at = (request.stored.place.offset - start) as usize;
        let found = bytes.get(at..).and_then(|bytes| request.find(bytes));
        // On its own it may be longer, or all that the disk can still read.
        found.map_or_else(|| request.read().map_err(|_| Unreadable), Ok)
    };
    // What has to be read again is read before the shard's answers are locked.
    let loaded: Vec<_> = requests.iter().map(|request| (request.record, read(request))).collect();
    inbox.give_all(first.shard, loaded);
}

#[cfg(test)]
#[path = "reader_tests.rs"]
mod tests;
