//! Hot path: moves bytes between sockets and the shard: at most one read and one write per connection and turn.
//!
//! The bytes of one read are decoded in place, in the shard's buffer. The connection keeps only the rest that remains
//! when the turn ends, a frame has to wait, or a frame is incomplete.

use std::io;

use stompica_proto::transport::{Sniffed, sniff};

use super::Connections;
use super::conn::{Conn, Phase, Transport};
use super::outbox::Flushed;
use super::output::Flush;
use super::pausing::Pause;
use super::socket::Received;
use crate::door::planted;
use crate::ids::ConnKey;
use crate::message::chunk::ChunkPool;
use crate::report::stages::Stage;
use crate::turn::Turn;

/// Connections flushed in one turn, besides [`PACED_FLUSHES`].
const FLUSHES_MAX: usize = 1024;
/// Receivers of large fan-outs that are flushed in one turn, so that others do not wait for all of them.
const PACED_FLUSHES: usize = 32;

/// The result of a read into the shard's buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    /// Bytes to decode: a rest that was kept, if any, and the new ones.
    pub len: usize,
    /// The socket has nothing more for now.
    pub is_drained: bool,
}

/// The effects of a flush beyond the connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// It has consumers of queues.
    pub consumes: bool,
    /// Messages of queues were written, now or earlier in this turn.
    pub may_settle: bool,
    /// Deliveries wait for room in the outbox.
    pub has_deferred: bool,
    /// The connection requests more of an initial replay.
    pub pulls: bool,
    /// Publishers are paused, because the outbox was full.
    pub was_full: bool,
}

impl Conn {
    /// Writes as much of the outbox as the socket takes. Returns what is left, and the number of bytes written.
    pub(super) fn write(&mut self, chunks: &mut ChunkPool, turn: &mut Turn) -> (io::Result<Flushed>, u64) {
        let before = self.output.outbox.written();
        let began = turn.stages.begin(Stage::Write);
        let flushed = self.output.outbox.flush(chunks, &mut self.socket);
        turn.stages.end(Stage::Write, began);
        let written = self.output.outbox.written() - before;
        if written > 0 {
            self.output.written_ms = turn.now_ms;
            turn.counters.bytes_out += written;
            turn.counters.writes += 1;
        }
        (flushed, written)
    }

    /// Writes MESSAGEs before the end of the turn, unless this has effects beyond the connection. Returns whether
    /// everything is written.
    pub(super) fn write_early(&mut self, chunks: &mut ChunkPool, turn: &mut Turn) -> bool {
        // A RECEIPT must not be sent before the turn's batch is posted.
        let has_no_effects = self.output.outbox.answer_bytes() == 0
            && !self.output.is_full()
            && self.output.deferred.is_none()
            && self.pending_writes.is_none()
            && self.pulls.is_none()
            && self.life.is_open()
            && !self.wait.is_on();
        // An error will occur again at the regular flush.
        has_no_effects && matches!(self.write(chunks, turn), (Ok(Flushed::Drained), _))
    }
}

impl Connections {
    /// Whether a connection may be served now: it is open, and waits for nothing. Input of a closing one is
    /// discarded.
    pub fn begin_serving(&mut self, turn: &mut Turn, key: ConnKey) -> bool {
        let Some(conn) = self.table.get_mut(key) else { return false };
        conn.input.is_listed = false;
        if !conn.life.is_open() {
            self.discard_input(turn, key);
            return false;
        }
        if conn.wait.is_on() {
            if !(conn.socket.has_hung_up() && conn.wait.pause() == Some(Pause::Arriving)) {
                return false;
            }
            self.parking.end_wait(&mut self.table, key);
        }
        if self.hold_for_answers(turn, key) {
            return false;
        }
        if self.table.get_mut(key).is_some_and(|conn| conn.start_clock(turn.now_ms)) {
            self.rearm(turn, key);
        }
        true
    }

    /// Reads once into `buffer`. `round` is the shard's round of mail.
    pub fn read(&mut self, turn: &mut Turn, key: ConnKey, round: u64, buffer: &mut [u8]) -> Option<Read> {
        let conn = self.table.get_mut(key)?;
        let began = turn.stages.begin(Stage::Read);
        // A short rest of the previous read is put in front, so that the new bytes need not be copied after it.
        let rest = conn.short_rest();
        let (begun, free) = buffer.split_at_mut(rest.len());
        begun.copy_from_slice(rest);
        let begun = begun.len();
        let room = self.unfinished.read_bytes(key).min(free.len());
        let received = conn.socket.receive(&mut free[..room]);
        turn.stages.end(Stage::Read, began);
        turn.budget.read(received.len());
        match received {
            Received::End => {
                conn.input.eof = true;
                conn.input.read_ms = turn.now_ms; // the time for its last answers begins
                self.end_if_done(turn, key);
            }
            Received::Bytes { len, is_drained } => {
                if !planted!("sign-of-life-missed") {
                    conn.input.read_ms = turn.now_ms;
                }
                conn.input.read_round = round;
                if let Some(state) = conn.websocket() {
                    state.pulse.note_bytes();
                }
                turn.counters.bytes_in += len as u64;
                turn.counters.reads += 1;
                if begun > 0 {
                    conn.input.bytes = Vec::new();
                }
                return Some(Read { len: begun + len, is_drained });
            }
            Received::Blocked => self.note_drained(turn, key),
            Received::Interrupted => self.queue_for_reading(key),
            Received::Failed(error) => self.drop_connection(turn, key, &error.to_string()),
        }
        None
    }

    /// Finishes a read after its bytes have been decoded.
    pub fn end_reading(&mut self, turn: &mut Turn, key: ConnKey, is_drained: bool) {
        self.note_input(turn, key);
        let goes_on = self
            .table
            .get(key)
            .is_some_and(|conn| !is_drained || conn.input.has_unparsed || !conn.life.is_open());
        if goes_on {
            self.queue_for_reading(key);
        } else {
            self.note_drained(turn, key);
        }
        self.end_if_done(turn, key);
    }

    /// Records that everything that a connection has sent is read and decoded.
    fn note_drained(&mut self, turn: &mut Turn, key: ConnKey) {
        if self.table.get_mut(key).is_some_and(|conn| conn.input.is_drained(turn.now_ms)) {
            self.rearm(turn, key); // its deadline was later until now
        }
    }

    /// Reads and discards, so that closing does not reset the connection.
    fn discard_input(&mut self, turn: &mut Turn, key: ConnKey) {
        let Some(conn) = self.table.get_mut(key).filter(|conn| !conn.input.eof) else { return };
        let received = conn.socket.receive(&mut self.read_buffer);
        turn.budget.read(received.len());
        match received {
            Received::End => {
                conn.input.eof = true;
                if conn.life.phase == Phase::Lingering {
                    self.remove(turn, key);
                }
            }
            Received::Bytes { .. } | Received::Interrupted => self.queue_for_reading(key),
            Received::Blocked => {}
            Received::Failed(_) => self.remove(turn, key),
        }
    }

    /// Keeps the first bytes of a connection, and detects its protocol.
    pub fn detect(&mut self, key: ConnKey, bytes: &[u8]) -> Sniffed {
        let Some(conn) = self.table.get_mut(key) else { return Sniffed::Incomplete };
        conn.input.bytes.extend_from_slice(bytes);
        let sniffed = match conn.protocol.transport {
            Transport::Http => Sniffed::Http,
            _ => sniff(&conn.input.bytes),
        };
        match sniffed {
            Sniffed::Stomp => conn.protocol.transport = Transport::Stomp,
            Sniffed::Http => conn.protocol.transport = Transport::Http,
            Sniffed::Incomplete | Sniffed::Tls => {}
        }
        sniffed
    }

    /// Lets the first frame be handled again in the next turn.
    pub fn leave_for_next_turn(&mut self, key: ConnKey) {
        if let Some(conn) = self.table.get_mut(key) {
            conn.input.has_unparsed = true;
        }
    }

    /// The connections to flush in this turn: dirty ones up to the limit, and some of the receivers of large fan-outs.
    pub fn take_dirty(&mut self) -> Vec<ConnKey> {
        let count = self.dirty.len().min(FLUSHES_MAX);
        let left = self.dirty.split_off(count);
        let mut chosen = std::mem::replace(&mut self.dirty, left);
        let mut paced = PACED_FLUSHES;
        while paced > 0
            && let Some(key) = self.paced.pop_front()
        {
            if self.table.get(key).is_some_and(|conn| conn.output.flush == Flush::Paced) {
                chosen.push(key);
                paced -= 1;
            }
        }
        chosen
    }

    /// Flushes a connection once.
    pub fn flush_one(&mut self, turn: &mut Turn, key: ConnKey) -> Progress {
        let Some(conn) = self.table.get_mut(key) else { return Progress::default() };
        conn.output.flush = Flush::Idle;
        if conn.life.phase == Phase::Leaving {
            // Its last frames are sent after its subscriptions are removed. What was written to make room is settled now.
            let may_settle = conn.pending_writes.is_some() && conn.output.outbox.has_passed_mark();
            return Progress { may_settle, ..Progress::default() };
        }
        let (flushed, written) = conn.write(&mut self.chunks, turn);
        let waits = conn.wait.is_on();
        if written > 0 && (conn.output.is_full() || !conn.life.is_open() || waits) {
            conn.check_socket(turn.now_ms); // its progress may be needed
        }
        let mut progress = Progress {
            consumes: conn.pending_writes.is_some(),
            may_settle: conn.pending_writes.is_some() && conn.output.outbox.has_passed_mark(),
            has_deferred: conn.output.deferred.is_some(),
            pulls: conn.pulls.is_some(),
            was_full: conn.output.is_full(),
        };
        let is_closing = conn.life.phase == Phase::Closing;
        if matches!(flushed, Ok(Flushed::More)) {
            conn.output.flush = Flush::Prompt;
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
    use crate::connection::conn::Conn;
    use crate::connection::fixtures::{connections, told, turn};
    use crate::connection::full::Full;
    use crate::connection::socket::Socket;

    fn conn(connections: &mut Connections, key: ConnKey) -> &mut Conn {
        connections.table.get_mut(key).expect("an open connection")
    }

    fn come(connections: &mut Connections, key: ConnKey, bytes: &[u8]) {
        conn(connections, key).socket.script().incoming.push_back(Ok(bytes.to_vec()));
    }

    #[test]
    fn a_short_rest_is_put_in_front_of_the_next_read() {
        let ((mut connections, keys), mut turn) = (connections(1), turn(Config::default()));
        let mut buffer = vec![0; super::super::READ_BYTES];
        connections.check_unfinished(&mut turn);
        conn(&mut connections, keys[0]).input.keep(b"SE");
        come(&mut connections, keys[0], b"ND\n");
        turn.now_ms = 9;
        let read = connections.read(&mut turn, keys[0], 3, &mut buffer);
        assert_eq!(read, Some(Read { len: 5, is_drained: true }));
        assert_eq!(&buffer[..5], b"SEND\n");
        let input = &conn(&mut connections, keys[0]).input;
        assert_eq!((input.bytes.len(), input.read_ms, input.read_round), (0, 9, 3));
        assert_eq!(connections.read(&mut turn, keys[0], 3, &mut buffer), None);
    }

    #[test]
    fn a_connection_is_read_again_until_its_socket_is_drained() {
        let ((mut connections, keys), mut turn) = (connections(1), turn(Config::default()));
        connections.end_reading(&mut turn, keys[0], true);
        assert!(connections.undrained.is_empty());
        connections.end_reading(&mut turn, keys[0], false);
        assert_eq!(connections.undrained, keys);
        assert!(connections.begin_serving(&mut turn, keys[0]));
        connections.leave_for_next_turn(keys[0]);
        connections.undrained.clear();
        connections.end_reading(&mut turn, keys[0], true);
        assert_eq!(connections.undrained, keys, "whole frames may be kept");
    }

    #[test]
    fn a_waiting_connection_is_served_only_if_it_hung_up_while_its_frame_arrives() {
        let ((mut connections, keys), mut turn) = (connections(1), turn(Config::default()));
        for (pause, hangs_up, is_served) in
            [(Pause::Memory, true, false), (Pause::Arriving, false, false), (Pause::Arriving, true, true)]
        {
            connections.parking.end(&mut connections.table, keys[0]);
            connections.park(&mut turn, keys[0], pause);
            if hangs_up {
                conn(&mut connections, keys[0]).socket.hang_up();
            } else {
                conn(&mut connections, keys[0]).socket =
                    super::super::socket::Socket::scripted(Default::default());
            }
            assert_eq!(connections.begin_serving(&mut turn, keys[0]), is_served, "{pause:?} {hangs_up}");
        }
    }

    #[test]
    fn the_end_of_the_stream_closes_an_open_connection_and_ends_a_lingering_one() {
        let ((mut connections, keys), mut turn) = (connections(2), turn(Config::default()));
        conn(&mut connections, keys[1]).life.phase = Phase::Lingering;
        keys.iter().for_each(|key| come(&mut connections, *key, b""));
        assert_eq!(connections.read(&mut turn, keys[0], 0, &mut [0; 8]), None);
        assert!(!connections.begin_serving(&mut turn, keys[1]));
        assert!(keys.iter().all(|key| conn(&mut connections, *key).life.phase == Phase::Leaving));
        assert!(conn(&mut connections, keys[1]).life.leaving.as_ref().is_some_and(|leaving| leaving.is_lost));
    }

    #[test]
    fn the_first_bytes_identify_the_protocol() {
        let mut connections = Connections::default();
        let key = connections.table.insert(Conn::scripted(1));
        assert_eq!(connections.detect(key, b"GE"), Sniffed::Incomplete);
        assert_eq!(connections.detect(key, b"T / HTTP/1.1"), Sniffed::Http);
        assert_eq!(connections.detect(key, b"STOMP"), Sniffed::Http, "the result does not change");
    }

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
    fn receivers_of_large_fan_outs_are_flushed_a_few_at_a_time() {
        let ((mut connections, keys), _) = (connections(PACED_FLUSHES + 2), turn(Config::default()));
        for key in &keys {
            connections.table.get_mut(*key).expect("an open connection").output.flush = Flush::Paced;
            connections.paced.push_back(*key);
        }
        connections.queue_for_flushing(keys[0]);
        assert_eq!(connections.take_dirty(), keys[..=PACED_FLUSHES]);
        assert_eq!(connections.take_dirty(), keys[PACED_FLUSHES + 1..]);
    }

    #[test]
    fn a_flush_reports_its_effects_and_only_settlement_when_the_socket_is_broken() {
        let ((mut connections, keys), mut turn) = (connections(1), turn(Config::default()));
        let conn = connections.table.get_mut(keys[0]).expect("an open connection");
        conn.pending_writes.get_or_insert_default();
        conn.output.full = Some(Full::since(0));
        conn.socket = Socket::with_room(1);
        connections.control(&mut turn, keys[0], |out| out.push(b'a'));
        connections.table.get_mut(keys[0]).expect("an open connection").output.outbox.mark();
        connections.control(&mut turn, keys[0], |out| out.push(b'b'));
        let progress = connections.flush_one(&mut turn, keys[0]);
        assert!(progress.may_settle && progress.was_full && !progress.has_deferred && !progress.pulls);
        connections.table.get_mut(keys[0]).expect("an open connection").socket.script().is_broken = true;
        let settles = Progress { may_settle: true, ..Progress::default() };
        assert_eq!(connections.flush_one(&mut turn, keys[0]), settles);
        let phase = connections.table.get(keys[0]).map(|conn| conn.life.phase);
        assert_eq!(phase, Some(Phase::Leaving));
    }
}
