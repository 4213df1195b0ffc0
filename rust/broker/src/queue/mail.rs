//! What homes and the shards of their clients tell each other. Within a shard the same things are done at once.

use stompica_proto::ProtocolError;
use stompica_proto::encode::Offender;

use super::QueueKind;
use super::passing::Allowance;
use super::types::{Credit, Delivery, GivenBack, Progress};
use super::unacked::Origin;
use crate::collections::paged_deque::PagedDeque;
use crate::ids::ConnKey;
use crate::ids::{ConsumerKey, QueueKey, Subscriber, SubscriptionKey};
use crate::message::OwnedMessage;
use crate::report::Query;
use crate::report::types::ShardReport;
use crate::requester::Requester;

/// What a subscription consumes.
#[derive(Debug)]
pub enum Source {
    /// One queue, which is made if need be.
    Queue(Box<[u8]>, QueueKind),
    /// All queues that match a pattern.
    Pattern(Box<[u8]>),
    /// A durable subscription to a topic or a pattern of topics.
    Durable {
        /// Scope and name.
        name: Box<[u8]>,
        /// The topic or pattern.
        topic: Box<[u8]>,
        /// Several may hold it at a time.
        shared: bool,
        /// Messages of this connection, its holder, are left out.
        without: u64,
    },
}

/// A subscription that wants to consume.
#[derive(Debug)]
pub struct Attach {
    /// Who.
    pub subscriber: Subscriber,
    /// What.
    pub source: Source,
    /// Its credit at this home.
    pub credit: Credit,
    /// Its connection.
    pub requester: Requester,
    /// The SUBSCRIBE, for an ERROR.
    pub offender: Offender,
}

/// Messages of a transaction that a home is to take.
#[derive(Debug, Default)]
pub struct Reservation {
    /// The queue, or the topic.
    pub name: Box<[u8]>,
    /// It is a topic's last value.
    pub retained: bool,
    /// Room is kept for it.
    pub reserved: bool,
    /// In this queue, if it is for one.
    pub queue: Option<QueueKey>,
    /// The first of the places that are kept for it.
    pub first: u64,
    /// The queue was made for it.
    pub created: bool,
    /// How many messages.
    pub count: u64,
    /// Their bytes.
    pub bytes: u64,
    /// How many of them have come.
    pub placed: u64,
}

/// What one home is to keep room for.
pub type Reservations = PagedDeque<Reservation>;

/// A message of a transaction at a home.
#[derive(Debug)]
pub struct Placed {
    /// In the list of needs, if room is kept for it.
    pub reservation: Option<u32>,
    /// It is a topic's last value (`true`), or ends it.
    pub retain: Option<bool>,
    /// The message.
    pub stored: OwnedMessage,
}

/// One note of a shard to another.
#[derive(Debug)]
pub enum QueueMail {
    /// Put a message into the queue it names.
    Enqueue(OwnedMessage, Option<Requester>),
    /// Hand a message to a consumer.
    Deliver(Delivery),
    /// Messages were consumed, or written.
    Progress(Progress),
    /// A message comes back.
    GiveBack(Origin, OwnedMessage, GivenBack),
    /// A subscription comes.
    Attach(Box<Attach>),
    /// A subscription goes.
    Detach(Subscriber),
    /// A consumer of a pattern has no credit left here.
    CreditRequest(SubscriptionKey, ConsumerKey),
    /// Credit for a consumer of a pattern, in messages.
    CreditGrant(ConsumerKey, i64),
    /// Credit of a consumer of a pattern that is not needed here is wanted elsewhere.
    CreditRevoke(Subscriber),
    /// Such credit, in messages.
    CreditReturn(SubscriptionKey, i64),
    /// The credit of a durable subscription that was taken up again, to be given once the RECEIPT has left.
    Opens(ConnKey, u64, Progress),
    /// What was asked for took effect.
    Applied(ConnKey, u64),
    /// What was asked for is refused.
    Refused(ConnKey, u64, Box<(ProtocolError, Offender)>),
    /// Answer, so that the requester knows that nothing it sent before is on its way.
    RoundTrip(Requester),
    /// A message that found no subscriber: deliver it after all, or hold it.
    Stale(OwnedMessage),
    /// Drop the oldest stale message: there are too many.
    DropStale,
    /// A stale message, or (`true`) a retained one, for one new subscription.
    Replayed(SubscriptionKey, OwnedMessage, bool),
    /// There is more of that, once the subscription has room.
    ReplayPause(SubscriptionKey),
    /// It has.
    ReplayMore(Subscriber),
    /// It has none before its client acknowledges something: whoever waits for the end is answered now.
    ReplayUnacked(Subscriber),
    /// It has gone.
    ReplayStop(Subscriber),
    /// Keep a topic's last value, or (`false`) forget it.
    Retain(OwnedMessage, bool, Option<Requester>),
    /// The sender knows of a new subscription: from now on it routes to it.
    InterestAck(Subscriber),
    /// That was all that a home holds for a new subscription.
    ReplayEnd(SubscriptionKey),
    /// Keep room for a transaction; its token names it.
    Prepare(PagedDeque<Reservation>, Requester),
    /// The room that was kept is not needed.
    Cancel(u64),
    /// The messages of a transaction that was prepared under this token.
    Commit(PagedDeque<Placed>, u64, Requester),
    /// A durable subscription ends.
    EndDurable(Box<[u8]>, Requester, Box<Offender>),
    /// Memory is short: would a message to this name be handed on at once?
    MayPass(Box<[u8]>),
    /// So many messages would, to the name with this hash.
    Passes(u64, Allowance),
    /// Somebody has this query of diagnostics, under this number.
    Diagnose(Query, u64),
    /// A part of the answer to it.
    Diagnosed(u64, Box<ShardReport>),
}

impl QueueMail {
    /// Whether it counts against `max_input_queue_size`.
    #[must_use]
    pub fn is_frame(&self) -> bool {
        matches!(self, QueueMail::Enqueue(..) | QueueMail::Stale(_) | QueueMail::Commit(..))
    }

    /// What it counts among the deliveries that a shard may have to read.
    #[must_use]
    pub fn load(&self) -> usize {
        match self {
            QueueMail::Deliver(delivery) => delivery.load(),
            _ => 0,
        }
    }
}
