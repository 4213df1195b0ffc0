//! The ways a connection ends.
//!
//! ```text
//! open ──ERROR, DISCONNECT, EOF──► closing ──outbox empty──► lingering ──EOF or 2 s──► gone
//!   └──────────────── reset, write error, second deadline ──────────────────────────────┘
//! ```
//! Closing a socket with unread input resets the connection and can lose the last frame on its way; hence the linger
//! (STOMP 1.2, "Connection Lingering").

use std::mem::take;
use std::net::Shutdown;
use std::sync::atomic::Ordering;

use stompica_proto::decode::masked_head;
use stompica_proto::encode::Offender;
use stompica_proto::session::AckMode;
use stompica_proto::{Command, Frame, ProtocolError, ws};

use super::Shard;
use super::mailbox::Mail;
use super::returning::Fate;
use super::timer::Due;
use crate::ids::ConnKey;
use crate::io::conn::{Phase, Transport};
use crate::io::flight::TAKEN_BACK_MAX;
use crate::log::Level;
use crate::outbox::Kind;
use crate::queue::mail::QueueMail;
use crate::queue::unacked::Unacked;
use crate::queue::{QueueKey, Subscriber, SubscriptionKey};
use crate::router::Holdup;
use crate::router::group::Place;
use crate::router::receiver::{Feed, Receiver};
use crate::tx::Committing;

/// Longest wait for the peer to close after the write side was shut.
pub(super) const LINGER_MS: u64 = 2000;
/// Longest wait for a closing connection to take another byte.
pub(super) const CLOSING_STALL_MS: u64 = 5000;
/// What the end of a consumer of a queue costs, where that of a subscription to a topic costs 1.
const CONSUMER_CHANGES: usize = 3;
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
        let Some(conn) = self.conns.get_mut(key) else { return };
        if conn.phase != Phase::Open {
            return;
        }
        self.abandon_commit(key);
        self.end_wait(key);
        self.forget_subscriptions(key);
        self.forget_temporary(key);
        self.close_websocket(key, close_code, reason);
        let now_ms = self.now_ms;
        let Some(conn) = self.conns.get_mut(key) else { return };
        conn.phase = Phase::Closing;
        conn.input = Vec::new();
        conn.arrival.is_over();
        if let Some(state) = conn.websocket() {
            state.raw = Vec::new();
        }
        conn.backlog = false;
        let transactions = conn.transactions.take();
        conn.answers.clear();
        conn.sent_to = 0;
        conn.full_since_ms = None;
        conn.since_ms = now_ms;
        conn.written_ms = now_ms;
        conn.look_at_socket(now_ms);
        self.count_input(key);
        self.queue_for_flushing(key);
        self.queue_for_reading(key);
        self.rearm(key);
        self.discard_transactions(transactions);
    }

    /// Sends the Close frame, once.
    pub(super) fn close_websocket(&mut self, key: ConnKey, code: u16, reason: &str) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        if let Transport::WebSocket(state) = &mut conn.transport
            && !state.close_sent
        {
            state.close_sent = true;
            conn.outbox.append(&mut self.chunks, Kind::Answer, |out| ws::encode::close(out, code, reason));
        }
    }

    /// The outbox of a closing connection is empty: shut the write side and wait for the peer.
    pub(super) fn begin_linger(&mut self, key: ConnKey) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        if conn.eof || conn.stream.shutdown(Shutdown::Write).is_err() {
            self.remove(key);
            return;
        }
        conn.phase = Phase::Lingering;
        conn.since_ms = self.now_ms;
        self.queue_for_reading(key);
        self.rearm(key);
    }

    /// Ends a connection at once; nothing more can be said to the peer.
    pub(super) fn drop_connection(&mut self, key: ConnKey, why: &str) {
        self.log_conn(Level::Debug, key, || format!("closed: {why}"));
        self.remove(key);
    }

    /// Takes a connection out, with all that belongs to it.
    pub(super) fn remove(&mut self, key: ConnKey) {
        self.abandon_commit(key);
        self.forget_subscriptions(key);
        self.forget_temporary(key);
        self.end_wait(key);
        let Some(mut conn) = self.conns.remove(key) else { return };
        self.budget.end_connection();
        self.timers.cancel(Due::Conn(key));
        conn.outbox.clear(&mut self.chunks);
        if let Some(flight) = &mut conn.flight {
            self.give_back_unwritten(flight, None);
        }
        self.memory.input_bytes -= conn.counted_bytes;
        self.memory.unfinished.add(-(conn.counted_input as i64), &self.shared.unfinished);
        // The poll forgets the socket when it is closed; an error here means that it was never registered.
        _ = self.poll.registry().deregister(&mut conn.stream);
        let refused = conn.refused;
        self.discard_transactions(conn.transactions.take());
        drop(conn);
        if refused {
            if let Some(listener) = &mut self.listener {
                listener.refused_closed();
            }
        } else {
            self.shared.connections.fetch_sub(1, Ordering::Relaxed);
        }
        self.counters.closed += 1;
        match &mut self.listener {
            Some(listener) => listener.descriptor_freed(),
            None => self.outgoing[0].push(Mail::Closed),
        }
    }

    /// Removes all subscriptions of a connection.
    pub(super) fn forget_subscriptions(&mut self, key: ConnKey) {
        self.forget_deferred(key);
        self.forget_pulls(key);
        let Some(conn) = self.conns.get_mut(key) else { return };
        if conn.subscriptions.is_empty() {
            return;
        }
        let subscriptions: Vec<u32> = take(&mut conn.subscriptions).into_iter().collect();
        let full = conn.full_since_ms.take().is_some();
        for subscription in subscriptions {
            self.remove_subscription(subscription, full);
        }
    }

    /// Remembers the ids of what a subscription holds that is about to end; its connection stays.
    pub(crate) fn remember_held(&mut self, key: ConnKey, index: u32) {
        let receiver = self.router.subscriptions[index as usize].receiver.as_deref();
        let held = receiver.map(|receiver| receiver.unacked.newest(TAKEN_BACK_MAX)).unwrap_or_default();
        self.budget.visit(held.len() / 4); // a hash is cheap
        self.remember_taken_back(key, index, held.into_iter());
    }

    /// Removes one subscription from the router; the connection's own list is the caller's. What it has not acknowledged
    /// goes back to its queues.
    pub(crate) fn remove_subscription(&mut self, index: u32, full: bool) {
        let found = &mut self.router.subscriptions[index as usize];
        let (conn, generation, place) = (found.conn, found.generation, found.place);
        self.budget.change(if found.receiver.is_some() { CONSUMER_CHANGES } else { 1 });
        let held = found.receiver.as_mut().map(|receiver| take(&mut receiver.unacked)).unwrap_or_default();
        if let Place::Topic { group, .. } = place {
            self.close_group(group);
            if full {
                self.change_full_of(index, Holdup::Outbox, false);
            }
            self.forget_keeper(index);
        }
        self.forget_pulls_of(conn, SubscriptionKey { index, generation });
        self.forget_deferred_of(conn, SubscriptionKey { index, generation });
        if let Some(flight) = self.conns.get_mut(conn).and_then(|conn| conn.flight.as_mut()) {
            flight.unacked -= held.len();
        }
        let (subscription, last) = self.router.unsubscribe(index);
        let key = SubscriptionKey { index, generation };
        self.unwatch(key);
        if let Some(receiver) = subscription.receiver {
            if receiver.armed {
                self.timers.cancel(Due::Subscription(key));
            }
            self.detach(&receiver, Subscriber { shard: self.id, key });
            self.give_back_held(conn, (key, subscription.ack, receiver), held);
        }
        match (last, place) {
            (Some(name), _) => self.tell_disinterest(&name),
            (None, Place::Topic { entry, .. }) => self.note_width(entry),
            (None, Place::Queue) => {}
        }
    }

    fn detach(&mut self, receiver: &Receiver, subscriber: Subscriber) {
        match receiver.feed {
            _ if receiver.own_queue.is_some() => self.home.detach(subscriber),
            Feed::One(home) => self.tell(home, QueueMail::Detach(subscriber)),
            Feed::All => self.tell_everyone(|| QueueMail::Detach(subscriber)),
        }
    }

    /// What a subscription held that has ended goes back; what a COMMIT says that takes effect comes first.
    fn give_back_held(
        &mut self,
        conn: ConnKey,
        (key, ack, mut receiver): (SubscriptionKey, AckMode, Box<Receiver>),
        held: Unacked,
    ) {
        let committing = self.conns.get(conn).and_then(|conn| conn.committing.as_ref());
        if held.len() > 0 && matches!(committing, Some(Committing::Applying)) {
            receiver.unacked = held;
            self.jobs.late.entry(conn).or_default().insert(key, (ack, receiver));
        } else {
            self.give_back_rest(receiver.own_queue, held);
        }
    }

    /// Nobody acknowledges these deliveries any more.
    pub(super) fn give_back_rest(&mut self, own_queue: Option<QueueKey>, held: Unacked) {
        let fate = match own_queue {
            Some(queue) => {
                self.home.delete(queue);
                Fate::Drop
            }
            None => Fate::GiveBack,
        };
        self.return_deliveries(fate, held);
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
