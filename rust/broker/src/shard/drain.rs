//! The ordered shutdown: every received frame takes effect, every RECEIPT is sent, then the connections close.
//!
//! 1. Stop accepting and reading; bytes already in the broker are handled, bytes in the kernel are not.
//! 2. Once this shard has no work left and no RECEIPT waits for another shard, tell the others that no more messages
//!    follow.
//! 3. Once all others have said so and their batches are routed: flush, WebSocket close 1001, linger. A connection
//!    for which messages of topics wait closes after them.
//!
//! Mail keeps its order, so a shard that has read `Drained` has read every message before it.
//!
//! Connections that cannot continue are closed early: after half of `drain`, those with a frame that still waits for
//! room, which counts as not received; after three quarters, all others, even with undelivered messages. When `drain`
//! runs out, the remaining ones are cut off and counted in the log.

use super::Shard;
use crate::connection::closing::GOING_AWAY;
use crate::connection::conn::Conn;
use crate::connection::pausing::Pause;
use crate::door::sync::Ordering;
use crate::ids::ShardId;
use crate::log::Level;
use crate::mail::mailbox::Mail;

/// The progress of a shard's ordered shutdown.
#[derive(Debug, Default)]
pub struct Draining {
    /// Other shards that send no more messages.
    finished: u64,
    announced: bool,
    closing: bool,
    /// The time after which no frame may wait for room.
    impatient_ms: u64,
    /// The time after which all connections close.
    last_words_ms: u64,
    deadline_ms: u64,
}

impl Draining {
    /// The next time at which the state changes.
    fn next_ms(&self, now_ms: u64) -> u64 {
        let times = [self.impatient_ms, self.last_words_ms];
        times.into_iter().find(|at_ms| *at_ms > now_ms).unwrap_or(self.deadline_ms)
    }
}

impl Shard {
    /// Closes all remaining connections.
    pub(crate) fn end(&mut self) {
        for key in self.connections.table.keys() {
            self.connections.remove(&mut self.turn, key);
            self.settle();
        }
        self.drop_all_deferred();
        self.settle();
        self.queues.home.store.abandon_answers();
        self.queues.home.store.end_turn();
        self.queues.recorded.abandon_answers();
        _ = self.queues.recorded.end_turn();
        self.deliveries.round_trips.abandon();
        self.turn.totals.lost.fetch_add(self.queues.home.held_for_later(), Ordering::Relaxed);
        self.forget_memory();
    }

    /// Begins the ordered shutdown.
    pub(super) fn begin_draining(&mut self) {
        self.acceptor.listener = None;
        if self.draining.as_ref().is_some_and(|draining| draining.deadline_ms > 0) {
            return;
        }
        self.turn.is_draining = true;
        self.turn.draining_since_ms = self.turn.now_ms;
        let drain_ms = u64::try_from(self.turn.config.drain.as_millis()).unwrap_or(u64::MAX);
        let draining = self.draining.get_or_insert_with(Draining::default);
        draining.impatient_ms = self.turn.now_ms.saturating_add(drain_ms / 2);
        draining.last_words_ms = self.turn.now_ms.saturating_add(drain_ms - drain_ms / 4);
        draining.deadline_ms = self.turn.now_ms.saturating_add(drain_ms).max(1);
        for key in self.connections.table.keys() {
            self.connections.queue_for_reading(key);
            self.delivery().note_progress(key); // what waits for ACKs does not make it full any more
        }
    }

    /// Another shard has sent its last message.
    pub(super) fn peer_drained(&mut self, shard: ShardId) {
        // Its `Drained` may come before this shard's own `Drain`.
        let early = self.draining.is_none();
        self.draining.get_or_insert_with(Draining::default).finished |= shard.bit();
        if early {
            self.begin_draining();
        }
    }

    /// The next deadline of the shutdown.
    pub(super) fn draining_deadline_ms(&self) -> Option<u64> {
        self.draining.as_ref().map(|draining| draining.next_ms(self.turn.now_ms))
    }

    /// Whether the store and the recording have everything that they were told, and no answer waits for that.
    fn is_everything_safe(&mut self) -> bool {
        self.queues.recorded.is_settled() && self.queues.home.store.is_settled()
    }

    /// Takes the next step, if its condition holds.
    pub(super) fn proceed_draining(&mut self) {
        let Some(draining) = &self.draining else { return };
        let (announced, closing, deadline_ms) = (draining.announced, draining.closing, draining.deadline_ms);
        if self.turn.now_ms >= deadline_ms {
            return self.cut_off_draining();
        }
        let is_late = self.turn.now_ms >= draining.last_words_ms;
        let is_impatient = self.turn.now_ms >= draining.impatient_ms;
        if is_impatient {
            self.close_waiting();
        }
        if !announced && self.is_quiet() && self.is_everything_safe() {
            self.peers.tell_all(Mail::Drained);
            if let Some(draining) = &mut self.draining {
                draining.announced = true;
            }
        }
        // From now on other shards may close connections. After half of `drain`, all shards may.
        let announced = self.draining.as_ref().is_some_and(|draining| draining.announced);
        self.queues.home.is_ending = announced || is_impatient;
        let all = self.peers.others().fold(0, |bits, at| bits | at.bit());
        let is_delivered = self.is_delivered();
        let Some(draining) = &mut self.draining else { return };
        let complete = is_late || (draining.announced && draining.finished & all == all && is_delivered);
        draining.closing |= complete;
        if closing || complete {
            self.close_some(is_late);
        }
        // Messages may have expired, or been returned, since this shard announced that it has no work left.
        let is_done = self.connections.table.is_empty() && self.is_everything_safe();
        // A connection of another shard may still ask this home for the rest of its initial replay.
        if complete && is_done && (is_late || !self.queues.has_replays()) {
            self.stopped = true;
        }
    }

    /// Closes connections whose next frame waits for room: it may never become free.
    fn close_waiting(&mut self) {
        let (closed, _) = self.close_those(|_, conn| waits_for_room(conn));
        if closed > 0 {
            self.turn.log(Level::Warn, || {
                format!("draining: {closed} connections closed with frames that waited for room")
            });
        }
    }

    /// Closes open connections, as many as one turn allows; before `last_words_ms`, only those without pending
    /// deliveries.
    fn close_some(&mut self, is_late: bool) {
        let (_, lossy) = self.close_those(|shard, conn| is_late || !shard.has_undelivered(conn));
        if lossy > 0 {
            self.turn.log(Level::Warn, || {
                format!("draining: {lossy} connections closed with undelivered messages")
            });
        }
    }

    /// Returns the number of closed connections, and the number of those that lost pending deliveries.
    fn close_those(&mut self, chosen: impl Fn(&Shard, &Conn) -> bool) -> (usize, usize) {
        let open =
            self.connections.table.iter().filter(|(_, conn)| conn.life.is_open() && chosen(self, conn));
        let (mut closed, mut lossy, before) = (0, 0, self.turn.budget.visited());
        for key in open.map(|(key, _)| key).collect::<Vec<_>>() {
            if !self.turn.budget.may_end_more(before) {
                break;
            }
            self.turn.budget.end_connection();
            let conn = self.connections.table.get(key);
            lossy += usize::from(conn.is_some_and(|conn| self.has_undelivered(conn)));
            self.connections.begin_close(&mut self.turn, key, GOING_AWAY, "the broker is shutting down");
            closed += 1;
        }
        (closed, lossy)
    }

    /// Whether connections remain that have to be closed.
    pub(super) fn has_more_to_close(&self) -> bool {
        self.draining.as_ref().is_some_and(|draining| {
            let is_impatient = self.turn.now_ms >= draining.impatient_ms;
            let is_late = self.turn.now_ms >= draining.last_words_ms;
            let is_chosen = |conn: &Conn| match draining.closing && (is_late || !self.has_undelivered(conn)) {
                true => true,
                false => is_impatient && waits_for_room(conn),
            };
            self.connections.table.iter().any(|(_, conn)| conn.life.is_open() && is_chosen(conn))
        })
    }

    /// Whether messages of topics wait for room in a connection's outbox, there or in private queues of its subscriptions.
    fn has_undelivered(&self, conn: &Conn) -> bool {
        // Most often there is no private queue, and there may be very many subscriptions.
        let may_owe = self.queues.home.private_queues() > 0 || conn.output.deferred.is_some();
        conn.has_deferred()
            || (may_owe && conn.subscriptions.iter().any(|index| conn.owes(&self.queues, *index)))
    }

    /// Whether all received frames are handled, and no RECEIPT is pending. Round trips need no check: the shard that
    /// asked is not finished before the answer, because its connection or its store waits for it, and no shard stops
    /// before all are finished, unless `drain` runs out.
    fn is_quiet(&self) -> bool {
        self.is_delivered()
            && self.has_no_jobs()
            && self.connections.table.iter().all(|(_, conn)| is_finished(conn))
    }

    /// Whether every received message has been delivered to its subscriptions here.
    fn is_delivered(&self) -> bool {
        !self.peers.incoming.has_work()
            && self.peers.inbound.is_empty()
            && self.deliveries.fan_outs.is_empty()
    }

    fn cut_off_draining(&mut self) {
        // A shard that has finished and only waits for another one cuts nothing off and logs nothing.
        let cut = self
            .connections
            .table
            .iter()
            .filter(|(_, conn)| conn.output.outbox.bytes() > 0 || !is_finished(conn));
        let (connections, bytes) =
            cut.fold((0, 0), |(count, bytes), (_, conn)| (count + 1, bytes + conn.output.outbox.bytes()));
        if connections > 0 || !self.is_quiet() {
            self.turn.log(Level::Warn, || {
                format!("drain ran out: {connections} connections cut off, {bytes} bytes not sent")
            });
        }
        self.stopped = true;
    }
}

/// Whether a connection's next frame waits for room that other connections have to make.
fn waits_for_room(conn: &Conn) -> bool {
    conn.wait.pause().is_some_and(|pause| pause != Pause::Deferred)
}

/// Whether all frames of this connection are handled, and no RECEIPT is pending.
fn is_finished(conn: &Conn) -> bool {
    // A frame that waits to arrive completely is not read any further.
    let waits = conn.wait.is_on() && conn.wait.pause() != Some(Pause::Arriving);
    !conn.life.is_open()
        || (!conn.input.has_unparsed && !conn.input.is_listed && !waits && conn.answers.is_empty())
}
