//! What happens between clients and the broker, as checkers see it.

use std::time::Duration;

use crate::frames::Version;

/// A connection; they are numbered in the order of their opening.
pub type ClientId = usize;
/// A message; its body begins with this number.
pub type MessageId = u64;
/// A subscription of one client.
pub type SubscriptionId = u64;
/// A transaction of one client.
pub type TransactionId = u64;

/// The mode in which a subscription acknowledges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AckMode {
    /// The broker considers a message consumed once it is written.
    Auto,
    /// An ACK covers all earlier messages of the subscription.
    Client,
    /// An ACK covers one message.
    Individual,
}

/// A subscription as the client requested it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscription {
    /// Its id.
    pub id: SubscriptionId,
    /// A topic, a queue or a pattern.
    pub destination: String,
    /// The ack mode.
    pub ack: AckMode,
    /// The largest number of unacknowledged messages.
    pub prefetch: Option<u64>,
}

/// A message as its publisher sent it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Its number.
    pub id: MessageId,
    /// A topic or a queue.
    pub destination: String,
    /// When it expires; `None`: never.
    pub expires: Option<Duration>,
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
    /// `redelivered:true`.
    pub redelivered: bool,
    /// `delivery-count`; 1 without it.
    pub count: u64,
    /// `dead-letter-reason`.
    pub dead_letter: Option<String>,
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
    /// SEND.
    Send(Message),
    /// ACK of these messages, directly or in a transaction.
    Ack(SubscriptionId, Vec<MessageId>, Option<TransactionId>),
    /// NACK of these messages.
    Nack(SubscriptionId, Vec<MessageId>),
    /// BEGIN.
    Begin(TransactionId),
    /// COMMIT.
    Commit(TransactionId),
    /// ABORT.
    Abort(TransactionId),
    /// DISCONNECT.
    Disconnect,
}

/// How a connection has ended, as its client knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The client has broken the connection, or no longer reads.
    Lost,
    /// The broker has closed it; behind an ERROR with this code.
    Closed(Option<String>),
}

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A client has written a request.
    Requested(ClientId, Request),
    /// A RECEIPT has confirmed a request.
    Confirmed(ClientId, Request),
    /// A client has received a MESSAGE.
    Delivered(ClientId, Delivery),
    /// The broker has closed its end of a connection: what it held there is free again.
    Released(ClientId),
    /// A connection has ended.
    Ended(ClientId, End),
    /// Faults have ended and everything is at rest. These connections are open.
    Resting(Vec<ClientId>),
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

/// Whether a name is a queue's.
#[must_use]
pub fn is_queue(destination: &str) -> bool {
    destination.starts_with("/queue/")
}
