//! Hot path: appends the frames of single connections to their outboxes, and flushes outboxes to sockets once per
//! turn.

use stompica_proto::ws::{self, Opcode};

use super::Connections;
use super::conn::Phase;
use super::deferred::Deferred;
use super::outbox::{Flushed, Kind, Outbox};
use crate::ids::ConnKey;
use crate::report::stages::Stage;
use crate::router::group::Framing;
use crate::turn::Turn;

/// Connections flushed in one turn, besides [`PACED_FLUSHES`].
const FLUSHES_MAX: usize = 1024;
/// Receivers of wide fan-outs that are flushed in one turn, so that others do not wait for all of them.
const PACED_FLUSHES: usize = 32;

/// The time after which a consumer with a full outbox is cut off if it takes no byte.
const STUCK_MS: u64 = 1000;

/// The effects of a flush beyond the connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Messages of queues may have been written.
    pub may_settle: bool,
    /// Deliveries wait for room in the outbox.
    pub is_owed: bool,
    /// The connection requests more of an initial replay.
    pub pulls: bool,
    /// Publishers are paused, because the outbox was full.
    pub was_full: bool,
}

/// The state of a connection in the flush lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flush {
    /// Nothing new to write.
    Idle,
    /// Flushed at the end of this turn.
    Prompt,
    /// Flushed when its turn in the paced list comes, as a receiver of a wide fan-out.
    Paced,
}

/// The output of one connection.
#[derive(Debug)]
pub struct Output {
    /// Frames that wait to be written.
    pub outbox: Outbox,
    /// Deliveries that wait for room in the outbox.
    pub deferred: Option<Box<Deferred>>,
    /// The state in the flush lists.
    pub flush: Flush,
    /// The time since which the outbox is full.
    pub full_since_ms: Option<u64>,
    /// How long a full outbox may stay over half, in milliseconds, as requested by its subscriptions.
    pub patience_ms: u64,
    /// The time from which the outbox, which is full or receives an initial replay, is expected to move.
    pub stuck_since_ms: u64,
    /// Messages dropped since the last delivered one.
    pub dropped: u32,
    /// The time of the last byte written.
    pub written_ms: u64,
}

impl Output {
    /// The state without output.
    #[must_use]
    pub fn new(now_ms: u64) -> Self {
        Output {
            outbox: Outbox::default(),
            deferred: None,
            flush: Flush::Idle,
            full_since_ms: None,
            patience_ms: u64::MAX,
            stuck_since_ms: now_ms,
            dropped: 0,
            written_ms: now_ms,
        }
    }

    /// Whether output waits to be written, or for room.
    #[must_use]
    pub fn has_more(&self) -> bool {
        !self.outbox.is_empty() || self.deferred.is_some()
    }

    /// Whether a message can be appended to the outbox directly: it is below its limit, and nothing is deferred.
    #[inline]
    #[must_use]
    pub fn has_room(&self, outbox_limit: usize) -> bool {
        self.outbox.bytes() < outbox_limit && self.deferred.is_none()
    }

    /// The time at which a full outbox is checked, if a consumer may stay over half for `patience_ms`; the consumer
    /// is cut off if the outbox has not moved until then.
    #[must_use]
    pub fn slow_deadline(&self, moved_ms: u64, patience_ms: u64) -> Option<u64> {
        let since_ms = self.full_since_ms?;
        let patience_ms = patience_ms.min(self.patience_ms);
        let moved_ms = moved_ms.max(self.stuck_since_ms);
        Some((moved_ms + STUCK_MS.min(patience_ms)).min(since_ms.saturating_add(patience_ms)))
    }
}

impl Connections {
    /// Appends a server frame (anything but MESSAGE) to a connection, wrapped as its transport requires.
    pub fn control(&mut self, turn: &mut Turn, key: ConnKey, write: impl FnOnce(&mut Vec<u8>)) {
        let Some(conn) = self.table.get(key) else { return };
        if !conn.subscriptions.is_empty() {
            self.distribute(turn);
        }
        let Some(conn) = self.table.get_mut(key) else { return };
        let before = conn.output.outbox.bytes();
        match conn.framing() {
            Framing::Stomp => conn.output.outbox.append(&mut self.chunks, Kind::Answer, write),
            Framing::WebSocket => {
                if conn.websocket().is_some_and(|state| state.close_sent) {
                    return;
                }
                self.scratch.clear();
                write(&mut self.scratch);
                let is_text = std::str::from_utf8(&self.scratch).is_ok();
                let (opcode, frame) = (if is_text { Opcode::Text } else { Opcode::Binary }, &self.scratch);
                conn.output.outbox.append(&mut self.chunks, Kind::Answer, |out| {
                    ws::encode::header(out, opcode, frame.len());
                    out.extend_from_slice(frame);
                });
            }
        }
        turn.budget.encoded += conn.output.outbox.bytes() - before;
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

    /// Appends bytes unchanged.
    pub fn append_raw(&mut self, turn: &mut Turn, key: ConnKey, write: impl FnOnce(&mut Vec<u8>)) {
        let Some(conn) = self.table.get_mut(key) else { return };
        let before = conn.output.outbox.bytes();
        conn.output.outbox.append(&mut self.chunks, Kind::Answer, write);
        turn.budget.encoded += conn.output.outbox.bytes() - before;
        self.queue_for_flushing(key);
    }

    /// Queues a connection for flushing after its outbox has grown or its socket has become writable.
    pub fn queue_for_flushing(&mut self, key: ConnKey) {
        if let Some(conn) = self.table.get_mut(key)
            && conn.output.flush != Flush::Prompt
        {
            conn.output.flush = Flush::Prompt;
            self.dirty.push(key);
        }
    }

    /// The connections to flush in this turn: dirty ones up to the limit, and some of the receivers of wide fan-outs.
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
            return Progress::default(); // its last frames are sent after its subscriptions are removed
        }
        let before = conn.output.outbox.written();
        let began = turn.stages.begin(Stage::Write);
        let flushed = conn.output.outbox.flush(&mut self.chunks, &mut conn.socket);
        turn.stages.end(Stage::Write, began);
        let written = conn.output.outbox.written() - before;
        if written > 0 {
            conn.output.written_ms = turn.now_ms;
            if conn.output.full_since_ms.is_some() || !conn.life.is_open() || conn.wait.is_on() {
                conn.look_at_socket(turn.now_ms); // its progress may be needed
            }
            turn.counters.bytes_out += written;
            turn.counters.writes += 1;
        }
        let waits = conn.wait.is_on();
        let mut progress = Progress {
            may_settle: written > 0 && conn.pending_writes.is_some(),
            is_owed: conn.output.deferred.is_some(),
            pulls: conn.pulls.is_some(),
            was_full: conn.output.full_since_ms.is_some(),
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
    use crate::connection::conn::{Transport, WebSocket};
    use crate::connection::fixtures::{connections, told, turn};
    use crate::connection::socket::Socket;

    #[test]
    fn a_consumer_may_stall_for_a_second_and_stay_over_half_for_its_patience() {
        let mut output = Output::new(0);
        assert_eq!(output.slow_deadline(0, 5000), None, "its outbox is not full");
        (output.full_since_ms, output.stuck_since_ms) = (Some(100), 100);
        assert_eq!(output.slow_deadline(50, 5000), Some(1100));
        assert_eq!(output.slow_deadline(4800, 5000), Some(5100));
        output.patience_ms = 300;
        assert_eq!(output.slow_deadline(50, 5000), Some(400), "as requested by its subscriptions");
    }

    #[test]
    fn nothing_overtakes_deferred_deliveries() {
        let mut output = Output::new(0);
        assert!(output.has_room(1) && !output.has_room(0) && !output.has_more());
        output.deferred = Some(Box::default());
        assert!(!output.has_room(1) && output.has_more());
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
    fn receivers_of_wide_fan_outs_are_flushed_a_few_at_a_time() {
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
    fn frames_to_a_websocket_are_wrapped() {
        let ((mut connections, keys), mut turn) = (connections(1), turn(Config::default()));
        let conn = connections.table.get_mut(keys[0]).expect("an open connection");
        conn.protocol.transport = Transport::WebSocket(Box::new(WebSocket::new(0)));
        connections.control(&mut turn, keys[0], |out| out.extend_from_slice(b"ab"));
        connections.websocket_control(&mut turn, keys[0], |out| ws::encode::ping(out, b""));
        let sent = told(&mut connections, &mut turn, keys[0]);
        assert_eq!(sent.chars().map(u32::from).collect::<Vec<_>>(), [0x81, 2, 97, 98, 0x89, 0]);
    }

    #[test]
    fn a_flush_reports_its_effects_and_only_settlement_when_the_socket_is_broken() {
        let ((mut connections, keys), mut turn) = (connections(1), turn(Config::default()));
        let conn = connections.table.get_mut(keys[0]).expect("an open connection");
        conn.pending_writes.get_or_insert_default();
        conn.output.full_since_ms = Some(0);
        conn.socket = Socket::with_room(1);
        connections.control(&mut turn, keys[0], |out| out.extend_from_slice(b"ab"));
        let progress = connections.flush_one(&mut turn, keys[0]);
        assert!(progress.may_settle && progress.was_full && !progress.is_owed && !progress.pulls);
        connections.table.get_mut(keys[0]).expect("an open connection").socket.script().is_broken = true;
        assert_eq!(connections.flush_one(&mut turn, keys[0]), Progress::default());
        let phase = connections.table.get(keys[0]).map(|conn| conn.life.phase);
        assert_eq!(phase, Some(Phase::Leaving));
    }
}
