//! What a WebSocket client sends, as far as it concerns the connection: pings, the end, what has come in part.

use stompica_proto::ws::{self, WsEvent};

use super::Connections;
use super::closing::NORMAL;
use crate::ids::ConnKey;
use crate::turn::Turn;

impl Connections {
    /// Keeps frames that could not be dealt with now, and notes whether a message has come in part.
    pub fn keep_raw(&mut self, turn: &Turn, key: ConnKey, rest: &[u8]) {
        let Some(conn) = self.table.get_mut(key).filter(|conn| conn.life.is_open()) else { return };
        let Some(state) = conn.websocket().filter(|state| state.peer_code.is_none()) else { return };
        if !rest.is_empty() {
            state.raw = rest.to_vec();
        } else if state.decoder.is_mid_message() {
            state.arrival.is_incomplete(false, state.decoder.announced_bytes(), turn.now_ms);
        } else {
            state.arrival.is_over();
        }
    }

    /// Deals with one event. Returns the bytes of STOMP in it.
    pub fn websocket_event<'a>(
        &mut self,
        turn: &mut Turn,
        key: ConnKey,
        event: WsEvent<'a>,
    ) -> Option<&'a [u8]> {
        match event {
            WsEvent::Data { payload, message_end, .. } => {
                let state = self.table.get_mut(key)?.websocket()?;
                if message_end {
                    state.arrival.is_over();
                }
                if payload.is_empty() {
                    return None;
                }
                state.pulse.feel_stomp(turn.now_ms);
                return Some(payload);
            }
            WsEvent::Ping(payload) => {
                self.websocket_control(turn, key, |out| ws::encode::pong(out, &payload));
            }
            WsEvent::Close { code } => self.peer_closes(turn, key, code.unwrap_or(NORMAL)),
            WsEvent::Pong(_) | WsEvent::NeedMore => {}
        }
        None
    }

    /// The peer has said its last word. It is answered once the peer has been told what became of its frames, and then
    /// there is nothing to linger for (RFC 6455, 5.5.1 and 7.1.1).
    fn peer_closes(&mut self, turn: &mut Turn, key: ConnKey, code: u16) {
        let Some(conn) = self.table.get_mut(key) else { return };
        conn.input.eof = true;
        conn.input.bytes = Vec::new(); // a frame that will never be complete
        conn.input.arrival.is_over();
        if let Some(state) = conn.websocket() {
            state.peer_code = Some(code);
            state.arrival.is_over();
        }
        self.end_if_done(turn, key);
    }
}
