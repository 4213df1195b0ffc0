//! What can be wrong with what the peer sends; any of these makes the run a failed run.

use std::fmt;

/// Why a run failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// A later message came where an earlier one was due: lost, or out of order.
    Gap {
        /// Subscription header line.
        subscription: String,
        /// Sequence number that was due.
        expected: u64,
        /// Sequence number that came.
        got: u64,
    },
    /// An earlier message came again: doubled, or out of order.
    Repeat {
        /// Subscription header line.
        subscription: String,
        /// Sequence number that was due.
        expected: u64,
        /// Sequence number that came.
        got: u64,
    },
    /// A message of a work queue that came before, or was never sent.
    Doubled {
        /// Subscription header line.
        subscription: String,
        /// Who sent it.
        publisher: usize,
        /// Its sequence number.
        sequence: u64,
    },
    /// A message of a work queue that came to no consumer, although all of them had later ones.
    Lost {
        /// Who sent it.
        publisher: usize,
        /// Its sequence number.
        sequence: u64,
    },
    /// A message is in a work queue although all were consumed and acknowledged.
    LeftOver(String),
    /// Body, destination or publisher tag are not what was sent.
    Altered(String),
    /// Bytes that are no STOMP or WebSocket frame, or none that may come here.
    Malformed(String),
    /// An ERROR frame, with its `message`.
    Refused(String),
    /// The peer closed a connection that was in use.
    Closed(String),
    /// Nothing moved for the time allowed.
    Stalled(String),
    /// The socket failed.
    Io(String),
}

impl Fault {
    /// A malformed frame, with the first octets of it.
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
