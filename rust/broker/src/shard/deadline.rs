//! What is due when: heart-beats, log-in, slow consumers, parked SENDs, the end of a linger, late acknowledgements.

use stompica_proto::error::Code;
use stompica_proto::{ProtocolError, ws};

use super::Shard;
use super::close::{CLOSING_STALL_MS, LINGER_MS};
use super::queues::{describe, head_of_send};
use crate::connection::conn::{Conn, Phase, Transport};
use crate::connection::input::offender_in;
use crate::connection::pausing::Question;
use crate::ids::SubscriptionKey;
use crate::ids::{ConnKey, NOBODY};
use crate::queue::consumer_state::Retries;
use crate::queue::unacked::TakenOnes;
use crate::router::fan_out::FanOutKey;
use crate::timer::{Due, NEVER};

/// A refused connection has this long to show whether it speaks HTTP.
const REFUSAL_MS: u64 = 1000;
/// Deadlines met in one turn, and messages that expire by them, whatever else it did: they must not wait for a budget
/// that others use up.
const TURN_DEADLINES_MAX: usize = 2000;

/// Late deliveries of one subscription that are taken back at a time.
const LATE_MAX: usize = 1000;

/// Deliveries of a connection whose ACK or COMMIT is under way are looked at again after this time.
const GRACE_MS: u64 = 10;

/// A time of the configuration.
pub(super) fn millis(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(NEVER)
}

impl Shard {
    /// Acts on the deadlines that have passed, as many as one turn allows; those that are left come first in the next.
    pub(super) fn meet_deadlines(&mut self) {
        let before = self.turn.budget.visited();
        let mut is_first = true;
        while is_first || self.turn.budget.visited() - before < TURN_DEADLINES_MAX {
            is_first = false;
            let Some((at_ms, due)) = self.turn.timers.pop_due(self.turn.now_ms) else { break };
            self.turn.budget.visit(1);
            match due {
                Due::Conn(key) => self.meet_conn(at_ms, key),
                Due::Queue(key) => self.queues.home.meet(key),
                Due::Subscription(key) => self.meet_ack_timeout(key),
                Due::Waiting => self.expire_waiting(),
                Due::Monitor => self.begin_monitor(),
                Due::Diagnostics(key) => self.watch_due(at_ms, key),
            }
            self.count_visits();
            self.settle();
        }
    }

    fn meet_conn(&mut self, at_ms: u64, key: ConnKey) {
        let Some(conn) = self.connections.table.get_mut(key) else { return };
        if conn.deadline_ms != at_ms {
            return; // an earlier one was set since
        }
        conn.deadline_ms = NEVER;
        self.meet(key);
        self.rearm(key);
    }

    /// Takes deliveries back that were not acknowledged within `ack_timeout`.
    fn meet_ack_timeout(&mut self, key: SubscriptionKey) {
        let (now_ms, timeout_ms) = (self.turn.now_ms, self.turn.config.ack_timeout_ms);
        let Some(consumer) = self.queues.consumers.get_mut(key) else { return };
        let conn = consumer.conn;
        consumer.armed = false;
        if timeout_ms == 0 {
            return; // a reload has ended it
        }
        if self.connections.table.get(conn).is_some_and(Conn::is_acknowledging) {
            // What an ACK or a COMMIT is about to acknowledge stays held until it has taken effect.
            consumer.armed = true;
            return self.turn.timers.set(now_ms + GRACE_MS, Due::Subscription(key));
        }
        let retries = Retries::of(consumer);
        let mut late = TakenOnes::new();
        while let Some((number, delivered_ms)) = consumer.unacked.oldest() {
            let at_ms = delivered_ms.saturating_add(timeout_ms);
            if at_ms > now_ms || late.len() == LATE_MAX {
                consumer.armed = true;
                self.turn.timers.set(at_ms.max(now_ms + 1), Due::Subscription(key));
                break;
            }
            late.extend(consumer.unacked.take(number));
        }
        self.queues.home.visited += late.len(); // counted by the caller
        self.turn.counters.timed_out += late.len() as u64;
        self.remember_requeued(conn, key.index, late.iter().map(|taken| (taken.number, taken.id_hash)));
        if let Some(pending_writes) =
            self.connections.table.get_mut(conn).and_then(|conn| conn.pending_writes.as_mut())
        {
            pending_writes.unacked -= late.len();
        }
        self.give_back_failed(key, retries, late);
    }

    /// `ack_timeout` has changed: looks at whoever has deliveries in flight, with the other deadlines.
    pub(super) fn rearm_deliveries(&mut self) {
        for consumer in self.queues.consumers.iter_mut() {
            if consumer.unacked.oldest().is_some() {
                consumer.armed = true;
                self.turn.timers.set(self.turn.now_ms, Due::Subscription(consumer.key));
            }
        }
    }

    /// Puts a connection's next deadline into the timers, unless an earlier one is there.
    pub(crate) fn rearm(&mut self, key: ConnKey) {
        let Some(conn) = self.connections.table.get(key) else { return };
        let next_ms = self.next_deadline(conn);
        if next_ms < conn.deadline_ms {
            self.turn.timers.set(next_ms, Due::Conn(key));
            if let Some(conn) = self.connections.table.get_mut(key) {
                conn.deadline_ms = next_ms;
            }
        }
    }

    fn next_deadline(&self, conn: &Conn) -> u64 {
        match conn.phase {
            Phase::Leaving => return NEVER,
            Phase::Closing => return conn.moved_ms() + CLOSING_STALL_MS,
            Phase::Lingering => return conn.since_ms + LINGER_MS,
            Phase::Open => {}
        }
        if conn.refused {
            return conn.since_ms + REFUSAL_MS;
        }
        if !conn.session.was_connected() {
            return conn.since_ms.saturating_add(millis(self.turn.config.login_timeout));
        }
        let heartbeat = conn.session.heartbeat();
        let mut next_ms = self.slow_deadline(conn).unwrap_or(NEVER);
        next_ms = next_ms.min(self.answers_deadline(conn).unwrap_or(NEVER));
        if let Some(due_ms) = heartbeat.next_send_due(conn.written_ms) {
            // A beat that cannot be written now is looked at again a while later.
            let again_ms = self.turn.now_ms + u64::from(heartbeat.send_ms / 4).max(1);
            next_ms = next_ms.min(if conn.outbox.is_empty() { due_ms } else { due_ms.max(again_ms) });
        }
        next_ms = next_ms.min(self.untaken_deadline(conn).unwrap_or(NEVER));
        match self.held_since(conn) {
            Some(since_ms) => next_ms.min(since_ms.saturating_add(millis(self.turn.config.publish_timeout))),
            None if conn.wait.is_on() => next_ms,
            None => {
                let frame_ms = self.frame_deadline(conn).map_or(NEVER, |(at_ms, _)| at_ms);
                next_ms.min(self.silence_deadline(conn)).min(frame_ms)
            }
        }
    }

    /// Since when a connection waits for what `publish_timeout` bounds, as far as is known now. What becomes known later
    /// counts from then on, so it is enough to look again after that time.
    fn held_since(&self, conn: &Conn) -> Option<u64> {
        match conn.wait.question() {
            Some(Question::FanOut(fan_out)) => {
                let stopped_ms = self.deliveries.fan_outs.stopped_since_ms(fan_out, self.turn.now_ms)?;
                conn.wait.since_ms().map(|since_ms| since_ms.max(stopped_ms))
            }
            _ => conn.wait.bounded_since_ms(),
        }
    }

    /// When a silent client is pinged or given up.
    fn silence_deadline(&self, conn: &Conn) -> u64 {
        let beats = conn.session.heartbeat();
        match &conn.transport {
            Transport::WebSocket(state) => state.pulse.deadline(beats, conn.input.read_ms),
            _ => beats.receive_deadline(conn.input.read_ms).unwrap_or(NEVER),
        }
    }

    fn meet(&mut self, key: ConnKey) {
        let now_ms = self.turn.now_ms;
        let Some(conn) = self.connections.table.get(key) else { return };
        if now_ms < self.next_deadline(conn) || self.has_taken_some(key) {
            return;
        }
        let Some(conn) = self.connections.table.get(key) else { return };
        match conn.phase {
            Phase::Closing | Phase::Lingering => {
                return self.drop_connection(key, "the peer did not close in time");
            }
            Phase::Open | Phase::Leaving => {}
        }
        if conn.refused {
            return self.refuse(key);
        }
        if !conn.session.was_connected() {
            return self.time_out_login(key);
        }
        if self.slow_deadline(conn).is_some_and(|at_ms| now_ms >= at_ms) {
            return self.cut_off(key);
        }
        if self.answers_deadline(conn).is_some_and(|at_ms| now_ms >= at_ms) {
            return self.give_up_answers(key);
        }
        if conn.session.heartbeat().send_due(now_ms, conn.written_ms) && conn.outbox.is_empty() {
            self.control(key, |out| out.push(b'\n'));
        }
        let Some(conn) = self.connections.table.get(key) else { return };
        if self.untaken_deadline(conn).is_some_and(|at_ms| now_ms >= at_ms) {
            self.cut_off(key);
        } else if conn.wait.is_on() {
            let timeout_ms = millis(self.turn.config.publish_timeout);
            let since_ms = self.held_since(conn);
            if since_ms.is_some_and(|since_ms| now_ms >= since_ms.saturating_add(timeout_ms)) {
                self.refuse_waiting(key);
            }
        } else if let Some((_, allowed_ms)) = self.frame_deadline(conn).filter(|(at_ms, _)| now_ms >= *at_ms)
        {
            self.time_out_frame(key, allowed_ms);
        } else if now_ms >= self.silence_deadline(conn) {
            self.break_silence(key);
        }
    }

    /// Whether the peer of a connection that would be late has taken something, and so is not.
    fn has_taken_some(&mut self, key: ConnKey) -> bool {
        let now_ms = self.turn.now_ms;
        let Some(conn) = self.connections.table.get_mut(key).filter(|conn| !conn.outbox.is_empty()) else {
            return false;
        };
        conn.look_at_socket(now_ms);
        self.connections.table.get(key).is_some_and(|conn| now_ms < self.next_deadline(conn))
    }

    fn time_out_login(&mut self, key: ConnKey) {
        if self.connections.table.get(key).is_some_and(|conn| matches!(conn.transport, Transport::Http)) {
            return self.time_out_http(key);
        }
        let text = format!("no CONNECT within login_timeout={} ms", millis(self.turn.config.login_timeout));
        self.fail(key, ProtocolError::new(Code::LoginTimeout, text), None);
    }

    /// What a connection waits for did not come in time. A COMMIT that waits for its homes takes no effect any more.
    fn refuse_waiting(&mut self, key: ConnKey) {
        let Some(conn) = self.connections.table.get(key) else { return };
        let what = match conn.wait.question() {
            Some(Question::Commit(_)) => "COMMIT",
            _ => "SEND",
        };
        let held_ms = millis(self.turn.config.publish_timeout);
        let text = format!("a {what} was held for publish_timeout={held_ms} ms: {}", conn.wait.describe());
        let error = ProtocolError::new(Code::Memory, text);
        if let Some(Question::FanOut(fan_out)) = conn.wait.question() {
            return self.refuse_publisher(fan_out, error);
        }
        let offender = offender_in(&conn.input.bytes);
        let offender = self.abandon_commit(key).unwrap_or(offender);
        self.end_wait(key);
        self.fail_with(key, error, &offender);
    }

    /// The publisher of a message that memory stops on its way has waited long enough. The message goes on without it:
    /// those it has not reached are to get what the others have.
    fn refuse_publisher(&mut self, fan_out: FanOutKey, error: ProtocolError) {
        if let Some((requester, stored)) = self.deliveries.fan_outs.dismiss(fan_out) {
            let mut offender = describe(stored);
            let message = stored.message();
            if message.sender == NOBODY {
                // The answer to a query: its headers are not those of the SEND that asked.
                offender.head = head_of_send(message.destination, b"");
            }
            self.answer(requester, Err((error, offender)));
        }
    }

    /// A silent client: a WebSocket one is pinged first (a browser may have put its timers to sleep).
    fn break_silence(&mut self, key: ConnKey) {
        let now_ms = self.turn.now_ms;
        let Some(conn) = self.connections.table.get_mut(key) else { return };
        let beats = *conn.session.heartbeat();
        let mut text = format!("not a byte in {} ms", now_ms - conn.input.read_ms);
        if let Some(state) = conn.websocket() {
            match state.pulse.is_without_stomp(&beats, now_ms) {
                Some(silent_ms) => text = format!("nothing of STOMP in {silent_ms} ms, only pings or pongs"),
                None if state.pulse.ping(now_ms) => {
                    return self.websocket_control(key, |out| ws::encode::ping(out, b""));
                }
                None => {}
            }
        }
        self.fail(key, ProtocolError::new(Code::HeartBeatTimeout, text), None);
    }
}
