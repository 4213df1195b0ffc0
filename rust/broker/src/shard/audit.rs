//! Counts anew everything that a shard holds, between two turns.

use stompica_proto::decode::head_value;
use stompica_proto::header;
use stompica_proto::session::AckMode;

use super::Shard;
use crate::audit::Audit;
use crate::connection::audit::References;
use crate::connection::conn::Conn;
use crate::connection::deadline::ANSWERS_MS;
use crate::connection::pausing::Pause;
use crate::connection::unfinished::send_head;
use crate::held::Sums;
use crate::ids::{ConnKey, Subscriber};
use crate::timer::{Due, NEVER};

impl Shard {
    /// Visits all owners. `sums` are those of its thread.
    pub(crate) fn audit(&self, audit: &mut Audit, sums: Sums) {
        audit.shard = self.turn.id;
        let mut references = References::default();
        self.router.audit(audit);
        self.queues.audit(audit);
        self.notes.audit(audit);
        self.connections.audit(audit, &mut references);
        self.deliveries.audit(audit, &self.router, &mut references);
        self.connections.chunks.audit(audit, &references.chunks);
        self.peers.audit(audit, &self.router, &self.turn, self.queues.home.closed_shards());
        self.diagnostics.audit(audit, &self.router);
        self.diagnostics.audit_questions(audit, &self.connections);
        self.commits.audit(audit);
        self.commits.audit_questions(audit, &self.connections, &self.deliveries);
        self.audit_timers(audit);
        self.audit_deadlines(audit);
        self.audit_waits(audit);
        for consumer in self.queues.consumers.iter() {
            let conn = self.connections.table.get(consumer.conn);
            audit.require(conn.is_some(), || format!("{:?} has no connection", consumer.key));
            if conn.is_some_and(|conn| conn.is_served()) {
                audit.open_subscription(Subscriber { shard: self.turn.id, key: consumer.key });
            }
        }
        let refused = self.connections.table.iter().filter(|(_, conn)| conn.life.refused).count();
        audit.connections += self.connections.table.len() - refused;
        let counted = self.turn.memory.counted_bytes();
        let held = self.deliveries.held_bytes(&self.connections, &self.router, &self.queues)
            + self.turn.timers.held_bytes();
        if self.turn.number > 0 {
            audit.equal("held bytes", counted, held as i64 + sums.held);
        }
        audit.memory += counted;
    }

    /// Somebody will let each connection go on that waits for room.
    fn audit_waits(&self, audit: &mut Audit) {
        for (key, conn) in self.connections.table.iter() {
            let Some(pause) =
                conn.wait.pause().filter(|_| !self.connections.parking.retries_soon(&conn.wait))
            else {
                continue;
            };
            let busy = &self.peers.busy;
            let has_reason = match pause {
                Pause::SlowConsumer => self.router.is_any_full(),
                Pause::Memory => self.turn.memory.is_awaited(),
                Pause::Kept => self.turn.memory.is_awaited() && self.may_be_kept(key, conn),
                Pause::Mailbox => busy.congested != 0,
                Pause::LargeFanOut => busy.saturated != 0,
                Pause::Arriving => true, // it is polled
                Pause::Answers => !conn.output.outbox.is_empty() || !conn.answers.is_empty(),
                Pause::Mail => !self.peers.inbound.is_empty(),
                // The store wakes the shard when it has caught up, and so does the recording.
                Pause::Store => {
                    self.queues.home.store.is_far_behind()
                        || self.queues.recorded.is_far_behind()
                        || self.was_woken()
                }
                Pause::Deferred => conn.has_deferred() || self.is_fed_soon(conn),
            };
            audit.require(has_reason, || format!("{key:?} waits for {pause:?}, and nothing ends that wait"));
        }
    }

    /// Whether the private queue of one of a connection's subscriptions has messages that it will deliver, after its
    /// initial replay or when there is room. What is in the outbox already ends the wait when it is written.
    fn is_fed_soon(&self, conn: &Conn) -> bool {
        let consumers = conn.subscriptions.iter().filter_map(|at| self.queues.consumers.at(*at));
        consumers.filter(|consumer| consumer.ack == AckMode::Auto).any(|consumer| {
            let queue = consumer.own_queue.and_then(|queue| self.queues.home.queue(queue));
            let is_written =
                queue.is_some_and(|queue| queue.in_flight().0 > 0) && conn.output.outbox.bytes() > 0;
            is_written || conn.owes(&self.queues, consumer.key.index)
        })
    }

    /// Whether somebody may keep the message of a connection's next SEND: it waits for a queue, the private queue of a
    /// subscription to a topic grows, or it is kept in any case.
    fn may_be_kept(&self, key: ConnKey, conn: &Conn) -> bool {
        let is_kept = send_head(&conn.input.bytes).is_none_or(|head| {
            [header::TRANSACTION, header::RETAIN].iter().any(|name| head_value(head, name).is_some())
        });
        is_kept
            || conn.committing.is_some()
            || self.turn.config.ttl_ms > 0
            || self.deliveries.admission.wanted.contains_key(&key)
            || self.router.has_any_growing_queue()
    }

    /// Every deadline belongs to somebody, and nobody's deadline is missing.
    fn audit_timers(&self, audit: &mut Audit) {
        for (at_ms, due) in self.turn.timers.iter() {
            let expected = match due {
                Due::Conn(key) => self.connections.table.get(key).map(|conn| conn.life.deadline_ms),
                Due::Queue(key) => self.queues.home.queue(key).map(|queue| queue.deadline_ms()),
                Due::Subscription(key) => {
                    self.queues.consumers.get(key).filter(|consumer| consumer.armed).map(|_| at_ms)
                }
                Due::Waiting => Some(self.queues.next_expiry_ms),
                Due::Monitor => Some(at_ms),
                Due::Diagnostics(key) => self.diagnostics.watches.contains_key(&key).then_some(at_ms),
                Due::Replay(key) => self.queues.recorded.replays.has(key).then_some(at_ms),
            };
            audit.require(expected == Some(at_ms), || {
                format!("{due:?} is due at {at_ms}, expected {expected:?}")
            });
        }
        let mut require = |at_ms: u64, due: Due| {
            let is_set = at_ms == NEVER || self.turn.timers.has(due);
            audit.require(is_set, || format!("{due:?} has no deadline in the timers"));
        };
        for (key, conn) in self.connections.table.iter() {
            require(conn.life.deadline_ms, Due::Conn(key));
        }

        for (key, queue) in self.queues.home.table().iter() {
            require(queue.deadline_ms(), Due::Queue(key));
        }
        for consumer in self.queues.consumers.iter().filter(|consumer| consumer.armed) {
            require(0, Due::Subscription(consumer.key));
        }
        for key in self.diagnostics.watches.keys() {
            require(0, Due::Diagnostics(*key));
        }
        require(self.queues.next_expiry_ms, Due::Waiting);
        self.turn.timers.audit(audit);
    }

    /// Each connection's timer is set for its next deadline or earlier.
    fn audit_deadlines(&self, audit: &mut Audit) {
        // The deadline of a connection that is read in the next turn is set then.
        let idle = self.connections.table.iter().filter(|(_, conn)| !conn.input.is_listed);
        for (key, conn) in idle {
            let (set_ms, mut next_ms) = (conn.life.deadline_ms, conn.next_deadline(&self.turn));
            if (conn.input.eof || conn.life.ending) && !conn.answers.is_empty() {
                // This deadline was later while other output preceded the last answers; so the timer may be late.
                next_ms = next_ms.max(self.turn.now_ms + ANSWERS_MS);
            }
            audit.require(set_ms <= next_ms, || {
                format!("the timer of {key:?} is set for {set_ms}, its deadline is {next_ms}")
            });
        }
    }
}
