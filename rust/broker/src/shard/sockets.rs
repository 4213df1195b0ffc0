//! Registers the readiness of sockets, accepts connections, which the first shard distributes in turns, and removes
//! those that end.

use super::{LISTENER, Shard, WAKER};
use crate::connection::conn::Phase;
use crate::connection::listener::{Accept, Listener};
use crate::door::sync::Ordering;
use crate::door::{Events, planted};
use crate::ids::ConnKey;
use crate::log::Level;
use crate::mail::mailbox::{Accepted, Mail};

/// Connections accepted in one turn, so that a burst of them does not starve existing ones.
const ACCEPTS: usize = 64;
/// The minimum time between two log lines about failed accepts.
const LOG_EVERY_MS: u64 = 1000;

impl Shard {
    /// The time at which accepting is retried after descriptors ran out.
    pub(super) fn accept_again_ms(&self) -> Option<u64> {
        self.acceptor.listener.as_ref().and_then(Listener::retry_at_ms)
    }

    /// Registers the sockets that the poll has reported.
    pub(super) fn note_readiness(&mut self, events: &Events) {
        for event in events {
            match event.token() {
                WAKER => {}
                LISTENER => {
                    if let Some(listener) = &mut self.acceptor.listener {
                        listener.set_ready();
                    }
                }
                token => {
                    let key = ConnKey::from_token(token);
                    let Some(conn) = self.connections.table.get_mut(key) else { continue };
                    if event.is_readable() || event.is_read_closed() || event.is_error() {
                        if event.is_read_closed() || event.is_error() {
                            conn.socket.hang_up();
                        }
                        self.connections.queue_for_reading(key);
                    }
                    if event.is_writable() || event.is_error() {
                        self.connections.queue_for_flushing(key);
                    }
                }
            }
        }
    }

    pub(super) fn accept(&mut self) {
        for _ in 0..ACCEPTS {
            let Some(listener) = &mut self.acceptor.listener else { return };
            let (stream, peer, spare) = match listener.accept(self.turn.now_ms) {
                Accept::Stream(stream, peer) => (stream, peer, false),
                Accept::Spare(stream, peer) => (stream, peer, true),
                Accept::Nothing => return,
                Accept::Failed(error) => {
                    self.accept_failed(&error);
                    return;
                }
            };
            let open = self.turn.totals.connections.load(Ordering::Relaxed);
            let full = open >= self.turn.config.max_connections && !planted!("connections-without-end");
            let refused = full || spare;
            if refused && !listener.may_refuse() {
                self.turn.counters.refused += 1;
                continue;
            }
            let id = listener.next_id();
            // Otherwise a small frame would wait for the acknowledgement of the one before. If the socket is closed
            // already, a read will report it.
            _ = stream.set_nodelay(true);
            let accepted = Accepted { stream, peer, id, refused, accepted_ms: self.turn.now_ms };
            if refused {
                self.turn.counters.refused += 1;
                self.adopt(accepted);
                continue;
            }
            self.turn.totals.connections.fetch_add(1, Ordering::Relaxed);
            let shard = (id % self.peers.outgoing.len() as u64) as usize;
            if shard == usize::from(self.turn.id.0) {
                self.adopt(accepted);
            } else {
                self.peers.outgoing[shard].push(Mail::Accepted(accepted));
            }
        }
    }

    /// Whether a connection over the limit is refused; a slot may have become free since it was accepted.
    pub(super) fn stays_refused(&mut self, key: ConnKey) -> bool {
        let Some(conn) = self.connections.table.get_mut(key).filter(|conn| conn.life.refused) else {
            return false;
        };
        if self.turn.totals.connections.load(Ordering::Relaxed) >= self.turn.config.max_connections {
            return true;
        }
        conn.life.refused = false;
        self.turn.totals.connections.fetch_add(1, Ordering::Relaxed);
        self.turn.counters.refused -= 1;
        if let Some(listener) = &mut self.acceptor.listener {
            listener.refused_closed();
        }
        false
    }

    fn accept_failed(&mut self, error: &std::io::Error) {
        self.turn.counters.accept_errors += 1;
        if self.turn.now_ms >= self.acceptor.next_log_ms {
            self.acceptor.next_log_ms = self.turn.now_ms + LOG_EVERY_MS;
            let connections = self.turn.totals.connections.load(Ordering::Relaxed);
            self.turn.log(Level::Warn, || {
                format!("cannot accept with {connections} connections open: {error}; see ulimit -n")
            });
        }
    }

    /// Removes a connection whose subscriptions are removed, and everything that belongs to it.
    pub(super) fn take_out(&mut self, key: ConnKey) {
        let Some(mut conn) = self.connections.take_out(&mut self.turn, key) else { return };
        if let Some(pending_writes) = &mut conn.pending_writes {
            self.delivery().give_back_unwritten(pending_writes, None);
        }
        conn.socket.deregister(self.poll.registry());
        let refused = conn.life.refused;
        self.command().discard_transactions(conn.transactions.take());
        drop(conn);
        if refused && !planted!("refused-not-counted-down") {
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

    /// Continues to remove subscriptions; after the last one, ends the connection.
    pub(super) fn proceed_with_leaving(&mut self, key: ConnKey) {
        let leaving = self.connections.table.get(key).and_then(|conn| conn.life.leaving.as_ref());
        let is_lost = leaving.is_some_and(|leaving| leaving.is_lost);
        if !self.command().leave_some(key) {
            return;
        }
        self.delivery().forget_temporary(key);
        if is_lost {
            self.take_out(key);
        } else if self.connections.table.get(key).is_some_and(|conn| conn.life.phase == Phase::Leaving) {
            self.connections.write_last(&mut self.turn, key);
        }
    }
}
