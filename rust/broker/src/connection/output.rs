//! Hot path: appends the frames of single connections to their outboxes.

use stompica_proto::ws::{self, Opcode};

use super::Connections;
use super::deferred::Deferred;
use super::full::Full;
use super::outbox::{Kind, Outbox};
use crate::door::planted;
use crate::ids::ConnKey;
use crate::router::group::Framing;
use crate::turn::Turn;

/// The time after which a consumer with a full outbox is cut off if it takes no byte.
const STUCK_MS: u64 = 1000;

/// The state of a connection in the flush lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flush {
    /// Nothing new to write.
    Idle,
    /// Flushed at the end of this turn.
    Prompt,
    /// Flushed when its turn in the paced list comes, as a receiver of a large fan-out.
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
    /// The state while it is full.
    pub full: Option<Box<Full>>,
    /// How long a full outbox may stay over half, in milliseconds, as requested by its subscriptions; the maximum: not at all.
    pub patience_ms: u32,
    /// The time from which the outbox, which is full or receives an initial replay, is expected to move.
    pub stuck_since_ms: u64,
    /// While it is full: its outbox was empty when it was last looked at, and only private queues are full.
    pub has_taken_all: bool,
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
            full: None,
            patience_ms: u32::MAX,
            stuck_since_ms: now_ms,
            has_taken_all: false,
            dropped: 0,
            written_ms: now_ms,
        }
    }

    /// Whether it is full.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.full.is_some()
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
        self.outbox.bytes() < outbox_limit && (self.deferred.is_none() || planted!("deferred-overtaken"))
    }

    /// The shorter one of this time and that which its subscriptions have requested, in milliseconds.
    #[must_use]
    pub fn patience(&self, patience_ms: u64) -> u64 {
        if self.patience_ms == u32::MAX { patience_ms } else { patience_ms.min(u64::from(self.patience_ms)) }
    }

    /// The time at which a full outbox is checked, if a consumer may stay over half for `patience_ms`; the consumer
    /// is cut off if the outbox has not moved until then.
    #[must_use]
    pub fn slow_deadline(&self, moved_ms: u64, patience_ms: u64) -> Option<u64> {
        let patience_ms = self.patience(patience_ms);
        let deadline_ms = self.full.as_ref()?.deadline_ms(patience_ms);
        if self.has_taken_all {
            return Some(deadline_ms);
        }
        let moved_ms = moved_ms.max(self.stuck_since_ms);
        Some((moved_ms + STUCK_MS.min(patience_ms)).min(deadline_ms))
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

    /// Appends a ping or pong, and a heart-beat if one would be late because of it.
    pub fn websocket_control(&mut self, turn: &mut Turn, key: ConnKey, write: impl FnOnce(&mut Vec<u8>)) {
        self.distribute(turn);
        let Some(conn) = self.table.get_mut(key) else { return };
        let beats = *conn.protocol.session.heartbeat();
        let Some(state) = conn.websocket().filter(|state| !state.close_sent) else { return };
        let needs_beat = state.pulse.needs_beat_beside(&beats, turn.now_ms);
        self.append_raw(turn, key, write);
        if needs_beat {
            self.control(turn, key, |out| out.push(b'\n'));
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::connection::conn::{Transport, WebSocket};
    use crate::connection::fixtures::{connections, told, turn};

    #[test]
    fn a_consumer_may_stall_for_a_second_and_stay_over_half_for_its_patience() {
        let mut output = Output::new(0);
        assert_eq!(output.slow_deadline(0, 5000), None, "its outbox is not full");
        output.full = Some(Full::since(100));
        output.stuck_since_ms = 100;
        assert_eq!(output.slow_deadline(50, 5000), Some(1100));
        assert_eq!(output.slow_deadline(4800, 5000), Some(5100));
        output.has_taken_all = true;
        assert_eq!(output.slow_deadline(50, 5000), Some(5100), "it has nothing to take");
        output.has_taken_all = false;
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
    fn frames_to_a_websocket_are_wrapped() {
        let ((mut connections, keys), mut turn) = (connections(1), turn(Config::default()));
        let conn = connections.table.get_mut(keys[0]).expect("an open connection");
        conn.protocol.transport = Transport::WebSocket(Box::new(WebSocket::new(0)));
        connections.control(&mut turn, keys[0], |out| out.extend_from_slice(b"ab"));
        connections.websocket_control(&mut turn, keys[0], |out| ws::encode::ping(out, b""));
        let sent = told(&mut connections, &mut turn, keys[0]);
        assert_eq!(sent.chars().map(u32::from).collect::<Vec<_>>(), [0x81, 2, 97, 98, 0x89, 0]);
    }
}
