//! All queues that have their home on one shard, and their consumers. A home decides which consumer gets each message.
//!
//! A queue's `ready` ring holds its consumers and the patterns that match it. A pattern has a ring of its own
//! consumers, which all of its queues share. Each queue has a place of its own in that ring, and so serves all
//! consumers in turn.
//!
//! A consumer leaves its ring when it is found without credit (`out_of_credit`) or on a shard that has enough to read
//! (`congestion.rs`). It returns when it gets credit, or when its shard is opened. A pattern is either in the ring of a
//! queue, or has the queue in its list of queues that found no consumer in its ring. So no delivery has to search.
//!
//! A consumer of one queue has all its credit at that queue's home. The credit of a pattern's consumer is spread over
//! all homes. A home where this credit runs out requests more ([`Effect::CreditRequest`]), and other homes return what
//! they do not need ([`Effect::CreditReturn`]), so that `prefetch-count` holds for all homes together.

use std::collections::VecDeque;
use std::hash::BuildHasher as _;

use super::QueueKind;
use super::congestion::Congestion;
use super::copies::Copies;
use super::pacing::Pacing;
use super::paging::Paging;
use super::patterns::Patterns;
use super::sweep::Sweep;
use super::types::{
    Consumer, Counts, Credit, Effect, FIRST_SEQ, GivenBack, Progress, Queue, Refusal, Rules, Taker,
};
use crate::collections::keyed::Keyed;
use crate::collections::spread::{self, Spread};
use crate::config::Config;
use crate::door::planted;
use crate::ids::{ConsumerKey, NO_RECORD, PatternKey, QueueKey};
use crate::message::OwnedMessage;
use crate::store::Store;
use crate::store::handle::Handle;

/// The approximate memory of a queue without its struct, its name and its messages: slot, table of names, ring.
const QUEUE_BYTES: usize = 40 + spread::PLACE_BYTES;
/// The approximate memory of a consumer without its struct: slot, table of subscribers, ring.
const CONSUMER_BYTES: usize = 64;
/// The approximate memory of one pattern in the list and the ring of a queue.
const REFERENCE_BYTES: usize = 2 * (size_of::<PatternKey>() + size_of::<Taker>());

/// The longest delay of a redelivery.
const DELAY_MAX_MS: u64 = 10_000;

/// The queues of one home.
#[derive(Debug)]
pub struct Home {
    pub(super) hasher: crate::door::HashState,
    pub(super) names: Spread<QueueKey>,
    pub(super) queues: Keyed<Queue>,
    pub(super) consumers: Keyed<Consumer>,
    pub(super) by_subscriber: Spread<ConsumerKey>,
    pub(super) patterns: Patterns,
    pub(super) rules: Rules,
    /// Queues that may have messages to deliver.
    pub(super) ready_queues: VecDeque<QueueKey>,
    /// Patterns that may have both a consumer with credit and queues that wait for one.
    pub(super) unserved: VecDeque<PatternKey>,
    /// Consumers whose credit another home has requested. Each has the value of `looked` from which on this home does
    /// not need the credit.
    pub(super) revocations: VecDeque<(u64, ConsumerKey)>,
    /// The number of visits to ready queues and unserved patterns.
    pub(super) looked: u64,
    pub(super) sweep: Sweep,
    pub(super) congestion: Congestion,
    pub(super) pacing: Pacing,
    pub(super) copies: Copies,
    /// The number of patterns that queues know, summed over all queues.
    pub(super) references: usize,
    pub(super) name_bytes: usize,
    /// The number of queues, patterns and messages that were visited since the caller last reset it.
    pub visited: usize,
    /// The place in a pattern's ring at which the next new queue begins.
    pub(super) rotation: usize,
    pub(super) now_ms: u64,
    /// The store of the messages that survive, and the answers that wait for it.
    pub store: Handle,
    pub(super) paging: Paging,
    /// The broker's connections end: what their consumers give back stays in its queue, for nobody could acknowledge it.
    pub is_ending: bool,
    /// Some queue does not deliver in the order of places.
    pub(super) picks: bool,
    /// The actions that the caller has to carry out, in this order.
    pub effects: Vec<Effect>,
    /// Counts of messages.
    pub counts: Counts,
}

impl Home {
    /// A home without queues. `hasher` is the one that the whole broker uses.
    #[must_use]
    pub fn new(config: &Config, hasher: crate::door::HashState, store: Box<dyn Store>) -> Self {
        let store = Handle::new(store);
        Home {
            hasher,
            names: Spread::default(),
            queues: Keyed::default(),
            consumers: Keyed::default(),
            by_subscriber: Spread::default(),
            patterns: Patterns::default(),
            rules: Rules::of(config),
            ready_queues: VecDeque::new(),
            unserved: VecDeque::new(),
            revocations: VecDeque::new(),
            looked: 0,
            sweep: Sweep::default(),
            congestion: Congestion::default(),
            pacing: Pacing::default(),
            copies: Copies::default(),
            references: 0,
            name_bytes: 0,
            visited: 0,
            rotation: 0,
            now_ms: 0,
            paging: Paging::new(store.pages()),
            is_ending: false,
            picks: false,
            store,
            effects: Vec::new(),
            counts: Counts::default(),
        }
    }

    /// Applies the settings that a reload can change.
    pub fn reload(&mut self, config: &Config) {
        self.rules = Rules::of(config);
        self.sweep_all(); // idle queues may have to be removed earlier
    }

    /// Begins a turn at this time, in milliseconds since the broker's start.
    pub fn set_time(&mut self, now_ms: u64) {
        self.now_ms = now_ms;
        self.pacing.begin_turn();
    }

    /// The number of queues with a name. Queues of single subscriptions have none.
    #[must_use]
    pub fn named(&self) -> usize {
        self.names.len()
    }

    /// The approximate memory of queues, consumers and patterns in bytes, without the messages.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        let queues = (size_of::<Queue>() + QUEUE_BYTES) * self.queues.len() + self.name_bytes;
        let consumers = (size_of::<Consumer>() + CONSUMER_BYTES) * self.consumers.len();
        queues
            + consumers
            + REFERENCE_BYTES * self.references
            + self.patterns.held_bytes()
            + self.copies.held_bytes()
    }

    /// Whether any consumer has subscribed to a pattern.
    #[must_use]
    pub fn has_patterns(&self) -> bool {
        !self.patterns.is_empty()
    }

    /// Whether [`Home::dispatch`] has work to do.
    #[must_use]
    pub fn has_work(&self) -> bool {
        !(self.ready_queues.is_empty() && self.unserved.is_empty())
            || self.congestion.is_opening()
            || self.ends_wait()
    }

    /// A queue, unless it has been removed.
    #[must_use]
    pub fn queue(&self, key: QueueKey) -> Option<&Queue> {
        self.queues.get(key)
    }

    /// All queues.
    pub fn iter(&self) -> impl Iterator<Item = &Queue> {
        self.queues.iter().map(|(_, queue)| queue)
    }

    /// The queue with a name.
    #[must_use]
    pub fn find(&self, name: &[u8]) -> Option<QueueKey> {
        let named = |key: QueueKey| self.queues.get(key).is_some_and(|queue| *queue.name == *name);
        self.names.find(self.hasher.hash_one(name), named)
    }

    /// Adds a queue, which must not exist. Consumers of matching patterns consume it from now on.
    pub fn create(&mut self, name: &[u8], kind: QueueKind) -> QueueKey {
        let key = self.queues.insert(Queue::new(name, kind, self.now_ms));
        self.name_bytes += name.len();
        match kind {
            QueueKind::Private => self.copies.private += 1,
            _ => self.names.insert(self.hasher.hash_one(name), key),
        }
        if kind.is_named() {
            self.match_patterns(key);
            self.rearm(key);
        }
        key
    }

    /// Whether a queue has room for `count` more messages with `bytes` in total.
    ///
    /// # Errors
    /// [`Refusal::Full`].
    pub fn check_room(&self, key: QueueKey, count: u64, bytes: u64) -> Result<(), Refusal> {
        let Some(queue) = self.queues.get(key) else { return Ok(()) };
        let name = || String::from_utf8_lossy(&queue.name).into_owned();
        let (size, max) = (queue.size(), self.rules.length_max);
        let is_reserved = queue.reserved == 0 || !planted!("reserved-room-ignored");
        let wanted = size + if is_reserved { queue.reserved } else { 0 } + count;
        if wanted > max && !(wanted == max + 1 && planted!("full-queue-takes-one-more")) {
            return Err(Refusal::Full(format!(
                "'{}' holds {size} messages, max_queue_length is {max}",
                name()
            )));
        }
        let held = queue.pending.bytes() as u64 + queue.in_flight_bytes;
        if held + queue.reserved_bytes + bytes > self.rules.bytes_max && !planted!("full-queue-takes-bytes") {
            let max = self.rules.bytes_max;
            return Err(Refusal::Full(format!("'{}' holds {held} bytes, max_queue_bytes is {max}", name())));
        }
        Ok(())
    }

    /// Adds a message to a queue, after the caller has called [`Home::check_room`]. A worker topic without consumers
    /// returns it as [`Effect::Unmatched`]. A message that already has a place in a worker topic keeps it.
    pub fn enqueue(&mut self, key: QueueKey, mut message: OwnedMessage) {
        if self.is_unmatched(key) {
            self.effects.push(Effect::Unmatched(message));
            return;
        }
        let Some(queue) = self.queues.get_mut(key) else {
            self.counts.dropped += 1;
            return self.forget(&message);
        };
        if message.is_expired(self.now_ms) {
            return self.expire(key, message);
        }
        queue.place(&mut message);
        self.store.move_to(&queue.name, queue.kind.survives(), &mut message);
        queue.enqueued += 1;
        self.counts.enqueued += 1;
        let expires = message.expires_ms != 0;
        self.visited += queue.pending.push(message);
        if expires {
            self.rearm(key);
        }
        if self.loads_one_at_a_time() {
            self.page_out_arrivals(key);
        }
        self.mark_ready(key);
    }

    /// Adds a message to a queue: before all that were added by [`Home::enqueue`], after those added by this function.
    pub fn enqueue_first(&mut self, key: QueueKey, mut message: OwnedMessage) {
        if let Some(queue) = self.queues.get_mut(key) {
            message.seq = queue.next_first;
            queue.next_first += 1;
            self.store.move_to(&queue.name, queue.kind.survives(), &mut message);
            queue.enqueued += 1;
            self.counts.enqueued += 1;
            queue.pending.put_back(message);
            self.rearm(key);
            self.mark_ready(key);
        }
    }

    /// Counts consumed messages, and grants credit.
    pub fn progress(&mut self, progress: &Progress) {
        if let Some(queue) = self.queues.get_mut(progress.queue)
            && progress.settled > 0
        {
            queue.in_flight -= progress.settled.min(queue.in_flight);
            queue.in_flight_bytes -= progress.settled_bytes.min(queue.in_flight_bytes);
            queue.dequeued += progress.settled;
            self.counts.dequeued += progress.settled;
            if queue.is_idle() {
                self.became_idle(progress.queue);
            } else if queue.in_flight == 0 && queue.is_special {
                self.mark_ready(progress.queue); // it may load its next message although memory is full
            }
        }
        self.add_credit(progress.consumer, progress.credit);
    }

    /// Drops the next message to be delivered of those that were published live, not by an initial replay. Returns whether
    /// there was one.
    pub fn drop_live(&mut self, key: QueueKey) -> bool {
        let dropped = self.queues.get_mut(key).and_then(|queue| queue.pending.take_from(FIRST_SEQ));
        dropped.map(|dropped| self.forget(&dropped)).is_some()
    }

    /// Tells the store that a message has ended.
    pub fn forget(&mut self, message: &OwnedMessage) {
        if message.record != NO_RECORD && planted!("record-left") {
            return;
        }
        self.store.forget(message.record);
    }

    /// Grants credit to a consumer.
    pub fn add_credit(&mut self, key: ConsumerKey, credit: Credit) {
        let Some(consumer) = self.consumers.get_mut(key) else { return };
        consumer.credit.messages += credit.messages;
        consumer.credit.bytes += credit.bytes;
        if credit.messages > 0 {
            consumer.has_requested = false;
        }
        if consumer.out_of_credit && !consumer.is_suspended && consumer.credit.is_left() {
            self.pacing.note_regained();
            if !self.pace(key) {
                self.rejoin(key);
            }
        }
    }

    /// Returns a message, which was delivered, to its queue.
    pub fn give_back(
        &mut self,
        key: QueueKey,
        consumer: ConsumerKey,
        mut message: OwnedMessage,
        why: GivenBack,
    ) {
        if let GivenBack::Failed { credit, .. } = why
            && !planted!("nack-credit-lost")
        {
            self.add_credit(consumer, credit);
        }
        let is_unmatched = self.is_unmatched(key);
        let Some(queue) = self.queues.get_mut(key) else {
            self.counts.dropped += 1;
            return self.forget(&message);
        };
        queue.in_flight -= 1.min(queue.in_flight);
        queue.in_flight_bytes -= (message.size() as u64).min(queue.in_flight_bytes);
        match why {
            _ if message.is_expired(self.now_ms) => self.expire(key, message),
            GivenBack::Lost if is_unmatched => self.leave_unmatched(message),
            GivenBack::Lost if planted!("requeued-message-lost") => {}
            GivenBack::Lost => {
                if planted!("delivery-count-lost") {
                    message.deliveries = 0;
                }
                if queue.pending.has_next() && planted!("requeued-at-the-end") {
                    queue.place(&mut message);
                }
                queue.pending.put_back(message);
                self.rearm(key);
            }
            GivenBack::Failed { .. }
                if matches!(queue.kind, QueueKind::Private) && planted!("topic-retry-forgotten") => {}
            GivenBack::Failed { deliveries_max, delay_ms, .. } => {
                message.failures = message.failures.saturating_add(1);
                message.set_refused_by(consumer);
                let failures = u32::from(message.failures);
                if deliveries_max == 0 {
                    self.dead_letter(message, "rejected");
                } else if message.failures_max != 0 && message.failures >= message.failures_max {
                    self.dead_letter(message, "max-exceptions");
                } else if failures
                    >= self.rules.deliveries_max.min(deliveries_max)
                        + u32::from(planted!("one-delivery-more"))
                {
                    self.dead_letter(message, "max-deliveries");
                } else {
                    let first_ms = self.rules.delay_ms.max(delay_ms);
                    let wait_ms = first_ms.saturating_mul(1 << (failures - 1).min(32)).min(DELAY_MAX_MS);
                    let wait_ms = if planted!("redelivered-early") { wait_ms / 2 } else { wait_ms };
                    self.store.deliver(&message);
                    queue.pending.delay(message, self.now_ms + wait_ms);
                    if !planted!("redelivery-timer-lost") {
                        self.rearm(key);
                    }
                }
            }
        }
        if !self.is_ending {
            self.mark_ready(key);
        }
        if self.queues.get(key).is_some_and(Queue::is_idle) {
            self.became_idle(key);
        }
    }
}

#[cfg(test)]
#[path = "home_tests.rs"]
mod tests;
