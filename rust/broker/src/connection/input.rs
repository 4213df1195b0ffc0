//! Input that a connection has received and not consumed: an incomplete frame, and whole frames that wait.

use stompica_proto::decode::{head_value, masked_head, offending_head, offending_value};
use stompica_proto::encode::Offender;
use stompica_proto::header;

use super::arrival::Arrival;
use super::conn::{Conn, Transport};
use crate::door::planted;
use crate::timer::Since;

/// Spare capacity after kept input that is not worth freeing.
const SLACK_BYTES: usize = 256 << 10;
/// The beginning of a frame up to this size is copied before the bytes of the next read.
const SHORT_BYTES: usize = 1024;

/// The input of one connection.
#[derive(Debug)]
pub struct Input {
    /// Bytes received and not consumed: an incomplete frame, or frames left by the end of a turn or by a frame that
    /// waits.
    pub bytes: Vec<u8>,
    /// The state of a frame that has arrived in part.
    pub arrival: Arrival,
    /// `bytes` may hold whole frames that were not decoded, because the turn ended or a frame had to wait.
    pub has_unparsed: bool,
    /// Frames are being decoded: others may follow the one that is handled now.
    pub is_being_decoded: bool,
    /// The frame at the front of `bytes` was logged already, and waits.
    pub is_logged: bool,
    /// The peer has shut its write side, or sent Close.
    pub eof: bool,
    /// The connection is on the list of those whose socket may have more to read.
    pub is_listed: bool,
    /// The time of the last byte.
    pub read_ms: u64,
    /// The last time at which everything that had come was read and decoded.
    pub drained_ms: u64,
    /// The time since which a deadline has passed, but not everything that has come is read.
    pub behind_since_ms: Since,
    /// The shard's round of mail at the time of the last byte.
    pub read_round: u64,
    /// Bytes of input and transactions that the shard's total includes.
    pub counted_bytes: usize,
    /// Bytes of input alone that the shard's total includes.
    pub counted_input: usize,
}

/// The result of decoding a piece of input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decoding {
    /// Bytes that are consumed.
    pub consumed: usize,
    /// The rest begins with an incomplete frame; its length if known, else 0.
    pub incomplete: Option<usize>,
    /// The rest begins with a whole frame that has to wait.
    pub waits: bool,
}

impl Input {
    /// The state without input.
    #[must_use]
    pub fn new(now_ms: u64) -> Self {
        Input {
            bytes: Vec::new(),
            arrival: Arrival::default(),
            has_unparsed: false,
            is_being_decoded: false,
            is_logged: false,
            eof: false,
            is_listed: false,
            read_ms: now_ms,
            drained_ms: now_ms,
            behind_since_ms: Since::NONE,
            read_round: 0,
            counted_bytes: 0,
            counted_input: 0,
        }
    }

    /// The beginning of a STOMP frame that is kept, if it is short.
    #[must_use]
    pub fn short_rest(&self) -> &[u8] {
        if self.bytes.len() <= SHORT_BYTES { &self.bytes } else { &[] }
    }

    /// Keeps the rest of bytes that came while nothing was kept.
    pub fn keep(&mut self, rest: &[u8]) {
        if !rest.is_empty() {
            append(&mut self.bytes, rest, self.arrival.announced());
        }
    }

    /// Removes the kept bytes, followed by `bytes`, for decoding.
    pub fn take_with(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut input = std::mem::take(&mut self.bytes);
        append(&mut input, bytes, self.arrival.announced());
        input
    }

    /// Keeps the rest of the bytes from [`Input::take_with`], and frees the capacity that a long frame needed.
    pub fn put_back(&mut self, mut input: Vec<u8>, consumed: usize) {
        if consumed < input.len() {
            drop_front(&mut input, consumed);
            self.bytes = input;
        }
    }

    /// Updates the arrival of an incomplete frame after decoding.
    pub fn note_arrival(&mut self, decoding: &Decoding, rest: &[u8], now_ms: u64) {
        match decoding.incomplete {
            // A CR may be half of a line end between frames.
            Some(announced) if !matches!(rest, b"" | b"\r") => {
                self.arrival.is_incomplete(decoding.consumed > 0, announced as u64, now_ms);
            }
            None if decoding.consumed == 0 && !rest.is_empty() && !decoding.waits => {} // it was not decoded
            _ => self.arrival.is_over(),
        }
    }

    /// Records that everything that has come is read and decoded. Returns whether a deadline waits for that.
    pub fn is_drained(&mut self, now_ms: u64) -> bool {
        self.drained_ms = now_ms;
        self.behind_since_ms.take().is_some()
    }

    /// Discards the kept bytes; they take no effect any more.
    pub fn discard(&mut self) {
        self.bytes = Vec::new();
        self.arrival.is_over();
        self.has_unparsed = false;
    }
}

impl Conn {
    /// Discards all input that is kept, also what is not unpacked from WebSocket frames.
    pub fn discard_input(&mut self) {
        self.input.discard();
        if let Some(state) = self.websocket() {
            state.raw = Vec::new();
        }
    }

    /// The beginning of a STOMP frame that is kept, if it is short enough to be copied before the bytes of the next
    /// read.
    #[must_use]
    pub fn short_rest(&self) -> &[u8] {
        match self.protocol.transport {
            Transport::Stomp => self.input.short_rest(),
            _ => &[],
        }
    }

    /// Bytes held for incomplete frames, including WebSocket messages.
    #[must_use]
    pub fn incomplete_bytes(&self) -> usize {
        self.input.bytes.len() + self.raw().map_or(0, Vec::len)
    }

    /// Memory of bytes that were received and not consumed.
    #[must_use]
    pub fn kept_bytes(&self) -> usize {
        self.input.bytes.capacity() + self.raw().map_or(0, Vec::capacity)
    }

    fn raw(&self) -> Option<&Vec<u8>> {
        match &self.protocol.transport {
            Transport::WebSocket(state) => Some(&state.raw),
            _ => None,
        }
    }

    /// Restarts the deadlines for input after a time in which the connection was not read.
    pub fn expect_again(&mut self, now_ms: u64) {
        self.input.read_ms = now_ms;
        if let Some(state) = self.websocket() {
            state.pulse.note_stomp_bytes(now_ms);
        }
    }

    /// Whether a frame or a WebSocket message has arrived in part.
    #[must_use]
    pub fn is_within_frame(&self) -> bool {
        let message = self.protocol.message_arrival().is_some_and(Arrival::is_on);
        message || self.input.arrival.is_on()
    }

    /// Stops the deadline of a frame that has arrived in part, while the connection is not read.
    pub fn stop_clock(&mut self, now_ms: u64) {
        self.input.arrival.stop(now_ms);
        if let Some(state) = self.websocket() {
            state.arrival.stop(now_ms);
        }
    }

    /// Continues that deadline when the connection is read again. Returns whether one is running.
    pub fn start_clock(&mut self, now_ms: u64) -> bool {
        let message = self.websocket().is_some_and(|state| state.arrival.go_on(now_ms));
        self.input.arrival.go_on(now_ms) || message
    }
}

/// Appends `bytes`. The capacity grows by half of the received size and no more, since a large `content-length` costs
/// the client nothing.
fn append(input: &mut Vec<u8>, bytes: &[u8], announced: usize) {
    let needed = input.len() + bytes.len();
    if input.capacity() < needed {
        let grown = needed + needed / 2;
        let wanted = if announced > needed { grown.min(announced) } else { grown };
        let wanted = if announced > wanted && planted!("announced-counts") { announced } else { wanted };
        input.reserve_exact(wanted - input.len());
    }
    input.extend_from_slice(bytes);
}

/// Drops consumed bytes, and the capacity that a long frame needed.
fn drop_front(input: &mut Vec<u8>, consumed: usize) {
    input.drain(..consumed);
    let wanted = input.len() + input.len() / 2;
    if input.capacity() > wanted + SLACK_BYTES {
        input.shrink_to(wanted);
    }
}

/// The description of the frame at the start of `input` for an ERROR, as far as it can be parsed.
#[must_use]
pub fn offender_in(input: &[u8]) -> Offender {
    let head = offending_head(input);
    // An escaped value is omitted: its escapes may be the error.
    let known = if planted!("receipt-id-cut") {
        head_value(head, header::RECEIPT)
    } else {
        offending_value(input, header::RECEIPT)
    };
    let receipt = known.filter(|value| !value.contains(&b'\\')).map(<[u8]>::to_vec);
    Offender { receipt, subscription: None, head: masked_head(head) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoding(consumed: usize, incomplete: Option<usize>, waits: bool) -> Decoding {
        Decoding { consumed, incomplete, waits }
    }

    #[test]
    fn kept_input_has_half_of_its_size_spare_and_no_more_than_announced() {
        let mut input = Input::new(0);
        input.keep(&[1; 1000]);
        assert_eq!((input.bytes.len(), input.bytes.capacity()), (1000, 1500));
        input.note_arrival(&decoding(0, Some(2100), false), &[1], 5);
        let mut bytes = input.take_with(&[2; 1000]);
        assert_eq!((bytes.len(), bytes.capacity(), input.bytes.len()), (2000, 2100, 0));
        bytes.truncate(1999);
        input.put_back(bytes, 1998);
        assert_eq!(input.bytes, [2]);
    }

    #[test]
    fn capacity_of_a_long_frame_is_given_back() {
        let mut input = Input::new(0);
        let bytes = input.take_with(&vec![7; 1 << 20]);
        input.put_back(bytes, (1 << 20) - 10);
        assert_eq!((input.bytes.len(), input.bytes.capacity()), (10, 15));
        let bytes = input.take_with(&[]);
        input.put_back(bytes, 10);
        assert_eq!(input.bytes.capacity(), 0, "an idle connection keeps no buffer");
    }

    #[test]
    fn only_a_short_rest_is_copied_in_front_of_the_next_read() {
        let mut input = Input::new(0);
        input.keep(&[b'a'; SHORT_BYTES]);
        assert_eq!(input.short_rest().len(), SHORT_BYTES);
        input.keep(b"b");
        assert!(input.short_rest().is_empty());
    }

    #[test]
    fn a_frame_arrives_from_its_first_byte_until_it_is_complete_or_waits() {
        let mut input = Input::new(0);
        input.note_arrival(&decoding(9, Some(0), false), b"\r", 1);
        assert!(!input.arrival.is_on(), "a CR may be half of a line end");
        input.note_arrival(&decoding(9, Some(70), false), b"SEND", 2);
        input.note_arrival(&decoding(0, Some(70), false), b"SEND\n", 3);
        assert_eq!((input.arrival.since_ms(), input.arrival.announced()), (Some(2), 70));
        input.note_arrival(&decoding(0, None, false), b"SEND\n", 4);
        assert!(input.arrival.is_on(), "the turn ended before it was decoded");
        input.note_arrival(&decoding(0, None, true), b"SEND\n\n\0", 5);
        assert!(!input.arrival.is_on(), "it is complete and waits");
    }

    #[test]
    fn discarded_input_is_neither_kept_nor_awaited() {
        let mut input = Input::new(0);
        input.keep(b"SEND\n");
        input.note_arrival(&decoding(0, Some(0), false), b"SEND\n", 2);
        input.has_unparsed = true;
        input.discard();
        assert!(input.bytes.is_empty() && !input.arrival.is_on() && !input.has_unparsed);
    }

    #[test]
    fn an_offending_frame_is_described_without_escaped_values() {
        let offender = offender_in(b"SEND\nreceipt:r\npasscode:secret\nx");
        assert_eq!(offender.receipt.as_deref(), Some(&b"r"[..]));
        assert!(!offender.head.windows(6).any(|part| part == b"secret"));
        assert_eq!(offender_in(b"SEND\nreceipt:a\\q\n\n").receipt, None);
        assert_eq!(offender_in(b"WHAT\nreceipt:1").receipt, None, "more of it may follow");
    }
}
