//! What homes and the shards of their clients tell each other: notes, by what they are about.

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
    /// One queue, which is created if necessary.
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

/// A subscription that begins to consume.
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

/// The first of the places that a home keeps in a queue for each of a list of reservations; 0: it keeps none there. So the
/// shard that asked knows where each message of a transaction goes before it is decided, and can write it as one record.
pub type Places = Box<[u64]>;

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

/// One note of a shard to another, or to itself, about queues.
#[derive(Debug)]
pub enum Note {
    /// To the home of a queue, or of what is kept of a topic.
    Home(HomeNote),
    /// To the shard of a consumer.
    Consumer(ConsumerNote),
    /// To the shard of a connection that waits for an answer.
    Answer(AnswerNote),
    /// To a home that replays stale and retained messages.
    Replay(ReplayNote),
    /// To a home, about messages of a transaction.
    Transaction(TransactionNote),
    /// While memory is short.
    Memory(MemoryNote),
    /// Questions about the state of the broker, and their answers.
    Diagnostics(DiagnosticsNote),
}

/// What the home of a queue, or of what is kept of a topic, is told.
#[derive(Debug)]
pub enum HomeNote {
    /// Put a message into the queue it names.
    Enqueue(OwnedMessage, Option<Requester>),
    /// Messages were consumed, or written.
    Progress(Progress),
    /// A message comes back.
    GiveBack(Origin, OwnedMessage, GivenBack),
    /// A subscription begins to consume.
    Attach(Box<Attach>),
    /// A subscription ends.
    Detach(Subscriber),
    /// A durable subscription ends.
    EndDurable(Box<[u8]>, Requester, Box<Offender>),
    /// Credit for a consumer of a pattern, in messages.
    CreditGrant(ConsumerKey, i64),
    /// Credit of a consumer of a pattern that is not needed here is wanted elsewhere.
    CreditRevoke(Subscriber),
    /// A message that found no subscriber: deliver it after all, or hold it.
    Stale(OwnedMessage),
    /// Drop the oldest stale message: there are too many.
    DropStale,
    /// Keep a topic's last value, or (`false`) forget it.
    Retain(OwnedMessage, bool, Option<Requester>),
}

/// What the shard of a consumer is told.
#[derive(Debug)]
pub enum ConsumerNote {
    /// Hand a message to a consumer.
    Deliver(Delivery),
    /// A consumer of a pattern has no credit left at the home that says so.
    CreditRequest(SubscriptionKey, ConsumerKey),
    /// Credit that a consumer of a pattern does not use there, in messages.
    CreditReturn(SubscriptionKey, i64),
    /// The credit of a durable subscription that was taken up again, to be given once the RECEIPT has left.
    Opens(ConnKey, u64, Progress),
    /// A stale message, or (`true`) a retained one, for one new subscription.
    Replayed(SubscriptionKey, OwnedMessage, bool),
    /// The home has more of them for this subscription, once it has room.
    ReplayPause(SubscriptionKey),
    /// That was all that the home holds for this new subscription.
    ReplayEnd(SubscriptionKey),
}

/// What the shard of a connection is told of a frame, which is named by its token; and a question that is answered so.
#[derive(Debug)]
pub enum AnswerNote {
    /// What was asked for took effect.
    Applied(ConnKey, u64),
    /// Room is kept for a transaction, at these places.
    Reserved(ConnKey, u64, Places),
    /// What was asked for is refused.
    Refused(ConnKey, u64, Box<(ProtocolError, Offender)>),
    /// Answer, so that the requester knows that nothing it sent before is on its way. Before that, ask other shards, a bit
    /// for each; `None`: those that dead letters are on their way to.
    RoundTrip(Requester, Option<u64>),
}

/// What a home that replays stale and retained messages is told.
#[derive(Debug)]
pub enum ReplayNote {
    /// The sender knows of a new subscription: from now on it routes to it.
    InterestAck(Subscriber),
    /// The subscription has room for more.
    More(Subscriber),
    /// The subscription has no room before its client acknowledges something: answer the frame that waits for the end now.
    Unacked(Subscriber),
    /// The subscription has ended.
    Stop(Subscriber),
}

/// What a home is told of a transaction.
#[derive(Debug)]
pub enum TransactionNote {
    /// Keep room for it; its token names it.
    Prepare(Reservations, Requester),
    /// The room that was kept is not needed.
    Cancel(u64),
    /// The messages of a transaction that was prepared under this token.
    Commit(PagedDeque<Placed>, u64, Requester),
}

/// What publishers and homes tell each other while memory is short.
#[derive(Debug)]
pub enum MemoryNote {
    /// Would a message to this name be handed on at once?
    MayPass(Box<[u8]>),
    /// So many messages would, to the name with this hash.
    Passes(u64, Allowance),
}

/// A question about the state of the broker, or a part of its answer.
#[derive(Debug)]
pub enum DiagnosticsNote {
    /// The query, under this number.
    Diagnose(Query, u64),
    /// The sender's part of the answer.
    Diagnosed(u64, Box<ShardReport>),
}

macro_rules! notes {
    ($($variant:ident($note:ident)),*) => {
        $(impl From<$note> for Note {
            fn from(note: $note) -> Note {
                Note::$variant(note)
            }
        })*
    };
}
notes!(
    Home(HomeNote),
    Consumer(ConsumerNote),
    Answer(AnswerNote),
    Replay(ReplayNote),
    Transaction(TransactionNote),
    Memory(MemoryNote),
    Diagnostics(DiagnosticsNote)
);

impl Note {
    /// Whether it counts against `max_input_queue_size`.
    #[must_use]
    pub fn is_frame(&self) -> bool {
        matches!(
            self,
            Note::Home(HomeNote::Enqueue(..) | HomeNote::Stale(_))
                | Note::Transaction(TransactionNote::Commit(..))
        )
    }

    /// What it counts among the deliveries that a shard may have to read.
    #[must_use]
    pub fn load(&self) -> usize {
        match self {
            Note::Consumer(ConsumerNote::Deliver(delivery)) => delivery.load(),
            _ => 0,
        }
    }
}
