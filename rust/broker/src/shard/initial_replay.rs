//! What a new subscription gets of the past: stale messages (`TTL`) and last values (`retain`).
//!
//! Each destination's are kept at its home. A home that hears of a new subscription waits until every other shard has
//! heard of it too ([`ReplayNote::InterestAck`]): what those have sent without knowing of it has come by then, since mail keeps
//! its order. Then it sends what matches, ahead of its answer. Live messages wait meanwhile in a queue of the
//! subscription's own. So none is missed, none comes before what is older, and all of the past is in the outbox before
//! the RECEIPT; of a subscription that acknowledges, what its credit allows (`shard/replay.rs`).

use std::sync::atomic::Ordering;

use stompica_proto::ProtocolError;
use stompica_proto::error::Code;
use stompica_proto::session::AckMode;

use super::Shard;
use super::queues::describe;
use crate::collections::spread::give_back;
use crate::destination::Kind;
use crate::ids::ShardId;
use crate::ids::{Subscriber, SubscriptionKey};
use crate::message::OwnedMessage;
use crate::queue::initial_replay::PendingReplay;
use crate::queue::mail::{HomeNote, ReplayNote};
use crate::queue::replay::Newcomer;
use crate::queue::types::Credit;
use crate::requester::Requester;
use crate::router::Destination;
use crate::router::group::{Member, Place};
use crate::timer::Due;

/// Messages that expire at a time.
const EXPIRED_AT_ONCE: usize = 500;

impl Shard {
    /// Whether somebody may hold something for a new subscription.
    pub(crate) fn may_replay(&self) -> bool {
        self.turn.config.ttl_ms > 0
            || self.shared.stale.count.load(Ordering::Relaxed) > 0
            || self.shared.retained.load(Ordering::Relaxed) > 0
    }

    /// Sends a new subscription what this home holds for it, once all shards have seen it; then answers `reply`.
    pub(crate) fn await_replay(
        &mut self,
        name: &[u8],
        shard: ShardId,
        newcomer: Newcomer,
        reply: Option<Requester>,
    ) {
        let subscriber = Subscriber { shard, key: newcomer.key };
        for other in (0..self.shared_len()).map(|at| ShardId(at as u8)) {
            if other != self.turn.id && shard != self.turn.id {
                self.tell(other, ReplayNote::InterestAck(subscriber));
            }
        }
        let replay = self.replay_of(name, newcomer.without, reply);
        self.queues.pending_replays.entry(subscriber).or_default().asked = Some(replay);
        self.proceed_with_pending_replay(subscriber);
    }

    /// Another shard has seen a new subscription.
    pub(super) fn interest_acknowledged(&mut self, subscriber: Subscriber) {
        self.queues.pending_replays.entry(subscriber).or_default().seen += 1;
        self.proceed_with_pending_replay(subscriber);
    }

    fn proceed_with_pending_replay(&mut self, subscriber: Subscriber) {
        // All but this one and the subscriber's own, whose news came with the question.
        let others = self.shared_len() - if subscriber.shard == self.turn.id { 1 } else { 2 };
        let complete = |pending: &&PendingReplay| pending.asked.is_some() && pending.seen >= others;
        if self.queues.pending_replays.get(&subscriber).filter(complete).is_none() {
            return;
        }
        if let Some(replay) =
            self.queues.pending_replays.remove(&subscriber).and_then(|pending| pending.asked)
        {
            give_back(&mut self.queues.pending_replays);
            self.begin_replay(subscriber, replay);
        }
    }

    /// Hands one of them to the subscription; if that is gone, a stale message goes back.
    pub(super) fn take_replayed(&mut self, key: SubscriptionKey, stored: OwnedMessage, retained: bool) {
        let place = self.router.subscription_mut(key).map(|found| (found.place, found.conn));
        let Some((Place::Topic { group, .. }, conn)) = place else {
            if !retained {
                let home = self.router.home(stored.destination());
                self.tell(home, HomeNote::Stale(stored));
            }
            return;
        };
        if !self.router.groups[group as usize].wire_format.takes_from(stored.message().sender) {
            return; // its own last value
        }
        self.distribute();
        if let Some(queue) = self.router.groups[group as usize].target_queue {
            self.queues.home.enqueue_first(queue, stored);
            return self.dispatch_at_once(queue);
        }
        self.deliveries.suffixes.begin();
        let member = Member { conn: conn.index, subscription: key };
        self.deliver_to_one(&stored.message(), group, member);
    }

    /// One more home has sent all that it holds for a new subscription. After the last one its live messages, which have
    /// waited in a queue of its own, follow; then it needs that queue no more.
    pub(super) fn replay_ended(&mut self, home: ShardId, key: SubscriptionKey) {
        self.window_has_come(home, key);
        let Some(found) = self.router.subscription_mut(key) else { return };
        let (ack, place, conn) = (found.ack, found.place, found.conn);
        let Some(consumer) = self.queues.consumers.get_mut(key) else {
            return self.durable_replay_ended(place);
        };
        let (Some(initial_replay), Some(queue)) = (&mut consumer.initial_replay, consumer.own_queue) else {
            return;
        };
        initial_replay.waiting -= 1;
        if initial_replay.waiting > 0 {
            return self.pull_replay(conn); // its window is free, though others took what was to come in it
        }
        let lent = Credit { messages: 0, bytes: -initial_replay.bytes_granted };
        consumer.initial_replay = None;
        self.queues.home.add_credit_of(Subscriber { shard: self.turn.id, key }, lent);
        self.pull_replay(conn); // there may be another subscription that wants it
        self.queues.home.let_live_pass(queue);
        self.dispatch_at_once(queue);
        let Place::Topic { filter, .. } = place else { return };
        let ordinary = self.router.kind(self.router.filter_name(filter)) == Kind::Topic;
        let is_through = self.queues.home.queue(queue).is_some_and(|queue| queue.waiting_bytes() == 0)
            && self.connections.table.get(conn).is_some_and(|conn| conn.deferred.is_none())
            && self.deliveries.fan_outs.is_empty(); // they know it by the group that it is in
        if ack == AckMode::Auto && ordinary && is_through {
            self.distribute();
            self.queues.consumers.remove(key);
            self.router.leave_queue(key);
            self.note_width(filter); // it was a group of its own
            self.queues.home.detach(Subscriber { shard: self.turn.id, key });
            self.queues.home.delete(queue);
        }
    }

    /// The same for the queue of a durable subscription: one more answer for the RECEIPT of its holder.
    fn durable_replay_ended(&mut self, place: Place) {
        let Place::Topic { group, .. } = place else { return };
        let binding = self.router.groups[group as usize]
            .target_queue
            .and_then(|queue| self.queues.bindings.get_mut(&queue));
        if let Some(requester) = binding.and_then(|binding| binding.requesters.pop()) {
            self.dispatch_queues();
            self.answer(requester, Ok(()));
        }
    }

    /// Whether a message to a topic is to be kept at its home until somebody subscribes.
    pub(crate) fn waits_for_subscriber(&self, destination: Destination) -> bool {
        self.turn.config.ttl_ms > 0 && self.router.filter_count(destination) == 0
    }

    /// A message that found no subscriber where it was sent: somebody may have come since. While its sender's shard has
    /// not said that it has seen them, it is held for them: what they are sent live must not come before it.
    pub(super) fn place_stale(&mut self, stored: OwnedMessage) {
        let Ok(destination) = self.destination(stored.destination()) else { return };
        if stored.is_expired(self.turn.now_ms) {
            self.turn.counters.expired += 1; // it comes back from somebody who has gone
        } else if self.router.filter_count(destination) > 0 && self.queues.pending_replays.is_empty() {
            // Its publisher may have sent one before it that is on its way.
            self.deliveries.fan_outs.in_order = true;
            let reach = self.router.reach(destination);
            self.publish(&stored.message(), destination, &reach);
            self.deliveries.fan_outs.in_order = false;
        } else {
            self.hold_stale(stored);
        }
    }

    /// Holds a message until somebody subscribes, or its time is over.
    pub(super) fn hold_stale(&mut self, mut stored: OwnedMessage) {
        if self.turn.config.ttl_ms == 0 {
            self.turn.counters.unmatched += 1;
            return;
        }
        let end_ms = self.turn.now_ms.saturating_add(self.turn.config.ttl_ms);
        stored.expires_ms = if stored.expires_ms == 0 { end_ms } else { stored.expires_ms.min(end_ms) };
        self.turn.counters.stale += 1;
        let queue = self.worker_queue(stored.destination());
        let oldest = self.queues.stale.hold(stored, self.turn.config.max_stale_queue_size);
        queue.into_iter().for_each(|queue| self.hold_behind_stale(queue));
        if let Some(oldest) = oldest {
            self.tell(oldest, HomeNote::DropStale);
        }
        self.rearm_waiting();
    }

    /// There are too many stale messages, and the oldest one was here; if it is gone by now, it is somewhere else.
    pub(super) fn drop_stale(&mut self) {
        if let Some(dropped) = self.queues.stale.take_oldest() {
            self.turn.counters.dropped += 1;
            self.left_stale(&dropped);
        } else if let Some(oldest) =
            self.queues.stale.over(self.turn.config.max_stale_queue_size).filter(|at| *at != self.turn.id)
        {
            self.tell(oldest, HomeNote::DropStale);
        }
    }

    /// Keeps or forgets a topic's last value.
    pub(super) fn retain_here(&mut self, stored: OwnedMessage, set: bool, requester: Option<Requester>) {
        let mut kept = Ok(());
        if set {
            match self.reserve_retained(stored.destination()) {
                Ok(reserved) => {
                    self.queues.retained.reserve(-i64::from(reserved), 0);
                    self.queues.retained.set(stored);
                }
                Err(error) => kept = Err((error, describe(&stored))),
            }
        } else {
            self.queues.retained.remove(stored.destination());
        }
        self.rearm_waiting();
        if let Some(requester) = requester {
            self.answer(requester, kept);
        }
    }

    /// Whether `max_retained` is reached.
    pub(crate) fn is_full_of_retained(&self) -> bool {
        self.shared.retained.load(Ordering::Relaxed) >= self.turn.config.max_retained
    }

    /// Keeps room for a topic's last value, unless it has one: returns whether that was needed.
    ///
    /// # Errors
    /// `E-RETAINED-COUNT`.
    pub(super) fn reserve_retained(&mut self, name: &[u8]) -> Result<bool, ProtocolError> {
        let max = self.turn.config.max_retained;
        let known = self.queues.retained.has(name);
        if known || self.queues.retained.reserve(1, max) {
            return Ok(!known);
        }
        Err(ProtocolError::new(Code::RetainedCount, format!("max_retained is {max}")))
    }

    /// Puts the next expiry into the timers, unless an earlier one is there.
    pub(super) fn rearm_waiting(&mut self) {
        let next_ms = self.queues.stale.next_ms().into_iter().chain(self.queues.retained.next_ms()).min();
        // What was left over does not go ahead of all other deadlines that have passed meanwhile.
        let next_ms = next_ms.map(|at_ms| at_ms.max(self.turn.now_ms));
        if let Some(at_ms) = next_ms.filter(|at_ms| *at_ms < self.queues.next_expiry_ms) {
            self.queues.next_expiry_ms = at_ms;
            self.turn.timers.set(at_ms, Due::Waiting);
        }
    }

    /// Drops what has expired, a portion of it; the others are due at once. Until they have gone, nobody gets them.
    pub(super) fn expire_waiting(&mut self) {
        self.queues.next_expiry_ms = u64::MAX;
        let mut gone = 0;
        while gone < EXPIRED_AT_ONCE
            && let Some(expired) = self.queues.stale.take_expired(self.turn.now_ms)
        {
            self.left_stale(&expired);
            gone += 1;
        }
        gone += self.queues.retained.expire(self.turn.now_ms, EXPIRED_AT_ONCE - gone);
        self.turn.budget.visit(gone);
        self.turn.counters.expired += gone as u64;
        self.rearm_waiting();
    }
}
