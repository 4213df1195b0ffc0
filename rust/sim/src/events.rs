//! What happens between clients and the broker, as checkers see it.

mod shown;
mod subscription;
mod survivor;

use std::time::Duration;

use stompica_broker::simulated::outside::Written;

pub use self::subscription::{AckMode, Durable, Store, Subscription, Terms};
pub use self::survivor::Survivor;
use crate::beats::Beat;
use crate::frames::Version;
use crate::json::Json;
use crate::rogue::Deed;
use crate::work::Retain;

/// A connection; they are numbered in the order of their opening.
pub type ClientId = usize;
/// A message; its body begins with this number.
pub type MessageId = u64;
/// A subscription of one client.
pub type SubscriptionId = u64;
/// A transaction of one client.
pub type TransactionId = u64;

/// A message as its publisher sent it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Its number.
    pub id: MessageId,
    /// A topic or a queue.
    pub destination: String,
    /// `persistent:true`.
    pub persistent: bool,
    /// When it expires at the earliest; `None`: never.
    pub expires: Option<Duration>,
    /// The time from its arrival until it expires, if it was given as such.
    pub ttl: Option<Duration>,
    /// `max-exceptions`.
    pub max_exceptions: Option<u64>,
    /// `retain`.
    pub retain: Option<Retain>,
    /// The transaction it belongs to.
    pub transaction: Option<TransactionId>,
    /// The value of its header `x`.
    pub header: String,
    /// The length of its body.
    pub body_len: usize,
}

impl Message {
    /// Its body: the number, then bytes that follow from it.
    #[must_use]
    pub fn body(&self) -> Vec<u8> {
        let mut body = format!("{};", self.id).into_bytes();
        let mut state = self.id.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        while body.len() < self.body_len {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            body.push((state >> 56) as u8);
        }
        body
    }

    /// The number in a body.
    #[must_use]
    pub fn id_in(body: &[u8]) -> Option<MessageId> {
        let end = body.iter().position(|byte| *byte == b';')?;
        std::str::from_utf8(&body[..end]).ok()?.parse().ok()
    }
}

/// A MESSAGE that a client has received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// The subscription.
    pub subscription: SubscriptionId,
    /// The message.
    pub message: MessageId,
    /// Its header `destination`.
    pub destination: String,
    /// `retained:true`.
    pub retained: bool,
    /// `redelivered:true`.
    pub redelivered: bool,
    /// The number of this delivery: `delivery-count`; 1 without it.
    pub count: u64,
    /// `dead-letter-reason`.
    pub dead_letter: Option<String>,
    /// `delivery-count` of a dead letter: the deliveries in its old queue.
    pub dead_count: Option<u64>,
    /// `original-destination`.
    pub original: Option<String>,
    /// `message-id`.
    pub message_id: String,
    /// When the broker wrote its first byte.
    pub written: Written,
    /// The value of its header `x`, if it came.
    pub header: Option<String>,
    /// The version of the receiver.
    pub version: Version,
    /// The body.
    pub body: Vec<u8>,
}

/// Something that a client asks for; a RECEIPT may confirm it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// SUBSCRIBE.
    Subscribe(Subscription),
    /// UNSUBSCRIBE.
    Unsubscribe(SubscriptionId),
    /// SUBSCRIBE to an own temporary destination, or to a pattern of them.
    SubscribeOwn(SubscriptionId, String),
    /// SEND to a temporary destination.
    Answer(Message),
    /// UNSUBSCRIBE that ends a durable subscription, and this one of the client.
    EndDurable(usize, Option<SubscriptionId>),
    /// A DIAG frame with its number and its query; confirmed by its answer.
    Diagnose(u64, &'static str),
    /// The RECEIPT that follows an answer.
    AfterAnswer,
    /// SEND of a query to a destination of diagnostics.
    Query {
        /// Its number.
        id: u64,
        /// Where it was sent to.
        destination: String,
        /// The query.
        query: &'static str,
    },
    /// SUBSCRIBE to diagnostics.
    Watch(Watch),
    /// SEND.
    Send(Message),
    /// ACK of these messages, directly or in a transaction.
    Ack(SubscriptionId, Vec<MessageId>, Option<TransactionId>),
    /// NACK of these messages, directly or in a transaction.
    Nack(SubscriptionId, Vec<MessageId>, Option<TransactionId>),
    /// NACK with `requeue:false`, likewise.
    Reject(SubscriptionId, Vec<MessageId>, Option<TransactionId>),
    /// BEGIN.
    Begin(TransactionId),
    /// COMMIT.
    Commit(TransactionId),
    /// ABORT.
    Abort(TransactionId),
    /// DISCONNECT.
    Disconnect,
    /// A request that concerns a worker topic, or a topic with stale or retained messages.
    Work(Box<Request>),
}

/// How a connection has ended, as its client knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The client has broken the connection, or no longer reads.
    Lost,
    /// The broker has closed it; behind an ERROR with this code.
    Closed(Option<String>),
}

/// What concerns temporary destinations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PrivateEvent {
    /// The client has sent a message with its own name as `reply-to`.
    Asked {
        /// The message.
        message: MessageId,
        /// The name that the client uses.
        name: String,
    },
    /// The client has received a message with this `reply-to`.
    Addressed {
        /// The message.
        message: MessageId,
        /// The value of the header.
        address: String,
    },
    /// The client has received a message at a temporary destination; its subscription is 0 without a SUBSCRIBE.
    Received(Box<Delivery>),
}

/// A change of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A message of a queue has this record.
    Kept {
        /// The record.
        record: u64,
        /// The queue.
        queue: String,
        /// The message, if a client of the simulator has sent it.
        message: Option<MessageId>,
    },
    /// A record is no longer needed, even if it is written later.
    Forgotten(u64),
}

/// A subscription to diagnostics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watch {
    /// Its id.
    pub id: SubscriptionId,
    /// A name or a pattern.
    pub destination: String,
    /// The query that is answered at an interval, if requested; `monitor` for the text of all queues.
    pub pushes: Option<(&'static str, Duration)>,
}

/// An answer of diagnostics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The query.
    pub query: String,
    /// The answer; names and numbers in headers became a list, a number or an object.
    pub value: Json,
    /// The number of rows that were left out, if the answer told it.
    pub left_out: u64,
}

/// What a client receives from diagnostics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchEvent {
    /// The answer to the DIAG frame with this number.
    Answered(u64, Answer),
    /// A MESSAGE with an answer.
    Told {
        /// The subscription.
        subscription: SubscriptionId,
        /// The number of the query of a SEND; `None`: it is periodic.
        asked: Option<u64>,
        /// Its header `destination`.
        destination: String,
        /// The answer.
        answer: Answer,
    },
    /// The text of `/queue/monitor`: name, size, dequeued, enqueued of each queue.
    Text(SubscriptionId, Vec<(String, [u64; 3])>),
}

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A client has written a request.
    Requested(ClientId, Request),
    /// A RECEIPT has confirmed a request.
    Confirmed(ClientId, Request),
    /// An ERROR has refused a request.
    Refused(ClientId, Request),
    /// A client has received a MESSAGE.
    Delivered(ClientId, Delivery),
    /// The next MESSAGE of a client, whatever it is, says that so many were dropped before it.
    Dropped(ClientId, u64),
    /// A client opens a connection; with `true`, over WebSocket.
    Connecting(ClientId, bool),
    /// CONNECTED has come.
    Connected(ClientId),
    /// Something from diagnostics.
    Watch(ClientId, WatchEvent),
    /// Faults have ended, and periodic answers go on for a while. These connections are open and wait for no RECEIPT.
    WatchBegins(Vec<ClientId>),
    /// Periodic answers are about to be ended.
    WatchEnds(Vec<ClientId>),
    /// Something about a temporary destination.
    Private(ClientId, PrivateEvent),
    /// A MESSAGE of a worker topic, or of a topic with stale or retained messages.
    Work(ClientId, Box<Delivery>),
    /// The broker has closed its end of a connection: what it held there is free again.
    Released(ClientId),
    /// A connection has ended.
    Ended(ClientId, End),
    /// The store has written these changes, all together.
    Written(Vec<Change>),
    /// The store cannot read this message any more.
    Damaged(MessageId),
    /// The store has failed: it writes nothing more.
    StoreFailed,
    /// The broker has crashed. What was confirmed by this time has to survive.
    Crashed(Duration),
    /// What the log has after a crash.
    Recovered(Vec<Survivor>),
    /// Something about a rogue: a client that breaks rules.
    Rogue(ClientId, Deed),
    /// The broker has written a whole MESSAGE that its client never read; told at the end.
    Unread(ClientId, SubscriptionId, MessageId),
    /// Faults have ended and everything is at rest. These connections are open.
    Resting(Vec<ClientId>),
    /// The names of the broker's queues once everything was read.
    Kept(Vec<String>),
    /// The broker has drained early. These requests of clients that read everything were not answered.
    Drained(Vec<(ClientId, Request)>),
    /// Something about a connection with heart-beats.
    Beat(ClientId, Beat),
    /// The run is over: everything was read, and the broker is idle. These connections were open until now.
    Finished(Vec<ClientId>),
}

/// A broken promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The checker that has found it.
    pub checker: &'static str,
    /// What is wrong, with the facts.
    pub text: String,
}

/// Whether a name is a topic's, so that each subscription gets its own copy.
#[must_use]
pub fn is_topic(destination: &str) -> bool {
    !is_queue(destination)
}

/// Whether a name is a queue's, or that of a worker topic.
#[must_use]
pub fn is_queue(destination: &str) -> bool {
    destination.starts_with("/queue/") || destination.starts_with('#')
}
