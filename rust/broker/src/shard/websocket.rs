//! Hot path: what a WebSocket client sends, from its frames to the bytes of STOMP in them.

use std::mem::take;

use super::Shard;
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
            self.connections.keep_raw(&self.turn, key, &bytes[consumed..]);
        } else {
            let mut raw = take(&mut state.raw);
            raw.extend_from_slice(bytes);
            let consumed = self.decode_websocket(key, &mut raw);
            self.connections.keep_raw(&self.turn, key, &raw[consumed..]);
        }
    }

    fn decode_websocket(&mut self, key: ConnKey, bytes: &mut [u8]) -> usize {
        let bytes_max = self.turn.config.limits.ws_message_bytes_max;
        let mut at = 0;
        while at < bytes.len() {
            let Some(conn) = self.connections.table.get_mut(key) else { break };
            if !conn.life.is_open() {
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
                    if let Some(payload) = self.connections.websocket_event(&mut self.turn, key, event) {
                        self.consume_stomp(key, payload);
                    }
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
}
