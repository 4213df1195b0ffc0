//! The ways a connection ends.
//!
//! ```text
//! open ──ERROR, DISCONNECT, EOF──► leaving ──no subscription left──► closing ──outbox empty──► lingering ──EOF or 2 s──► gone
//!   └──────────────────────── reset, write error, second deadline: no subscription left ─────────────────────────────┘
//! ```
//! A connection with many subscriptions leaves over several turns (`shard/leaving.rs`); nothing is delivered to it meanwhile.
//! Closing a socket with unread input resets the connection and can lose the last frame on its way; hence the linger
//! (STOMP 1.2, "Connection Lingering").

use std::sync::atomic::Ordering;

use stompica_proto::decode::masked_head;
use stompica_proto::encode::Offender;
use stompica_proto::{Command, Frame, ProtocolError, ws};

use super::Shard;
use crate::connection::conn::{Phase, Transport};
use crate::connection::outbox::Kind;
use crate::ids::ConnKey;
use crate::log::Level;
use crate::mail::mailbox::Mail;
use crate::timer::Due;

/// WebSocket close codes (RFC 6455, 7.4.1).
pub(super) const NORMAL: u16 = 1000;
/// The server goes away.
pub(super) const GOING_AWAY: u16 = 1001;

impl Shard {
    /// Answers a peer's mistake with ERROR and closes (STOMP 1.2, "ERROR").
    pub(crate) fn fail(&mut self, key: ConnKey, error: ProtocolError, frame: Option<&Frame<'_>>) {
        let offender = frame.map(describe).unwrap_or_default();
        self.fail_with(key, error, &offender);
    }

    /// Writes what is due and closes; `close_code` is for WebSocket.
    pub(super) fn begin_close(&mut self, key: ConnKey, close_code: u16, reason: &str) {
        let Some(conn) = self.connections.table.get_mut(key) else { return };
        if conn.phase != Phase::Open {
            return;
        }
        self.abandon_commit(key);
        self.end_wait(key);
        let has_left = self.forget_subscriptions(key);
        self.forget_temporary(key);
        self.close_websocket(key, close_code, reason);
        let Some(conn) = self.connections.table.get_mut(key) else { return };
        conn.phase = Phase::Leaving;
        conn.input.discard();
        if let Some(state) = conn.websocket() {
            state.raw = Vec::new();
        }
        let transactions = conn.transactions.take();
        conn.answers.clear();
        conn.sent_to = 0;
        self.count_input(key);
        self.discard_transactions(transactions);
        self.queue_for_reading(key);
        if has_left {
            self.write_last(key);
        }
    }

    /// The subscriptions of a connection have gone: what is due is written.
    pub(super) fn write_last(&mut self, key: ConnKey) {
        let now_ms = self.turn.now_ms;
        let Some(conn) = self.connections.table.get_mut(key) else { return };
        conn.phase = Phase::Closing;
        conn.full_since_ms = None;
        conn.since_ms = now_ms;
        conn.written_ms = now_ms;
        conn.look_at_socket(now_ms);
        self.queue_for_flushing(key);
        self.rearm(key);
    }

    /// Sends the Close frame, once.
    pub(super) fn close_websocket(&mut self, key: ConnKey, code: u16, reason: &str) {
        let Some(conn) = self.connections.table.get_mut(key) else { return };
        if let Transport::WebSocket(state) = &mut conn.transport
            && !state.close_sent
        {
            state.close_sent = true;
            conn.outbox.append(&mut self.connections.chunks, Kind::Answer, |out| {
                ws::encode::close(out, code, reason)
            });
        }
    }

    /// The outbox of a closing connection is empty: shut the write side and wait for the peer.
    pub(super) fn begin_linger(&mut self, key: ConnKey) {
        let Some(conn) = self.connections.table.get_mut(key) else { return };
        if conn.input.eof || conn.socket.shut_write().is_err() {
            self.remove(key);
            return;
        }
        conn.phase = Phase::Lingering;
        conn.since_ms = self.turn.now_ms;
        self.queue_for_reading(key);
        self.rearm(key);
    }

    /// Ends a connection at once; nothing more can be said to the peer.
    pub(super) fn drop_connection(&mut self, key: ConnKey, why: &str) {
        self.log_conn(Level::Debug, key, || format!("closed: {why}"));
        self.remove(key);
    }

    /// Takes a connection out, with all that belongs to it, once its subscriptions have gone.
    pub(super) fn remove(&mut self, key: ConnKey) {
        self.abandon_commit(key);
        let has_left = self.forget_subscriptions(key);
        self.forget_temporary(key);
        self.end_wait(key);
        if let Some(conn) = self.connections.table.get_mut(key).filter(|_| !has_left) {
            conn.phase = Phase::Leaving;
            if let Some(leaving) = &mut conn.leaving {
                leaving.is_lost = true;
            }
            return;
        }
        let Some(mut conn) = self.connections.table.remove(key) else { return };
        self.turn.budget.end_connection();
        self.turn.timers.cancel(Due::Conn(key));
        conn.outbox.clear(&mut self.connections.chunks);
        if let Some(pending_writes) = &mut conn.pending_writes {
            self.give_back_unwritten(pending_writes, None);
        }
        self.connections.discount_input(&self.turn, &conn);
        conn.socket.deregister(self.poll.registry());
        let refused = conn.refused;
        self.discard_transactions(conn.transactions.take());
        drop(conn);
        if refused {
            if let Some(listener) = &mut self.acceptor.listener {
                listener.refused_closed();
            }
        } else {
            self.turn.totals.connections.fetch_sub(1, Ordering::Relaxed);
        }
        self.turn.counters.closed += 1;
        match &mut self.acceptor.listener {
            Some(listener) => listener.descriptor_freed(),
            None => self.peers.outgoing[0].push(Mail::Closed),
        }
    }
}

/// What an ERROR tells about the frame that caused it.
pub(crate) fn describe(frame: &Frame<'_>) -> Offender {
    let receipt = frame.header(stompica_proto::header::RECEIPT).map(|value| value.into_owned());
    let name = match frame.command {
        Command::Subscribe | Command::Unsubscribe => stompica_proto::header::ID,
        _ => stompica_proto::header::SUBSCRIPTION,
    };
    let subscription = match frame.command {
        Command::Send => None,
        _ => frame.header(name).map(|value| value.into_owned()),
    };
    let start = frame.spans.first().map_or(0, |span| span.start as usize);
    let end = frame.spans.last().map_or(start, |span| span.end as usize);
    let mut head = frame.command.as_str().as_bytes().to_vec();
    head.push(b'\n');
    head.extend_from_slice(frame.input.get(start..end).unwrap_or_default());
    head.push(b'\n');
    Offender { receipt, subscription, head: masked_head(&head) }
}
