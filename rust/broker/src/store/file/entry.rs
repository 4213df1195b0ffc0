//! The format of entries, of which the segments of the log consist.
//!
//! Numbers of fixed length are little-endian; *number* is one of variable length ([`varint`](super::varint)), *text* a number
//! and so many bytes. Every entry begins with its length and its checksum:
//!
//! | offset | bytes | what |
//! |---|---|---|
//! | 0 | 4 | the length of what follows these eight bytes; 0: no entry follows in this segment |
//! | 4 | 4 | CRC-32C of the length and of what follows these eight bytes, changed by the salt |
//! | 8 | 1 | the kind |
//! | 9 | | the fields of the kind |
//!
//! The kinds and their fields:
//!
//! - 1, group: 8 bytes: the salt; 8 bytes: its number; 8 bytes: the number of the last group that was synced then;
//!   4 bytes: the length of all entries of the group behind this one.
//! - 2, message: number: record; number: place; byte: flags; with flag 8 a number: when it expires, in ms since 1970;
//!   with flag 16 a number: `max-exceptions`; with flag 32 two numbers: deliveries, failures; number: sender; with flag 64
//!   a text: the queue, otherwise it is the destination; texts: destination, message id, headers; the rest: body.
//!   Flag 1: persistent, 2: its headers need no escaping, 4: it belongs to a message group.
//! - 3, forgotten: any number of times: number: segment that has the messages; number: how many; the step from each record
//!   to the next one, the first one from 0.
//! - 4, delivered: any number of times: the step from the record before, the first one from 0; numbers: deliveries,
//!   failures.
//! - 5, transaction: entries of the kinds 2 and 3, complete with length and checksum: all of them are valid, or none.
//! - 6, shared: one message in several queues: number: how many further ones; for each of them: record, place, flags and what
//!   belongs to them as in kind 2, then a text: the queue; then all fields of kind 2 for the first one.
//!
//! A group is what is written at once. It says which groups were synced before it: damage in these is a failure of the disk,
//! damage in later ones is what a crash leaves.
//!
//! Every segment has a random [`Salt`] of its own in its header, and no client ever learns it. Its groups contain it, and it
//! changes the checksums of all entries. So whatever a client writes into a message, also a copy of a valid entry, is never
//! taken for an entry where recovery looks for one behind damage. An entry outside a segment has [`Salt::NONE`]: in a batch,
//! and when it was read for a shard. An entry that is copied from one segment to another gets the other one's salt.

use super::varint::Reader;
use crate::ids::RecordId;
pub use crate::store::Counts;

/// The bytes before the fields of an entry: length, checksum, kind.
pub const HEAD_BYTES: usize = 9;
/// The length of a group's entry.
pub const GROUP_BYTES: usize = HEAD_BYTES + 8 + 8 + 8 + 4;
/// The largest length that an entry may announce. Nothing longer may be written: it could not be read.
pub const ENTRY_BYTES_MAX: usize = 1 << 30;

pub(super) const GROUP: u8 = 1;
pub(super) const MESSAGE: u8 = 2;
pub(super) const FORGOTTEN: u8 = 3;
pub(super) const DELIVERED: u8 = 4;
pub(super) const TRANSACTION: u8 = 5;
pub(super) const SHARED: u8 = 6;

pub(super) const PERSISTENT: u8 = 1;
pub(super) const PLAIN: u8 = 2;
pub(super) const GROUPED: u8 = 4;
pub(super) const EXPIRES: u8 = 8;
pub(super) const EXCEPTIONS: u8 = 16;
pub(super) const COUNTS: u8 = 32;
pub(super) const QUEUE: u8 = 64;
const KNOWN_FLAGS: u8 = PERSISTENT | PLAIN | GROUPED | EXPIRES | EXCEPTIONS | COUNTS | QUEUE;

/// The number of a segment; they grow.
pub type SegmentNumber = u32;

/// What makes the entries of a segment its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Salt(pub u64);

impl Salt {
    /// That of entries outside a segment.
    pub const NONE: Salt = Salt(0);

    /// By what the checksum of an entry is changed.
    pub(in crate::store) fn mask(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// Gives an entry without salt this one, or takes it from an entry that has it. Entries in it are not changed.
    pub fn change(self, entry: &mut [u8]) {
        if let Some([_, _, _, _, checksum @ ..]) = entry.first_chunk_mut::<8>() {
            *checksum = (u32::from_le_bytes(*checksum) ^ self.mask()).to_le_bytes();
        }
    }
}

/// A message as the log has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Message<'a> {
    /// Its record.
    pub record: RecordId,
    /// Its place in its queue.
    pub place: u64,
    /// `persistent:true`.
    pub persistent: bool,
    /// Whether its headers need no escaping.
    pub plain: bool,
    /// Whether it belongs to a message group.
    pub grouped: bool,
    /// When it expires, in milliseconds since 1970; 0: never.
    pub expires_ms: u64,
    /// `max-exceptions`; 0: not set.
    pub failures_max: u16,
    /// What is known of its deliveries when it is written.
    pub counts: Counts,
    /// The connection that sent it; only the process that wrote it knows the connection.
    pub sender: u64,
    /// Its queue.
    pub queue: &'a [u8],
    /// Its destination.
    pub destination: &'a [u8],
    /// `message-id`.
    pub id: &'a [u8],
    /// Its headers, as lines.
    pub headers: &'a [u8],
    /// Its body.
    pub body: &'a [u8],
}

/// The beginning of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    /// Its number; they grow by one.
    pub number: u64,
    /// The number of the last group that was synced when this one was written; 0: none.
    pub synced: u64,
    /// The length of its other entries.
    pub length: u32,
}

/// An entry.
#[derive(Clone, Copy, Debug)]
pub enum Entry<'a> {
    /// The beginning of a group.
    Group(Group),
    /// A message of a queue.
    Message(Message<'a>),
    /// Messages that are no longer needed.
    Forgotten(Forgotten<'a>),
    /// Messages that were delivered.
    Delivered(Delivered<'a>),
    /// Entries that are valid together.
    Transaction(Entries<'a>),
    /// One message in several queues.
    Shared(Shared<'a>),
}

/// What stands at a place of a segment.
#[derive(Clone, Copy, Debug)]
pub enum Found<'a> {
    /// An entry, and its length with everything.
    Entry(Entry<'a>, usize),
    /// No further entry.
    End,
    /// Something that is no valid entry.
    Damaged,
}

impl<'a> Found<'a> {
    /// Reads what stands at the beginning of these bytes, whose entries have this salt.
    #[must_use]
    pub fn at(bytes: &'a [u8], salt: Salt) -> Self {
        let Some((head, rest)) = bytes.split_first_chunk::<8>() else {
            return if bytes.iter().all(|byte| *byte == 0) { Found::End } else { Found::Damaged };
        };
        let [a, b, c, d, checksum @ ..] = *head;
        let length = u32::from_le_bytes([a, b, c, d]) as usize;
        if length == 0 {
            return if checksum == [0; 4] { Found::End } else { Found::Damaged };
        }
        let content = rest.get(..length).filter(|_| length <= ENTRY_BYTES_MAX);
        let valid =
            content.filter(|content| checksum_of(content) ^ salt.mask() == u32::from_le_bytes(checksum));
        match valid.and_then(|content| parse(content, salt)) {
            Some(entry) => Found::Entry(entry, 8 + length),
            None => Found::Damaged,
        }
    }
}

/// The messages of an entry whose checksum is not looked at: in a damaged one nothing is certain.
pub fn messages_in(bytes: &[u8]) -> impl Iterator<Item = Message<'_>> {
    let fields = || {
        let (length, rest) = bytes.split_first_chunk::<4>()?;
        let content = rest.get(4..)?.get(..u32::from_le_bytes(*length) as usize)?;
        content.split_first()
    };
    let (kind, fields) = fields().unwrap_or((&0, &[]));
    let one = if *kind == MESSAGE { parse_message(Reader::new(fields)) } else { None };
    let shared = if *kind == SHARED { Shared::new(fields) } else { None };
    one.into_iter().chain(shared.into_iter().flatten())
}

/// The checksum of an entry with this content, the kind included, without salt.
pub(in crate::store) fn checksum_of(content: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&(content.len() as u32).to_le_bytes()), content)
}

fn parse(content: &[u8], salt: Salt) -> Option<Entry<'_>> {
    let (kind, fields) = content.split_first()?;
    match *kind {
        GROUP => {
            let (mark, rest) = fields.split_first_chunk::<8>()?;
            let (number, rest) = rest.split_first_chunk::<8>()?;
            let (synced, rest) = rest.split_first_chunk::<8>()?;
            let length = u32::from_le_bytes(rest.try_into().ok()?);
            let (number, synced) = (u64::from_le_bytes(*number), u64::from_le_bytes(*synced));
            (*mark == salt.0.to_le_bytes()).then_some(Entry::Group(Group { number, synced, length }))
        }
        MESSAGE => parse_message(Reader::new(fields)).map(Entry::Message),
        FORGOTTEN => Some(Entry::Forgotten(Forgotten::new(fields))),
        DELIVERED => Some(Entry::Delivered(Delivered { reader: Reader::new(fields), record: 0 })),
        TRANSACTION => Some(Entry::Transaction(Entries { bytes: fields, at: 0, salt })),
        SHARED => Shared::new(fields).map(Entry::Shared),
        _ => None,
    }
}

/// The fields of a message before its sender, and whether its queue is named.
fn parse_head<'a>(reader: &mut Reader<'a>) -> Option<(Message<'a>, bool)> {
    let (record, place, flags) = (reader.number()?, reader.number()?, reader.byte()?);
    if flags & !KNOWN_FLAGS != 0 {
        return None;
    }
    let has = |flag: u8| flags & flag != 0;
    let expires_ms = if has(EXPIRES) { reader.number()? } else { 0 };
    let failures_max = if has(EXCEPTIONS) { u16::try_from(reader.number()?).ok()? } else { 0 };
    let counts = if has(COUNTS) { parse_counts(reader)? } else { Counts::default() };
    let head = Message {
        record,
        place,
        persistent: has(PERSISTENT),
        plain: has(PLAIN),
        grouped: has(GROUPED),
        expires_ms,
        failures_max,
        counts,
        ..Message::default()
    };
    Some((head, has(QUEUE)))
}

fn parse_message(mut reader: Reader<'_>) -> Option<Message<'_>> {
    let (head, has_queue) = parse_head(&mut reader)?;
    let sender = reader.number()?;
    let queue = if has_queue { Some(reader.text()?) } else { None };
    let (destination, id, headers) = (reader.text()?, reader.text()?, reader.text()?);
    let (queue, body) = (queue.unwrap_or(destination), reader.rest());
    Some(Message { sender, queue, destination, id, headers, body, ..head })
}

fn parse_counts(reader: &mut Reader<'_>) -> Option<Counts> {
    let deliveries = u32::try_from(reader.number()?).ok()?;
    Some(Counts { deliveries, failures: u16::try_from(reader.number()?).ok()? })
}

/// The messages of an entry `shared`, which differ in what belongs to their queues. Ends early where the entry is malformed.
#[derive(Clone, Copy, Debug)]
pub struct Shared<'a> {
    first: Message<'a>,
    /// Whether the first message was returned.
    has_begun: bool,
    /// The further ones that are left.
    left: u64,
    reader: Reader<'a>,
}

impl<'a> Shared<'a> {
    fn new(fields: &'a [u8]) -> Option<Self> {
        let mut reader = Reader::new(fields);
        let left = reader.number()?;
        let further = reader;
        for _ in 0..left {
            parse_head(&mut reader)?;
            reader.text()?;
        }
        let first = parse_message(reader)?;
        Some(Shared { first, has_begun: false, left, reader: further })
    }
}

impl<'a> Iterator for Shared<'a> {
    type Item = Message<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        if !std::mem::replace(&mut self.has_begun, true) {
            return Some(self.first);
        }
        self.left = self.left.checked_sub(1)?;
        let (head, _) = parse_head(&mut self.reader)?;
        let queue = self.reader.text()?;
        let Message { sender, destination, id, headers, body, .. } = self.first;
        Some(Message { sender, queue, destination, id, headers, body, ..head })
    }
}

/// The records of an entry `forgotten`, each with the segment that has its message. Ends early where the entry is malformed.
#[derive(Clone, Copy, Debug)]
pub struct Forgotten<'a> {
    reader: Reader<'a>,
    segment: SegmentNumber,
    left: u64,
    record: RecordId,
}

impl<'a> Forgotten<'a> {
    fn new(fields: &'a [u8]) -> Self {
        Forgotten { reader: Reader::new(fields), segment: 0, left: 0, record: 0 }
    }
}

impl Iterator for Forgotten<'_> {
    type Item = (SegmentNumber, RecordId);

    fn next(&mut self) -> Option<Self::Item> {
        while self.left == 0 {
            self.segment = SegmentNumber::try_from(self.reader.number()?).ok()?;
            self.left = self.reader.number()?;
            self.record = 0;
        }
        self.left -= 1;
        self.record = self.reader.step(self.record)?;
        Some((self.segment, self.record))
    }
}

/// The records of an entry `delivered`. Ends early where the entry is malformed.
#[derive(Clone, Copy, Debug)]
pub struct Delivered<'a> {
    reader: Reader<'a>,
    record: RecordId,
}

impl Iterator for Delivered<'_> {
    type Item = (RecordId, Counts);

    fn next(&mut self) -> Option<Self::Item> {
        self.record = self.reader.step(self.record)?;
        Some((self.record, parse_counts(&mut self.reader)?))
    }
}

/// The entries of a transaction, each with its offset behind the transaction's own [`HEAD_BYTES`] and its length.
#[derive(Clone, Copy, Debug)]
pub struct Entries<'a> {
    bytes: &'a [u8],
    at: usize,
    salt: Salt,
}

impl<'a> Iterator for Entries<'a> {
    type Item = (usize, Entry<'a>, usize);

    fn next(&mut self) -> Option<Self::Item> {
        let at = self.at;
        match Found::at(self.bytes.get(at..)?, self.salt) {
            Found::Entry(entry @ (Entry::Message(_) | Entry::Forgotten(_)), length) => {
                self.at += length;
                Some((at, entry, length))
            }
            // Nothing else is written there. Transactions within each other would be read without a limit of their depth.
            _ => None,
        }
    }
}

#[cfg(test)]
#[path = "entry_tests.rs"]
mod tests;
