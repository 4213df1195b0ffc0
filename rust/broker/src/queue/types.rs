//! What a home is made of, and what it asks others to do.

use std::collections::{BTreeSet, VecDeque};

use stompica_proto::ProtocolError;

use super::QueueKind;
use super::pending::Pending;
use crate::config::{Compat, Config, Wildcards};
use crate::destination::Pattern;
use crate::ids::{ConsumerKey, PatternKey, QueueKey, Subscriber};
use crate::message::OwnedMessage;

/// The place of the first message; those below it are for what goes ahead of all.
pub(super) const FIRST_SEQ: u64 = 1 << 40;

/// One queue.
#[derive(Debug)]
pub struct Queue {
    /// Its name; for durable subscriptions their scope and name.
    pub name: Box<[u8]>,
    /// What it is for.
    pub kind: QueueKind,
    pub(super) pending: Pending,
    pub(super) next_seq: u64,
    /// The place of the next message that goes ahead of those.
    pub(super) next_first: u64,
    /// Messages that consumers hold.
    pub(super) in_flight: u64,
    pub(super) in_flight_bytes: u64,
    /// Places that prepared transactions have been promised: nothing behind the first one is delivered.
    pub(super) barriers: BTreeSet<u64>,
    /// Of a worker topic: the first of its messages that wait elsewhere. Nothing behind it is delivered.
    pub(super) older: Option<u64>,
    /// Room that prepared transactions have been promised.
    pub(super) reserved: u64,
    pub(super) reserved_bytes: u64,
    /// Who is next.
    pub(super) ready: VecDeque<Taker>,
    /// Messages that the pattern in front of `ready` gets before it is the next one's turn; 0: its round begins.
    pub(super) turns: usize,
    /// Where its own round goes on in the ring of the pattern in front, so that each queue goes round all consumers.
    pub(super) place: usize,
    /// Consumers that named this queue, not a pattern.
    pub(super) exact: u32,
    /// The patterns that match its name, sorted, as of a generation of them.
    pub(super) patterns: Vec<PatternKey>,
    pub(super) patterns_as_of: u64,
    pub(super) is_ready: bool,
    /// The deadline that is in the timers.
    pub(super) deadline_ms: u64,
    /// Since this time nothing waits and there is no consumer.
    pub(super) idle_since_ms: u64,
    /// Messages that ever came.
    pub enqueued: u64,
    /// Messages that were consumed.
    pub dequeued: u64,
}

impl Queue {
    /// How many patterns it knows that match it.
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
            patterns: Vec::new(),
            patterns_as_of: 0,
            is_ready: false,
            deadline_ms: u64::MAX,
            idle_since_ms: now_ms,
            enqueued: 0,
            dequeued: 0,
        }
    }

    /// Gives a message its place behind all others; one to a worker topic may have its own.
    pub(super) fn place(&mut self, stored: &mut OwnedMessage) {
        if self.kind != QueueKind::Worker || stored.seq == 0 {
            stored.seq = self.next_seq;
            self.next_seq += 1;
        }
    }

    /// Whether a message that would be next has to wait for others that are to come in front of it.
    pub(super) fn holds_back(&self, seq: u64) -> bool {
        self.barriers.first().is_some_and(|barrier| seq > *barrier)
            || self.older.is_some_and(|older| seq > older)
    }

    /// Messages that wait or are in flight.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.pending.len() as u64 + self.in_flight
    }

    /// Bytes that wait.
    #[must_use]
    pub fn waiting_bytes(&self) -> usize {
        self.pending.bytes()
    }

    /// Whether something waits that goes ahead of all others.
    #[must_use]
    pub fn has_first(&self) -> bool {
        self.pending.first().is_some_and(|first| first.seq < FIRST_SEQ)
    }

    /// Messages that consumers hold, and their bytes.
    #[must_use]
    pub fn in_flight(&self) -> (u64, u64) {
        (self.in_flight, self.in_flight_bytes)
    }

    /// How many subscriptions consume it by its name.
    #[must_use]
    pub fn holders(&self) -> u32 {
        self.exact
    }

    pub(super) fn is_idle(&self) -> bool {
        self.size() == 0 && self.exact == 0 && self.reserved == 0
    }
}

/// Who may take a queue's next message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taker {
    /// A consumer of this queue.
    One(ConsumerKey),
    /// The next consumer in the ring of a pattern.
    Pattern(PatternKey),
}

/// What a consumer consumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Consumed {
    Queue(QueueKey),
    Pattern(PatternKey),
}

/// One subscription as a home sees it.
#[derive(Debug)]
pub(super) struct Consumer {
    pub(super) subscriber: Subscriber,
    pub(super) credit: Credit,
    /// Credit was asked for and has not come.
    pub(super) wanting: bool,
    /// Credit that is not needed here is wanted elsewhere.
    pub(super) reclaimed: bool,
    /// It was found without credit, or with enough to read, and stands in no ring.
    pub(super) out_of_credit: bool,
    /// Credit does not bring it back, but room on its shard.
    pub(super) aside: bool,
    pub(super) consumed: Consumed,
}

impl Consumer {
    pub(super) fn new(subscriber: Subscriber, credit: Credit, consumed: Consumed) -> Self {
        Consumer {
            subscriber,
            credit,
            wanting: false,
            reclaimed: false,
            out_of_credit: false,
            aside: false,
            consumed,
        }
    }
}

/// What a consumer may still be sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Credit {
    /// Messages.
    pub messages: i64,
    /// Bytes; the last message may exceed them.
    pub bytes: i64,
}

impl Credit {
    /// Without any bound.
    pub const UNLIMITED: i64 = i64::MAX / 4;

    pub(super) fn is_left(self) -> bool {
        self.messages > 0 && self.bytes > 0
    }
}

/// A message on its way to a consumer.
#[derive(Debug)]
pub struct Delivery {
    /// To whom.
    pub subscriber: Subscriber,
    /// The queue it is from.
    pub queue: QueueKey,
    /// The consumer at the queue's home.
    pub consumer: ConsumerKey,
    /// The message.
    pub stored: OwnedMessage,
}

impl Delivery {
    /// What it is for the shard that reads it, in parts of 64 bytes to encode; headers of its own are two.
    #[must_use]
    pub fn load(&self) -> usize {
        2 + self.stored.size() / 64
    }
}

/// What happened to messages in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The queue they are from.
    pub queue: QueueKey,
    /// Who had them.
    pub consumer: ConsumerKey,
    /// Messages consumed.
    pub settled: u64,
    /// Their bytes.
    pub settled_bytes: u64,
    /// What may be sent in their place.
    pub credit: Credit,
}

impl Progress {
    /// Whether it is about the same queue and consumer.
    #[must_use]
    pub fn is_of_same(&self, other: &Progress) -> bool {
        self.queue == other.queue && self.consumer == other.consumer
    }

    /// Adds another one's counts.
    pub fn add(&mut self, other: &Progress) {
        self.settled += other.settled;
        self.settled_bytes += other.settled_bytes;
        self.credit.messages += other.credit.messages;
        self.credit.bytes += other.credit.bytes;
    }
}

/// Why a message comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GivenBack {
    /// Its consumer is gone, or never got it.
    Lost,
    /// NACK, or `ack_timeout`.
    Failed {
        /// Its consumer's `max-deliveries`; 0: it is not to be delivered again.
        deliveries_max: u32,
        /// Its consumer's `redelivery-delay`, in milliseconds.
        delay_ms: u64,
        /// What its consumer may be sent in its place.
        credit: Credit,
    },
}

/// What a home wants done elsewhere.
#[derive(Debug)]
pub enum Effect {
    /// Hand a message to a consumer.
    Deliver(Delivery),
    /// Send a message to its dead-letter queue.
    DeadLetter(OwnedMessage),
    /// A message of a worker topic has no consumer to go to.
    Unmatched(OwnedMessage),
    /// Lend a consumer credit.
    CreditRequest(Subscriber, ConsumerKey),
    /// Credit that a consumer wants back, and that is not needed here.
    CreditReturn(Subscriber, i64),
    /// Look at a queue again at this time, and not before; `u64::MAX`: never.
    Timer(u64, QueueKey),
}

/// Counts of what homes do, since the broker's start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Messages put into queues.
    pub enqueued: u64,
    /// Messages consumed.
    pub dequeued: u64,
    /// Deliveries of messages that had been delivered before.
    pub redelivered: u64,
    /// Messages moved to a dead-letter queue.
    pub dead_lettered: u64,
    /// Messages whose time was over.
    pub expired: u64,
    /// Messages dropped: failed or expired in a dead-letter queue, or their queue is gone.
    pub dropped: u64,
}

/// Why a message is not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// `max_queue_length` or `max_queue_bytes`: what the queue holds, and what is allowed.
    Full(String),
}

/// What of the configuration concerns queues.
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

    pub(super) fn parse<'a>(&self, pattern: &'a [u8]) -> Result<Option<Pattern<'a>>, ProtocolError> {
        Pattern::parse(pattern, self.wildcards, self.compat)
    }
}
