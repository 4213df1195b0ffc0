//! The end of a turn: flushes outboxes to sockets, and handles those that stay full.

use stompica_proto::ProtocolError;
use stompica_proto::error::Code;

use super::Shard;
use crate::connection::output::Progress;
use crate::ids::ConnKey;
use crate::log::Level;

impl Shard {
    /// Flushes every dirty connection once, or as many as one turn allows; of the receivers of wide fan-outs only
    /// some.
    pub(super) fn flush(&mut self) {
        for key in self.connections.take_dirty() {
            let Progress { may_settle, is_owed, pulls, was_full } =
                self.connections.flush_one(&mut self.turn, key);
            if may_settle {
                self.delivery().note_written(key); // written messages are consumed before the connection may end
            }
            if is_owed {
                self.delivery().note_room(key);
            }
            if pulls {
                self.delivery().pull_replay(key);
            }
            if was_full {
                self.delivery().note_progress(key);
            }
        }
    }

    /// Posts the turn's batch and all other mail.
    pub(super) fn post(&mut self) {
        self.peers.post(&mut self.notes, &mut self.queues.home, &self.turn);
    }

    /// Handles the outboxes that this turn filled and that flushing did not relieve. Some are left to the next turn
    /// if they belong to many subscriptions.
    pub(super) fn act_on_outboxes(&mut self) {
        self.connections.newly_full.sort_unstable();
        self.connections.newly_full.dedup(); // each message over the limit has added the connection once
        while self.turn.budget.may_change()
            && let Some(key) = self.connections.newly_full.pop()
        {
            self.delivery().mark_full(key);
        }
        let before = self.turn.budget.visited();
        while self.turn.budget.may_end_more(before)
            && let Some(key) = self.connections.too_slow.pop()
        {
            self.cut_off(key);
        }
    }

    /// Cuts off a connection whose consumer is too slow: the ERROR replaces messages of which nothing was sent.
    pub(super) fn cut_off(&mut self, key: ConnKey) {
        let Some(conn) = self.connections.table.get_mut(key) else { return };
        if !conn.life.is_open() || conn.life.leaving.is_some() {
            return;
        }
        let bytes = conn.output.outbox.bytes();
        self.connections.begin_leaving(&mut self.turn, key);
        self.settle(); // messages in flight are requeued before unwritten ones
        let frames = self.delivery().cut_unsent(key);
        self.turn.counters.slow_consumers += 1;
        self.connections.log(&self.turn, Level::Warn, key, || {
            format!("slow consumer cut off: {bytes} bytes waited, {frames} frames are lost to it")
        });
        let text = format!("{bytes} bytes waited for this connection; {frames} frames were not sent");
        self.connections.fail(&mut self.turn, key, ProtocolError::new(Code::SlowConsumer, text), None);
    }
}
