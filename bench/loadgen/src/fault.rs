//! Faults of the peer. Any of them fails the repetition.

use std::fmt;

/// The reason why a repetition failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// A later message arrived where an earlier one was due: one was lost, or the order is wrong.
    Gap {
        /// Subscription header line.
        subscription: String,
        /// Sequence number that was due.
        expected: u64,
        /// Sequence number that arrived.
        got: u64,
    },
    /// An earlier message arrived again: it was doubled, or the order is wrong.
    Repeat {
        /// Subscription header line.
        subscription: String,
        /// Sequence number that was due.
        expected: u64,
        /// Sequence number that arrived.
        got: u64,
    },
    /// A message of a work queue arrived twice, or was never sent.
    Doubled {
        /// Subscription header line.
        subscription: String,
        /// Its publisher.
        publisher: usize,
        /// Its sequence number.
        sequence: u64,
    },
    /// No consumer of a work queue got this message, although all of them got later ones.
    Lost {
        /// Its publisher.
        publisher: usize,
        /// Its sequence number.
        sequence: u64,
    },
    /// A RECEIPT that was not asked for, or came twice.
    Surplus {
        /// The publisher that got it.
        publisher: usize,
        /// The sequence number that it names.
        sequence: u64,
    },
    /// A work queue still holds a message, although all were consumed and acknowledged.
    LeftOver(String),
    /// Body, destination or publisher tag are not what was sent.
    Altered(String),
    /// Bytes that are not a STOMP or WebSocket frame, or a frame that is not allowed here.
    Malformed(String),
    /// An ERROR frame, with its `message`.
    Refused(String),
    /// The peer closed a connection that was in use.
    Closed(String),
    /// No progress for too long.
    Stalled(String),
    /// The socket failed.
    Io(String),
}

impl Fault {
    /// A malformed frame, shown by its first octets.
    pub fn malformed(what: &str, bytes: &[u8]) -> Fault {
        let shown = &bytes[..bytes.len().min(60)];
        Fault::Malformed(format!("{what}: {:?}", String::from_utf8_lossy(shown)))
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Gap { subscription, expected, got } => {
                write!(out, "message lost or out of order on {subscription}: expected {expected}, got {got}")
            }
            Fault::Repeat { subscription, expected, got } => {
                write!(
                    out,
                    "message doubled or out of order on {subscription}: expected {expected}, got {got}"
                )
            }
            Fault::Doubled { subscription, publisher, sequence } => {
                write!(
                    out,
                    "message doubled or never sent: {sequence} of publisher {publisher} on {subscription}"
                )
            }
            Fault::Lost { publisher, sequence } => {
                write!(out, "message lost: {sequence} of publisher {publisher}")
            }
            Fault::Surplus { publisher, sequence } => {
                write!(out, "RECEIPT doubled or not asked for: message {sequence} of publisher {publisher}")
            }
            Fault::LeftOver(what) => write!(out, "not empty after the last ACK: {what}"),
            Fault::Altered(what) => write!(out, "message altered: {what}"),
            Fault::Malformed(what) => write!(out, "malformed: {what}"),
            Fault::Refused(what) => write!(out, "ERROR from the broker: {what}"),
            Fault::Closed(what) => write!(out, "closed by the peer: {what}"),
            Fault::Stalled(what) => write!(out, "stalled: {what}"),
            Fault::Io(what) => write!(out, "socket: {what}"),
        }
    }
}

impl std::error::Error for Fault {}

impl From<std::io::Error> for Fault {
    fn from(error: std::io::Error) -> Fault {
        Fault::Io(error.to_string())
    }
}
