//! Hot path: what a WebSocket client sends, from its frames to the bytes of STOMP in them.

use std::mem::take;

use stompica_proto::ws::{self, WsEvent};

use super::Shard;
use super::close::NORMAL;
use crate::connection::conn::Phase;
use crate::ids::ConnKey;

impl Shard {
    /// Decodes what the connection kept and then `bytes`; keeps what cannot be dealt with now.
    pub(super) fn consume_websocket(&mut self, key: ConnKey, bytes: &mut [u8]) {
        let Some(conn) = self.connections.table.get_mut(key) else { return };
        if !conn.input.bytes.is_empty() {
            self.consume_stomp(key, &[]);
        }
        let Some(state) = self.connections.table.get_mut(key).and_then(|conn| conn.websocket()) else {
            return;
        };
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
        let now_ms = self.turn.now_ms;
        let Some(conn) = self.connections.table.get_mut(key).filter(|conn| conn.phase == Phase::Open) else {
            return;
        };
        let Some(state) = conn.websocket().filter(|state| state.peer_code.is_none()) else { return };
        if !rest.is_empty() {
            state.raw = rest.to_vec();
        } else if state.decoder.is_mid_message() {
            state.arrival.is_incomplete(false, state.decoder.announced_bytes(), now_ms);
        } else {
            state.arrival.is_over();
        }
    }

    fn decode_websocket(&mut self, key: ConnKey, bytes: &mut [u8]) -> usize {
        let bytes_max = self.turn.config.limits.ws_message_bytes_max;
        let mut at = 0;
        while at < bytes.len() {
            let Some(conn) = self.connections.table.get_mut(key) else { break };
            if conn.phase != Phase::Open {
                return bytes.len();
            }
            if conn.wait.is_on() || conn.input.has_unparsed {
                break;
            }
            if self.turn.budget.is_exhausted() {
                conn.input.has_unparsed = true;
                break;
            }
            let Some(state) = conn.websocket() else { break };
            if state.peer_code.is_some() {
                return bytes.len();
            }
            match state.decoder.decode(&mut bytes[at..], bytes_max) {
                Ok((event, consumed)) => {
                    self.turn.budget.look(consumed);
                    self.websocket_event(key, event);
                    at += consumed;
                }
                Err(error) => {
                    self.turn.counters.errors += 1;
                    self.begin_close(key, error.close_code, &error.detail);
                    return bytes.len();
                }
            }
        }
        at
    }

    fn websocket_event(&mut self, key: ConnKey, event: WsEvent<'_>) {
        match event {
            WsEvent::Data { payload, message_end, .. } => {
                let now_ms = self.turn.now_ms;
                if let Some(state) = self.connections.table.get_mut(key).and_then(|conn| conn.websocket()) {
                    if message_end {
                        state.arrival.is_over();
                    }
                    if !payload.is_empty() {
                        state.pulse.feel_stomp(now_ms);
                    }
                }
                if !payload.is_empty() {
                    self.consume_stomp(key, payload);
                }
            }
            WsEvent::Ping(payload) => self.websocket_control(key, |out| ws::encode::pong(out, &payload)),
            WsEvent::Close { code } => self.peer_closes(key, code.unwrap_or(NORMAL)),
            WsEvent::Pong(_) | WsEvent::NeedMore => {}
        }
    }

    /// The peer has said its last word. It is answered once the peer has been told what became of its frames, and then
    /// there is nothing to linger for (RFC 6455, 5.5.1 and 7.1.1).
    fn peer_closes(&mut self, key: ConnKey, code: u16) {
        let Some(conn) = self.connections.table.get_mut(key) else { return };
        conn.input.eof = true;
        conn.input.bytes = Vec::new(); // a frame that will never be complete
        conn.input.arrival.is_over();
        if let Some(state) = conn.websocket() {
            state.peer_code = Some(code);
            state.arrival.is_over();
        }
        self.end_if_done(key);
    }
}
