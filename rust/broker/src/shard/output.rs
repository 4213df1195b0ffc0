//! Hot path: frames of one connection alone into its outbox, and outboxes into sockets, once per turn.

use std::mem::take;
use std::sync::Arc;

use stompica_proto::encode;
use stompica_proto::ws::{self, Opcode};

use super::{PACED_FLUSHES, Shard};
use crate::connection::conn::{Flush, Phase};
use crate::connection::outbox::{Flushed, Kind};
use crate::ids::{ConnKey, ShardId};
use crate::mail::mailbox::Mail;
use crate::report::stages::Stage;
use crate::router::group::Framing;
use crate::router::reach::Reach;
use crate::turn::budget::DELIVERIES_MAX;

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

    /// Queues mail for every other shard.
    pub(crate) fn tell_all(&mut self, mail: impl FnMut(ShardId) -> Mail) {
        self.peers.tell_all(self.turn.id, mail);
    }

    /// Keeps a message for the other shards that it goes to, until the turn ends.
    pub(crate) fn mail_message(&mut self, message: &encode::Message<'_>, reach: &Reach) {
        let work = if reach.width > 0 { self.count_work(message, reach) } else { 0 };
        self.peers.batch.push(message, reach.remote, work);
    }

    /// Hands the turn's batch and all other mail over.
    pub(super) fn post(&mut self) {
        if !self.peers.batch.is_empty() {
            let mut batch = take(&mut self.peers.batch);
            batch.count_in(&self.turn.totals.memory);
            let batch = Arc::new(batch);
            let shards = batch.shards();
            for shard in
                (0..self.peers.outgoing.len()).map(|at| ShardId(at as u8)).filter(|at| shards & at.bit() != 0)
            {
                let mailbox = &self.shared.mailboxes[usize::from(shard.0)];
                if mailbox.add_frames(batch.count_for(shard)) > self.mailbox_mark() {
                    self.peers.busy.congested |= shard.bit();
                }
                // Ahead of other mail: whoever reads Drained has read every message.
                self.peers.outgoing[usize::from(shard.0)].insert(0, Mail::Batch(Arc::clone(&batch)));
            }
        }
        self.post_queue_mail();
        for (mails, mailbox) in self.peers.outgoing.iter_mut().zip(&self.shared.mailboxes) {
            if !mails.is_empty() {
                mailbox.post(mails);
            }
        }
    }

    fn post_queue_mail(&mut self) {
        self.count_deliveries();
        for (shard, notes) in self.notes.take_trays() {
            let at = usize::from(shard.0);
            let frames = notes.iter().filter(|note| note.is_frame()).count();
            let mark = (self.turn.config.max_input_queue_size / self.shared.mailboxes.len()).max(1);
            if frames > 0 && self.shared.mailboxes[at].add_frames(frames) > mark {
                self.peers.busy.congested |= shard.bit();
            }
            // Ahead of other mail, as a batch is; a RECEIPT for a subscription comes behind what is due to it.
            self.peers.outgoing[at].insert(0, Mail::Queue(self.turn.id, notes));
        }
    }

    /// Counts what this home has for other shards to read; whoever has enough gets no more.
    pub(super) fn count_deliveries(&mut self) {
        for (shard, load) in self.notes.take_deliveries() {
            if self.shared.mailboxes[usize::from(shard.0)].add_deliveries(load) > DELIVERIES_MAX {
                self.queues.home.close(shard);
            }
        }
    }

    /// Homes that deliver nothing more to this shard need to know when it has read the better part.
    pub(super) fn tell_of_reading(&mut self, read: usize) {
        if read > 0 {
            let left = self.shared.mailboxes[usize::from(self.turn.id.0)].remove_deliveries(read);
            if left + read > DELIVERIES_MAX / 2 && left <= DELIVERIES_MAX / 2 {
                self.tell_all(Mail::ReadsOn);
            }
        }
    }

    /// Shards whose mailbox this one feeds need to know when it has room again.
    pub(super) fn tell_uncongested(&mut self, routed: usize) {
        let mark = self.mailbox_mark();
        let waiting = self.shared.mailboxes[usize::from(self.turn.id.0)].remove_frames(routed);
        if waiting + routed > mark / 2 && waiting <= mark / 2 {
            self.tell_all(Mail::Uncongested);
        }
    }
}
