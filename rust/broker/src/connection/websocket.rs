//! Handles WebSocket events that concern the connection: pings, Close, and partial messages.

use stompica_proto::ws::{self, WsEvent};

use super::Connections;
use super::closing::NORMAL;
use crate::door::planted;
use crate::ids::ConnKey;
use crate::turn::Turn;

impl Connections {
    /// Keeps frames that cannot be handled now, and records whether a message has arrived in part.
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

    /// Handles one event. Returns the STOMP bytes in it.
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
                state.pulse.note_stomp_bytes(turn.now_ms);
                return Some(payload);
            }
            WsEvent::Ping(payload) => {
                let payload = if planted!("pong-without-payload") { Default::default() } else { payload };
                self.websocket_control(turn, key, |out| ws::encode::pong(out, &payload));
            }
            WsEvent::Close { code } => self.peer_closes(turn, key, code.unwrap_or(NORMAL)),
            WsEvent::Pong(_) | WsEvent::NeedMore => {}
        }
        None
    }

    /// Handles a Close frame of the peer. It is answered after all answers to the peer's frames; no linger is needed
    /// then (RFC 6455, 5.5.1 and 7.1.1).
    fn peer_closes(&mut self, turn: &mut Turn, key: ConnKey, code: u16) {
        let Some(conn) = self.table.get_mut(key) else { return };
        conn.input.eof = true;
        conn.input.bytes = Vec::new(); // drops an incomplete frame
        conn.input.arrival.is_over();
        if let Some(state) = conn.websocket() {
            state.peer_code = Some(code);
            state.arrival.is_over();
        }
        self.end_if_done(turn, key);
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::*;
    use crate::config::Config;
    use crate::connection::conn::{Phase, Transport, WebSocket};
    use crate::connection::fixtures::{connections, told, turn};

    /// A WebSocket connection that has logged in.
    fn websocket() -> (Connections, ConnKey, Turn) {
        let (mut connections, keys) = connections(1);
        let conn = connections.table.get_mut(keys[0]).expect("an open connection");
        conn.protocol.transport = Transport::WebSocket(Box::new(WebSocket::new(0)));
        (connections, keys[0], turn(Config::default()))
    }

    fn state(connections: &mut Connections, key: ConnKey) -> &mut WebSocket {
        connections.table.get_mut(key).and_then(|conn| conn.websocket()).expect("a WebSocket")
    }

    #[test]
    fn data_is_passed_on_and_a_ping_is_answered() {
        let (mut connections, key, mut turn) = websocket();
        let data = |payload| WsEvent::Data { payload, text: true, message_end: true };
        assert_eq!(connections.websocket_event(&mut turn, key, data(b"\n")), Some(&b"\n"[..]));
        assert_eq!(connections.websocket_event(&mut turn, key, data(b"")), None);
        assert_eq!(connections.websocket_event(&mut turn, key, WsEvent::Ping(Cow::Borrowed(b"a"))), None);
        assert_eq!(told(&mut connections, &mut turn, key).into_bytes(), "\u{8a}\u{1}a".as_bytes());
    }

    #[test]
    fn a_message_arrives_until_its_end_has_come() {
        let (mut connections, key, mut turn) = websocket();
        state(&mut connections, key).arrival.is_incomplete(true, 0, 0);
        let begun = WsEvent::Data { payload: b"SEND", text: true, message_end: false };
        connections.websocket_event(&mut turn, key, begun);
        assert!(state(&mut connections, key).arrival.is_on());
        let ended = WsEvent::Data { payload: b"", text: true, message_end: true };
        connections.websocket_event(&mut turn, key, ended);
        assert!(!state(&mut connections, key).arrival.is_on());
    }

    #[test]
    fn frames_that_cannot_be_decoded_now_are_kept_until_the_peer_closes() {
        let (mut connections, key, mut turn) = websocket();
        connections.keep_raw(&turn, key, b"ab");
        assert_eq!(state(&mut connections, key).raw, b"ab");
        connections.wait_for(&mut turn, key, crate::connection::pausing::Question::Query(1));
        connections.websocket_event(&mut turn, key, WsEvent::Close { code: Some(1001) });
        connections.keep_raw(&turn, key, b"abc");
        assert_eq!(state(&mut connections, key).raw, b"ab", "bytes after a Close are ignored");
        assert!(connections.table.get(key).is_some_and(|conn| conn.input.eof && conn.life.is_open()));
    }

    #[test]
    fn a_close_is_answered_with_its_code() {
        let (mut connections, key, mut turn) = websocket();
        connections.websocket_event(&mut turn, key, WsEvent::Close { code: Some(1001) });
        assert_eq!(connections.table.get(key).map(|conn| conn.life.phase), Some(Phase::Leaving));
        connections.write_last(&mut turn, key);
        let told: Vec<u32> = told(&mut connections, &mut turn, key).chars().map(u32::from).collect();
        assert_eq!(told, [0x88, 2, 3, 0xe9]);
    }
}
