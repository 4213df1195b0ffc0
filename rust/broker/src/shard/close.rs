//! The end of a connection, as far as the poll, the listener and its transactions are concerned.
//! [`crate::connection::closing`] has the rest.

use std::sync::atomic::Ordering;

use super::Shard;
use crate::ids::ConnKey;
use crate::mail::mailbox::Mail;

impl Shard {
    /// Writes what is due and closes; `close_code` is for WebSocket.
    pub(super) fn begin_close(&mut self, key: ConnKey, close_code: u16, reason: &str) {
        self.connections.begin_close(&mut self.turn, key, close_code, reason);
    }

    /// Ends a connection at once; nothing more can be said to the peer.
    pub(super) fn drop_connection(&mut self, key: ConnKey, why: &str) {
        self.connections.drop_connection(&mut self.turn, key, why);
    }

    /// Takes a connection out whose subscriptions have gone, with all that belongs to it.
    pub(super) fn take_out(&mut self, key: ConnKey) {
        let Some(mut conn) = self.connections.take_out(&mut self.turn, key) else { return };
        if let Some(pending_writes) = &mut conn.pending_writes {
            self.give_back_unwritten(pending_writes, None);
        }
        conn.socket.deregister(self.poll.registry());
        let refused = conn.life.refused;
        self.command().discard_transactions(conn.transactions.take());
        drop(conn);
        if refused {
            if let Some(listener) = &mut self.acceptor.listener {
                listener.refused_closed();
            }
        } else {
            self.turn.totals.connections.fetch_sub(1, Ordering::Relaxed);
        }
        match &mut self.acceptor.listener {
            Some(listener) => listener.descriptor_freed(),
            None => self.peers.outgoing[0].push(Mail::Closed),
        }
    }
}
