//! One connection of the generator: from connect to the last RECEIPT.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::rc::Rc;

use mio::net::TcpStream;

use crate::fault::Fault;
use crate::inbound::{HEADROOM, Inbound};
use crate::login::Login;
use crate::receiver::{Control, QueueConsumer, Receiver};
use crate::workload::Transport;
use crate::{stomp, ws};

/// State of the dialogue with the broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// The socket connects.
    Connecting,
    /// The upgrade request with this key was sent.
    Upgrading(String),
    /// CONNECT was sent.
    LoggingIn,
    /// This many SUBSCRIBEs have no RECEIPT yet.
    Subscribing(usize),
    /// All SUBSCRIBEs have their RECEIPT.
    Ready,
    /// DISCONNECT was sent.
    Leaving,
    /// The RECEIPT of DISCONNECT arrived.
    Left,
}

/// Outcome of one read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// The socket has no more bytes.
    Drained,
    /// The buffer was filled: there may be more bytes.
    More,
    /// The peer closed the connection.
    Closed,
}

/// One connection.
pub struct Conn {
    stream: TcpStream,
    /// State of the dialogue.
    pub state: State,
    /// RECEIPTs that arrived while ready.
    pub receipts: u64,
    /// Nothing is read from it.
    pub never_reads: bool,
    /// The peer shut down its side: read until the end.
    pub hung_up: bool,
    /// Checks the frames that arrive.
    pub receiver: Receiver,
    /// Bytes to write, from `written` on.
    pub out: Vec<u8>,
    written: usize,
    transport: Transport,
    inbound: Inbound,
    response: Vec<u8>,
    /// Its login.
    pub login: Rc<Login>,
    subscribe: Vec<u8>,
    subscriptions: usize,
}

impl Conn {
    /// Starts to connect. `subscriptions` are ids and destinations, `headers` further header lines of every SUBSCRIBE.
    pub fn open(
        address: SocketAddr,
        login: Rc<Login>,
        transport: Transport,
        subscriptions: &[(String, String, usize)],
        headers: &str,
        receiver: Receiver,
    ) -> Result<Conn, Fault> {
        let stream = TcpStream::connect(address)?;
        let mut subscribe = Vec::new();
        for (id, destination, _) in subscriptions {
            let frame = stomp::subscribe(id, destination, headers, &format!("sub {id}"));
            subscribe.extend(wrap(transport, frame));
        }
        Ok(Conn {
            stream,
            state: State::Connecting,
            receipts: 0,
            never_reads: false,
            hung_up: false,
            receiver,
            out: Vec::new(),
            written: 0,
            transport,
            inbound: Inbound::default(),
            response: Vec::new(),
            login,
            subscribe,
            subscriptions: subscriptions.len(),
        })
    }

    /// The socket, to register it.
    pub fn stream(&mut self) -> &mut TcpStream {
        &mut self.stream
    }

    /// The socket is writable: continues the dialogue, or writes what is waiting.
    pub fn writable(&mut self) -> Result<(), Fault> {
        if self.state == State::Connecting {
            if let Some(error) = self.stream.take_error()? {
                return Err(error.into());
            }
            let peer = match self.stream.peer_addr() {
                Err(error) if error.kind() == io::ErrorKind::NotConnected => return Ok(()),
                other => other?,
            };
            self.stream.set_nodelay(true)?;
            match self.transport {
                Transport::Tcp => self.log_in(),
                Transport::Ws => {
                    let (request, key) = ws::upgrade_request(&peer.to_string(), &self.login.ws_path);
                    self.out.extend(request);
                    self.state = State::Upgrading(key);
                }
            }
        }
        self.flush()
    }

    fn log_in(&mut self) {
        self.inbound = Inbound::new(self.transport == Transport::Ws);
        self.out.extend(wrap(self.transport, self.login.connect()));
        self.state = State::LoggingIn;
    }

    /// Sends DISCONNECT. Nothing may arrive after its RECEIPT.
    pub fn leave(&mut self) -> Result<(), Fault> {
        self.out.extend(wrap(self.transport, stomp::disconnect("bye")));
        self.state = State::Leaving;
        self.flush()
    }

    /// Whether bytes are waiting for the socket.
    pub fn is_blocked(&self) -> bool {
        self.written < self.out.len()
    }

    /// Whether the last byte that arrived ended a frame.
    pub fn is_between_frames(&self) -> bool {
        self.inbound.is_between_frames() && self.receiver.is_between_frames()
    }

    /// Writes as much as the socket takes.
    pub fn flush(&mut self) -> Result<(), Fault> {
        while self.written < self.out.len() {
            match self.stream.write(&self.out[self.written..]) {
                Ok(size) => self.written += size,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return self.write_failed(error),
            }
        }
        self.out.clear();
        self.written = 0;
        Ok(())
    }

    /// Reports a failed write, or rather the ERROR frame that says why: it is read first.
    fn write_failed(&mut self, error: io::Error) -> Result<(), Fault> {
        let mut buffer = vec![0; HEADROOM + 64 * 1024];
        while self.stream.peek(&mut [0]).is_ok_and(|size| size > 0) {
            self.read(&mut buffer)?;
        }
        Err(error.into())
    }

    /// Reads once into `buffer`, after [`HEADROOM`], and checks what arrived.
    #[inline]
    pub fn read(&mut self, buffer: &mut [u8]) -> Result<Progress, Fault> {
        let size = match self.stream.read(&mut buffer[HEADROOM..]) {
            Ok(0) => return Ok(Progress::Closed),
            Ok(size) => size,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Progress::Drained),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(Progress::More),
            Err(error) => return Err(error.into()),
        };
        let full = size == buffer.len() - HEADROOM;
        if let State::Upgrading(_) = self.state {
            self.upgrade(&buffer[HEADROOM..HEADROOM + size])?;
        } else {
            self.inbound.take(buffer, HEADROOM..HEADROOM + size, &mut self.receiver)?;
        }
        if let Some(acks) = self.receiver.consumer.as_mut().and_then(QueueConsumer::acks) {
            self.out.append(acks);
            self.flush()?;
        }
        if !self.receiver.control.is_empty() {
            self.control()?;
        }
        if self.inbound.has_pongs() && !self.is_blocked() {
            self.out.extend(self.inbound.take_pongs());
            self.flush()?;
        }
        if let (Some(code), State::Ready) = (self.inbound.close_code(), &self.state) {
            return Err(Fault::Closed(format!("WebSocket close {code}")));
        }
        Ok(if full { Progress::More } else { Progress::Drained })
    }

    fn upgrade(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        let State::Upgrading(key) = &self.state else { return Ok(()) };
        self.response.extend_from_slice(bytes);
        let Some(end) = ws::upgrade_response(&self.response, key)? else { return Ok(()) };
        if end < self.response.len() {
            return Err(Fault::malformed("bytes behind the upgrade, before CONNECT", &self.response[end..]));
        }
        self.response = Vec::new();
        self.log_in();
        self.flush()
    }

    /// Handles frames other than messages.
    fn control(&mut self) -> Result<(), Fault> {
        for control in std::mem::take(&mut self.receiver.control) {
            self.state = match (control, self.state.clone()) {
                (Control::Error(message), _) => return Err(Fault::Refused(message)),
                (Control::Connected, State::LoggingIn) => {
                    self.out.extend(std::mem::take(&mut self.subscribe));
                    self.flush()?;
                    if self.subscriptions == 0 {
                        State::Ready
                    } else {
                        State::Subscribing(self.subscriptions)
                    }
                }
                (Control::Receipt(_), State::Subscribing(1)) => State::Ready,
                (Control::Receipt(_), State::Subscribing(left)) => State::Subscribing(left - 1),
                (Control::Receipt(id), State::Leaving) if id == "bye" => State::Left,
                (Control::Receipt(_), State::Ready) => {
                    self.receipts += 1;
                    State::Ready
                }
                (control, state) => return Err(Fault::Malformed(format!("{control:?} while {state:?}"))),
            };
        }
        Ok(())
    }
}

/// Puts a STOMP frame into a WebSocket frame of its own, if the transport is WebSocket.
fn wrap(transport: Transport, frame: Vec<u8>) -> Vec<u8> {
    match transport {
        Transport::Tcp => frame,
        Transport::Ws => ws::client_frame(ws::TEXT, &frame),
    }
}
