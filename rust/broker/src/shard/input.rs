//! Hot path: bytes from a socket to frames, at most one read per connection and turn.
//!
//! The bytes of one read are decoded where they lie, in the shard's own buffer. Only what is left of them when the
//! turn ends, a SEND is parked or a frame is incomplete, is kept in the connection.

use std::io::{self, Read as _};
use std::mem::take;

use stompica_proto::decode::{head_value, masked_head, offending_head};
use stompica_proto::encode::Offender;
use stompica_proto::transport::{Sniffed, sniff};
use stompica_proto::{Decoded, ProtocolError};

use super::Shard;
use crate::command::Flow;
use crate::connection::conn::{Conn, Phase, Transport};
use crate::connection::pausing::Pause;
use crate::ids::ConnKey;
use crate::report::stages::Stage;

/// Room behind what is kept that is not worth giving back.
const SLACK_BYTES: usize = 256 << 10;

/// What is received and not consumed is copied in front of what comes up to this size.
const SHORT_BYTES: usize = 1024;

/// How far a piece of input was decoded.
struct Decoding {
    /// Bytes that are done with.
    consumed: usize,
    /// What is left begins a frame that is not complete; its length, where that is known, else 0.
    incomplete: Option<usize>,
    /// What is left begins with a whole frame that has to wait.
    waits: bool,
}

/// Keeps `bytes` behind what is kept already. There is room for half as much as has come, and no more: an announcement
/// is cheap.
fn keep(input: &mut Vec<u8>, bytes: &[u8], announced: usize) {
    let needed = input.len() + bytes.len();
    if input.capacity() < needed {
        let grown = needed + needed / 2;
        let wanted = if announced > needed { grown.min(announced) } else { grown };
        input.reserve_exact(wanted - input.len());
    }
    input.extend_from_slice(bytes);
}

/// The beginning of a STOMP frame that was received and not consumed, if it is short.
fn short_rest(conn: &Conn) -> &[u8] {
    match conn.transport {
        Transport::Stomp if conn.input.len() <= SHORT_BYTES => &conn.input,
        _ => &[],
    }
}

/// Drops what is done with, and the room that a long frame has left.
fn drop_front(input: &mut Vec<u8>, consumed: usize) {
    input.drain(..consumed);
    let wanted = input.len() + input.len() / 2;
    if input.capacity() > wanted + SLACK_BYTES {
        input.shrink_to(wanted);
    }
}

/// What an ERROR tells about the frame at the start of `input`, as far as it can be read.
pub(super) fn offender_in(input: &[u8]) -> Offender {
    let head = offending_head(input);
    // An escaped value is left out: what is wrong with the frame may be its escapes.
    let receipt = head_value(head, stompica_proto::header::RECEIPT)
        .filter(|value| !value.contains(&b'\\'))
        .map(<[u8]>::to_vec);
    Offender { receipt, subscription: None, head: masked_head(head) }
}

impl Shard {
    /// Looks at what a connection left over, then reads once from its socket.
    pub(super) fn serve(&mut self, key: ConnKey) {
        let Some(conn) = self.connections.table.get_mut(key) else { return };
        conn.undrained = false;
        if conn.phase != Phase::Open {
            self.discard_input(key);
            return;
        }
        if conn.wait.is_on() {
            if !(conn.read_to_end && conn.wait.pause() == Some(Pause::Arriving)) {
                return;
            }
            self.connections.parking.let_go(&mut self.connections.table, key);
        }
        if self.hold_for_answers(key) {
            return;
        }
        let Some(conn) = self.connections.table.get_mut(key) else { return };
        if conn.start_clock(self.turn.now_ms) {
            self.rearm(key);
        }
        let Some(conn) = self.connections.table.get_mut(key) else { return };
        if conn.has_unparsed {
            conn.has_unparsed = false;
            self.consume(key, &mut []);
            self.note_input(key);
        }
        let Some(conn) = self.connections.table.get_mut(key) else { return };
        if conn.phase != Phase::Open || conn.wait.is_on() {
            return;
        }
        if conn.has_unparsed {
            self.queue_for_reading(key);
        } else if conn.eof || conn.ending || self.draining.is_some() {
            self.end_if_done(key);
        } else if let Some(pause) = self.pause_arrival(key) {
            if self.connections.table.get(key).is_some_and(|conn| conn.read_to_end) {
                self.read_to_end(key);
            } else {
                // What would have to wait may as well wait in the kernel.
                self.park(key, pause);
                self.stop_clock(key);
            }
        } else {
            self.read(key);
        }
    }

    /// The peer has said all it had to say: reads as much of it as one turn may, and the rest in the next, since a frame
    /// that stays incomplete is forgotten then.
    fn read_to_end(&mut self, key: ConnKey) {
        loop {
            let conn = self.connections.table.get(key);
            if conn.is_none_or(|conn| conn.phase != Phase::Open || conn.eof || conn.wait.is_on()) {
                return;
            }
            if self.turn.budget.is_exhausted() {
                self.queue_for_reading(key);
                return;
            }
            let read_before = self.turn.counters.reads;
            self.read(key);
            if self.turn.counters.reads == read_before {
                return;
            }
        }
    }

    fn read(&mut self, key: ConnKey) {
        let Some(conn) = self.connections.table.get_mut(key) else { return };
        let mut buffer = take(&mut self.connections.read_buffer);
        let began = self.turn.stages.begin(Stage::Read);
        // What the last read left of a frame stands in front, so that what comes need not be copied behind it.
        let rest = short_rest(conn);
        let (begun, free) = buffer.split_at_mut(rest.len());
        begun.copy_from_slice(rest);
        let begun = begun.len();
        let room = self.memory.unfinished.read_bytes(key).min(free.len());
        let read = conn.stream.read(&mut free[..room]);
        self.turn.stages.end(Stage::Read, began);
        self.turn.budget.read(*read.as_ref().unwrap_or(&0));
        match read {
            Ok(0) => {
                conn.eof = true;
                self.end_if_done(key);
            }
            Ok(len) => {
                conn.read_ms = self.turn.now_ms;
                conn.read_round = self.peers.incoming.round().0;
                if let Some(state) = conn.websocket() {
                    state.pulse.feel();
                }
                self.turn.counters.bytes_in += len as u64;
                self.turn.counters.reads += 1;
                let Some(conn) = self.connections.table.get_mut(key) else { return };
                let drained = len < room && !conn.read_to_end;
                if begun > 0 {
                    conn.input = Vec::new();
                }
                self.consume(key, &mut buffer[..begun + len]);
                self.note_input(key);
                if self
                    .connections
                    .table
                    .get(key)
                    .is_some_and(|conn| !drained || conn.has_unparsed || conn.phase != Phase::Open)
                {
                    self.queue_for_reading(key);
                }
                self.end_if_done(key);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => self.queue_for_reading(key),
            Err(error) => self.drop_connection(key, &error.to_string()),
        }
        self.connections.read_buffer = buffer;
    }

    /// Reads and forgets, so that closing does not reset the connection.
    fn discard_input(&mut self, key: ConnKey) {
        let Some(conn) = self.connections.table.get_mut(key) else { return };
        if conn.eof {
            return;
        }
        let read = conn.stream.read(&mut self.connections.read_buffer);
        self.turn.budget.read(*read.as_ref().unwrap_or(&0));
        match read {
            Ok(0) => {
                conn.eof = true;
                if conn.phase == Phase::Lingering {
                    self.remove(key);
                }
            }
            Ok(_) => self.queue_for_reading(key),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => self.queue_for_reading(key),
            Err(_) => self.remove(key),
        }
    }

    fn consume(&mut self, key: ConnKey, bytes: &mut [u8]) {
        let Some(conn) = self.connections.table.get_mut(key) else { return };
        match conn.transport {
            Transport::Unknown | Transport::Http => {
                conn.input.extend_from_slice(bytes);
                self.detect(key);
            }
            Transport::Stomp => self.consume_stomp(key, bytes),
            Transport::WebSocket(_) => self.consume_websocket(key, bytes),
        }
    }

    /// Decides by the first bytes what the connection speaks.
    fn detect(&mut self, key: ConnKey) {
        let Some(conn) = self.connections.table.get_mut(key) else { return };
        let sniffed = match conn.transport {
            Transport::Http => Sniffed::Http,
            _ => sniff(&conn.input),
        };
        match sniffed {
            Sniffed::Incomplete => {}
            Sniffed::Stomp => {
                conn.transport = Transport::Stomp;
                if self.stays_refused(key) {
                    self.refuse(key);
                } else {
                    self.consume_stomp(key, &[]);
                }
            }
            Sniffed::Http => {
                conn.transport = Transport::Http;
                if self.stays_refused(key) {
                    self.refuse(key);
                } else {
                    self.answer_http(key);
                }
            }
            Sniffed::Tls => self.refuse_tls(key),
        }
    }

    /// Decodes what the connection kept and then `bytes`; keeps what cannot be dealt with now.
    pub(super) fn consume_stomp(&mut self, key: ConnKey, bytes: &[u8]) {
        let Some(conn) = self.connections.table.get_mut(key) else { return };
        let mut input = take(&mut conn.input);
        if input.is_empty() {
            let decoding = self.decode_timed(key, bytes);
            self.note_arrival(key, &decoding, bytes.get(decoding.consumed..).unwrap_or_default());
            if let Some(conn) = self.connections.table.get_mut(key).filter(|conn| conn.phase == Phase::Open)
                && decoding.consumed < bytes.len()
            {
                keep(&mut conn.input, &bytes[decoding.consumed..], conn.arrival.announced());
            }
        } else {
            keep(&mut input, bytes, conn.arrival.announced());
            let decoding = self.decode_timed(key, &input);
            self.note_arrival(key, &decoding, input.get(decoding.consumed..).unwrap_or_default());
            if let Some(conn) = self.connections.table.get_mut(key).filter(|conn| conn.phase == Phase::Open)
                && decoding.consumed < input.len()
            {
                drop_front(&mut input, decoding.consumed);
                conn.input = input;
            }
        }
    }

    /// Notes since when the frame arrives that was not complete.
    fn note_arrival(&mut self, key: ConnKey, decoding: &Decoding, rest: &[u8]) {
        let now_ms = self.turn.now_ms;
        let Some(conn) = self.connections.table.get_mut(key) else { return };
        match decoding.incomplete {
            // A CR may be half a line end between frames.
            Some(announced) if !matches!(rest, b"" | b"\r") => {
                conn.arrival.is_incomplete(decoding.consumed > 0, announced as u64, now_ms);
            }
            None if decoding.consumed == 0 && !rest.is_empty() && !decoding.waits => {} // it was not looked at
            _ => conn.arrival.is_over(),
        }
    }

    fn decode_timed(&mut self, key: ConnKey, input: &[u8]) -> Decoding {
        let began = self.turn.stages.begin(Stage::Parse);
        let decoding = self.decode(key, input);
        self.turn.stages.end(Stage::Parse, began);
        decoding
    }

    /// Handles whole frames at the start of `input`.
    fn decode(&mut self, key: ConnKey, input: &[u8]) -> Decoding {
        let mut spans = take(&mut self.connections.spans);
        let (mut at, mut incomplete, mut waits) = (0, None, false);
        while at < input.len() {
            let Some(conn) = self.connections.table.get_mut(key) else { break };
            if conn.phase != Phase::Open || conn.ending {
                at = input.len();
                break;
            }
            if self.turn.budget.is_exhausted() {
                conn.has_unparsed = true;
                break;
            }
            match conn.decoder.decode(&input[at..], &mut spans, &self.turn.config.limits) {
                Ok(Decoded::Frame { frame, consumed }) => {
                    self.turn.counters.frames_in += 1;
                    self.turn.budget.decode(&frame, consumed);
                    let flow = self.handle(key, &frame);
                    self.settle();
                    match flow {
                        Flow::Done => at += consumed,
                        Flow::Parked => {
                            self.turn.counters.frames_in -= 1; // it is looked at again
                            waits = true;
                            break;
                        }
                        Flow::Waiting => {
                            at += consumed;
                            // What it waited for may have come while the notes of this shard were read.
                            if self.connections.table.get(key).is_none_or(|conn| conn.wait.is_on()) {
                                break;
                            }
                        }
                        Flow::Later => {
                            self.turn.counters.frames_in -= 1;
                            waits = true;
                            self.leave_for_next_turn(key);
                            break;
                        }
                    }
                }
                Ok(Decoded::Incomplete { consumed, frame_len }) => {
                    at += consumed;
                    incomplete = Some(frame_len.unwrap_or(0));
                    break;
                }
                Err(error) => {
                    self.fail_decoding(key, error, &input[at..]);
                    at = input.len();
                }
            }
        }
        self.connections.spans = spans;
        Decoding { consumed: at, incomplete, waits }
    }

    fn leave_for_next_turn(&mut self, key: ConnKey) {
        if let Some(conn) = self.connections.table.get_mut(key) {
            conn.has_unparsed = true;
        }
    }

    #[cold]
    fn fail_decoding(&mut self, key: ConnKey, error: ProtocolError, input: &[u8]) {
        self.fail_with(key, error, &offender_in(input));
    }
}
