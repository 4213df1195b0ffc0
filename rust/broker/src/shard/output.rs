//! Hot path: frames of one connection alone into its outbox, and outboxes into sockets, once per turn.

use stompica_proto::ws::{self, Opcode};

use super::{PACED_FLUSHES, Shard};
use crate::connection::conn::{Flush, Phase};
use crate::connection::outbox::{Flushed, Kind};
use crate::ids::{ConnKey, ShardId};
use crate::mail::mailbox::Mail;
use crate::report::stages::Stage;
use crate::router::group::Framing;

/// Connections written to in one turn, besides [`PACED_FLUSHES`].
const FLUSHES_MAX: usize = 1024;

impl Shard {
    /// Appends a server frame (anything but MESSAGE) to a connection, wrapped as its transport needs.
    pub(crate) fn control(&mut self, key: ConnKey, write: impl FnOnce(&mut Vec<u8>)) {
        let Some(conn) = self.connections.table.get(key) else { return };
        if !conn.subscriptions.is_empty() {
            self.distribute();
        }
        let Some(conn) = self.connections.table.get_mut(key) else { return };
        let before = conn.outbox.bytes();
        match conn.framing() {
            Framing::Stomp => conn.outbox.append(&mut self.connections.chunks, Kind::Answer, write),
            Framing::WebSocket => {
                if conn.websocket().is_some_and(|state| state.close_sent) {
                    return;
                }
                self.connections.scratch.clear();
                write(&mut self.connections.scratch);
                let text = std::str::from_utf8(&self.connections.scratch).is_ok();
                let (opcode, frame) =
                    (if text { Opcode::Text } else { Opcode::Binary }, &self.connections.scratch);
                conn.outbox.append(&mut self.connections.chunks, Kind::Answer, |out| {
                    ws::encode::header(out, opcode, frame.len());
                    out.extend_from_slice(frame);
                });
            }
        }
        self.turn.budget.encoded += conn.outbox.bytes() - before;
        self.queue_for_flushing(key);
    }

    /// Appends a WebSocket control frame.
    pub(super) fn websocket_control(&mut self, key: ConnKey, write: impl FnOnce(&mut Vec<u8>)) {
        self.distribute();
        let Some(conn) = self.connections.table.get_mut(key) else { return };
        if conn.websocket().is_some_and(|state| !state.close_sent) {
            let before = conn.outbox.bytes();
            conn.outbox.append(&mut self.connections.chunks, Kind::Answer, write);
            self.turn.budget.encoded += conn.outbox.bytes() - before;
            self.queue_for_flushing(key);
        }
    }

    pub(super) fn queue_for_flushing(&mut self, key: ConnKey) {
        self.connections.queue_for_flushing(key);
    }

    /// Writes to every dirty connection once, or to as many as one turn may; of the receivers of wide fan-outs only to
    /// some.
    pub(super) fn flush(&mut self) {
        let count = self.connections.dirty.len().min(FLUSHES_MAX);
        let left = self.connections.dirty.split_off(count);
        for key in std::mem::replace(&mut self.connections.dirty, left) {
            self.flush_one(key);
        }
        let mut left = PACED_FLUSHES;
        while left > 0
            && let Some(key) = self.connections.paced.pop_front()
        {
            if self.connections.table.get(key).is_some_and(|conn| conn.flush == Flush::Paced) {
                self.flush_one(key);
                left -= 1;
            }
        }
    }

    fn flush_one(&mut self, key: ConnKey) {
        let Some(conn) = self.connections.table.get_mut(key) else { return };
        conn.flush = Flush::Idle;
        if conn.phase == Phase::Leaving {
            return; // its last frames tell that it has left
        }
        let before = conn.outbox.written();
        let began = self.turn.stages.begin(Stage::Write);
        let flushed = conn.outbox.flush(&mut self.connections.chunks, &mut conn.socket);
        self.turn.stages.end(Stage::Write, began);
        let written = conn.outbox.written() - before;
        if written > 0 {
            conn.written_ms = self.turn.now_ms;
            if conn.full_since_ms.is_some() || conn.phase != Phase::Open || conn.wait.is_on() {
                conn.look_at_socket(self.turn.now_ms); // it may have to show that it moves
            }
            self.turn.counters.bytes_out += written;
            self.turn.counters.writes += 1;
        }
        let (phase, full, owed) = (conn.phase, conn.full_since_ms.is_some(), conn.deferred.is_some());
        let (pulls, waits) = (conn.pulls.is_some(), conn.wait.is_on());
        if matches!(flushed, Ok(Flushed::More)) {
            conn.flush = Flush::Prompt;
            self.connections.dirty.push(key);
        }
        if written > 0 && conn.pending_writes.is_some() {
            self.note_written(key); // before the connection may end: what was written is consumed
        }
        match flushed {
            Err(error) => self.drop_connection(key, &error.to_string()),
            Ok(Flushed::Drained) if phase == Phase::Closing => self.begin_linger(key),
            Ok(Flushed::Drained | Flushed::Blocked | Flushed::More) => {}
        }
        if owed {
            self.note_room(key);
        }
        if pulls {
            self.pull_replay(key);
        }
        if full {
            self.note_progress(key);
        }
        if written > 0 && waits {
            self.connections.note_answers_taken(&mut self.turn, key);
        }
    }

    /// See [`Peers::tell_all`](crate::mail::peers::Peers::tell_all).
    pub(crate) fn tell_all(&mut self, mail: impl FnMut(ShardId) -> Mail) {
        self.peers.tell_all(mail);
    }

    /// Hands the turn's batch and all other mail over.
    pub(super) fn post(&mut self) {
        self.peers.post(&mut self.notes, &mut self.queues.home, &self.turn);
    }
}
