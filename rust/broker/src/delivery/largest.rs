//! Acts on the consumers that most waits for, while memory is short: in their outboxes, and in private queues of their
//! subscriptions to topics. They count as full, so that they read and acknowledge, or are cut off, or lose messages, as
//! their policies say. All connections are measured, then the largest ones are acted on; a number of them in each turn.

use super::Owners;
use super::memory::{LARGE_OUTBOX, must_wait_for_memory, output_bytes};
use crate::config::SlowConsumer;
use crate::connection::pausing::Pause;
use crate::door::planted;
use crate::ids::{ConnKey, QueueKey};
use crate::queue::types::Queue;
use crate::router::group::SubscriptionIndex;

/// The interval between two rounds.
const INTERVAL_MS: u64 = 100;
/// The visits of one turn: a connection, or a subscription.
const TURN_VISITS: usize = 4096;
/// The share of `memory_limit` from which what waits for consumers is a relevant part of it.
const RELEVANT_SHARE: u64 = 8;

/// The state of a round over all connections of a shard.
#[derive(Debug, Default)]
pub(crate) struct Round {
    /// The time of the next one.
    next_ms: u64,
    /// The next slot.
    place: usize,
    /// The most bytes that wait for one connection, as far as they were measured.
    largest: usize,
    /// Connections to which at least this much waits are acted on; `None` while they are measured.
    threshold: Option<usize>,
}

impl Round {
    /// Whether it has to be continued in the next turn.
    pub(crate) fn is_going(&self) -> bool {
        self.place > 0 || self.threshold.is_some()
    }

    fn end(&mut self, now_ms: u64) {
        *self = Round { next_ms: now_ms + INTERVAL_MS, ..Round::default() };
    }
}

/// Bytes that wait for one connection.
#[derive(Clone, Copy, Debug, Default)]
struct WaitingBytes {
    /// In its outbox, and in private queues that have the server's policy.
    common: usize,
    /// In private queues with a policy of their own.
    own: usize,
}

impl Owners<'_> {
    /// Bytes that wait for a connection, and that its publishers wait for: in its outbox, and in queues of its
    /// subscriptions to topics, except those with a policy of their own. During a drain only the outbox counts: ACKs are not
    /// read any more, so no time would empty the queues.
    pub fn waiting_bytes(&self, key: ConnKey) -> usize {
        match self.turn.is_draining {
            true => self.connections.table.get(key).map_or(0, |conn| conn.output.outbox.bytes()),
            false => self.all_waiting_bytes(key).common,
        }
    }

    /// Whether anything waits for a connection although memory is short.
    pub(super) fn waits_for_memory(&self, key: ConnKey) -> bool {
        self.turn.memory.is_short && self.all_waiting_bytes(key).common > 0
    }

    fn all_waiting_bytes(&self, key: ConnKey) -> WaitingBytes {
        let Some(conn) = self.connections.table.get(key) else { return WaitingBytes::default() };
        let mut waiting = WaitingBytes { common: conn.output.outbox.bytes(), own: 0 };
        for index in &conn.subscriptions {
            let Some(consumer) = self.queues.consumers.at(*index) else { continue };
            let queue = consumer.own_queue.and_then(|queue| self.queues.home.queue(queue));
            let bytes = queue.map_or(0, Queue::waiting_bytes);
            match consumer.slow_consumer {
                None => waiting.common += bytes,
                Some(_) => waiting.own += bytes,
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
                if self.deliveries.round.threshold.is_some() || !self.is_worth_acting() {
                    return self.deliveries.round.end(self.turn.now_ms);
                }
                let round = &mut self.deliveries.round;
                (round.threshold, round.place) = (Some(round.largest / 2 + 1), 0);
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
        let waiting = self.all_waiting_bytes(key);
        match self.deliveries.round.threshold {
            None => {
                self.resume_holder(key);
                let largest = &mut self.deliveries.round.largest;
                *largest = (*largest).max(waiting.common).max(waiting.own);
            }
            Some(threshold) => {
                if waiting.common >= threshold {
                    self.act_on(key, threshold);
                }
                if waiting.own >= threshold {
                    self.act_on_own_policies(key);
                }
            }
        }
        1 + self.connections.table.get(key).map_or(0, |conn| conn.subscriptions.len())
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

    /// Whether what waits for consumers is a relevant part of the memory, and for some of them it is much.
    fn is_worth_acting(&self) -> bool {
        let bytes = output_bytes(self.connections, &self.queues.home) as u64;
        let bytes = bytes.saturating_mul(self.turn.shards as u64);
        let fan_outs_wait = must_wait_for_memory(self.turn, self.connections, &self.queues.home);
        if !fan_outs_wait && bytes < self.turn.config.memory_limit / RELEVANT_SHARE {
            return false; // other uses take most of it
        }
        self.deliveries.round.largest >= if fan_outs_wait { 1 } else { LARGE_OUTBOX }
    }

    /// Acts on a connection by the server's policy.
    fn act_on(&mut self, key: ConnKey, threshold: usize) {
        let Some(conn) = self.connections.table.get_mut(key).filter(|conn| conn.life.is_open()) else {
            return;
        };
        match self.turn.config.slow_consumer {
            SlowConsumer::Block(_) => self.connections.newly_full.push(key),
            SlowConsumer::Disconnect => self.connections.too_slow.push(key),
            SlowConsumer::DropOldest | SlowConsumer::DropNewest => {
                let dropped = conn.output.outbox.drop_oldest(&mut self.connections.chunks, threshold - 1);
                self.turn.counters.dropped += dropped as u64;
                self.halve_queues(key, None);
            }
        }
    }

    /// Acts on the subscriptions of a connection that have a policy of their own.
    fn act_on_own_policies(&mut self, key: ConnKey) {
        for policy in [SlowConsumer::DropOldest, SlowConsumer::DropNewest] {
            self.halve_queues(key, Some(policy));
        }
        let disconnects = |index: &SubscriptionIndex| {
            let consumer = self.queues.consumers.at(*index);
            consumer.is_some_and(|consumer| {
                let queue = consumer.own_queue.and_then(|queue| self.queues.home.queue(queue));
                consumer.slow_consumer == Some(SlowConsumer::Disconnect)
                    && queue.is_some_and(|queue| queue.waiting_bytes() >= LARGE_OUTBOX)
            })
        };
        let conn = self.connections.table.get(key);
        if conn.is_some_and(|conn| conn.life.is_open() && conn.subscriptions.iter().any(disconnects)) {
            self.connections.too_slow.push(key);
        }
    }

    /// Drops the older half of the messages in each private queue of a connection whose subscription has this policy.
    fn halve_queues(&mut self, key: ConnKey, policy: Option<SlowConsumer>) {
        let Some(conn) = self.connections.table.get(key) else { return };
        let queues: Vec<QueueKey> = conn
            .subscriptions
            .iter()
            .filter_map(|index| self.queues.consumers.at(*index))
            .filter(|consumer| consumer.slow_consumer == policy)
            .filter_map(|consumer| consumer.own_queue)
            .collect();
        for queue in queues {
            // What an initial replay has brought is bounded by its window.
            let is_live = |queue: &&Queue| !queue.has_first();
            let bytes = self.queues.home.queue(queue).filter(is_live).map_or(0, Queue::waiting_bytes);
            if bytes > 0 {
                self.drop_oldest(queue, key, bytes / 2 + 1);
            }
        }
        self.resume_after_deferred(key); // a frame may have waited for what was dropped
    }
}
