//! Hot path: one message, encoded once for each version of STOMP.

use smallvec::SmallVec;
use stompica_proto::Version;
use stompica_proto::encode::{self, Message};
use stompica_proto::ws::{self, Opcode};

use super::fan_out::FanOutKey;
use super::group::GroupIndex;
use crate::message::chunk::CHUNK_BYTES;

/// A body up to this size is part of the tail; a larger one is copied from the message to each group, once.
pub(crate) const SUFFIX_BODY_MAX: usize = 1024;

/// One message's tails, each encoded when the first group of its version asks.
#[derive(Debug, Default)]
pub struct EncodedSuffixes {
    pub(crate) suffixes: [Vec<u8>; 3],
    pub(crate) ready: [bool; 3],
    /// Whether the body is UTF-8, so that a WebSocket message with it is text.
    pub(crate) text: Option<bool>,
    /// Where it goes, if to many groups; the room is kept from one message to the next.
    pub(crate) groups: Vec<GroupIndex>,
    /// Holds the message for those whose outbox is full.
    pub(crate) owed: Option<FanOutKey>,
}

impl EncodedSuffixes {
    pub(crate) fn begin(&mut self) {
        self.ready = [false; 3];
        self.text = None;
        self.owed = None;
    }

    pub(crate) fn prepare(&mut self, message: &Message<'_>, version: Version, left_out: &mut u64) {
        let at = version as usize;
        if !self.ready[at] {
            self.ready[at] = true;
            let suffix = &mut self.suffixes[at];
            suffix.clear();
            *left_out += if message.body.len() <= SUFFIX_BODY_MAX {
                encode::message_suffix(suffix, message, version)
            } else {
                encode::message_head(suffix, message, version)
            } as u64;
        }
    }

    /// The tail, and what is to follow it.
    pub(crate) fn of<'a>(&'a self, message: &Message<'a>, version: Version) -> [&'a [u8]; 3] {
        let suffix = &self.suffixes[version as usize][..];
        if message.body.len() <= SUFFIX_BODY_MAX { [suffix, b"", b""] } else { [suffix, message.body, b"\0"] }
    }

    pub(crate) fn opcode(&mut self, body: &[u8]) -> Opcode {
        let text = *self.text.get_or_insert_with(|| std::str::from_utf8(body).is_ok());
        if text { Opcode::Text } else { Opcode::Binary }
    }
}

/// Appends one MESSAGE: the group's prefix, headers of this delivery alone, the tail; in a WebSocket frame, if there
/// is an opcode.
#[inline]
pub(crate) fn write_message(
    out: &mut Vec<u8>,
    websocket: Option<Opcode>,
    prefix: &[u8],
    extra: &[u8],
    [suffix, body, end]: [&[u8]; 3],
) {
    let len = prefix.len() + extra.len() + suffix.len() + body.len() + end.len();
    if let Some(opcode) = websocket {
        ws::encode::header(out, opcode, len);
    }
    if len >= CHUNK_BYTES {
        out.reserve_exact(len); // the chunk takes nothing after it
    } else {
        out.reserve(len);
    }
    out.extend_from_slice(prefix);
    if !extra.is_empty() {
        out.extend_from_slice(extra);
    }
    out.extend_from_slice(suffix);
    if !end.is_empty() {
        out.extend_from_slice(body);
        out.extend_from_slice(end);
    }
}

/// Appends a header line whose value is numbers with `-` between them.
pub(crate) fn push_numbers(out: &mut SmallVec<[u8; 48]>, name: &[u8], numbers: &[u64]) {
    out.extend_from_slice(name);
    for (at, number) in numbers.iter().enumerate() {
        if at > 0 {
            out.push(b'-');
        }
        out.extend_from_slice(itoa::Buffer::new().format(*number).as_bytes());
    }
    out.push(b'\n');
}
