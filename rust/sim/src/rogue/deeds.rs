//! What rogues do and hear, as the checker sees it.

use std::time::Duration;

/// How the broker ends a connection after a misdeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// An ERROR with this code; over WebSocket a Close frame follows it.
    Error(&'static str),
    /// A Close frame with this code, without an ERROR.
    Close(u16),
    /// An HTTP response with this status.
    Status(u16),
    /// A TLS alert.
    Alert,
}

/// Something for which the broker has to end the connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misdeed {
    /// What it is.
    pub what: String,
    /// The endings of which one has to come.
    pub endings: Vec<Ending>,
    /// The `receipt` of the frame at fault, which the ERROR has to name.
    pub receipt: Option<String>,
    /// The broker waits for this time before it ends the connection; zero: it ends it at once.
    pub patience: Duration,
    /// The time from which the patience counts; `None`: since the misdeed was sent, at the earliest, and since it has
    /// arrived, at the latest.
    pub since: Option<Duration>,
    /// Whether the connection has to end in time. If not, frames that may wait precede the misdeed, or the rogue itself
    /// delays the end.
    pub is_timed: bool,
}

/// Something that a rogue has received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    /// CONNECTED.
    Connected,
    /// A RECEIPT.
    Receipt(String),
    /// A MESSAGE.
    Message,
    /// An ERROR.
    Error {
        /// Its `code`.
        code: String,
        /// Its `receipt-id`.
        receipt: Option<String>,
        /// The broker encoded it then or later; it may have been read much later.
        encoded_from: Duration,
    },
    /// An HTTP response: 101 opens a WebSocket.
    Status(u16),
    /// A TLS alert.
    Alert,
    /// A pong with this payload.
    Pong(Vec<u8>),
    /// A Close frame with this code.
    Close(u16),
}

/// One event of a rogue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deed {
    /// It has opened a connection.
    Opens,
    /// It has sent a frame that asks for this RECEIPT.
    Asks(String),
    /// It has sent a ping with this payload.
    Pings(Vec<u8>),
    /// It has sent something for which its connection has to end.
    Breaks(Misdeed),
    /// The broker's system has received its misdeed.
    Arrives,
    /// It has ended its side in order, and goes on reading; a Close frame that comes has this code.
    Leaves(u16),
    /// It has taken bytes after its misdeed, or before CONNECT, whose absence may become its misdeed.
    Takes,
    /// It has received something.
    Hears(Heard),
    /// It has read everything up to the end; if `is_cut`, something may have been lost on the way.
    Ends {
        /// The connection is broken, or the broker gave up writing.
        is_cut: bool,
    },
    /// It has broken the connection, or it reads no more.
    Vanishes,
    /// The broker has closed its end.
    Released,
}
