//! Hot path: dispatches messages from the front of a queue to the next consumer with credit.

use super::consumers::STALE_MAX;
use super::home::Home;
use super::pending::Pending;
use super::types::{Consumed, Delivery, Effect, Queue, Taker};
use crate::door::planted;
use crate::ids::{ConsumerKey, PatternKey, QueueKey};
use crate::message::OwnedMessage;

/// The number of visits after which a call ends.
const VISITS_MAX: usize = 2000;
/// The maximum number of queues that are visited for each delivery that a call may make.
const LOOKS_PER_DELIVERY: usize = 16;
/// The maximum number of deliveries of all ready queues in one round, if each may make one.
const ROUND_DELIVERIES: usize = 4096;
/// The number of expired messages that are removed from one queue at a time.
const EXPIRED_MAX: usize = 256;
/// The bytes that a replay keeps in the queue of its subscription.
const REPLAY_BYTES: usize = 128 << 10;
/// The number of messages that are dispatched at once; a consumer may have credit for very many.
const AT_ONCE: usize = 64;

/// The consumer of a queue's next message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chosen {
    pub(super) taker: Taker,
    pub(super) consumer: ConsumerKey,
}

/// The result of a query of one candidate.
enum Asked {
    /// This consumer has credit.
    Has(ConsumerKey),
    /// Only the consumer to avoid has credit.
    Avoided(ConsumerKey),
    /// No consumer has credit.
    OutOfCredit,
    /// There is no consumer any more.
    Gone,
}

impl Home {
    /// Records that a queue may have messages to deliver.
    pub(super) fn mark_ready(&mut self, key: QueueKey) {
        if let Some(queue) = self.queues.get_mut(key)
            && !queue.is_ready
            && queue.pending.has_next()
        {
            queue.is_ready = true;
            self.ready_queues.push_back(key);
        }
    }

    /// Dispatches queues, as [`Effect::Deliver`], up to `deliveries_max` messages. Returns their number.
    pub fn dispatch(&mut self, deliveries_max: usize) -> usize {
        let mut left = deliveries_max;
        let looked_max = self.looked.saturating_add(deliveries_max.saturating_mul(LOOKS_PER_DELIVERY) as u64);
        // A queue may have very many expired messages, or many patterns to match.
        let visited_max = self.visited.saturating_add(VISITS_MAX);
        while left > 0 && self.looked < looked_max && self.visited < visited_max {
            // This comes first, so that a message that one consumer refused finds another one.
            if let Some(pattern) = self.unserved.pop_front() {
                self.serve_waiting_queues(pattern);
            } else if let Some(consumer) = self.congestion.next(!self.ready_queues.is_empty()) {
                self.resume(consumer);
                continue;
            } else if self.end_wait() {
                continue;
            } else if let Some(queue) = self.ready_queues.pop_front() {
                // So that each queue is served soon, however many there are.
                let portion = (ROUND_DELIVERIES / (self.ready_queues.len() + 1)).clamp(1, left);
                let mut portion_left = portion;
                self.dispatch_queue(queue, &mut portion_left, false);
                left -= portion - portion_left;
            } else {
                break;
            }
            self.looked += 1;
            self.visited += 1;
        }
        self.return_revoked_credit();
        deliveries_max - left
    }

    /// Dispatches one queue at once, up to [`AT_ONCE`] messages. If it was marked as ready just now, the mark is removed:
    /// otherwise queues without credit that get messages one by one would be visited again for each, before other queues.
    pub fn dispatch_at_once(&mut self, key: QueueKey) {
        let is_last = self.ready_queues.back() == Some(&key);
        self.ready_queues.truncate(self.ready_queues.len() - usize::from(is_last));
        // Somebody counts on these deliveries: what is held back for lack of memory waits for the turn's dispatch.
        let left = self.copies.unbounded();
        self.dispatch_queue(key, &mut { AT_ONCE }, !is_last);
        self.copies.bound(left);
    }

    /// Dispatches one queue, up to `left` messages. The mark of a queue that `stays_listed` remains.
    fn dispatch_queue(&mut self, key: QueueKey, left: &mut usize, stays_listed: bool) {
        let Some(queue) = self.queues.get_mut(key) else { return };
        queue.is_ready &= stays_listed;
        let is_special = queue.is_special;
        if queue.patterns_as_of != self.patterns.generation {
            self.match_patterns(key);
        }
        if is_special && self.has_picking(key) {
            return self.dispatch_picked(key, left);
        }
        self.dispatch_line(key, left);
        if is_special {
            self.load_missing(key);
        }
        self.note_room(key);
    }

    /// Whether a queue that is fed by a replay has room; if not, [`Effect::Feed`] tells when it has.
    pub fn has_room_for_replay(&mut self, key: QueueKey) -> bool {
        let Some(queue) = self.queues.get_mut(key) else { return false };
        queue.is_awaited = queue.pending.bytes() >= REPLAY_BYTES;
        !queue.is_awaited
    }

    #[inline]
    fn note_room(&mut self, key: QueueKey) {
        if let Some(queue) = self.queues.get_mut(key).filter(|queue| queue.is_awaited)
            && queue.pending.bytes() < REPLAY_BYTES / 2
        {
            queue.is_awaited = false;
            self.effects.push(Effect::Feed(key));
        }
    }

    /// Delivers the messages at the front, in order, as far as they are loaded.
    fn dispatch_line(&mut self, key: QueueKey, left: &mut usize) {
        let mut expired = 0;
        while let Some(queue) = self.queues.get_mut(key)
            && let Some(first) = queue.pending.first()
        {
            if *left == 0 || expired == EXPIRED_MAX {
                return self.mark_ready(key);
            }
            if self.copies.must_hold_back(queue.kind) {
                return self.hold_back(key);
            }
            if first.is_expired(self.now_ms) && !planted!("expiry-not-checked") {
                if let Some(message) = queue.pending.pop() {
                    self.expire(key, message);
                }
                expired += 1;
                self.visited += 1;
                continue;
            }
            if queue.holds_back(first.seq) && !planted!("reserved-place-ignored") {
                return;
            }
            let avoid = first.refused_by();
            let Some(chosen) = self.next_ready(key, avoid) else { return };
            self.deliver(key, chosen, Pending::pop);
            *left -= 1;
        }
        if self.queues.get(key).is_some_and(Queue::is_idle) {
            self.became_idle(key);
        }
    }

    /// The next consumer of the round that has credit; `avoid` only if no other has. Consumers without credit leave the
    /// round, and so does the chosen one.
    #[inline(always)] // it has two callers; 53 instructions less for each delivery
    pub(super) fn next_ready(&mut self, key: QueueKey, avoid: Option<ConsumerKey>) -> Option<Chosen> {
        let mut avoided = None;
        let chosen = loop {
            let Some(taker) = self.queues.get_mut(key)?.ready.pop_front() else { break None };
            let asked = match taker {
                Taker::One(consumer) => self.ask_one(consumer, avoid),
                Taker::Pattern(pattern) => self.ask_pattern(pattern, key, avoid),
            };
            match asked {
                Asked::Has(consumer) => break Some(Chosen { taker, consumer }),
                Asked::Avoided(consumer) => avoided = Some(Chosen { taker, consumer }),
                Asked::OutOfCredit | Asked::Gone => {}
            }
            if let Some(queue) = self.queues.get_mut(key) {
                queue.turns = 0;
            }
        };
        if chosen.is_some()
            && let (Some(avoided), Some(queue)) = (avoided, self.queues.get_mut(key))
        {
            queue.ready.push_front(avoided.taker);
        }
        chosen.or(avoided)
    }

    fn ask_one(&mut self, key: ConsumerKey, avoid: Option<ConsumerKey>) -> Asked {
        let Some(consumer) = self.consumers.get_mut(key) else { return Asked::Gone };
        if !consumer.credit.is_left() {
            consumer.out_of_credit = true;
            Asked::OutOfCredit
        } else if self.congestion.is_closed(consumer.subscriber.shard) {
            (consumer.out_of_credit, consumer.is_suspended) = (true, true);
            self.congestion.suspend(consumer.subscriber.shard, key);
            Asked::OutOfCredit
        } else if Some(key) == avoid {
            Asked::Avoided(key)
        } else {
            Asked::Has(key)
        }
    }

    /// Queries a pattern's consumers in turn, from the position of this queue's own round. If none has credit, the
    /// queue waits for one of them.
    fn ask_pattern(&mut self, key: PatternKey, queue: QueueKey, avoid: Option<ConsumerKey>) -> Asked {
        let Some(pattern) = self.patterns.get_mut(key) else { return Asked::Gone };
        let mut place = self.queues.get(queue).map_or(0, |queue| queue.place);
        let mut avoided = None;
        let mut chosen = None;
        for _ in 0..pattern.ring.len() {
            if place >= pattern.ring.len() {
                place = place.checked_rem(pattern.ring.len()).unwrap_or_default();
            }
            let Some(next) = pattern.ring.get(place).copied() else { break };
            let Some(consumer) = self.consumers.get_mut(next) else {
                pattern.ring.swap_remove_back(place);
                continue;
            };
            if !consumer.credit.is_left() {
                pattern.ring.swap_remove_back(place);
                consumer.out_of_credit = true;
                self.visited += 1;
                if !consumer.has_requested && consumer.credit.messages <= 0 {
                    consumer.has_requested = true;
                    self.effects.push(Effect::CreditRequest(consumer.subscriber, next));
                }
            } else if self.congestion.is_closed(consumer.subscriber.shard) {
                pattern.ring.swap_remove_back(place);
                (consumer.out_of_credit, consumer.is_suspended) = (true, true);
                self.congestion.suspend(consumer.subscriber.shard, next);
                self.visited += 1;
            } else if Some(next) == avoid {
                avoided = avoid;
                place += 1;
            } else {
                chosen = Some(next);
                place += 1;
                break;
            }
        }
        if let Some(queue) = self.queues.get_mut(queue) {
            queue.place = place;
        }
        match (chosen, avoided) {
            (Some(chosen), _) => Asked::Has(chosen),
            (None, Some(avoided)) => Asked::Avoided(avoided),
            (None, None) => {
                if pattern.out_of_credit.len() > STALE_MAX + 2 * self.queues.len() {
                    let queues = &self.queues;
                    pattern.out_of_credit.retain(|at| queues.get(*at).is_some()); // queues may have been removed
                }
                pattern.out_of_credit.push_back(queue);
                Asked::OutOfCredit
            }
        }
    }

    /// Delivers a message to the consumer that was chosen for it.
    #[inline]
    pub(super) fn deliver(
        &mut self,
        key: QueueKey,
        Chosen { taker, consumer: chosen }: Chosen,
        take: impl FnOnce(&mut Pending) -> Option<OwnedMessage>,
    ) {
        let (Some(queue), Some(consumer)) = (self.queues.get_mut(key), self.consumers.get_mut(chosen)) else {
            return;
        };
        let Some(mut message) = take(&mut queue.pending) else { return };
        let size = message.size() as u64;
        queue.in_flight_bytes += size;
        self.copies.count(queue.kind, size as usize);
        queue.count_delivery(taker, self.pacing.is_own(consumer.subscriber.shard), self.now_ms);
        consumer.credit.messages -= 1;
        consumer.credit.bytes -= size as i64;
        match taker {
            Taker::One(_) if consumer.credit.is_left() => queue.ready.push_back(taker),
            Taker::One(_) => consumer.out_of_credit = true,
            Taker::Pattern(pattern) => {
                // One message in succession for each of its consumers, so that all consumers of a queue get equally many.
                let turns = match queue.turns {
                    0 => self.patterns.get(pattern).map_or(1, |pattern| pattern.ring.len()),
                    turns => turns,
                };
                queue.turns = turns.saturating_sub(1);
                if queue.turns == 0 {
                    queue.ready.push_back(taker);
                } else {
                    queue.ready.push_front(taker);
                }
            }
        }
        self.counts.redelivered += u64::from(message.deliveries > 0);
        message.deliveries += 1;
        self.store.deliver(&message);
        let subscriber = consumer.subscriber;
        self.effects.push(Effect::Deliver(Delivery { subscriber, queue: key, consumer: chosen, message }));
    }

    /// Puts a consumer that was found without credit back into its ring, because it has credit again.
    pub(super) fn rejoin(&mut self, key: ConsumerKey) {
        let Some(consumer) = self.consumers.get_mut(key).filter(|it| !it.is_suspended) else { return };
        consumer.out_of_credit = false;
        match consumer.consumed {
            Consumed::Queue(at) => {
                if let Some(queue) = self.queues.get_mut(at) {
                    queue.ready.push_back(Taker::One(key));
                    self.mark_ready(at);
                }
            }
            Consumed::Pattern(at) => {
                if let Some(pattern) = self.patterns.get_mut(at) {
                    pattern.ring.push_back(key);
                    self.serve_soon(at);
                    self.pick_again();
                }
            }
        }
    }

    /// Records that a consumer has joined the ring of a pattern.
    pub(super) fn serve_soon(&mut self, key: PatternKey) {
        if let Some(pattern) = self.patterns.get_mut(key)
            && !pattern.unserved
            && !pattern.out_of_credit.is_empty()
        {
            pattern.unserved = true;
            self.unserved.push_back(key);
        }
    }

    /// Lets queues that found no consumer in the ring of a pattern take part again, one after the other: the next one
    /// follows when this one has been served.
    fn serve_waiting_queues(&mut self, key: PatternKey) {
        let Some(pattern) = self.patterns.get_mut(key) else { return };
        pattern.unserved = false;
        while !pattern.ring.is_empty()
            && let Some(out_of_credit) = pattern.out_of_credit.pop_front()
        {
            let Some(queue) = self.queues.get_mut(out_of_credit) else { continue };
            queue.ready.push_back(Taker::Pattern(key));
            self.visited += 1;
            if queue.pending.has_next() {
                if !pattern.out_of_credit.is_empty() && !planted!("queue-of-pattern-unserved") {
                    pattern.unserved = true;
                    self.unserved.push_back(key);
                }
                if !queue.is_ready {
                    queue.is_ready = true;
                    self.ready_queues.push_front(out_of_credit);
                }
                return;
            }
        }
    }
}
