//! Acts on the deadlines of a connection that have passed.

use stompica_proto::error::Code;
use stompica_proto::{ProtocolError, ws};

use super::Connections;
use super::deadline::{Overdue, millis};
use super::input::offender_in;
use super::pausing::Question;
use crate::door::planted;
use crate::ids::ConnKey;
use crate::turn::Turn;

impl Connections {
    /// Acts on an overdue deadline of a connection. Returns those that the layers above handle: a slow consumer, and
    /// a fan-out that may have waited too long.
    pub fn handle_deadline(&mut self, turn: &mut Turn, key: ConnKey) -> Option<Overdue> {
        let mut overdue = self.overdue(turn, key);
        if overdue == Some(Overdue::HeartBeat) {
            self.control(turn, key, |out| out.push(b'\n'));
            overdue = self.table.get(key).and_then(|conn| conn.overdue(turn));
        }
        match overdue? {
            Overdue::Close => self.drop_connection(turn, key, "the peer did not close in time"),
            Overdue::Refusal => self.refuse(turn, key),
            Overdue::Login => self.time_out_login(turn, key),
            Overdue::Answers => self.give_up_answers(turn, key),
            Overdue::HeartBeat => {} // it was sent
            Overdue::Frame(allowed_ms) => self.time_out_frame(turn, key, allowed_ms),
            Overdue::Silence => self.handle_silence(turn, key),
            Overdue::Held if self.awaits_fan_out(key) => return overdue,
            Overdue::Held => self.refuse_waiting(turn, key),
            Overdue::SlowConsumer | Overdue::Untaken => return overdue,
        }
        None
    }

    fn awaits_fan_out(&self, key: ConnKey) -> bool {
        let question = self.table.get(key).and_then(|conn| conn.wait.question());
        matches!(question, Some(Question::FanOut(_)))
    }

    /// The ERROR for a frame that has waited for `publish_timeout`.
    #[must_use]
    pub fn held_too_long(&self, turn: &Turn, key: ConnKey) -> ProtocolError {
        let wait = self.table.get(key).map(|conn| conn.wait).unwrap_or_default();
        let what = if matches!(wait.question(), Some(Question::Commit(_))) { "COMMIT" } else { "SEND" };
        let held_ms = millis(turn.config.publish_timeout);
        let text = format!("a {what} was held for publish_timeout={held_ms} ms: {}", wait.describe());
        ProtocolError::new(Code::Memory, text)
    }

    /// Refuses a frame whose wait has timed out. A COMMIT that waits for its homes takes no effect any more.
    fn refuse_waiting(&mut self, turn: &mut Turn, key: ConnKey) {
        let error = self.held_too_long(turn, key);
        let Some(conn) = self.table.get(key) else { return };
        let offender = offender_in(&conn.input.bytes);
        let offender = self.abandon_commit(key).unwrap_or(offender);
        self.fail_with(turn, key, error, &offender);
    }

    /// Ends a connection whose frame was not complete in time.
    fn time_out_frame(&mut self, turn: &mut Turn, key: ConnKey, allowed_ms: u64) {
        let Some(conn) = self.table.get(key) else { return };
        let (offender, came) = (offender_in(&conn.input.bytes), conn.input.bytes.len());
        let text = format!(
            "{came} bytes of a frame came and not the rest of it within {allowed_ms} ms, which is frame_timeout and its \
             length at 64 KiB a second"
        );
        self.fail_with(turn, key, ProtocolError::new(Code::FrameTimeout, text), &offender);
    }

    /// Handles a silent client: a WebSocket one is pinged first, since a browser may have suspended its timers.
    fn handle_silence(&mut self, turn: &mut Turn, key: ConnKey) {
        let now_ms = turn.now_ms;
        let Some(conn) = self.table.get_mut(key) else { return };
        let beats = *conn.protocol.session.heartbeat();
        let mut text = format!("no byte in {} ms", now_ms - conn.input.read_ms);
        if let Some(state) = conn.websocket() {
            match state.pulse.is_without_stomp(&beats, now_ms) {
                Some(_) if planted!("pongs-keep-alive") => return state.pulse.note_stomp_bytes(now_ms),
                Some(silent_ms) => text = format!("no STOMP data in {silent_ms} ms, only pings or pongs"),
                None if state.pulse.ping(now_ms) => {
                    return self.websocket_control(turn, key, |out| ws::encode::ping(out, b""));
                }
                None => {}
            }
        }
        self.fail(turn, key, ProtocolError::new(Code::HeartBeatTimeout, text), None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::connection::conn::{Conn, Transport, WebSocket};
    use crate::connection::fixtures::{connections, read_everything, told, turn};
    use crate::connection::full::Full;
    use crate::connection::pausing::Pause;

    /// The frames that a connection is sent at its next deadline, including those of its end.
    fn handle_deadline(connections: &mut Connections, turn: &mut Turn, key: ConnKey) -> String {
        turn.now_ms = connections.table.get(key).expect("an open connection").next_deadline(turn);
        read_everything(connections, turn, key);
        assert_eq!(connections.handle_deadline(turn, key), None);
        if connections.table.get(key).is_some_and(|conn| !conn.life.is_open()) {
            connections.write_last(turn, key);
        }
        told(connections, turn, key)
    }

    #[test]
    fn a_silent_client_gets_heart_beats_and_then_an_error() {
        let (mut connections, mut turn) = (Connections::default(), turn(Config::default()));
        let key = connections.table.insert(Conn::connected(1, "10000,10000"));
        let mut beats = 0;
        let end = loop {
            match handle_deadline(&mut connections, &mut turn, key) {
                told if told.contains("ERROR") => break told,
                told => beats += told.len(),
            }
            assert!(turn.now_ms < 60_000, "it is disconnected");
        };
        assert!(beats > 0 && end.contains("E-HEART-BEAT-TIMEOUT"), "{beats} {end}");
    }

    #[test]
    fn a_silent_websocket_is_pinged_once_before_it_is_disconnected() {
        let ((mut connections, keys), mut turn) = (connections(1), turn(Config::default()));
        let conn = connections.table.get_mut(keys[0]).expect("an open connection");
        conn.protocol.transport = Transport::WebSocket(Box::new(WebSocket::new(0)));
        let told: Vec<u32> =
            handle_deadline(&mut connections, &mut turn, keys[0]).chars().map(u32::from).collect();
        assert_eq!(told, [0x89, 0]);
    }

    #[test]
    fn a_client_that_answers_pings_still_gets_heart_beats() {
        let (mut connections, mut turn) = (Connections::default(), turn(Config::default()));
        let key = connections.table.insert(Conn::connected(1, "0,10000"));
        let conn = connections.table.get_mut(key).expect("an open connection");
        conn.protocol.transport = Transport::WebSocket(Box::new(WebSocket::new(0)));
        let mut last_ms = 0;
        for now_ms in (2_000..40_000).step_by(2_000) {
            turn.now_ms = now_ms;
            connections.websocket_control(&mut turn, key, |out| ws::encode::ping(out, b""));
            if told(&mut connections, &mut turn, key).contains('\n') {
                last_ms = now_ms;
            }
            assert!(now_ms - last_ms < 10_000, "no message since {last_ms}, only pings");
        }
    }

    #[test]
    fn a_send_that_was_held_too_long_and_a_frame_that_was_not_complete_get_errors() {
        let ((mut connections, keys), mut turn) = (connections(2), turn(Config::default()));
        connections.park(&mut turn, keys[0], Pause::Mailbox);
        let told = handle_deadline(&mut connections, &mut turn, keys[0]);
        assert!(told.contains("a SEND was held for publish_timeout=30000 ms"), "{told}");
        let conn = connections.table.get_mut(keys[1]).expect("an open connection");
        conn.input.keep(b"SEND\ndestination:/queue/a\n");
        conn.input.arrival.is_incomplete(true, 0, turn.now_ms);
        let told = handle_deadline(&mut connections, &mut turn, keys[1]);
        assert!(told.contains("E-FRAME-TIMEOUT") && told.contains("destination:/queue/a"), "{told}");
    }

    #[test]
    fn the_input_of_a_refused_frame_is_freed_while_its_error_waits_for_earlier_answers() {
        let ((mut connections, keys), mut turn) = (connections(1), turn(Config::default()));
        connections.ask(&mut turn, keys[0], Some(b"earlier"), 1);
        let conn = connections.table.get_mut(keys[0]).expect("an open connection");
        conn.input.keep(&[&b"SEND\ndestination:/queue/a\n\n"[..], &[b'x'; 5000]].concat());
        connections.park(&mut turn, keys[0], Pause::Memory);
        connections.count_input(&turn, keys[0]);
        assert!(connections.input_bytes > 5000);
        turn.now_ms = 30_000;
        assert_eq!(connections.handle_deadline(&mut turn, keys[0]), None);
        let conn = connections.table.get_mut(keys[0]).expect("its ERROR waits");
        assert!(conn.life.is_open() && conn.life.ending);
        assert!(connections.input_bytes < 1000, "{} bytes", connections.input_bytes);
    }

    #[test]
    fn slow_consumers_and_fan_outs_are_left_to_the_layers_above() {
        let ((mut connections, keys), mut turn) = (connections(2), turn(Config::default()));
        let full = Some(Full::since(0));
        connections.table.get_mut(keys[0]).expect("an open connection").output.full = full;
        let fan_out = crate::collections::keyed::Key { index: 0, generation: 1 };
        connections.wait_for(&mut turn, keys[1], Question::FanOut(fan_out));
        turn.now_ms = 30_000;
        assert_eq!(connections.handle_deadline(&mut turn, keys[0]), Some(Overdue::SlowConsumer));
        assert_eq!(connections.handle_deadline(&mut turn, keys[1]), Some(Overdue::Held));
    }

    #[test]
    fn an_error_that_waits_for_answers_keeps_no_input() {
        for is_websocket in [false, true] {
            let ((mut connections, keys), mut turn) = (connections(1), turn(Config::default()));
            connections.ask(&mut turn, keys[0], Some(b"earlier"), 1);
            let conn = connections.table.get_mut(keys[0]).expect("an open connection");
            if is_websocket {
                conn.protocol.transport = Transport::WebSocket(Box::new(WebSocket::new(0)));
                connections.keep_raw(&turn, keys[0], &[b'x'; 5000]);
            } else {
                conn.input.keep(&[&b"SEND\ndestination:/queue/a\n\n"[..], &[b'x'; 5000]].concat());
            }
            connections.count_input(&turn, keys[0]);
            assert!(connections.input_bytes > 5000);
            connections.time_out_frame(&mut turn, keys[0], 30_000);
            let conn = connections.table.get_mut(keys[0]).expect("its ERROR waits");
            assert!(conn.life.is_open() && conn.life.ending);
            assert!(connections.input_bytes < 1000, "{} bytes", connections.input_bytes);
        }
    }
}
