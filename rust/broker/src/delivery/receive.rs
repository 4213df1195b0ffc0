//! Hot path: deliveries of queues to connections of this shard, and their settlement.
//!
//! With ack auto a message is consumed when the socket has taken its last byte; until then the connection holds it
//! ([`PendingWrite`]). In the client modes it is held until the ACK. Both return credit: bytes when it is written,
//! messages when it is settled. When a frame is cut or a connection is lost, its messages are requeued.

use std::hash::BuildHasher as _;
use std::mem::take;

use smallvec::SmallVec;
use stompica_proto::Version;
use stompica_proto::encode::{self, Message};
use stompica_proto::session::AckMode;
use stompica_proto::ws::{self, Opcode};

use super::Owners;
use super::deliver::push_numbers;
use crate::connection::conn::{Conn, Flush};
use crate::connection::deferred::Waiting;
use crate::connection::outbox::Kind;
use crate::connection::pausing::Pause;
use crate::connection::pending_writes::{PendingWrite, PendingWrites};
use crate::destination::shown;
use crate::door::planted;
use crate::ids::{ConnKey, ShardId};
use crate::ids::{ConsumerKey, Subscriber, SubscriptionKey};
use crate::message::OwnedMessage;
use crate::message::chunk::ChunkPool;
use crate::queue::consumer_state::{ConsumerState, Retries};
use crate::queue::mail::HomeNote;
use crate::queue::types::{Credit, Delivery, GivenBack, Progress};
use crate::queue::unacked::{Origin, Taken, TakenOnes};
use crate::router::group::Framing;
use crate::timer::Due;
use crate::turn::Turn;

/// The maximum of credit that a home is granted at a time, in messages.
const GRANT_MAX: i64 = 64;

/// Appends the numbers of a delivery, each after a `-`.
fn push_delivery(id: &mut SmallVec<[u8; 64]>, numbers: [u64; 2]) {
    for number in numbers {
        id.push(b'-');
        id.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
    }
}

/// Appends a delivery to the outbox of its connection. `outputs` are the chunks of outboxes, and memory to encode in.
#[inline]
fn write_delivery(
    turn: &mut Turn,
    conn: &mut Conn,
    consumer: &ConsumerState,
    outputs: (&mut ChunkPool, &mut Vec<u8>),
    owned: &OwnedMessage,
) {
    let (chunks, scratch) = outputs;
    let mut version = consumer.wire_format.version;
    if version == Version::V1_1 && planted!("escaped-for-1.2") {
        version = Version::V1_2;
    }
    let numbers = [u64::from(consumer.key.index), consumer.number];
    let mut extra = SmallVec::<[u8; 48]>::new();
    let mut message = owned.message();
    let mut own_id = SmallVec::<[u8; 64]>::new();
    let has_ack_id = consumer.ack != AckMode::Auto && version == Version::V1_2;
    if consumer.ack != AckMode::Auto && version == Version::V1_0 {
        // STOMP 1.0 acknowledges by message-id alone, so the id must identify the delivery.
        own_id.extend_from_slice(message.id);
        push_delivery(&mut own_id, numbers);
        message.id = &own_id;
    }
    if owned.deliveries > 1 && !planted!("redelivered-forgotten") {
        extra.extend_from_slice(b"redelivered:true\n");
        push_numbers(&mut extra, b"delivery-count:", &[u64::from(owned.deliveries)]);
    }
    if conn.output.dropped > 0 {
        push_numbers(&mut extra, b"dropped:", &[u64::from(take(&mut conn.output.dropped))]);
    }
    let own_name;
    if message.destination.starts_with(b"/temp-") {
        own_name = shown(message.destination);
        message.destination = &own_name;
    }
    let before = conn.output.outbox.bytes();
    let left_out = &mut turn.counters.headers_left_out;
    let mut write = |out: &mut Vec<u8>, message: &Message<'_>| {
        out.reserve(consumer.prefix.len() + extra.len() + message.body.len() + message.headers.len() + 200);
        out.extend_from_slice(&consumer.prefix);
        if has_ack_id {
            encode::ack_id(out, numbers);
        }
        if !extra.is_empty() {
            out.extend_from_slice(&extra);
        }
        *left_out += encode::message_suffix(out, message, version) as u64;
    };
    match consumer.wire_format.framing {
        Framing::Stomp => conn.output.outbox.append(chunks, Kind::Delivery, |out| write(out, &message)),
        Framing::WebSocket => {
            scratch.clear();
            write(scratch, &message);
            let text = std::str::from_utf8(message.body).is_ok();
            let opcode = if text { Opcode::Text } else { Opcode::Binary };
            conn.output.outbox.append(chunks, Kind::Delivery, |out| {
                ws::encode::header(out, opcode, scratch.len());
                out.extend_from_slice(scratch);
            });
        }
    }
    turn.budget.encoded += conn.output.outbox.bytes() - before;
}

/// Holds a message that was appended to an outbox until it is settled.
#[inline]
fn hold_delivery(
    turn: &mut Turn,
    conn: &mut Conn,
    consumer: &mut ConsumerState,
    hash_id: impl FnOnce(&[u8]) -> u64,
    origin: Origin,
    message: OwnedMessage,
) {
    let (now_ms, subscription) = (turn.now_ms, consumer.key);
    let timeout_ms = turn.config.ack_timeout_ms;
    let pending_writes = conn.pending_writes.get_or_insert_default();
    let mut bytes = message.size() as u64;
    let mut kept = Some(message);
    if consumer.ack != AckMode::Auto
        && let Some(message) = kept.take()
    {
        let id_hash = match consumer.wire_format.version {
            Version::V1_1 => hash_id(message.message().id),
            _ => 0,
        };
        consumer.unacked.push(consumer.number, id_hash, now_ms, origin, message);
        pending_writes.unacked += 1;
        if timeout_ms > 0 && !consumer.armed {
            consumer.armed = true;
            turn.timers.set(now_ms.saturating_add(timeout_ms), Due::Subscription(subscription));
        }
        if consumer.bytes_on_ack {
            bytes = 0;
        }
    }
    match pending_writes.writes.back_mut() {
        Some(last) if kept.is_none() && last.message.is_none() && last.can_take(origin, bytes) => {
            last.bytes += bytes;
            conn.output.outbox.move_last_mark();
        }
        _ => {
            pending_writes.writes.push_back(PendingWrite { subscription, origin, bytes, message: kept });
            conn.output.outbox.mark();
        }
    }
}

impl Owners<'_> {
    /// Delivers a message of a queue to a subscription of this shard, or requeues it if the subscription has ended.
    #[inline]
    pub fn receive(&mut self, home: ShardId, delivery: Delivery) {
        let limit = self.turn.config.outbox_limit;
        if let Some(consumer) = self.queues.consumers.get(delivery.subscriber.key)
            && let Some(conn) = self.connections.table.get(consumer.conn).filter(|conn| !conn.has_room(limit))
            && (conn.life.leaving.is_some() || consumer.initial_replay.is_none())
        {
            return self.defer(consumer.conn, Waiting::Queued(Box::new((home, delivery))));
        }
        self.receive_now(home, delivery);
    }

    /// Does the same, regardless of deferred deliveries.
    #[inline]
    pub fn receive_now(&mut self, home: ShardId, delivery: Delivery) {
        let Delivery { subscriber, queue, consumer, message } = delivery;
        let origin = Origin { home, queue, consumer };
        self.connections.distribute(self.turn);
        // Consumer and connection are looked up once for all that follows.
        let Owners { turn, queues, connections, .. } = self;
        let (turn, connections) = (&mut **turn, &mut **connections);
        let Some(consumer) = queues.consumers.get_mut(subscriber.key) else {
            return self.give_back(origin, message, GivenBack::Lost);
        };
        let Some(conn) = connections.table.get_mut(consumer.conn) else {
            return self.give_back(origin, message, GivenBack::Lost);
        };
        consumer.number += 1;
        let outputs = (&mut connections.chunks, &mut connections.scratch);
        write_delivery(turn, conn, consumer, outputs, &message);
        turn.counters.deliveries += 1;
        if conn.output.flush != Flush::Prompt {
            conn.output.flush = Flush::Prompt;
            connections.dirty.push(consumer.conn);
        }
        let hash_id = |id: &[u8]| connections.subscription_hasher.hash_one(id);
        hold_delivery(turn, conn, consumer, hash_id, origin, message);
    }

    /// Settles and credits the deliveries that a socket has taken.
    pub fn note_written(&mut self, key: ConnKey) {
        let Some(conn) = self.connections.table.get_mut(key) else { return };
        let Some(mut pending_writes) = conn.pending_writes.take() else { return };
        let passed = conn.output.outbox.take_passed();
        let mut note: Option<(SubscriptionKey, ShardId, Progress)> = None;
        for _ in 0..passed {
            let Some(written) = pending_writes.writes.pop_front() else { break };
            let settled = u64::from(written.message.is_some());
            written.message.iter().for_each(|message| self.queues.home.forget(message));
            let progress = Progress {
                queue: written.origin.queue,
                consumer: written.origin.consumer,
                settled,
                settled_bytes: settled * written.bytes,
                credit: Credit { messages: settled as i64, bytes: written.bytes as i64 },
            };
            match &mut note {
                Some((subscription, home, last))
                    if *subscription == written.subscription
                        && *home == written.origin.home
                        && last.is_of_same(&progress) =>
                {
                    last.add(&progress);
                }
                _ => {
                    let before = note.replace((written.subscription, written.origin.home, progress));
                    self.report_written(before);
                }
            }
        }
        self.report_written(note);
        if let Some(conn) = self.connections.table.get_mut(key) {
            conn.pending_writes = Some(pending_writes);
            if conn.wait.pause() == Some(Pause::Deferred) {
                self.resume_after_deferred(key);
            }
        }
    }

    fn report_written(&mut self, note: Option<(SubscriptionKey, ShardId, Progress)>) {
        let Some((subscription, home, mut progress)) = note else { return };
        if home != self.turn.id && planted!("written-credit-lost") {
            progress.credit.bytes = 0;
        }
        if let Some(shared_credit) = self.queues.consumers.shared_credit_mut(subscription)
            && !shared_credit.requests.is_empty()
        {
            shared_credit.available += take(&mut progress.credit.messages);
            self.grant_credit(subscription);
        }
        self.queue().report(home, progress);
    }

    /// Requeues deliveries of a lost connection, or of a cut outbox: the newest `frames` of them (all, if `None`)
    /// were not sent.
    pub fn give_back_unwritten(&mut self, pending_writes: &mut PendingWrites, frames: Option<usize>) {
        let mut unwritten = take(&mut pending_writes.writes);
        let kept = unwritten.len() - frames.unwrap_or(unwritten.len()).min(unwritten.len());
        for written in std::iter::from_fn(|| unwritten.pop_front()).take(kept) {
            pending_writes.writes.push_back(written);
        }
        if !unwritten.is_empty() && planted!("unwritten-not-returned") {
            return;
        }
        self.return_unwritten(unwritten);
    }

    /// Settles deliveries that were acknowledged.
    pub fn settle_all(&mut self, key: SubscriptionKey, taken: TakenOnes) {
        for taken in taken {
            self.settle_one(key, &taken);
        }
        self.grant_credit(key);
    }

    /// Settles a delivery that was acknowledged; [`Owners::grant_credit`] has to follow.
    pub fn settle_one(&mut self, key: SubscriptionKey, taken: &Taken) {
        let Taken { origin: Origin { home, queue, consumer }, message, .. } = taken;
        self.queues.home.forget(message);
        let credit = self.credit_for(key, message);
        let settled_bytes = message.size() as u64;
        let progress = Progress { queue: *queue, consumer: *consumer, settled: 1, settled_bytes, credit };
        if planted!("ack-forgotten") {
            return;
        }
        self.queue().report(*home, progress);
    }

    /// Requeues deliveries that failed: NACK, or `ack_timeout`.
    pub fn give_back_failed(&mut self, key: SubscriptionKey, retries: Retries, taken: TakenOnes) {
        let Retries { deliveries_max, delay_ms } = retries;
        for Taken { origin, message, .. } in taken {
            let credit = self.credit_for(key, &message);
            let why = GivenBack::Failed { deliveries_max, delay_ms, credit };
            self.give_back(origin, message, why);
        }
        self.grant_credit(key);
    }

    /// The credit that the home of a message gets back when it is settled or requeued. The consumer of a pattern
    /// keeps it if another home has requested credit; a consumer that has ended gives none.
    fn credit_for(&mut self, key: SubscriptionKey, message: &OwnedMessage) -> Credit {
        let Some(consumer) = self.queues.consumers.get_mut(key) else { return Credit::default() };
        let bytes = if consumer.bytes_on_ack { message.size() as i64 } else { 0 };
        let (conn, is_replaying) = (consumer.conn, consumer.initial_replay.is_some());
        let credit = match consumer.shared_credit.as_mut().filter(|shared| !shared.requests.is_empty()) {
            Some(shared_credit) => {
                shared_credit.available += 1;
                Credit { messages: 0, bytes }
            }
            None => Credit { messages: 1 + i64::from(planted!("credit-twice")), bytes },
        };
        if is_replaying {
            self.pull_soon(conn); // if messages that waited for this credit have expired, no write follows
        }
        credit
    }

    /// Handles a home's request for credit: it has messages for the consumer of a pattern.
    pub fn credit_requested(&mut self, home: ShardId, key: SubscriptionKey, consumer: ConsumerKey) {
        if let Some(shared_credit) = self.queues.consumers.shared_credit_mut(key) {
            shared_credit.requests.push_back((home, consumer));
            let is_short = shared_credit.available == 0;
            self.grant_credit(key);
            if is_short && !planted!("credit-not-called-back") {
                let subscriber = Subscriber { shard: self.turn.id, key };
                for other in (0..self.turn.shards).map(|at| ShardId(at as u8)).filter(|at| *at != home) {
                    self.queue().tell(other, HomeNote::CreditRevoke(subscriber));
                }
            }
        }
    }

    /// Handles credit that a home returns because it does not need it.
    pub fn credit_returned(&mut self, key: SubscriptionKey, messages: i64) {
        if let Some(shared_credit) = self.queues.consumers.shared_credit_mut(key) {
            if !planted!("returned-credit-lost") {
                shared_credit.available += messages;
            }
            self.grant_credit(key);
        }
    }

    /// Grants the available credit to the homes that have requested some, in turn.
    pub fn grant_credit(&mut self, key: SubscriptionKey) {
        let Some(shared_credit) = self.queues.consumers.shared_credit_mut(key) else { return };
        let mut grants = SmallVec::<[(ShardId, ConsumerKey, i64); 4]>::new();
        while shared_credit.available > 0
            && let Some((home, consumer)) = shared_credit.requests.pop_front()
        {
            let share = shared_credit.available / (shared_credit.requests.len() as i64 + 1);
            let messages = share.clamp(1, GRANT_MAX);
            shared_credit.available -= messages;
            grants.push((home, consumer, messages));
        }
        let others_want = !shared_credit.requests.is_empty();
        let subscriber = Subscriber { shard: self.turn.id, key };
        for (home, consumer, messages) in grants {
            self.queue().tell(home, HomeNote::CreditGrant(consumer, messages));
            if others_want {
                // That home may not need its credit any more.
                self.queue().tell(home, HomeNote::CreditRevoke(subscriber));
            }
        }
    }
}
