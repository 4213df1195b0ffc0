//! The state of a home: queues, consumers and credit; and its requests to others.

use std::collections::{BTreeSet, VecDeque};

use stompica_proto::ProtocolError;

use super::QueueKind;
pub use super::counts::Counts;
use super::pacing::Lead;
use super::pending::Pending;
use super::pick::Picking;
use crate::config::{Compat, Config, Wildcards};
use crate::destination::Pattern;
use crate::door::planted;
use crate::ids::{ConsumerKey, PatternKey, QueueKey, RecordId, Subscriber};
use crate::message::{DEAD_LETTERS, OwnedMessage};

/// The place of the first message; lower places are for messages that precede all others.
pub const FIRST_SEQ: u64 = 1 << 40;

/// A queue.
#[derive(Debug)]
pub struct Queue {
    /// Its name; for durable subscriptions their scope and name.
    pub name: Box<[u8]>,
    /// Its kind.
    pub kind: QueueKind,
    pub(super) pending: Pending,
    pub(super) next_seq: u64,
    /// The place of the next message that precedes those.
    pub(super) next_first: u64,
    /// The number of messages in flight.
    pub(super) in_flight: u64,
    pub(super) in_flight_bytes: u64,
    /// Places that are reserved for transactions: nothing after the first one is delivered.
    pub(super) barriers: BTreeSet<u64>,
    /// For a worker topic: the arrival number of its oldest stale message. Nothing after it is delivered.
    pub(super) older: Option<u64>,
    /// The number of places that are reserved for transactions.
    pub(super) reserved: u64,
    pub(super) reserved_bytes: u64,
    /// Its consumers and patterns, in the order of their turns.
    pub(super) ready: VecDeque<Taker>,
    /// The number of messages that the pattern at the front of `ready` gets before its turn ends; 0: its turn begins.
    pub(super) turns: usize,
    /// The position of its round in the ring of the pattern at the front, so that each queue serves all consumers in
    /// turn.
    pub(super) place: usize,
    /// The number of consumers that subscribed to this queue by its name.
    pub(super) exact: u32,
    /// How far the consumers on the home's own shard are ahead of the others.
    pub(super) lead: Lead,
    /// The patterns that match its name, sorted; current as of a generation of the patterns.
    pub(super) patterns: Vec<PatternKey>,
    pub(super) patterns_as_of: u64,
    pub(super) is_ready: bool,
    /// A replay waits for room in it.
    pub(super) is_awaited: bool,
    /// A part of its line may not be loaded, or `picking` is set.
    pub(super) is_special: bool,
    /// It is in the line of queues that request a message once fewer are requested.
    pub(super) waits_to_load: bool,
    /// What decides who gets which message, if it is not its place.
    pub(super) picking: Option<Box<Picking>>,
    /// The deadline in the timers.
    pub(super) deadline_ms: u64,
    /// The time since which it has had no messages and no consumers.
    pub(super) idle_since_ms: u64,
    /// The number of messages that were ever added.
    pub enqueued: u64,
    /// The number of messages that were consumed.
    pub dequeued: u64,
}

impl Queue {
    /// The number of patterns that it knows to match it.
    #[must_use]
    pub fn known_patterns(&self) -> usize {
        self.patterns.len()
    }

    pub(super) fn new(name: &[u8], kind: QueueKind, now_ms: u64) -> Self {
        Queue {
            name: name.into(),
            kind,
            pending: Pending::default(),
            next_seq: FIRST_SEQ,
            next_first: 1,
            in_flight: 0,
            in_flight_bytes: 0,
            barriers: BTreeSet::new(),
            older: None,
            reserved: 0,
            reserved_bytes: 0,
            ready: VecDeque::new(),
            turns: 0,
            place: 0,
            exact: 0,
            lead: Lead::default(),
            patterns: Vec::new(),
            patterns_as_of: 0,
            is_ready: false,
            is_awaited: false,
            is_special: false,
            waits_to_load: false,
            picking: None,
            deadline_ms: u64::MAX,
            idle_since_ms: now_ms,
            enqueued: 0,
            dequeued: 0,
        }
    }

    /// Assigns the place after all others to a message; a message of a worker topic may have a place already.
    pub(super) fn place(&mut self, message: &mut OwnedMessage) {
        if self.kind != QueueKind::Worker || message.seq == 0 {
            message.seq = self.next_seq;
            self.next_seq += 1;
        }
    }

    /// Whether a message at this place has to wait for earlier messages that are expected.
    pub(super) fn holds_back(&self, seq: u64) -> bool {
        self.barriers.first().is_some_and(|barrier| seq > *barrier)
            || self.older.is_some_and(|older| seq > older)
    }

    /// The number of messages that are pending or in flight.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.pending.len() as u64 + self.in_flight
    }

    /// Messages and bytes that are pending or in flight. Room that transactions have reserved does not count: what is
    /// placed there counts as pending before its room is released.
    #[cfg(simulated)]
    #[must_use]
    pub fn used(&self) -> (u64, u64) {
        (self.size(), self.pending.bytes() as u64 + self.in_flight_bytes)
    }

    /// Whether messages are pending.
    #[must_use]
    pub fn has_pending(&self) -> bool {
        self.pending.len() > 0
    }

    /// The bytes of pending messages.
    #[must_use]
    pub fn waiting_bytes(&self) -> usize {
        self.pending.bytes()
    }

    /// The pending messages of which only the store has the content.
    #[must_use]
    pub fn paged_messages(&self) -> usize {
        self.pending.stubs()
    }

    /// Whether a message is pending that precedes all others.
    #[must_use]
    pub fn has_first(&self) -> bool {
        self.pending.first().is_some_and(|first| first.seq < FIRST_SEQ)
    }

    /// The number of messages in flight, and their bytes.
    #[must_use]
    pub fn in_flight(&self) -> (u64, u64) {
        (self.in_flight, self.in_flight_bytes)
    }

    /// Its deadline in the timers.
    #[cfg(any(test, simulated))]
    pub fn deadline_ms(&self) -> u64 {
        self.deadline_ms
    }

    /// The number of subscriptions that consume it by its name.
    #[must_use]
    pub fn holders(&self) -> u32 {
        self.exact
    }

    /// Whether its expired messages go to a dead-letter queue.
    pub(super) fn is_dead_lettered(&self) -> bool {
        self.kind == QueueKind::Work && !self.name.starts_with(DEAD_LETTERS)
    }

    pub(super) fn is_idle(&self) -> bool {
        let is_empty =
            self.size() == 0 || (self.pending.len() == 0 && planted!("idle-with-messages-in-flight"));
        is_empty && self.exact == 0 && self.reserved == 0
    }
}

/// A candidate for a queue's next message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taker {
    /// A consumer of this queue.
    One(ConsumerKey),
    /// The next consumer in the ring of a pattern.
    Pattern(PatternKey),
}

/// The source of a consumer's messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Consumed {
    Queue(QueueKey),
    Pattern(PatternKey),
}

/// A subscription, as its home knows it.
#[derive(Debug)]
pub(super) struct Consumer {
    pub(super) subscriber: Subscriber,
    pub(super) credit: Credit,
    /// Credit was requested and has not arrived.
    pub(super) has_requested: bool,
    /// Another home has requested the credit that is not needed here.
    pub(super) is_revoked: bool,
    /// It was found without credit or on a closed shard, and is in no ring.
    pub(super) out_of_credit: bool,
    /// It is suspended until its shard is opened or its wait for slower shards ends; credit does not resume it.
    pub(super) is_suspended: bool,
    pub(super) consumed: Consumed,
}

impl Consumer {
    pub(super) fn new(subscriber: Subscriber, credit: Credit, consumed: Consumed) -> Self {
        Consumer {
            subscriber,
            credit,
            has_requested: false,
            is_revoked: false,
            out_of_credit: false,
            is_suspended: false,
            consumed,
        }
    }
}

/// The number of messages and bytes that a consumer may still be sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Credit {
    /// Messages.
    pub messages: i64,
    /// Bytes; the last message may exceed them.
    pub bytes: i64,
}

impl Credit {
    /// No limit.
    pub const UNLIMITED: i64 = i64::MAX / 4;

    pub(super) fn is_left(self) -> bool {
        self.messages > 0 && self.bytes > 0
    }
}

/// A message on its way to a consumer.
#[derive(Debug)]
pub struct Delivery {
    /// The consumer's subscription.
    pub subscriber: Subscriber,
    /// The queue of the message.
    pub queue: QueueKey,
    /// The consumer at the queue's home.
    pub consumer: ConsumerKey,
    /// The message.
    pub message: OwnedMessage,
}

impl Delivery {
    /// The load for the shard that reads it, in units of 64 encoded bytes; headers of this delivery alone count as two.
    #[must_use]
    pub fn load(&self) -> usize {
        2 + self.message.size() / 64
    }
}

/// A report about messages in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Their queue.
    pub queue: QueueKey,
    /// The consumer that they were sent to.
    pub consumer: ConsumerKey,
    /// The number of settled messages.
    pub settled: u64,
    /// Their bytes.
    pub settled_bytes: u64,
    /// The credit that the consumer gets back.
    pub credit: Credit,
}

impl Progress {
    /// Whether it is about the same queue and consumer.
    #[must_use]
    pub fn is_of_same(&self, other: &Progress) -> bool {
        self.queue == other.queue && self.consumer == other.consumer
    }

    /// Adds the counts of another report.
    pub fn add(&mut self, other: &Progress) {
        self.settled += other.settled;
        self.settled_bytes += other.settled_bytes;
        self.credit.messages += other.credit.messages;
        self.credit.bytes += other.credit.bytes;
    }
}

/// The reason why a message is requeued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GivenBack {
    /// Its consumer has ended, or never got it.
    Lost,
    /// NACK, or `ack_timeout`.
    Failed {
        /// The `max-deliveries` of its consumer; 0: the message is not delivered again.
        deliveries_max: u32,
        /// The `redelivery-delay` of its consumer, in milliseconds.
        delay_ms: u64,
        /// The credit that its consumer gets back.
        credit: Credit,
    },
}

/// A request of a home to others.
#[derive(Debug)]
pub enum Effect {
    /// Deliver a message to a consumer.
    Deliver(Delivery),
    /// Send a message to its dead-letter queue.
    DeadLetter(OwnedMessage),
    /// A message of a worker topic has no consumer.
    Unmatched(OwnedMessage),
    /// Request credit for a consumer.
    CreditRequest(Subscriber, ConsumerKey),
    /// Return credit of a consumer that is not needed here.
    CreditReturn(Subscriber, i64),
    /// A queue that is fed by a replay has room.
    Feed(QueueKey),
    /// The store cannot read a message of a queue.
    Unreadable(QueueKey, RecordId),
    /// Call [`Home::handle_due`](super::home::Home::handle_due) for a queue at this time, not before; `u64::MAX`: never.
    Timer(u64, QueueKey),
}

/// The reason why a message is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// `max_queue_length` or `max_queue_bytes` is reached; the text has the current value and the limit.
    Full(String),
}

/// The settings that concern queues.
#[derive(Clone, Debug)]
pub(super) struct Rules {
    pub(super) length_max: u64,
    pub(super) bytes_max: u64,
    pub(super) deliveries_max: u32,
    pub(super) delay_ms: u64,
    pub(super) idle_ms: u64,
    wildcards: Wildcards,
    compat: Compat,
}

impl Rules {
    pub(super) fn of(config: &Config) -> Self {
        Rules {
            length_max: config.max_queue_length,
            bytes_max: config.max_queue_bytes,
            deliveries_max: config.max_deliveries,
            delay_ms: config.redelivery_delay.as_millis() as u64,
            idle_ms: config.queue_idle_expiry.as_millis() as u64,
            wildcards: config.wildcards,
            compat: config.compat,
        }
    }

    /// Whether there are dead-letter queues: `compat=stompica` has no `/queue/` kind.
    pub(super) fn has_dead_letters(&self) -> bool {
        self.compat == Compat::None
    }

    pub(super) fn parse<'a>(&self, pattern: &'a [u8]) -> Result<Option<Pattern<'a>>, ProtocolError> {
        Pattern::parse(pattern, self.wildcards, self.compat)
    }
}
