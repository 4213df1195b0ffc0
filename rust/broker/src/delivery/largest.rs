//! Acts on the consumers that most waits for, while memory is short: in their outboxes, and in private queues of their
//! subscriptions to topics. They count as full, so that they read and acknowledge, or are cut off, or lose messages, as
//! their policies say. All connections are measured, then the largest ones are acted on; a number of them in each turn.
//!
//! The largest one protects those that are less than half as large: they may be innocent. If publishers wait and memory is
//! still short when two of the largest ones could have been cut off, one after the other, nobody is protected any more.
//! One that is closing is acted on, too.

use stompica_proto::session::AckMode;

use super::Owners;
use super::memory::{LARGE_OUTBOX, all_output_bytes, must_wait_for_memory};
use crate::config::SlowConsumer;
use crate::connection::conn::{Conn, Phase};
use crate::connection::deadline::{PATIENCE_MS, patience_ms};
use crate::connection::full::Owed;
use crate::connection::pausing::Pause;
use crate::door::planted;
use crate::ids::{ConnKey, QueueKey};
use crate::message::DELIVERY_BYTES;
use crate::router::group::SubscriptionIndex;

/// The interval between two rounds.
const INTERVAL_MS: u64 = 100;
/// The visits of one turn: a connection, or a subscription.
const TURN_VISITS: usize = 4096;
/// The share of `memory_limit` from which what waits for consumers is a relevant part of it.
const RELEVANT_SHARE: i64 = 8;

/// The state of a round over all connections of a shard.
#[derive(Debug, Default)]
pub(crate) struct Round {
    /// The time of the next one.
    next_ms: u64,
    /// The next slot.
    place: usize,
    /// The most bytes that wait for one connection, as far as they were measured.
    largest: usize,
    step: Step,
    /// The time since which memory has been short.
    short_since_ms: u64,
}

/// What is done with each connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Step {
    /// What waits for it is measured.
    #[default]
    Measure,
    /// It is acted on if at least this much waits.
    Act(usize),
    /// Memory is free again: it is looked at whether it is still full.
    Relieve,
}

impl Round {
    /// Whether it has to be continued in the next turn.
    pub(crate) fn is_going(&self) -> bool {
        self.place > 0 || self.step != Step::Measure
    }

    /// Looks at all connections that are full, since memory is free again.
    pub(crate) fn relieve(&mut self) {
        (self.place, self.step) = (0, Step::Relieve);
    }

    /// Memory has become short.
    pub(super) fn begin_shortage(&mut self, now_ms: u64) {
        self.short_since_ms = now_ms;
    }

    fn end(&mut self, now_ms: u64) {
        let (next_ms, short_since_ms) = (now_ms + INTERVAL_MS, self.short_since_ms);
        *self = Round { next_ms, short_since_ms, ..Round::default() };
    }
}

/// Bytes that wait for one connection.
#[derive(Clone, Copy, Debug, Default)]
struct WaitingBytes {
    /// In its outbox.
    outbox: usize,
    /// In private queues that have the server's policy.
    queued: usize,
    /// For its ACKs of messages from such queues.
    in_flight: usize,
    /// For subscriptions whose own policy drops messages: in their queues, or for ACKs.
    drops: usize,
    /// The same, if their own policy cuts it off.
    disconnects: usize,
    /// For the deliveries themselves, besides their messages.
    deliveries: usize,
}

impl WaitingBytes {
    /// What the server's policy concerns.
    fn common(self) -> usize {
        self.owed().all()
    }

    fn owed(self) -> Owed {
        Owed { outbox: self.outbox, queued: self.queued + self.in_flight + self.deliveries }
    }

    fn all(self) -> usize {
        self.common() + self.drops + self.disconnects
    }
}

/// Whether what waits for a connection may be cut short.
fn can_be_acted_on(conn: &Conn) -> bool {
    matches!(conn.life.phase, Phase::Open | Phase::Closing)
}

impl Owners<'_> {
    /// The bytes from which what is owed to one client is a relevant part of the memory.
    pub(super) fn relevant_bytes(&self) -> usize {
        usize::try_from(self.turn.memory_limit() / RELEVANT_SHARE).unwrap_or(usize::MAX)
    }

    /// Bytes that wait for a connection, and that its publishers wait for: in its outbox, and in queues of its
    /// subscriptions to topics, except those with a policy of their own.
    pub(super) fn waiting_bytes(&self, key: ConnKey) -> usize {
        let WaitingBytes { outbox, queued, .. } = self.owed_bytes(key);
        outbox + queued
    }

    /// The same, and what waits for its ACKs: what the server's policy acts on while memory is short.
    pub(super) fn owed(&self, key: ConnKey) -> Owed {
        self.owed_bytes(key).owed()
    }

    /// All bytes that wait for a connection, or for its ACKs.
    pub fn all_owed_bytes(&self, key: ConnKey) -> usize {
        self.owed_bytes(key).all()
    }

    /// During a drain only the outbox counts: ACKs are not read any more, so no time would empty the queues.
    fn owed_bytes(&self, key: ConnKey) -> WaitingBytes {
        let Some(conn) = self.connections.table.get(key) else { return WaitingBytes::default() };
        let mut waiting = WaitingBytes { outbox: conn.output.outbox.bytes(), ..WaitingBytes::default() };
        if self.turn.is_draining {
            return waiting;
        }
        for consumer in conn.subscriptions.iter().filter_map(|index| self.queues.consumers.at(*index)) {
            let queue = consumer.own_queue.and_then(|queue| self.queues.home.queue(queue));
            let Some(queue) = queue else { continue };
            // Whoever acknowledges slowly reads slowly.
            let in_flight = if consumer.ack == AckMode::Auto { 0 } else { queue.in_flight().1 as usize };
            let deliveries = queue.size() as usize * DELIVERY_BYTES;
            match consumer.slow_consumer {
                None => {
                    waiting.queued += queue.waiting_bytes();
                    waiting.in_flight += in_flight;
                    waiting.deliveries += deliveries;
                }
                Some(SlowConsumer::Disconnect) => {
                    waiting.disconnects += queue.waiting_bytes() + in_flight + deliveries;
                }
                Some(_) => waiting.drops += queue.waiting_bytes() + in_flight + deliveries,
            }
        }
        waiting
    }

    /// Begins a round if it is time to, or continues it.
    pub(super) fn proceed_with_round(&mut self) {
        let round = &self.deliveries.round;
        if !round.is_going() && self.turn.now_ms < round.next_ms {
            return;
        }
        if !round.is_going() && !self.turn.is_out_of_memory() {
            self.connections.retry_parked(&[Pause::Memory]);
        }
        let mut left = TURN_VISITS;
        while left > 0 {
            let place = self.deliveries.round.place;
            if place >= self.connections.table.slots() {
                let is_measured = self.deliveries.round.step == Step::Measure;
                let Some(threshold) = is_measured.then(|| self.threshold()).flatten() else {
                    return self.deliveries.round.end(self.turn.now_ms);
                };
                let round = &mut self.deliveries.round;
                (round.step, round.place) = (Step::Act(threshold), 0);
                continue;
            }
            self.deliveries.round.place = place + 1;
            let key = self.connections.table.key_at(place);
            let visits = key.map_or(1, |key| self.examine(key));
            self.turn.budget.visit(visits.div_ceil(16));
            left = left.saturating_sub(visits);
        }
    }

    /// Measures a connection, or acts on it. Returns the visits.
    fn examine(&mut self, key: ConnKey) -> usize {
        match self.deliveries.round.step {
            Step::Relieve => self.note_progress(key),
            Step::Measure => {
                self.measure(key);
                self.resume_holder(key);
            }
            Step::Act(threshold) => {
                let waiting = self.owed_bytes(key);
                if waiting.common() >= threshold {
                    self.act_on(key, threshold);
                }
                if waiting.drops >= threshold {
                    self.halve_queues(key, |policy| policy.is_some_and(|it| it != SlowConsumer::Disconnect));
                }
                if waiting.disconnects >= threshold {
                    self.connections.too_slow.push(key);
                }
            }
        }
        1 + self.connections.table.get(key).map_or(0, |conn| conn.subscriptions.len())
    }

    fn measure(&mut self, key: ConnKey) {
        let waiting = self.owed_bytes(key);
        let bytes = waiting.common().max(waiting.drops).max(waiting.disconnects);
        if self.connections.table.get(key).is_some_and(can_be_acted_on) {
            let largest = &mut self.deliveries.round.largest;
            *largest = (*largest).max(bytes);
        }
    }

    /// Whether the largest one still protects smaller ones. Policies that drop act on it again and again.
    fn has_protection(&self) -> bool {
        let config = &self.turn.config;
        let drops = matches!(config.slow_consumer, SlowConsumer::DropOldest | SlowConsumer::DropNewest);
        let until_ms = self.deliveries.round.short_since_ms.saturating_add(2 * patience_ms(config));
        drops || self.turn.now_ms < until_ms
    }

    /// Resumes a connection that has got deliveries since it began to wait: their ACKs may follow the SEND that waits.
    fn resume_holder(&mut self, key: ConnKey) {
        let pause = self.connections.table.get(key).and_then(|conn| conn.wait.pause());
        if matches!(pause, Some(Pause::Kept | Pause::Arriving))
            && self.may_exceed(key)
            && !planted!("waiting-consumer-forgotten")
        {
            self.deliveries.admission.leave(key);
            self.connections.unpark(self.turn, key);
        }
    }

    /// The bytes from which a connection is acted on, if any has so much: more than half of the largest of all shards.
    /// Nobody is acted on if other uses take most of the memory, or little waits for each.
    fn threshold(&self) -> Option<usize> {
        let largest = self.deliveries.round.largest;
        self.turn.totals.largest.note(self.turn.id, largest);
        let of_all = self.turn.totals.largest.of_all()?;
        let bytes = all_output_bytes(self.turn, self.connections);
        let fan_outs_wait = must_wait_for_memory(self.turn, self.connections);
        if !fan_outs_wait && bytes < self.turn.memory_limit() / RELEVANT_SHARE {
            return None;
        }
        let least = if fan_outs_wait { 1 } else { LARGE_OUTBOX };
        let half = if self.has_protection() { of_all.max(largest) / 2 + 1 } else { 0 };
        let threshold = half.max(least);
        (largest >= threshold).then_some(threshold)
    }

    /// Acts on a connection by the server's policy.
    fn act_on(&mut self, key: ConnKey, threshold: usize) {
        let Some(conn) = self.connections.table.get_mut(key).filter(|conn| can_be_acted_on(conn)) else {
            return;
        };
        match self.turn.config.slow_consumer {
            _ if !conn.life.is_open() => self.connections.newly_full.push(key),
            SlowConsumer::Block(_) => self.connections.newly_full.push(key),
            SlowConsumer::Disconnect => self.connections.too_slow.push(key),
            SlowConsumer::DropOldest | SlowConsumer::DropNewest => {
                let dropped = conn.output.outbox.drop_oldest(&mut self.connections.chunks, threshold - 1);
                self.turn.counters.dropped += dropped as u64;
                // What is left is not dropped: answers, and deliveries of queues, which others may get.
                let is_large = conn.output.outbox.bytes() >= threshold;
                conn.check_socket(self.turn.now_ms);
                if is_large && self.turn.now_ms >= conn.moved_ms() + PATIENCE_MS {
                    return self.connections.too_slow.push(key);
                }
                self.halve_queues(key, |policy| policy.is_none());
            }
        }
    }

    /// Drops the older half of the messages in each private queue of a connection whose subscription has such a policy of its
    /// own. If more are in flight, the older half of these is forgotten, unless a frame is about to acknowledge some of
    /// them: a checked COMMIT takes effect as a whole, and an ACK of several turns ends with the delivery that it names.
    fn halve_queues(&mut self, key: ConnKey, is_such: fn(Option<SlowConsumer>) -> bool) {
        let Some(conn) = self.connections.table.get(key) else { return };
        let may_forget = !conn.is_acknowledging();
        let queues: Vec<(QueueKey, SubscriptionIndex, AckMode)> = conn
            .subscriptions
            .iter()
            .filter_map(|index| self.queues.consumers.at(*index))
            .filter(|consumer| is_such(consumer.slow_consumer))
            .filter_map(|consumer| Some((consumer.own_queue?, consumer.key.index, consumer.ack)))
            .collect();
        for (queue, subscription, ack) in queues {
            let Some(found) = self.queues.home.queue(queue) else { continue };
            let (bytes, in_flight) = (found.waiting_bytes(), found.in_flight().1 as usize);
            if bytes > 0 {
                self.drop_oldest(queue, key, bytes / 2 + 1);
            }
            if may_forget && ack != AckMode::Auto && in_flight > bytes {
                self.forget_in_flight(key, subscription, in_flight / 2 + 1);
            }
        }
        self.resume_after_deferred(key); // a frame may have waited for what was dropped
    }
}
