//! A block: consecutive messages of one destination, as they are recorded and replayed.
//!
//! An entry of a segment of the recording has the same head as one of the store ([`entry`](crate::store::file::entry)): its
//! length, its checksum, its kind. Besides groups, whose kind and fields are those of the store, there are these kinds:
//!
//! - 16, block: numbers: epoch, `seq` of the first message, how many messages, the time of the first one in ms since 1970;
//!   text: destination; then each message: the step from the time of the one before it; byte: flags (1: its headers need no
//!   escaping, 2: persistent); texts: `message-id`, headers, body.
//! - 17, note: any number of times: text: a destination; numbers: the `seq` of its next message, the time of its last one, how
//!   many epochs follow; for each of these three numbers: epoch, first and last `seq`.
//! - 18, closed: no fields. The recording was ended in order, and everything before is safe.
//! - 19, leases: any number of times: texts: name and destination; numbers: the `seq` that is wanted next, when it expires in ms
//!   since 1970.

use std::sync::Arc;

use crate::held;
use crate::store::file::encode;
use crate::store::file::entry::{ENTRY_BYTES_MAX, Entry, Found, Group, Salt, checksum_of};
use crate::store::file::varint::{Reader, put, put_step, put_text};

const GROUP: u8 = 1;
const BLOCK: u8 = 16;
const NOTE: u8 = 17;
const CLOSED: u8 = 18;
const LEASES: u8 = 19;

const PLAIN: u8 = 1;
const PERSISTENT: u8 = 2;

/// A block takes no more messages from this length on.
pub const BLOCK_BYTES: usize = 64 << 10;

/// Consecutive messages of one destination. Their bytes count against `memory_limit`.
#[derive(Debug)]
pub struct Block {
    /// The destination.
    pub name: Arc<[u8]>,
    /// The epoch of its numbers.
    pub epoch: u64,
    /// The number of the first message.
    pub first: u64,
    /// How many there are.
    pub count: u64,
    /// When the first one was recorded, in milliseconds since 1970.
    pub time_ms: u64,
    /// When the last one was.
    pub last_ms: u64,
    messages: Vec<u8>,
}

/// A message of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recorded<'a> {
    /// When it was recorded, in milliseconds since 1970.
    pub time_ms: u64,
    /// Whether its headers need no escaping.
    pub plain: bool,
    /// `persistent:true`.
    pub persistent: bool,
    /// `message-id`.
    pub id: &'a [u8],
    /// The headers of its SEND.
    pub headers: &'a [u8],
    /// Its body.
    pub body: &'a [u8],
}

impl Block {
    /// A block without messages; the first one will have this number.
    #[must_use]
    pub fn new(name: Arc<[u8]>, epoch: u64, first: u64, time_ms: u64) -> Self {
        Block { name, epoch, first, count: 0, time_ms, last_ms: time_ms, messages: Vec::new() }
    }

    /// Adds the next message. Its time must not be before that of the last one.
    pub fn push(&mut self, message: &Recorded<'_>) {
        let before = self.messages.len();
        put_step(&mut self.messages, self.last_ms, message.time_ms);
        let flags = [(message.plain, PLAIN), (message.persistent, PERSISTENT)];
        self.messages.push(flags.into_iter().map(|(is_set, flag)| u8::from(is_set) * flag).sum());
        [message.id, message.headers, message.body]
            .into_iter()
            .for_each(|text| put_text(&mut self.messages, text));
        self.last_ms = message.time_ms;
        self.count += 1;
        held::add((self.messages.len() - before) as i64);
    }

    /// The number behind the last message.
    #[must_use]
    pub fn next(&self) -> u64 {
        self.first + self.count
    }

    /// The bytes of its messages.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.messages.len()
    }

    /// Whether it takes no more messages.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.messages.len() >= BLOCK_BYTES
    }

    /// Its messages from an offset on, which is 0 or came from [`Messages::offset`]. `time_ms`: the time of the message before.
    #[must_use]
    pub fn messages(&self, offset: usize, time_ms: u64) -> Messages<'_> {
        let rest = self.messages.get(offset..).unwrap_or_default();
        Messages { length: self.messages.len(), reader: Reader::new(rest), time_ms }
    }

    /// Appends its entry.
    pub fn append(&self, out: &mut Vec<u8>, salt: Salt) {
        append(out, salt, BLOCK, |out| {
            [self.epoch, self.first, self.count, self.time_ms]
                .into_iter()
                .for_each(|number| put(out, number));
            put_text(out, &self.name);
            out.extend_from_slice(&self.messages);
        });
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        held::add(-(self.messages.len() as i64));
    }
}

/// Messages of a block, in order. Ends early where one is malformed.
#[derive(Clone, Copy, Debug)]
pub struct Messages<'a> {
    length: usize,
    reader: Reader<'a>,
    time_ms: u64,
}

impl Messages<'_> {
    /// Where the next one stands.
    #[must_use]
    pub fn offset(&self) -> usize {
        self.length - self.reader.rest().len()
    }

    /// The time of the last one that was returned.
    #[must_use]
    pub fn time_ms(&self) -> u64 {
        self.time_ms
    }
}

impl<'a> Iterator for Messages<'a> {
    type Item = Recorded<'a>;

    fn next(&mut self) -> Option<Recorded<'a>> {
        let reader = &mut self.reader;
        let (time_ms, flags) = (reader.step(self.time_ms)?, reader.byte()?);
        let (id, headers, body) = (reader.text()?, reader.text()?, reader.text()?);
        self.time_ms = time_ms;
        let (plain, persistent) = (flags & PLAIN != 0, flags & PERSISTENT != 0);
        Some(Recorded { time_ms, plain, persistent, id, headers, body })
    }
}

/// The numbers of one epoch of a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The epoch.
    pub epoch: u64,
    /// Its first number.
    pub first: u64,
    /// Its last number.
    pub last: u64,
}

/// What has to be known of a destination whose messages are gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The destination.
    pub name: Arc<[u8]>,
    /// The number of its next message.
    pub next: u64,
    /// The time of its last one.
    pub last_ms: u64,
    /// Its epochs.
    pub spans: Vec<Span>,
}

/// A reader's lease: segments with messages that it has not read are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The name that the reader chose.
    pub name: Box<[u8]>,
    /// The destination.
    pub destination: Arc<[u8]>,
    /// The number that it wants next.
    pub next: u64,
    /// When it expires, in milliseconds since 1970.
    pub expires_ms: u64,
}

fn append(out: &mut Vec<u8>, salt: Salt, kind: u8, fields: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    encode::append(out, kind, fields);
    salt.change(&mut out[start..]);
}

/// Appends an entry with notes.
pub fn append_notes(out: &mut Vec<u8>, notes: &[Note], salt: Salt) {
    append(out, salt, NOTE, |out| {
        for note in notes {
            put_text(out, &note.name);
            [note.next, note.last_ms, note.spans.len() as u64]
                .into_iter()
                .for_each(|number| put(out, number));
            for span in &note.spans {
                [span.epoch, span.first, span.last].into_iter().for_each(|number| put(out, number));
            }
        }
    });
}

/// Appends an entry with all leases.
pub fn append_leases<'a>(out: &mut Vec<u8>, leases: impl Iterator<Item = &'a Lease>, salt: Salt) {
    append(out, salt, LEASES, |out| {
        for lease in leases {
            put_text(out, &lease.name);
            put_text(out, &lease.destination);
            put(out, lease.next);
            put(out, lease.expires_ms);
        }
    });
}

/// Appends the entry that says that the recording was ended in order.
pub fn append_closed(out: &mut Vec<u8>, salt: Salt) {
    append(out, salt, CLOSED, |_| ());
}

/// An entry of a segment.
#[derive(Debug)]
pub enum Part<'a> {
    /// The beginning of a group.
    Group(Group),
    /// A block.
    Block(Head<'a>),
    /// Destinations.
    Notes(Vec<Note>),
    /// All leases at that time.
    Leases(Vec<Lease>),
    /// The end.
    Closed,
}

/// A block that is not copied.
#[derive(Clone, Copy, Debug)]
pub struct Head<'a> {
    /// The destination.
    pub name: &'a [u8],
    /// The epoch of its numbers.
    pub epoch: u64,
    /// The number of the first message.
    pub first: u64,
    /// How many there are.
    pub count: u64,
    /// When the first one was recorded.
    pub time_ms: u64,
    messages: &'a [u8],
}

impl Head<'_> {
    /// A copy of it; `name` is its name.
    #[must_use]
    pub fn copy(&self, name: &Arc<[u8]>) -> Block {
        let Head { epoch, first, count, time_ms, messages, .. } = *self;
        held::add(messages.len() as i64);
        let mut block = Block {
            name: Arc::clone(name),
            epoch,
            first,
            count,
            time_ms,
            last_ms: time_ms,
            messages: messages.to_vec(),
        };
        block.last_ms = self.last_ms();
        block
    }

    /// The time of its last message.
    #[must_use]
    pub fn last_ms(&self) -> u64 {
        let messages = Messages {
            length: self.messages.len(),
            reader: Reader::new(self.messages),
            time_ms: self.time_ms,
        };
        messages.last().map_or(self.time_ms, |last| last.time_ms)
    }
}

/// What stands at a place of a segment.
#[derive(Debug)]
pub enum Standing<'a> {
    /// An entry, and its length with everything.
    Part(Part<'a>, usize),
    /// No further entry.
    End,
    /// Something that is no valid entry.
    Damaged,
}

impl<'a> Standing<'a> {
    /// Reads what stands at the beginning of these bytes.
    #[must_use]
    pub fn at(bytes: &'a [u8], salt: Salt) -> Self {
        let Some((head, rest)) = bytes.split_first_chunk::<8>() else {
            return if bytes.iter().all(|byte| *byte == 0) { Standing::End } else { Standing::Damaged };
        };
        let [a, b, c, d, checksum @ ..] = *head;
        let length = u32::from_le_bytes([a, b, c, d]) as usize;
        if length == 0 {
            return if checksum == [0; 4] { Standing::End } else { Standing::Damaged };
        }
        let content = rest.get(..length).filter(|_| length <= ENTRY_BYTES_MAX);
        let valid =
            content.filter(|content| checksum_of(content) ^ salt.mask() == u32::from_le_bytes(checksum));
        match valid.and_then(|content| parse(content, &bytes[..8 + length], salt)) {
            Some(part) => Standing::Part(part, 8 + length),
            None => Standing::Damaged,
        }
    }
}

/// The destination of a block of which only the beginning is there, and is not verified; `None`: it is no block, or more of it is
/// needed.
#[must_use]
pub fn name_at_beginning(bytes: &[u8]) -> Option<&[u8]> {
    let (kind, fields) = bytes.get(8..)?.split_first()?;
    if *kind != BLOCK {
        return None;
    }
    let mut reader = Reader::new(fields);
    (0..4).try_for_each(|_| reader.number().map(drop))?;
    reader.text()
}

fn parse<'a>(content: &'a [u8], whole: &'a [u8], salt: Salt) -> Option<Part<'a>> {
    let (kind, fields) = content.split_first()?;
    let mut reader = Reader::new(fields);
    match *kind {
        GROUP => match Found::at(whole, salt) {
            Found::Entry(Entry::Group(group), _) => Some(Part::Group(group)),
            _ => None,
        },
        BLOCK => {
            let (epoch, first, count) = (reader.number()?, reader.number()?, reader.number()?);
            let (time_ms, name) = (reader.number()?, reader.text()?);
            first.checked_add(count).filter(|_| count > 0)?;
            Some(Part::Block(Head { name, epoch, first, count, time_ms, messages: reader.rest() }))
        }
        NOTE => {
            let mut notes = Vec::new();
            while !reader.rest().is_empty() {
                notes.push(parse_note(&mut reader)?);
            }
            Some(Part::Notes(notes))
        }
        LEASES => {
            let mut leases = Vec::new();
            while !reader.rest().is_empty() {
                let (name, destination) = (reader.text()?.into(), reader.text()?.into());
                let (next, expires_ms) = (reader.number()?, reader.number()?);
                leases.push(Lease { name, destination, next, expires_ms });
            }
            Some(Part::Leases(leases))
        }
        CLOSED => Some(Part::Closed),
        _ => None,
    }
}

fn parse_note(reader: &mut Reader<'_>) -> Option<Note> {
    let name = reader.text()?.into();
    let (next, last_ms, count) = (reader.number()?, reader.number()?, reader.number()?);
    let mut spans = Vec::new();
    for _ in 0..count {
        spans.push(Span { epoch: reader.number()?, first: reader.number()?, last: reader.number()? });
    }
    Some(Note { name, next, last_ms, spans })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SALT: Salt = Salt(77 << 40);

    fn message<'a>(at: u64) -> Recorded<'a> {
        Recorded {
            time_ms: 1000 + at,
            plain: at.is_multiple_of(2),
            persistent: at.is_multiple_of(3),
            id: b"id",
            headers: b"a:b\n",
            body: b"body",
        }
    }

    fn block(count: u64) -> Block {
        let mut block = Block::new((*b"/topic/a").into(), 3, 10, 1000);
        (0..count).for_each(|at| block.push(&message(at)));
        block
    }

    #[test]
    fn a_block_is_read_as_it_was_written() {
        let before = held::bytes();
        let written = block(5);
        let mut bytes = Vec::new();
        written.append(&mut bytes, SALT);
        bytes.extend_from_slice(&[0; 20]);
        let Standing::Part(Part::Block(head), length) = Standing::at(&bytes, SALT) else {
            panic!("no block")
        };
        assert_eq!(
            (length, head.name, head.epoch, head.last_ms()),
            (bytes.len() - 20, &b"/topic/a"[..], 3, 1004)
        );
        let copy = head.copy(&written.name);
        assert_eq!((copy.first, copy.next(), copy.time_ms, copy.last_ms), (10, 15, 1000, 1004));
        assert!(copy.messages(0, copy.time_ms).eq((0..5).map(message)));
        assert_eq!(name_at_beginning(&bytes[..40]), Some(&b"/topic/a"[..]));
        assert!(matches!(Standing::at(&bytes[length..], SALT), Standing::End));
        drop((written, copy));
        assert_eq!(held::bytes(), before);
    }

    #[test]
    fn messages_continue_where_they_were_left() {
        let block = block(4);
        let mut first = block.messages(0, block.time_ms);
        assert_eq!(first.next(), Some(message(0)));
        assert_eq!(first.next(), Some(message(1)));
        let rest = block.messages(first.offset(), first.time_ms());
        assert!(rest.eq([2, 3].map(message)));
    }

    #[test]
    fn every_changed_byte_and_another_salt_are_found() {
        let mut bytes = Vec::new();
        block(2).append(&mut bytes, SALT);
        assert!(matches!(Standing::at(&bytes, Salt(1 << 40)), Standing::Damaged));
        for at in 0..bytes.len() {
            bytes[at] ^= 4;
            assert!(!matches!(Standing::at(&bytes, SALT), Standing::Part(..)), "{at}");
            bytes[at] ^= 4;
            assert!(!matches!(Standing::at(&bytes[..at], SALT), Standing::Part(..)), "{at}");
        }
    }

    #[test]
    fn notes_and_leases_are_read_as_they_were_written() {
        let spans = vec![Span { epoch: 1, first: 1, last: 9 }, Span { epoch: 4, first: 10, last: 12 }];
        let notes = [
            Note { name: (*b"/topic/a").into(), next: 13, last_ms: 99, spans },
            Note { name: (*b"/queue/b").into(), next: 1, last_ms: 0, spans: Vec::new() },
        ];
        let lease =
            Lease { name: (*b"r").into(), destination: (*b"/queue/b").into(), next: 4, expires_ms: 7 };
        let mut bytes = Vec::new();
        append_notes(&mut bytes, &notes, SALT);
        let Standing::Part(Part::Notes(read), length) = Standing::at(&bytes, SALT) else {
            panic!("no notes")
        };
        assert_eq!((&read[..], length), (&notes[..], bytes.len()));
        bytes.clear();
        append_leases(&mut bytes, [&lease].into_iter(), SALT);
        append_closed(&mut bytes, SALT);
        let Standing::Part(Part::Leases(read), length) = Standing::at(&bytes, SALT) else {
            panic!("no leases")
        };
        assert_eq!(read, [lease]);
        assert!(matches!(Standing::at(&bytes[length..], SALT), Standing::Part(Part::Closed, _)));
    }
}
