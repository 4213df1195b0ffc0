//! The state of one STOMP connection, and the request of each client frame.
//!
//! | state | CONNECT, STOMP | DIAG | every other command | DISCONNECT |
//! |---|---|---|---|---|
//! | waiting | → connected, or ERROR | a [`Request`] | ERROR `E-NOT-CONNECTED` | ERROR `E-NOT-CONNECTED` |
//! | connected | ERROR `E-CONNECTED` | a [`Request`] | a [`Request`] | → ended |
//! | ended | ignored | ignored | ignored | ignored |
//!
//! The session checks what the specification demands of a single frame: required headers, ack modes, what the version
//! has. The broker checks whether a subscription, a transaction or a delivery exists.
//! Hot path: SEND takes one pass over its headers and allocates nothing unless a value is escaped.

use std::borrow::Cow;

use crate::error::Code;
use crate::escape::escape_into;
use crate::heartbeat::HeartBeat;
use crate::{Command, Frame, ProtocolError, Version, header};

/// How a subscription acknowledges (STOMP 1.2, "SUBSCRIBE ack Header").
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum AckMode {
    /// A delivery needs no ACK.
    #[default]
    Auto,
    /// An ACK covers all earlier deliveries of the subscription.
    Client,
    /// Each delivery has its own ACK.
    ClientIndividual,
}

/// A valid client frame, by reference to its bytes.
#[derive(Debug)]
pub enum Request<'a> {
    /// CONNECT or STOMP; the session is now connected: answer CONNECTED.
    Connect {
        /// The client's login, as on the wire: CONNECT is never escaped.
        login: Option<Cow<'a, [u8]>>,
        /// The owner's name for durable subscriptions of ActiveMQ's clients, as on the wire.
        client_id: Option<Cow<'a, [u8]>>,
    },
    /// SEND; the sender's own headers are in the buffer that was passed to [`Session::handle`].
    Send {
        /// Unescaped, not empty.
        destination: Cow<'a, [u8]>,
        /// The transaction it belongs to.
        transaction: Option<Cow<'a, [u8]>>,
        /// Destination and own headers are the same in every version.
        plain: bool,
        /// Some header is an option for the broker ([`header::is_option`]).
        options: bool,
        /// The requested receipt.
        receipt: Option<Cow<'a, [u8]>>,
        /// The body.
        body: &'a [u8],
    },
    /// SUBSCRIBE.
    Subscribe {
        /// Missing in 1.0 only.
        id: Option<Cow<'a, [u8]>>,
        /// Unescaped, not empty.
        destination: Cow<'a, [u8]>,
        /// Acknowledgement mode; auto if missing.
        ack: AckMode,
    },
    /// UNSUBSCRIBE: by id, in 1.0 by destination, or by the name of a durable subscription.
    Unsubscribe {
        /// The subscription's id.
        id: Option<Cow<'a, [u8]>>,
        /// The subscription's destination; used only in 1.0, where the id may be missing.
        destination: Option<Cow<'a, [u8]>>,
    },
    /// ACK (`accept`) or NACK.
    Ack {
        /// Whether it is an ACK and not a NACK.
        accept: bool,
        /// The header `id` in 1.2, `message-id` before.
        id: Cow<'a, [u8]>,
        /// The subscription; 1.1 only.
        subscription: Option<Cow<'a, [u8]>>,
        /// The transaction it belongs to.
        transaction: Option<Cow<'a, [u8]>>,
        /// The requested receipt.
        receipt: Option<Cow<'a, [u8]>>,
    },
    /// BEGIN, COMMIT or ABORT of a transaction.
    Transaction {
        /// One of these three commands.
        command: Command,
        /// Not empty.
        id: Cow<'a, [u8]>,
    },
    /// DIAG: a diagnostics query, also allowed before CONNECT.
    Diagnose {
        /// The body.
        query: &'a [u8],
    },
    /// DISCONNECT: no frame may follow.
    Disconnect,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Waiting,
    Connected,
    Ended,
}

/// One STOMP session.
#[derive(Debug)]
pub struct Session {
    state: State,
    version: Version,
    heartbeat: HeartBeat,
}

impl Default for Session {
    fn default() -> Self {
        Session { state: State::Waiting, version: Version::V1_0, heartbeat: HeartBeat::default() }
    }
}

impl Session {
    /// Creates a session that waits for CONNECT.
    #[must_use]
    pub fn new() -> Self {
        Session::default()
    }

    /// The negotiated version; 1.0 while waiting.
    #[must_use]
    pub fn version(&self) -> Version {
        self.version
    }

    /// Whether CONNECT was accepted and the session has not ended.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.state == State::Connected
    }

    /// Whether CONNECT was accepted, even if the session has ended since.
    #[must_use]
    pub fn was_connected(&self) -> bool {
        self.state != State::Waiting
    }

    /// The agreed heart-beats.
    #[must_use]
    pub fn heartbeat(&self) -> &HeartBeat {
        &self.heartbeat
    }

    /// Handles one frame. `offer_ms` is the server's heart-beat offer; `own_headers` is cleared and, for SEND, filled
    /// with the sender's own header lines, escaped as in 1.2.
    ///
    /// # Errors
    /// Any error is final: answer ERROR and close.
    pub fn handle<'a>(
        &mut self,
        frame: &Frame<'a>,
        offer_ms: (u32, u32),
        own_headers: &mut Vec<u8>,
    ) -> Result<Request<'a>, ProtocolError> {
        match (self.state, frame.command) {
            (State::Connected, Command::Send) => self.send(frame, own_headers),
            (State::Waiting, Command::Connect | Command::Stomp) => self.connect(frame, offer_ms),
            (State::Waiting | State::Connected, Command::Diag) => Ok(Request::Diagnose { query: frame.body }),
            (State::Waiting, command) => Err(ProtocolError::new(
                Code::NotConnected,
                format!("{} came before CONNECT", command.as_str()),
            )),
            (State::Ended, _) => Err(ProtocolError::new(Code::NotConnected, "the session has ended")),
            (State::Connected, Command::Subscribe) => self.subscribe(frame),
            (State::Connected, Command::Unsubscribe) => self.unsubscribe(frame),
            (State::Connected, Command::Ack | Command::Nack) => self.ack(frame),
            (State::Connected, Command::Begin | Command::Commit | Command::Abort) => {
                let id = required(frame, header::TRANSACTION, Code::TransactionMissing)?;
                Ok(Request::Transaction { command: frame.command, id })
            }
            (State::Connected, Command::Disconnect) => {
                self.state = State::Ended;
                Ok(Request::Disconnect)
            }
            (State::Connected, Command::Connect | Command::Stomp) => {
                Err(ProtocolError::new(Code::Connected, "the session is already connected"))
            }
            (State::Connected, command) => {
                Err(ProtocolError::new(Code::Command, format!("{} is a server command", command.as_str())))
            }
        }
    }

    fn connect<'a>(&mut self, frame: &Frame<'a>, offer_ms: (u32, u32)) -> Result<Request<'a>, ProtocolError> {
        let accepted = frame.raw(header::ACCEPT_VERSION);
        let version = Version::negotiate(accepted).ok_or_else(|| {
            let offered = String::from_utf8_lossy(accepted.unwrap_or_default());
            ProtocolError::new(
                Code::Version,
                format!("accept-version '{offered}' has none of {}", Version::SUPPORTED),
            )
        })?;
        if version > Version::V1_0 {
            self.heartbeat = HeartBeat::negotiate(frame.raw(header::HEART_BEAT), offer_ms)?;
        }
        self.version = version;
        self.state = State::Connected;
        Ok(Request::Connect {
            login: frame.raw(header::LOGIN).map(Cow::Borrowed),
            client_id: frame.raw(header::CLIENT_ID).map(Cow::Borrowed),
        })
    }

    fn send<'a>(&self, frame: &Frame<'a>, own_headers: &mut Vec<u8>) -> Result<Request<'a>, ProtocolError> {
        own_headers.clear();
        let mut destination = None;
        let (mut transaction, mut receipt) = (None, None);
        let mut options = false;
        for (name, value) in frame.raw_headers() {
            match name {
                header::DESTINATION => _ = destination.get_or_insert(value),
                header::TRANSACTION => _ = transaction.get_or_insert(value),
                header::RECEIPT => _ = receipt.get_or_insert(value),
                _ if header::is_server_owned(name) => {}
                _ if frame.plain => {
                    options |= header::is_option(name);
                    own_headers.extend_from_slice(name);
                    own_headers.push(b':');
                    own_headers.extend_from_slice(value);
                    own_headers.push(b'\n');
                }
                _ => {
                    options |= header::is_option(name);
                    escape_into(own_headers, &frame.name(name), Version::V1_2);
                    own_headers.push(b':');
                    escape_into(own_headers, &frame.value(value), Version::V1_2);
                    own_headers.push(b'\n');
                }
            }
        }
        let destination = destination.map(|raw| frame.value(raw)).filter(|value| !value.is_empty());
        Ok(Request::Send {
            destination: destination
                .ok_or_else(|| missing(frame, header::DESTINATION, Code::DestinationMissing))?,
            transaction: transaction.map(|raw| frame.value(raw)),
            plain: frame.plain,
            options,
            receipt: receipt.map(|raw| frame.value(raw)),
            body: frame.body,
        })
    }

    fn subscribe<'a>(&self, frame: &Frame<'a>) -> Result<Request<'a>, ProtocolError> {
        let destination = required(frame, header::DESTINATION, Code::DestinationMissing)?;
        let id = frame.header(header::ID);
        if id.is_none() && self.version > Version::V1_0 {
            return Err(missing(frame, header::ID, Code::IdMissing));
        }
        let ack = match frame.header(header::ACK).as_deref() {
            None | Some(b"auto") => AckMode::Auto,
            Some(b"client") => AckMode::Client,
            // STOMP 1.0 does not define it, but 1.0 clients use it, and brokers accept it.
            Some(b"client-individual") => AckMode::ClientIndividual,
            Some(other) => {
                let other = String::from_utf8_lossy(other);
                let text = format!("ack '{other}' is none of auto, client, client-individual");
                return Err(ProtocolError::new(Code::AckMode, text));
            }
        };
        Ok(Request::Subscribe { id, destination, ack })
    }

    fn unsubscribe<'a>(&self, frame: &Frame<'a>) -> Result<Request<'a>, ProtocolError> {
        let id = frame.header(header::ID);
        let destination = frame.header(header::DESTINATION).filter(|_| self.version == Version::V1_0);
        let is_named = || header::DURABLE_NAMES.iter().any(|name| frame.raw(name).is_some());
        if id.is_none() && destination.is_none() && !is_named() {
            return Err(missing(frame, header::ID, Code::IdMissing));
        }
        Ok(Request::Unsubscribe { id, destination })
    }

    fn ack<'a>(&self, frame: &Frame<'a>) -> Result<Request<'a>, ProtocolError> {
        if frame.command == Command::Nack && self.version == Version::V1_0 {
            return Err(ProtocolError::new(Code::Command, "STOMP 1.0 has no NACK"));
        }
        let by_id = self.version == Version::V1_2;
        let name = if by_id { header::ID } else { header::MESSAGE_ID };
        // In one pass over the headers, since every message of a queue has an ACK.
        let (mut id, mut transaction, mut receipt) = (None, None, None);
        for (candidate, value) in frame.raw_headers() {
            match candidate {
                header::ID if by_id => _ = id.get_or_insert(value),
                header::MESSAGE_ID if !by_id => _ = id.get_or_insert(value),
                header::TRANSACTION => _ = transaction.get_or_insert(value),
                header::RECEIPT => _ = receipt.get_or_insert(value),
                _ => {}
            }
        }
        let id = id.map(|raw| frame.value(raw)).filter(|value| !value.is_empty());
        let id = id.ok_or_else(|| missing(frame, name, Code::IdMissing))?;
        let subscription = match self.version {
            Version::V1_1 => Some(required(frame, header::SUBSCRIPTION, Code::IdMissing)?),
            _ => None,
        };
        let [transaction, receipt] = [transaction, receipt].map(|raw| raw.map(|raw| frame.value(raw)));
        Ok(Request::Ack { id, subscription, accept: frame.command == Command::Ack, transaction, receipt })
    }
}

/// Returns a required header, which must not be empty.
fn required<'a>(frame: &Frame<'a>, name: &[u8], code: Code) -> Result<Cow<'a, [u8]>, ProtocolError> {
    frame.header(name).filter(|value| !value.is_empty()).ok_or_else(|| missing(frame, name, code))
}

#[cold]
fn missing(frame: &Frame<'_>, name: &[u8], code: Code) -> ProtocolError {
    let text = format!("{} needs a '{}' header", frame.command.as_str(), String::from_utf8_lossy(name));
    ProtocolError::new(code, text)
}
