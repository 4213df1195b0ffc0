//! Hot path: frames of one connection alone into its outbox, and outboxes into sockets, once per turn.

use stompica_proto::ws::{self, Opcode};

use super::Connections;
use super::conn::{Flush, Phase};
use super::outbox::{Flushed, Kind};
use crate::ids::ConnKey;
use crate::report::stages::Stage;
use crate::router::group::Framing;
use crate::turn::Turn;

/// Connections written to in one turn, besides [`PACED_FLUSHES`].
const FLUSHES_MAX: usize = 1024;
/// Receivers of wide fan-outs that are flushed in one turn, so that others need not wait for all of them.
const PACED_FLUSHES: usize = 32;

/// What a flush has changed for others than the connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Frames of queues may have been written.
    pub may_settle: bool,
    /// Deliveries wait for room in the outbox.
    pub is_owed: bool,
    /// It asks for more of the past.
    pub pulls: bool,
    /// Its publishers pause, because the outbox was full.
    pub was_full: bool,
}

impl Connections {
    /// Appends a server frame (anything but MESSAGE) to a connection, wrapped as its transport needs.
    pub fn control(&mut self, turn: &mut Turn, key: ConnKey, write: impl FnOnce(&mut Vec<u8>)) {
        let Some(conn) = self.table.get(key) else { return };
        if !conn.subscriptions.is_empty() {
            self.distribute(turn);
        }
        let Some(conn) = self.table.get_mut(key) else { return };
        let before = conn.outbox.bytes();
        match conn.framing() {
            Framing::Stomp => conn.outbox.append(&mut self.chunks, Kind::Answer, write),
            Framing::WebSocket => {
                if conn.websocket().is_some_and(|state| state.close_sent) {
                    return;
                }
                self.scratch.clear();
                write(&mut self.scratch);
                let is_text = std::str::from_utf8(&self.scratch).is_ok();
                let (opcode, frame) = (if is_text { Opcode::Text } else { Opcode::Binary }, &self.scratch);
                conn.outbox.append(&mut self.chunks, Kind::Answer, |out| {
                    ws::encode::header(out, opcode, frame.len());
                    out.extend_from_slice(frame);
                });
            }
        }
        turn.budget.encoded += conn.outbox.bytes() - before;
        self.queue_for_flushing(key);
    }

    /// Appends a WebSocket control frame.
    pub fn websocket_control(&mut self, turn: &mut Turn, key: ConnKey, write: impl FnOnce(&mut Vec<u8>)) {
        self.distribute(turn);
        let Some(conn) = self.table.get_mut(key) else { return };
        if conn.websocket().is_some_and(|state| !state.close_sent) {
            self.append_raw(turn, key, write);
        }
    }

    /// Appends bytes as they are.
    pub fn append_raw(&mut self, turn: &mut Turn, key: ConnKey, write: impl FnOnce(&mut Vec<u8>)) {
        let Some(conn) = self.table.get_mut(key) else { return };
        let before = conn.outbox.bytes();
        conn.outbox.append(&mut self.chunks, Kind::Answer, write);
        turn.budget.encoded += conn.outbox.bytes() - before;
        self.queue_for_flushing(key);
    }

    /// Queues a connection whose outbox has grown, or whose socket takes more again.
    pub fn queue_for_flushing(&mut self, key: ConnKey) {
        if let Some(conn) = self.table.get_mut(key)
            && conn.flush != Flush::Prompt
        {
            conn.flush = Flush::Prompt;
            self.dirty.push(key);
        }
    }

    /// The connections to write to in this turn: as many dirty ones as one turn may, and some of the receivers of wide
    /// fan-outs.
    pub fn take_dirty(&mut self) -> Vec<ConnKey> {
        let count = self.dirty.len().min(FLUSHES_MAX);
        let left = self.dirty.split_off(count);
        let mut chosen = std::mem::replace(&mut self.dirty, left);
        let mut paced = PACED_FLUSHES;
        while paced > 0
            && let Some(key) = self.paced.pop_front()
        {
            if self.table.get(key).is_some_and(|conn| conn.flush == Flush::Paced) {
                chosen.push(key);
                paced -= 1;
            }
        }
        chosen
    }

    /// Writes to a connection once.
    pub fn flush_one(&mut self, turn: &mut Turn, key: ConnKey) -> Progress {
        let Some(conn) = self.table.get_mut(key) else { return Progress::default() };
        conn.flush = Flush::Idle;
        if conn.phase == Phase::Leaving {
            return Progress::default(); // its last frames tell that it has left
        }
        let before = conn.outbox.written();
        let began = turn.stages.begin(Stage::Write);
        let flushed = conn.outbox.flush(&mut self.chunks, &mut conn.socket);
        turn.stages.end(Stage::Write, began);
        let written = conn.outbox.written() - before;
        if written > 0 {
            conn.written_ms = turn.now_ms;
            if conn.full_since_ms.is_some() || conn.phase != Phase::Open || conn.wait.is_on() {
                conn.look_at_socket(turn.now_ms); // it may have to show that it moves
            }
            turn.counters.bytes_out += written;
            turn.counters.writes += 1;
        }
        let waits = conn.wait.is_on();
        let mut progress = Progress {
            may_settle: written > 0 && conn.pending_writes.is_some(),
            is_owed: conn.deferred.is_some(),
            pulls: conn.pulls.is_some(),
            was_full: conn.full_since_ms.is_some(),
        };
        let is_closing = conn.phase == Phase::Closing;
        if matches!(flushed, Ok(Flushed::More)) {
            conn.flush = Flush::Prompt;
            self.dirty.push(key);
        }
        match flushed {
            Err(error) => {
                self.drop_connection(turn, key, &error.to_string());
                progress = Progress { may_settle: progress.may_settle, ..Progress::default() };
            }
            Ok(Flushed::Drained) if is_closing => self.begin_linger(turn, key),
            Ok(Flushed::Drained | Flushed::Blocked | Flushed::More) => {}
        }
        if written > 0 && waits {
            self.note_answers_taken(turn, key);
        }
        progress
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::connection::conn::{Transport, WebSocket};
    use crate::connection::fixtures::{connections, told, turn};
    use crate::connection::socket::Socket;

    #[test]
    fn a_connection_is_flushed_once_a_turn_and_again_when_its_outbox_has_grown() {
        let ((mut connections, keys), mut turn) = (connections(2), turn(Config::default()));
        for _ in 0..2 {
            connections.control(&mut turn, keys[0], |out| out.push(b'\n'));
        }
        assert_eq!(connections.take_dirty(), [keys[0]]);
        assert_eq!(told(&mut connections, &mut turn, keys[0]), "\n\n");
        assert_eq!((turn.counters.writes, turn.counters.bytes_out, turn.budget.encoded), (1, 2, 2));
        assert!(connections.take_dirty().is_empty());
        connections.control(&mut turn, keys[0], |out| out.push(b'\n'));
        assert_eq!(connections.take_dirty(), [keys[0]]);
    }

    #[test]
    fn receivers_of_wide_fan_outs_are_flushed_some_at_a_time() {
        let ((mut connections, keys), _) = (connections(PACED_FLUSHES + 2), turn(Config::default()));
        for key in &keys {
            connections.table.get_mut(*key).expect("it is there").flush = Flush::Paced;
            connections.paced.push_back(*key);
        }
        connections.queue_for_flushing(keys[0]);
        assert_eq!(connections.take_dirty(), keys[..=PACED_FLUSHES]);
        assert_eq!(connections.take_dirty(), keys[PACED_FLUSHES + 1..]);
    }

    #[test]
    fn frames_to_a_websocket_are_wrapped() {
        let ((mut connections, keys), mut turn) = (connections(1), turn(Config::default()));
        let conn = connections.table.get_mut(keys[0]).expect("it is there");
        conn.transport = Transport::WebSocket(Box::new(WebSocket::new(0)));
        connections.control(&mut turn, keys[0], |out| out.extend_from_slice(b"ab"));
        connections.websocket_control(&mut turn, keys[0], |out| ws::encode::ping(out, b""));
        let sent = told(&mut connections, &mut turn, keys[0]);
        assert_eq!(sent.chars().map(u32::from).collect::<Vec<_>>(), [0x81, 2, 97, 98, 0x89, 0]);
    }

    #[test]
    fn a_flush_tells_what_it_changes_for_others_and_only_settlement_when_the_socket_is_broken() {
        let ((mut connections, keys), mut turn) = (connections(1), turn(Config::default()));
        let conn = connections.table.get_mut(keys[0]).expect("it is there");
        conn.pending_writes.get_or_insert_default();
        conn.full_since_ms = Some(0);
        conn.socket = Socket::with_room(1);
        connections.control(&mut turn, keys[0], |out| out.extend_from_slice(b"ab"));
        let progress = connections.flush_one(&mut turn, keys[0]);
        assert!(progress.may_settle && progress.was_full && !progress.is_owed && !progress.pulls);
        connections.table.get_mut(keys[0]).expect("it is there").socket.script().is_broken = true;
        assert_eq!(connections.flush_one(&mut turn, keys[0]), Progress::default());
        let phase = connections.table.get(keys[0]).map(|conn| conn.phase);
        assert_eq!(phase, Some(Phase::Leaving));
    }
}
