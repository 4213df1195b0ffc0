//! The commands of STOMP 1.0 to 1.2, and DIAG, which C stompica introduced.

/// The command of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names are the specification's own")]
pub enum Command {
    Connect,
    Stomp,
    Send,
    Subscribe,
    Unsubscribe,
    Ack,
    Nack,
    Begin,
    Commit,
    Abort,
    Disconnect,
    Diag,
    Connected,
    Message,
    Receipt,
    Error,
}

impl Command {
    /// Parses the command line of a client's frame; `None` for server commands and unknown ones.
    #[must_use]
    pub fn from_client(line: &[u8]) -> Option<Command> {
        Some(match line {
            b"SEND" => Command::Send,
            b"ACK" => Command::Ack,
            b"NACK" => Command::Nack,
            b"SUBSCRIBE" => Command::Subscribe,
            b"UNSUBSCRIBE" => Command::Unsubscribe,
            b"BEGIN" => Command::Begin,
            b"COMMIT" => Command::Commit,
            b"ABORT" => Command::Abort,
            b"DISCONNECT" => Command::Disconnect,
            b"CONNECT" => Command::Connect,
            b"STOMP" => Command::Stomp,
            b"DIAG" => Command::Diag,
            _ => return None,
        })
    }

    /// The command on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Command::Connect => "CONNECT",
            Command::Stomp => "STOMP",
            Command::Send => "SEND",
            Command::Subscribe => "SUBSCRIBE",
            Command::Unsubscribe => "UNSUBSCRIBE",
            Command::Ack => "ACK",
            Command::Nack => "NACK",
            Command::Begin => "BEGIN",
            Command::Commit => "COMMIT",
            Command::Abort => "ABORT",
            Command::Disconnect => "DISCONNECT",
            Command::Diag => "DIAG",
            Command::Connected => "CONNECTED",
            Command::Message => "MESSAGE",
            Command::Receipt => "RECEIPT",
            Command::Error => "ERROR",
        }
    }

    /// Whether a frame may have a body (STOMP 1.2, "Body": SEND, MESSAGE and ERROR; the body of DIAG is its query).
    #[must_use]
    pub fn has_body(self) -> bool {
        matches!(self, Command::Send | Command::Diag | Command::Message | Command::Error)
    }

    /// Whether the headers of this command are escaped, in versions that have escapes.
    #[must_use]
    pub fn is_escaped(self) -> bool {
        !matches!(self, Command::Connect | Command::Stomp | Command::Connected)
    }
}
