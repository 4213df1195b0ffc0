//! Errors of a peer: one code for each kind, stable across releases, listed in `docs/errors.md`.

use std::fmt;

macro_rules! codes {
    ($($(#[doc = $doc:literal])* $name:ident = $code:literal, $message:literal, $close:literal;)*) => {
        /// The stable `code` header of an ERROR frame.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Code { $($(#[doc = $doc])* $name,)* }

        impl Code {
            /// All codes, in the order of the documentation.
            pub const ALL: &'static [Code] = &[$(Code::$name,)*];

            /// The `code` header.
            #[must_use]
            pub fn as_str(self) -> &'static str { match self { $(Code::$name => $code,)* } }

            /// The `message` header: a short text, the same for every occurrence.
            #[must_use]
            pub fn message(self) -> &'static str { match self { $(Code::$name => $message,)* } }

            /// The WebSocket close code that follows the ERROR (RFC 6455, 7.4.1).
            #[must_use]
            pub fn websocket_close(self) -> u16 { match self { $(Code::$name => $close,)* } }
        }
    };
}

codes! {
    /// The first line is not a client command.
    Command = "E-COMMAND", "unknown command", 1002;
    /// A header line without a colon, with an empty name, or with a stray CR in 1.2.
    Header = "E-HEADER", "malformed header", 1002;
    /// A header with an escape that the version does not define.
    Escape = "E-ESCAPE", "undefined escape sequence", 1002;
    /// A header that is not UTF-8.
    Utf8 = "E-UTF8", "header is not UTF-8", 1002;
    /// A content-length that is not a number, or whose body is not followed by NUL.
    ContentLength = "E-CONTENT-LENGTH", "bad content-length", 1002;
    /// A body on a frame that must not have one.
    Body = "E-BODY", "frame must not have a body", 1002;
    /// A header line longer than `max_header_size`.
    HeaderSize = "E-HEADER-SIZE", "header too long", 1009;
    /// More headers than `max_headers`.
    HeaderCount = "E-HEADER-COUNT", "too many headers", 1009;
    /// A body longer than `max_message_size`.
    MessageSize = "E-MESSAGE-SIZE", "message too large", 1009;
    /// A frame before login longer than 64 KiB.
    LoginSize = "E-LOGIN-SIZE", "frame too large before login", 1009;
    /// Any frame other than CONNECT, STOMP or DIAG before the session is connected.
    NotConnected = "E-NOT-CONNECTED", "not connected", 1002;
    /// A second CONNECT.
    Connected = "E-CONNECTED", "already connected", 1002;
    /// No common version.
    Version = "E-VERSION", "no common protocol version", 1002;
    /// A heart-beat header that is not two numbers.
    HeartBeatHeader = "E-HEART-BEAT", "bad heart-beat header", 1002;
    /// A header that the broker acts on has an invalid value.
    HeaderValue = "E-VALUE", "bad header value", 1002;
    /// No CONNECT within `login_timeout`.
    LoginTimeout = "E-LOGIN-TIMEOUT", "login timed out", 1008;
    /// A frame or WebSocket message that is not complete within `frame_timeout` plus 1 s for each 64 KiB of it.
    FrameTimeout = "E-FRAME-TIMEOUT", "frame not complete in time", 1008;
    /// A CONNECT while the store is being read, for longer than `login_timeout`.
    NotReady = "E-NOT-READY", "broker not ready", 1013;
    /// No byte within twice the agreed heart-beat.
    HeartBeatTimeout = "E-HEART-BEAT-TIMEOUT", "heart-beat missed", 1002;
    /// A required `destination` is missing or empty.
    DestinationMissing = "E-DEST-MISSING", "destination missing", 1002;
    /// A malformed destination: a wildcard in a wrong place.
    DestinationInvalid = "E-DEST-INVALID", "invalid destination", 1002;
    /// A SEND to a wildcard, or with a `reply-to` that is one of temporary destinations.
    DestinationWildcard = "E-DEST-WILDCARD", "wildcard not allowed in SEND", 1002;
    /// A SUBSCRIBE to another connection's temporary destination.
    TemporaryOwner = "E-TEMP-OWNER", "temporary destination of another connection", 1008;
    /// A SEND to a temporary destination of the connection's own that does not exist.
    TemporaryUnknown = "E-TEMP-UNKNOWN", "no such temporary destination", 1002;
    /// A SEND to a destination that only the broker writes to.
    ReadOnly = "E-READ-ONLY", "destination is read-only", 1008;
    /// A destination that the client is not allowed to use.
    Forbidden = "E-FORBIDDEN", "not allowed", 1008;
    /// An unknown diagnostics query.
    DiagnosticsQuery = "E-DIAG-QUERY", "unknown diagnostics query", 1002;
    /// A required `id` is missing.
    IdMissing = "E-ID-MISSING", "id missing", 1002;
    /// A SUBSCRIBE with an id that is in use.
    SubscriptionDuplicate = "E-SUB-DUPLICATE", "subscription id in use", 1002;
    /// An UNSUBSCRIBE without a matching subscription.
    SubscriptionUnknown = "E-SUB-UNKNOWN", "no such subscription", 1002;
    /// A second active holder of a durable subscription that allows only one.
    DurableInUse = "E-DURABLE-IN-USE", "durable subscription in use", 1008;
    /// A durable subscription that exists with another destination.
    DurableOther = "E-DURABLE-OTHER", "durable subscription has another destination", 1002;
    /// An unknown `ack` mode.
    AckMode = "E-ACK-MODE", "unknown ack mode", 1002;
    /// An ACK or NACK of a message that was not delivered on this connection, or was acknowledged before.
    AckUnknown = "E-ACK-UNKNOWN", "no such delivery", 1002;
    /// A required `transaction` is missing.
    TransactionMissing = "E-TX-MISSING", "transaction missing", 1002;
    /// A transaction that is not open.
    TransactionUnknown = "E-TX-UNKNOWN", "no such transaction", 1002;
    /// BEGIN of an open transaction.
    TransactionOpen = "E-TX-OPEN", "transaction already open", 1002;
    /// More open transactions than `max_transactions`.
    TransactionCount = "E-TX-COUNT", "too many transactions", 1008;
    /// A COMMIT with an ACK or NACK that covers a delivery which has been requeued meanwhile.
    TransactionLost = "E-TX-LOST", "transaction lost a delivery", 1002;
    /// A command or a kind of destination that is not built yet.
    NotSupported = "E-NOT-SUPPORTED", "not supported", 1008;
    /// More subscriptions, or more temporary destinations, than `max_subscriptions`.
    SubscriptionCount = "E-SUB-COUNT", "too many subscriptions", 1008;
    /// More destinations than `max_destinations`.
    DestinationCount = "E-DEST-COUNT", "too many destinations", 1013;
    /// More retained messages than `max_retained`.
    RetainedCount = "E-RETAINED-COUNT", "too many retained messages", 1013;
    /// A queue would exceed `max_queue_length` messages or `max_queue_bytes`.
    QueueFull = "E-QUEUE-FULL", "queue full", 1013;
    /// More connections than `max_connections`.
    Connections = "E-CONNECTIONS", "too many connections", 1013;
    /// The disk of the store is full.
    StoreFull = "E-STORE-FULL", "store full", 1013;
    /// The disk of the store has failed.
    StoreIo = "E-STORE-IO", "store failed", 1013;
    /// Messages that a replay wants are no longer recorded.
    ReplayGone = "E-REPLAY-GONE", "history gone", 1008;
    /// Backpressure held a SEND longer than `publish_timeout`.
    Memory = "E-MEMORY", "broker out of memory", 1013;
    /// The consumer reads too slowly (`slow_consumer`).
    SlowConsumer = "E-SLOW-CONSUMER", "slow consumer", 1013;
}

/// A peer's error: the content of the ERROR frame that is sent before the connection is closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProtocolError {
    /// Which rule was broken.
    pub code: Code,
    /// One sentence for the body of the ERROR: the value found and the allowed values. Never contains a passcode.
    pub detail: String,
}

impl ProtocolError {
    /// Creates an error with an explanation.
    #[must_use]
    #[cold]
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        ProtocolError { code, detail: detail.into() }
    }
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} ({}): {}", self.code.message(), self.code.as_str(), self.detail)
    }
}

impl std::error::Error for ProtocolError {}

#[cfg(test)]
mod tests {
    use super::Code;

    #[test]
    fn codes_are_unique_and_close_codes_are_legal() {
        for (at, code) in Code::ALL.iter().enumerate() {
            assert!(Code::ALL[..at].iter().all(|other| other.as_str() != code.as_str()));
            assert!(matches!(code.websocket_close(), 1002 | 1008 | 1009 | 1013));
        }
    }
}
