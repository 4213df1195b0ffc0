//! Fan-outs that take several turns: messages to more subscriptions than one turn serves, or to full outboxes.
//!
//! [`Owners::deliver`] passes such a message to a fan-out, which continues each turn until the turn's share of the
//! work is done. A connection whose outbox is full gets its copy later: until then the copy is deferred
//! ([`Deferred`](crate::connection::deferred::Deferred)), and everything after it waits, too. So the cost of a
//! message is bounded by `outbox_limit` and by the turn, not by the number of its receivers. Once an outbox is under
//! half it is filled again.

use smallvec::SmallVec;
use stompica_proto::encode::Message;

use super::Owners;
use super::memory::must_wait_for_memory;
use crate::config::SlowConsumer;
use crate::connection::deferred::Waiting;
use crate::connection::flow::Flow;
use crate::connection::pausing::Question;
use crate::door::planted;
use crate::ids::ConnKey;
use crate::message::OwnedMessage;
use crate::message::options;
use crate::requester::{AnswerTo, Requester};
use crate::router::Destination;
use crate::router::fan_out::{FanOutKey, WAITING_BYTES, is_meant};
use crate::router::group::{GroupIndex, Member, Place};
use crate::router::reach::Reach;

/// A message that is encoded to more bytes than this takes several turns, if it goes to several groups.
const AT_ONCE_BYTES: usize = 1 << 20;
/// The same for the number of groups.
const AT_ONCE_GROUPS: usize = 2000;
/// The share of `memory_limit` that deferred copies for one consumer may take for long while memory is short.
const DEFERRED_SHARE: u64 = 8;
/// The estimated size of a frame besides the parts of the message, in bytes.
const FRAME_BYTES: usize = 160;

/// The estimated number of bytes of one message that is encoded for a number of groups.
fn encoded_bytes(message: &Message<'_>, groups: usize) -> usize {
    let frame = message.body.len() + message.headers.len() + message.destination.len() + FRAME_BYTES;
    frame.saturating_mul(groups)
}

impl Owners<'_> {
    /// Makes a publisher wait until its message has reached all receivers; then `requester` is answered.
    pub fn await_fan_out(&mut self, conn: ConnKey, fan_out: FanOutKey, requester: Requester) -> Flow {
        match self.deliveries.fan_outs.await_end(fan_out, conn, requester) {
            None => self.connections.wait_for(self.turn, conn, Question::FanOut(fan_out)),
            Some(requester) => self.notes.answer(requester, Ok(())), // it is over
        }
        Flow::Waiting
    }

    /// Does the same for a message that an answer waits for besides others.
    pub fn await_fan_out_too(&mut self, conn: ConnKey, fan_out: FanOutKey, to: AnswerTo) -> Flow {
        self.connections.await_more(to, 1);
        self.await_fan_out(conn, fan_out, to.requester())
    }

    /// Whether a message cannot be delivered at once: it goes to too many groups, one of its receivers' outboxes is
    /// full, or another message has to be delivered before it.
    #[inline]
    pub fn takes_turns(&self, message: &Message<'_>, reach: &Reach) -> bool {
        let groups = reach.groups;
        let large = groups > 1 && (groups > AT_ONCE_GROUPS || encoded_bytes(message, groups) > AT_ONCE_BYTES);
        large || (reach.full > 0 && self.blocks()) || self.deliveries.fan_outs.must_queue()
    }

    /// Begins to deliver a message over several turns. Returns the fan-out, unless this turn has completed it.
    #[cold]
    #[inline(never)]
    pub fn fan_out(&mut self, message: &Message<'_>, destination: Destination) -> Option<FanOutKey> {
        let owned = OwnedMessage::with_options(message, &options::options_in(message.headers));
        let mut groups = Vec::new();
        self.router.groups_of(destination, &mut groups);
        self.turn.budget.visit(groups.len() / 64);
        let newest = self.peers.inbound.routes_for().unwrap_or_else(|| self.router.newest_subscription());
        let key = self.begin_fan_out(owned, groups, newest);
        self.proceed_with_fan_outs(1);
        self.deliveries.fan_outs.finish(key);
        self.deliveries.fan_outs.is_live(key).then_some(key)
    }

    fn begin_fan_out(&mut self, message: OwnedMessage, groups: Vec<GroupIndex>, newest: u32) -> FanOutKey {
        let key = self.deliveries.fan_outs.begin(message, groups, newest);
        // For a message of another shard, or one that was stale, no publisher waits here.
        if self.peers.inbound.routes_for().is_some() || self.deliveries.fan_outs.in_order {
            self.deliveries.fan_outs.accept(key);
        }
        key
    }

    fn blocks(&self) -> bool {
        matches!(self.turn.config.slow_consumer, SlowConsumer::Block(_))
    }

    /// Continues fan-outs, in the order in which they began, until one part in `share` of the turn is used up.
    pub fn proceed_with_fan_outs(&mut self, share: usize) {
        while let Some(key) = self.deliveries.fan_outs.first() {
            if self.turn.budget.is_used_up(share) {
                return;
            }
            if must_wait_for_memory(self.turn, self.connections) {
                return self.deliveries.fan_outs.stop(self.turn.now_ms);
            }
            let Some(mut message) = self.deliveries.fan_outs.take_message(key) else { return };
            self.connections.distribute(self.turn);
            self.deliveries.suffixes.begin();
            if message.is_expired(self.turn.now_ms) {
                self.turn.counters.expired += 1;
                self.deliveries.fan_outs.skip(key);
            }
            let is_tight = self.turn.is_out_of_memory();
            while !self.turn.budget.is_used_up(share)
                && let Some((group, newest)) = self.deliveries.fan_outs.next_group(key)
            {
                self.turn.budget.visit(1);
                self.fan_out_to_group(&mut message, group, key, newest);
                let is_large = message.size() >= AT_ONCE_BYTES / 16;
                if is_large {
                    self.count_memory();
                }
                if (is_large || is_tight) && must_wait_for_memory(self.turn, self.connections) {
                    break;
                }
            }
            self.deliveries.fan_outs.put_back(key, message);
            self.end_fan_out(key);
        }
    }

    /// Lets the publisher continue, if the fan-out has reached all receivers.
    pub fn end_fan_out(&mut self, key: FanOutKey) {
        if let Some((conn, requester)) = self.deliveries.fan_outs.finish(key) {
            self.queue().answer_when_saved(requester, 0);
            if !planted!("publisher-of-fan-out-left") {
                self.connections.go_on_after(self.turn, conn, Question::FanOut(key));
            }
        }
    }

    fn fan_out_to_group(
        &mut self,
        message: &mut OwnedMessage,
        index: GroupIndex,
        key: FanOutKey,
        newest: u32,
    ) {
        let Some(group) = self.router.groups.get(index as usize) else { return };
        if !group.wire_format.takes_from(message.message().sender) {
            return;
        }
        if let (Some(queue), [member]) = (group.target_queue, &group.members[..]) {
            let member = *member;
            if is_meant(member.subscription.generation, newest) {
                let copy = message.share();
                self.deliver_to_queue(copy, queue, member);
                self.deliveries.suffixes.begin(); // other deliveries may have used them
            }
            return;
        }
        let mut ready = SmallVec::<[Member; 8]>::new();
        for at in 0..group.members.len() {
            let Some(&member) =
                self.router.groups.get(index as usize).and_then(|group| group.members.get(at))
            else {
                break;
            };
            if !is_meant(member.subscription.generation, newest)
                || self.connections.table.member_mut(member.conn).life.leaving.is_some()
            {
                continue;
            }
            if self.is_blocked(member.conn) {
                self.defer_copy(member, key);
            } else {
                ready.push(member);
            }
        }
        match ready[..] {
            [] => {}
            [member] => self.deliver_to_one(&message.message(), index, member),
            _ => {
                let (chunk, start, end) = self.encode_shared(&message.message(), index);
                self.connections.distribute_to(self.turn, &ready, chunk, start, end);
            }
        }
    }

    /// Whether the message that is being delivered is meant for a subscription. It is not if another shard sent it
    /// before a durable subscription came to this home, although it is routed after the mail that brought the
    /// subscription.
    pub fn routes_to(&self, member: Member) -> bool {
        self.peers.inbound.routes_for().is_none_or(|newest| is_meant(member.subscription.generation, newest))
            || planted!("durable-gets-past")
    }

    /// Whether a message of a topic has to wait for room in an outbox. Unless `slow_consumer` blocks, only messages of queues do.
    fn is_blocked(&mut self, conn: u32) -> bool {
        let blocks = self.blocks();
        let limit = self.turn.config.outbox_limit;
        let conn = self.connections.table.member_mut(conn);
        blocks && (conn.output.deferred.is_some() || conn.output.outbox.bytes() >= limit)
    }

    /// Defers the copy of a fan-out's message for one subscription.
    fn defer_copy(&mut self, member: Member, fan_out: FanOutKey) {
        let generation = self.connections.table.member_mut(member.conn).life.generation;
        self.turn.budget.deliveries += 1;
        self.deliveries.fan_outs.wait(fan_out);
        let key = ConnKey { index: member.conn, generation };
        self.defer(key, Waiting::Copy(fan_out, member.subscription));
    }

    /// Defers the copy of a message that is delivered to other subscriptions at once.
    #[cold]
    pub fn defer_copy_at_once(&mut self, message: &Message<'_>, member: Member) {
        let key = match self.deliveries.suffixes.deferred {
            Some(key) => key,
            None => {
                let options = options::options_in(message.headers);
                self.begin_fan_out(OwnedMessage::with_options(message, &options), Vec::new(), 0)
            }
        };
        self.deliveries.suffixes.deferred = Some(key);
        self.defer_copy(member, key);
    }

    /// Defers a delivery until a connection's outbox has room.
    pub fn defer(&mut self, key: ConnKey, waiting: Waiting) {
        let limit = self.turn.config.outbox_limit;
        let is_accepted = self.is_accepted(&waiting);
        self.connections.defer(limit, key, waiting, is_accepted);
    }

    /// Whether a RECEIPT for a message of a topic may have been sent.
    fn is_accepted(&self, waiting: &Waiting) -> bool {
        match waiting {
            Waiting::Copy(fan_out, _) => self.deliveries.fan_outs.is_accepted(*fan_out),
            Waiting::Range(..) => true,
            Waiting::Queued(_) => false,
        }
    }

    /// Schedules deferred deliveries of an outbox that is under half after a write.
    pub fn note_room(&mut self, key: ConnKey) {
        let (limit, now_ms) = (self.turn.config.outbox_limit, self.turn.now_ms);
        let deferred_max =
            usize::try_from(self.turn.config.memory_limit / DEFERRED_SHARE).unwrap_or(usize::MAX);
        let Some(conn) = self.connections.table.get_mut(key) else { return };
        let Some(deferred) = &mut conn.output.deferred else { return };
        if conn.output.outbox.bytes() > limit / 2 {
            return;
        }
        // Its consumer reads, so its deadline starts anew, however much is deferred for it. But it gets no additional
        // time if memory is short because of that.
        let is_too_much = self.turn.memory.is_short && deferred.len() * WAITING_BYTES > deferred_max;
        if let Some(full) = conn.output.full.as_mut().filter(|_| !is_too_much) {
            full.restart(now_ms);
        }
        if !deferred.is_listed {
            deferred.is_listed = true;
            self.connections.refill.push_back(key);
        }
    }

    /// Fills outboxes that have room with their deferred deliveries, as far as the turn allows.
    pub fn refill_outboxes(&mut self) {
        for _ in 0..self.connections.refill.len() {
            if self.turn.budget.is_exhausted() {
                return;
            }
            let Some(key) = self.connections.refill.pop_front() else { return };
            self.refill_outbox(key);
        }
    }

    /// Encodes the deferred deliveries of a connection, until its outbox is full or the turn's budget is used up.
    fn refill_outbox(&mut self, key: ConnKey) {
        let limit = self.turn.config.outbox_limit;
        self.connections.distribute(self.turn);
        let tight = self.turn.is_out_of_memory();
        let conn = self.connections.table.get_mut(key).filter(|conn| conn.life.leaving.is_none());
        let Some(mut deferred) = conn.and_then(|conn| conn.output.deferred.take()) else {
            return self.pull_soon(key);
        };
        deferred.is_listed = false;
        let mut prepared = None;
        // Answers may have filled it since it was listed; then the next write that makes room lists it again.
        let mut has_room =
            self.connections.table.get(key).is_some_and(|conn| conn.output.outbox.bytes() < limit);
        while has_room && !self.turn.budget.is_exhausted() {
            let Some(waiting) = deferred.pop() else { break };
            self.turn.budget.visit(1);
            deferred.accepted -= usize::from(self.is_accepted(&waiting));
            self.deliver_waiting(key, waiting, &mut prepared);
            let bytes = self.connections.table.get(key).map_or(0, |conn| conn.output.outbox.bytes());
            has_room = bytes < limit && !(tight && bytes > 0);
        }
        let Some(conn) = self.connections.table.get_mut(key) else { return self.drop_deferred(deferred) };
        if deferred.is_empty() {
            if conn.output.is_full() {
                self.note_progress(key);
            }
            self.pull_soon(key); // all of them may have been obsolete, and then no write follows
            return self.resume_after_deferred(key);
        }
        if has_room {
            deferred.is_listed = true;
            self.connections.refill.push_back(key);
        }
        conn.output.deferred = Some(deferred);
        self.resume_after_deferred(key);
    }

    fn deliver_waiting(&mut self, key: ConnKey, waiting: Waiting, prepared: &mut Option<FanOutKey>) {
        match waiting {
            Waiting::Copy(fan_out, subscription) => {
                let place = self.router.subscription_mut(subscription).map(|found| (found.conn, found.place));
                if let Some((conn, Place::Topic { group, .. })) = place
                    && let Some(message) = self.deliveries.fan_outs.take_message(fan_out)
                {
                    if *prepared != Some(fan_out) {
                        self.deliveries.suffixes.begin();
                        *prepared = Some(fan_out);
                    }
                    let member = Member { conn: conn.index, subscription };
                    match message.is_expired(self.turn.now_ms) {
                        true => self.turn.counters.expired += 1,
                        false => self.deliver_to_one(&message.message(), group, member),
                    }
                    self.deliveries.fan_outs.put_back(fan_out, message);
                }
                self.deliveries.fan_outs.arrived(fan_out);
                self.end_fan_out(fan_out);
            }
            Waiting::Range(chunk, start, end, subscription) => {
                if self.router.subscription_mut(subscription).is_some()
                    && let Some(conn) = self.connections.table.get_mut(key)
                    && conn.output.outbox.push_shared(&mut self.connections.chunks, chunk, start, end)
                {
                    self.connections.chunks.retain(chunk, 1);
                }
                self.connections.chunks.release(chunk);
                self.connections.queue_for_flushing(key);
            }
            Waiting::Queued(queued) => {
                *prepared = None;
                self.receive_now(queued.0, queued.1);
            }
        }
    }
}
