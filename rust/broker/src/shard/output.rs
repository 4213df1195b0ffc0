//! The end of a turn: outboxes into sockets, and what other shards are told into their mailboxes.

use super::Shard;
use crate::connection::output::Progress;
use crate::ids::{ConnKey, ShardId};
use crate::mail::mailbox::Mail;

impl Shard {
    pub(super) fn queue_for_flushing(&mut self, key: ConnKey) {
        self.connections.queue_for_flushing(key);
    }

    /// Writes to every dirty connection once, or to as many as one turn may; of the receivers of wide fan-outs only to
    /// some.
    pub(super) fn flush(&mut self) {
        for key in self.connections.take_dirty() {
            let Progress { may_settle, is_owed, pulls, was_full } =
                self.connections.flush_one(&mut self.turn, key);
            if may_settle {
                self.note_written(key); // before the connection may end: what was written is consumed
            }
            if is_owed {
                self.note_room(key);
            }
            if pulls {
                self.delivery().pull_replay(key);
            }
            if was_full {
                self.note_progress(key);
            }
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
