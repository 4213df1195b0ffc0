//! Notes between homes and the shards of their clients, by subject.

use std::sync::Arc;

use stompica_proto::ProtocolError;
use stompica_proto::encode::Offender;

use super::QueueKind;
use super::allowance::Allowance;
use super::types::{Credit, Delivery, GivenBack, Progress};
use super::unacked::Origin;
use crate::collections::paged_deque::PagedDeque;
use crate::ids::ConnKey;
use crate::ids::{ConsumerKey, QueueKey, Subscriber, SubscriptionKey};
use crate::message::OwnedMessage;
use crate::report::Query;
use crate::report::merge::ShardReport;
use crate::requester::Requester;
use crate::store::recording::block::Block;

/// The source that a subscription consumes.
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
        /// Several subscriptions may hold it at a time.
        shared: bool,
        /// Messages of this connection, its holder, are omitted.
        without: u64,
    },
}

/// A request to attach a subscription to a source.
#[derive(Debug)]
pub struct Attach {
    /// The subscription.
    pub subscriber: Subscriber,
    /// The source.
    pub source: Source,
    /// Its credit at this home.
    pub credit: Credit,
    /// The frame that waits for the answer.
    pub requester: Requester,
    /// The SUBSCRIBE frame, for an ERROR.
    pub offender: Offender,
    /// The refusal if there is no backlog that it could consume, because memory is full.
    pub without_backlog: Option<ProtocolError>,
}

/// Messages of a transaction for which a home reserves room.
#[derive(Debug, Default)]
pub struct Reservation {
    /// The name of the queue or of the topic.
    pub name: Box<[u8]>,
    /// Whether it is a retained message of a topic.
    pub retained: bool,
    /// Whether room is reserved for it.
    pub reserved: bool,
    /// The queue, if it is for one.
    pub queue: Option<QueueKey>,
    /// The first of its reserved places.
    pub first: u64,
    /// Whether the queue was created for it.
    pub created: bool,
    /// The number of messages that have not arrived.
    pub count: u64,
    /// Their size in bytes.
    pub bytes: u64,
    /// The number of messages that have arrived.
    pub placed: u64,
}

/// All reservations of a transaction at one home.
pub type Reservations = PagedDeque<Reservation>;

/// The first reserved place in a queue for each of a list of reservations; 0 if it has none. So the asking shard knows
/// the place of each message of a transaction before the transaction is decided, and can write it as one record.
pub type Places = Box<[u64]>;

/// A message of a transaction to a queue.
#[derive(Debug)]
pub struct Placed {
    /// Its index in the list of reservations, if room is reserved for it.
    pub reservation: Option<u32>,
    /// The message.
    pub message: OwnedMessage,
}

/// Defines the enum of all notes, one variant for each of their types, and makes each of these into a `Note`.
macro_rules! notes {
    ($(#[$about:meta])* pub enum $name:ident { $($(#[$to:meta])* $variant:ident($note:ident),)+ }) => {
        $(#[$about])*
        pub enum $name {
            $($(#[$to])* $variant($note),)+
        }

        $(impl From<$note> for $name {
            fn from(note: $note) -> $name {
                $name::$variant(note)
            }
        })+
    };
}

notes! {
    /// A note about queues from one shard to another, or to itself.
    #[derive(Debug)]
    pub enum Note {
        /// To the home of a queue, or of the stale and retained messages of a topic.
        Home(HomeNote),
        /// To the shard of a consumer.
        Consumer(ConsumerNote),
        /// To the shard of a connection that waits for an answer.
        Answer(AnswerNote),
        /// To a home that replays stale and retained messages.
        Replay(ReplayNote),
        /// To a home, about messages of a transaction.
        Transaction(TransactionNote),
        /// About admission while memory is short.
        Memory(MemoryNote),
        /// Queries about the state of the broker, and their answers.
        Diagnostics(DiagnosticsNote),
        /// About recorded destinations.
        Record(RecordNote),
    }
}

/// A note to the home of a queue, or of the stale and retained messages of a topic.
#[derive(Debug)]
pub enum HomeNote {
    /// Add a message to the queue it names.
    Enqueue(OwnedMessage, Option<Requester>),
    /// Messages were settled, or written.
    Progress(Progress),
    /// A message is returned.
    GiveBack(Origin, OwnedMessage, Box<GivenBack>),
    /// A subscription begins to consume.
    Attach(Box<Attach>),
    /// A subscription ends.
    Detach(Subscriber),
    /// A durable subscription ends.
    EndDurable(Box<[u8]>, Requester, Box<Offender>),
    /// Credit for a consumer of a pattern, in messages.
    CreditGrant(ConsumerKey, i64),
    /// Return unneeded credit of a pattern's consumer, which another home has requested.
    CreditRevoke(Subscriber),
    /// A message that found no subscriber: deliver it if one exists by now, otherwise keep it.
    Stale(OwnedMessage),
    /// Drop the oldest stale message, because there are too many.
    DropStale,
    /// Set the retained message of a topic, or (`false`) remove it.
    Retain(OwnedMessage, bool, Option<Requester>),
}

/// A note to the shard of a consumer.
#[derive(Debug)]
pub enum ConsumerNote {
    /// Deliver a message to a consumer.
    Deliver(Delivery),
    /// A consumer of a pattern has no credit left at the sending home.
    CreditRequest(SubscriptionKey, ConsumerKey),
    /// Credit that a consumer of a pattern does not need at the sending home, in messages.
    CreditReturn(SubscriptionKey, i64),
    /// The credit of a resumed durable subscription, which applies once the RECEIPT has been sent.
    Opens(ConnKey, u64, Progress),
    /// A stale message, or (`true`) a retained one, for one new subscription.
    Replayed(SubscriptionKey, OwnedMessage, bool),
    /// The home has more of them, which it sends on request.
    ReplayPause(SubscriptionKey),
    /// The home has sent all its messages for this new subscription.
    ReplayEnd(SubscriptionKey),
}

/// A note about a frame to the shard of its connection; a token identifies the frame. Also a request for such a note.
#[derive(Debug)]
pub enum AnswerNote {
    /// The request was carried out.
    Applied(ConnKey, u64),
    /// Room is reserved for a transaction, at these places.
    Reserved(ConnKey, u64, Places),
    /// The request was refused.
    Refused(ConnKey, u64, Box<(ProtocolError, Offender)>),
    /// Answer, so that the requester knows that all its earlier mail has been read. Before that, ask other shards, a bit
    /// for each; `None`: the shards that dead letters are on their way to.
    RoundTrip(Requester, Option<u64>),
}

/// A note to a home that replays stale and retained messages.
#[derive(Debug)]
pub enum ReplayNote {
    /// The sender knows a new subscription, and routes messages to it from now on.
    InterestAck(Subscriber),
    /// The subscription has room for more messages.
    More(Subscriber),
    /// The subscription has no room before its client acknowledges a message: answer the frame that waits for the end
    /// now.
    Unacked(Subscriber),
    /// The subscription has ended before its initial replay, as far as its shard knows.
    Stop(Subscriber),
}

/// A note to a home about a transaction.
#[derive(Debug)]
pub enum TransactionNote {
    /// Reserve room for a transaction, which is identified by its token.
    Prepare(Reservations, Requester),
    /// Release the reserved room.
    Cancel(u64),
    /// Apply the messages of a transaction that was prepared with this token.
    Commit(PagedDeque<Placed>, u64, Requester),
}

/// Notes between the shards of publishers and homes while memory is short.
#[derive(Debug)]
pub enum MemoryNote {
    /// Ask how many messages to this name would be delivered at once.
    AllowanceRequest(Box<[u8]>),
    /// This many messages to the name with this hash would be delivered at once.
    AllowanceGrant(u64, Allowance),
}

/// A query about the state of the broker, or one shard's part of the answer.
#[derive(Debug)]
pub enum DiagnosticsNote {
    /// The query, with this number.
    Diagnose(Query, u64),
    /// The sender's part of the answer.
    Diagnosed(u64, Box<ShardReport>),
}

/// A note about a recorded destination.
#[derive(Debug)]
pub enum RecordNote {
    /// To the home of a topic: record and publish a message.
    Publish(OwnedMessage, Option<Requester>),
    /// The same of a message that also becomes the topic's last value.
    PublishRetained(OwnedMessage, Option<Requester>),
    /// To the home: a subscription of the sender wants to replay the destination.
    Watch(Arc<[u8]>, SubscriptionKey),
    /// To the home: the sender has no replay of the destination any more.
    Unwatch(Arc<[u8]>),
    /// To the shard of a replay: the epoch, and the number of the next message. From there on it is told of all blocks.
    Watched(SubscriptionKey, u64, u64),
    /// To shards with replays: the newest messages.
    Block(Arc<Block>),
}

// Each message is moved into and out of several notes. Up to this size the compiler moves a value without a call.
const _: () = assert!(size_of::<Note>() <= 128);

impl Note {
    /// Whether it counts against `max_input_queue_size`.
    #[must_use]
    pub fn is_frame(&self) -> bool {
        matches!(
            self,
            Note::Home(HomeNote::Enqueue(..) | HomeNote::Stale(_))
                | Note::Transaction(TransactionNote::Commit(..))
                | Note::Record(RecordNote::Publish(..) | RecordNote::PublishRetained(..))
        )
    }

    /// Reads the bytes of its message, which another core has written. Several such reads overlap if nothing depends on
    /// them; if the bytes are first read where they are needed, each message is waited for.
    #[inline]
    pub fn fetch(&self) {
        match self {
            Note::Consumer(ConsumerNote::Deliver(delivery)) => delivery.message.fetch(),
            Note::Home(HomeNote::Enqueue(message, _)) => message.fetch(),
            _ => {}
        }
    }

    /// The load of a delivery for the shard that reads it.
    #[must_use]
    pub fn load(&self) -> usize {
        match self {
            Note::Consumer(ConsumerNote::Deliver(delivery)) => delivery.load(),
            _ => 0,
        }
    }
}
