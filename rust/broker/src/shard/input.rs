//! Hot path: bytes from a socket to frames, at most one read per connection and turn.
//!
//! The bytes of one read are decoded where they lie, in the shard's own buffer. Only what is left of them when the
//! turn ends, a SEND is parked or a frame is incomplete, is kept in the connection.

use std::io::{self, Read as _};
use std::mem::take;

use stompica_proto::decode::{head_value, masked_head, offending_head};
use stompica_proto::encode::Offender;
use stompica_proto::transport::{Sniffed, sniff};
use stompica_proto::ws::{self, WsEvent};
use stompica_proto::{Decoded, ProtocolError};

use super::close::NORMAL;
use super::parking::Pause;
use super::{READ_BYTES, Shard};
use crate::command::Flow;
use crate::diag::stages::Stage;
use crate::ids::ConnKey;
use crate::io::conn::{Phase, Transport};

/// A frame announced to be longer than this gets its memory as it arrives.
const RESERVE_MAX: usize = 1 << 20;
/// While memory is short, no more than this is read of a frame that is not complete.
const UNFINISHED_MAX: usize = 64 << 10;

/// How far a piece of input was decoded.
struct Decoding {
    /// Bytes that are done with.
    consumed: usize,
    /// Length of the frame that is not complete, where it is known; else 0.
    frame_len: usize,
}

/// Makes room for the next read of a frame whose length is known: for all of it, unless that is long; then twice what
/// has come, since an announcement is cheap.
fn reserve(input: &mut Vec<u8>, frame_len: usize) {
    if input.capacity() - input.len() < READ_BYTES {
        let wanted = frame_len.min(RESERVE_MAX.max(2 * input.len()));
        input.reserve_exact(wanted.saturating_sub(input.len()));
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
        let Some(conn) = self.conns.get_mut(key) else { return };
        conn.undrained = false;
        if conn.phase != Phase::Open {
            self.discard_input(key);
            return;
        }
        if conn.wait.is_on() {
            if !(conn.read_to_end && conn.wait.pause() == Some(Pause::Arriving)) {
                return;
            }
            self.parking.let_go(&mut self.conns, key);
        }
        let Some(conn) = self.conns.get_mut(key) else { return };
        if conn.backlog {
            conn.backlog = false;
            self.consume(key, &mut []);
            self.count_input(key);
        }
        let Some(conn) = self.conns.get_mut(key) else { return };
        if conn.phase != Phase::Open || conn.wait.is_on() {
            return;
        }
        if conn.backlog {
            self.queue_for_reading(key);
        } else if conn.eof || conn.ending || self.draining.is_some() {
            self.end_if_done(key);
        } else if self.memory.is_short && conn.input.len() >= UNFINISHED_MAX {
            if conn.read_to_end {
                self.read_to_end(key);
            } else if self.has_turn(key) {
                self.read(key);
            } else {
                // The SEND that is arriving would have to wait; it may as well wait in the kernel.
                self.park(key, Pause::Arriving);
            }
        } else {
            self.read(key);
        }
    }

    /// The peer has said all it had to say: reads it at one go, since a frame that stays incomplete is forgotten then.
    fn read_to_end(&mut self, key: ConnKey) {
        while self
            .conns
            .get(key)
            .is_some_and(|conn| conn.phase == Phase::Open && !conn.eof && !conn.wait.is_on())
        {
            let read_before = self.counters.reads;
            self.read(key);
            if self.counters.reads == read_before {
                break;
            }
        }
    }

    fn read(&mut self, key: ConnKey) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        let mut buffer = take(&mut self.read_buffer);
        let began = self.stages.begin(Stage::Read);
        let read = conn.stream.read(&mut buffer);
        self.stages.end(Stage::Read, began);
        match read {
            Ok(0) => {
                conn.eof = true;
                self.end_if_done(key);
            }
            Ok(len) => {
                conn.read_ms = self.now_ms;
                conn.read_turn = self.turn;
                if let Some(state) = conn.websocket() {
                    state.pulse.feel();
                }
                self.counters.bytes_in += len as u64;
                self.counters.reads += 1;
                let Some(conn) = self.conns.get_mut(key) else { return };
                let drained = len < buffer.len() && !conn.read_to_end;
                self.consume(key, &mut buffer[..len]);
                self.count_input(key);
                if self
                    .conns
                    .get(key)
                    .is_some_and(|conn| !drained || conn.backlog || conn.phase != Phase::Open)
                {
                    self.queue_for_reading(key);
                }
                self.end_if_done(key);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => self.queue_for_reading(key),
            Err(error) => self.drop_connection(key, &error.to_string()),
        }
        self.read_buffer = buffer;
    }

    /// Reads and forgets, so that closing does not reset the connection.
    fn discard_input(&mut self, key: ConnKey) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        if conn.eof {
            return;
        }
        match conn.stream.read(&mut self.read_buffer) {
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
        let Some(conn) = self.conns.get_mut(key) else { return };
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
        let Some(conn) = self.conns.get_mut(key) else { return };
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
        let Some(conn) = self.conns.get_mut(key) else { return };
        let mut input = take(&mut conn.input);
        if input.is_empty() {
            let Decoding { consumed, frame_len } = self.decode_timed(key, bytes);
            if let Some(conn) = self.conns.get_mut(key).filter(|conn| conn.phase == Phase::Open)
                && consumed < bytes.len()
            {
                reserve(&mut conn.input, frame_len);
                conn.input.extend_from_slice(&bytes[consumed..]);
            }
        } else {
            input.extend_from_slice(bytes);
            let Decoding { consumed, frame_len } = self.decode_timed(key, &input);
            if let Some(conn) = self.conns.get_mut(key).filter(|conn| conn.phase == Phase::Open)
                && consumed < input.len()
            {
                input.drain(..consumed);
                reserve(&mut input, frame_len);
                conn.input = input;
            }
        }
    }

    fn decode_timed(&mut self, key: ConnKey, input: &[u8]) -> Decoding {
        let began = self.stages.begin(Stage::Parse);
        let decoding = self.decode(key, input);
        self.stages.end(Stage::Parse, began);
        decoding
    }

    /// Handles whole frames at the start of `input`.
    fn decode(&mut self, key: ConnKey, input: &[u8]) -> Decoding {
        let mut spans = take(&mut self.spans);
        let (mut at, mut announced) = (0, 0);
        while at < input.len() {
            let Some(conn) = self.conns.get_mut(key) else { break };
            if conn.phase != Phase::Open || conn.ending {
                at = input.len();
                break;
            }
            if self.budget.is_exhausted() {
                conn.backlog = true;
                break;
            }
            match conn.decoder.decode(&input[at..], &mut spans, &self.config.limits) {
                Ok(Decoded::Frame { frame, consumed }) => {
                    self.counters.frames_in += 1;
                    match self.handle(key, &frame) {
                        Flow::Done => at += consumed,
                        Flow::Parked => break,
                        Flow::Waiting => {
                            at += consumed;
                            break;
                        }
                        Flow::Later => {
                            self.leave_for_next_turn(key);
                            break;
                        }
                    }
                }
                Ok(Decoded::Incomplete { consumed, frame_len }) => {
                    at += consumed;
                    announced = frame_len.unwrap_or(0);
                    break;
                }
                Err(error) => {
                    self.fail_decoding(key, error, &input[at..]);
                    at = input.len();
                }
            }
        }
        self.spans = spans;
        Decoding { consumed: at, frame_len: announced }
    }

    fn leave_for_next_turn(&mut self, key: ConnKey) {
        if let Some(conn) = self.conns.get_mut(key) {
            conn.backlog = true;
        }
    }

    #[cold]
    fn fail_decoding(&mut self, key: ConnKey, error: ProtocolError, input: &[u8]) {
        self.fail_with(key, error, &offender_in(input));
    }

    pub(super) fn consume_websocket(&mut self, key: ConnKey, bytes: &mut [u8]) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        if !conn.input.is_empty() {
            self.consume_stomp(key, &[]);
        }
        let Some(state) = self.conns.get_mut(key).and_then(|conn| conn.websocket()) else { return };
        if state.raw.is_empty() {
            let consumed = self.decode_websocket(key, bytes);
            self.keep_raw(key, &bytes[consumed..]);
        } else {
            let mut raw = take(&mut state.raw);
            raw.extend_from_slice(bytes);
            let consumed = self.decode_websocket(key, &mut raw);
            self.keep_raw(key, &raw[consumed..]);
        }
    }

    fn keep_raw(&mut self, key: ConnKey, rest: &[u8]) {
        let Some(conn) = self.conns.get_mut(key).filter(|conn| conn.phase == Phase::Open) else { return };
        if let Some(state) = conn.websocket().filter(|_| !rest.is_empty()) {
            state.raw = rest.to_vec();
        }
    }

    fn decode_websocket(&mut self, key: ConnKey, bytes: &mut [u8]) -> usize {
        let bytes_max = self.config.limits.ws_message_bytes_max;
        let mut at = 0;
        while at < bytes.len() {
            let Some(conn) = self.conns.get_mut(key) else { break };
            if conn.phase != Phase::Open {
                return bytes.len();
            }
            if conn.wait.is_on() || conn.backlog {
                break;
            }
            let Some(state) = conn.websocket() else { break };
            match state.decoder.decode(&mut bytes[at..], bytes_max) {
                Ok((event, consumed)) => {
                    self.websocket_event(key, event);
                    at += consumed;
                }
                Err(error) => {
                    self.counters.errors += 1;
                    self.begin_close(key, error.close_code, &error.detail);
                    return bytes.len();
                }
            }
        }
        at
    }

    fn websocket_event(&mut self, key: ConnKey, event: WsEvent<'_>) {
        match event {
            WsEvent::Data { payload, .. } => {
                if !payload.is_empty() {
                    let now_ms = self.now_ms;
                    if let Some(state) = self.conns.get_mut(key).and_then(|conn| conn.websocket()) {
                        state.pulse.feel_stomp(now_ms);
                    }
                    self.consume_stomp(key, payload);
                }
            }
            WsEvent::Ping(payload) => self.websocket_control(key, |out| ws::encode::pong(out, &payload)),
            WsEvent::Close { code } => {
                self.begin_close(key, code.unwrap_or(NORMAL), "");
                // The peer has said its last word too, so there is nothing to linger for (RFC 6455, 7.1.1).
                if let Some(conn) = self.conns.get_mut(key) {
                    conn.eof = true;
                }
            }
            WsEvent::Pong(_) | WsEvent::NeedMore => {}
        }
    }
}
