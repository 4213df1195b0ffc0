//! Acts on deadlines: heart-beats, log-in, slow consumers, parked SENDs, the end of a linger, late acknowledgements.

use super::Shard;
use crate::connection::conn::Conn;
use crate::connection::deadline::Overdue;
use crate::connection::pausing::{Pause, Question};
use crate::door::planted;
use crate::ids::{ConnKey, NOBODY, QueueKey, SubscriptionKey};
use crate::queue::QueueKind;
use crate::queue::enqueue::{describe, head_of_send};
use crate::queue::unacked::TakenOnes;
use crate::timer::Due;

/// Visits granted to deadlines in one turn, expiring messages included, whatever else it did: deadlines must not wait
/// for a budget that other work uses up.
const TURN_DEADLINES_MAX: usize = 2000;

/// The maximum number of late deliveries of one subscription that are requeued at a time.
const LATE_MAX: usize = 1000;

/// The delay of `ack_timeout` for a connection whose ACK or COMMIT is being processed.
const GRACE_MS: u64 = 10;

impl Shard {
    /// Acts on the deadlines that have passed, as many as one turn allows; the others come first in the next turn.
    pub(super) fn handle_deadlines(&mut self) {
        let before = self.turn.budget.visited();
        let mut is_first = true;
        while is_first || self.turn.budget.visited() - before < TURN_DEADLINES_MAX {
            is_first = false;
            let Some((at_ms, due)) = self.turn.timers.pop_due(self.turn.now_ms) else { break };
            self.turn.budget.visit(1);
            match due {
                Due::Conn(key) => self.handle_conn_deadline(at_ms, key),
                Due::Queue(key) => self.handle_queue_deadline(key),
                Due::Subscription(key) => self.handle_ack_timeout(key),
                Due::Waiting => self.queue().expire_waiting(),
                Due::Monitor => self.diag().begin_monitor(),
                Due::Diagnostics(key) => self.diag().watch_due(at_ms, key),
                Due::Replay(key) => self.queues.recorded.replays.list(key),
            }
            self.queue().count_visits();
            self.settle();
        }
    }

    fn handle_queue_deadline(&mut self, key: QueueKey) {
        self.queues.home.handle_due(key);
        if self.queues.home.queue(key).is_some_and(|queue| queue.kind == QueueKind::Private) {
            // Messages that a frame waited for may have expired.
            self.connections.retry_parked(&[Pause::Deferred]);
        }
    }

    fn handle_conn_deadline(&mut self, at_ms: u64, key: ConnKey) {
        if !self.connections.take_deadline(key, at_ms) {
            return; // it was replaced by an earlier deadline
        }
        if self.connections.has_to_be_read_first(&self.turn, key) {
            self.read_first(key);
        }
        let mut overdue = self.connections.handle_deadline(&mut self.turn, key);
        if matches!(overdue, Some(Overdue::SlowConsumer | Overdue::Untaken)) {
            // The client may have made room since the last turn. It gets what it has room for before it is cut off.
            self.post();
            self.flush_one(key);
            overdue = self.connections.handle_deadline(&mut self.turn, key);
        }
        match overdue {
            Some(Overdue::SlowConsumer) if self.delivery().is_relieved(key) => {
                self.delivery().note_progress(key)
            }
            Some(Overdue::SlowConsumer | Overdue::Untaken) if self.is_open(key) => self.cut_off(key),
            Some(Overdue::SlowConsumer | Overdue::Untaken) => {
                self.turn.counters.slow_consumers += 1;
                let why = "memory is short, and it takes its last frames too slowly";
                self.connections.drop_connection(&mut self.turn, key, why);
            }
            Some(_) => self.refuse_publisher(key),
            None => {}
        }
        if !planted!("deadline-not-renewed") {
            self.connections.rearm(&mut self.turn, key);
        }
    }

    fn is_open(&self, key: ConnKey) -> bool {
        self.connections.table.get(key).is_some_and(|conn| conn.life.is_open())
    }

    /// Reads a connection whose deadline has passed: what it is to send may have come before, while this shard had no
    /// turn, or in a turn in which the poll had too many other sockets to report.
    fn read_first(&mut self, key: ConnKey) {
        let is_listed = self.connections.table.get(key).is_some_and(|conn| conn.input.is_listed);
        if is_listed || self.turn.budget.is_exhausted() {
            return self.connections.queue_for_reading(key);
        }
        self.serve(key);
        self.settle();
    }

    /// Takes back deliveries that were not acknowledged within `ack_timeout`.
    fn handle_ack_timeout(&mut self, key: SubscriptionKey) {
        let (now_ms, timeout_ms) = (self.turn.now_ms, self.turn.config.ack_timeout_ms);
        let Some(consumer) = self.queues.consumers.get_mut(key) else { return };
        let conn = consumer.conn;
        consumer.armed = false;
        if timeout_ms == 0 {
            return; // a reload has disabled `ack_timeout`
        }
        if self.connections.table.get(conn).is_some_and(Conn::is_acknowledging) {
            // Deliveries that an ACK or a COMMIT is about to acknowledge stay in flight until it has taken effect.
            consumer.armed = true;
            return self.turn.timers.set(now_ms + GRACE_MS, Due::Subscription(key));
        }
        let mut late = TakenOnes::new();
        while let Some((number, delivered_ms)) = consumer.unacked.oldest() {
            let at_ms = delivered_ms.saturating_add(timeout_ms);
            if at_ms > now_ms || late.len() == LATE_MAX {
                consumer.armed = true;
                self.turn.timers.set(at_ms.max(now_ms + 1), Due::Subscription(key));
                break;
            }
            late.extend(consumer.unacked.take(number));
            if planted!("timeout-not-counted") {
                late.last_mut().into_iter().for_each(|taken| taken.message.deliveries -= 1);
            }
        }
        self.queues.home.visited += late.len(); // counted by the caller
        self.delivery().time_out(key, late);
    }

    /// Applies a changed `ack_timeout`: checks all consumers with deliveries in flight, together with the other
    /// deadlines.
    pub(super) fn rearm_deliveries(&mut self) {
        for consumer in self.queues.consumers.iter_mut() {
            if consumer.unacked.oldest().is_some() {
                consumer.armed = true;
                self.turn.timers.set(self.turn.now_ms, Due::Subscription(consumer.key));
            }
        }
    }

    /// Refuses a SEND whose message waited too long for memory during its fan-out. The message itself continues
    /// without its publisher, since all recipients are to get the same messages.
    fn refuse_publisher(&mut self, key: ConnKey) {
        let question = self.connections.table.get(key).and_then(|conn| conn.wait.question());
        let Some(Question::FanOut(fan_out)) = question else { return };
        // The fan-out may have continued, or may wait for outboxes.
        let stopped_ms = self.deliveries.fan_outs.stopped_since_ms(fan_out, self.turn.now_ms);
        if !self.connections.note_stopped(&self.turn, key, stopped_ms) {
            return;
        }
        let error = self.connections.held_too_long(&self.turn, key);
        if let Some((requester, owned)) = self.deliveries.fan_outs.dismiss(fan_out) {
            let mut offender = describe(owned);
            let message = owned.message();
            if message.sender == NOBODY {
                // For the answer to a query, its headers are not those of the SEND that asked.
                offender.head = head_of_send(message.destination, b"");
            }
            self.notes.answer(requester, Err((error, offender)));
        }
    }
}
