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

/// How far the dialogue is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// The socket connects.
    Connecting,
    /// The upgrade request with this key is out.
    Upgrading(String),
    /// CONNECT is out.
    LoggingIn,
    /// So many SUBSCRIBEs have no RECEIPT yet.
    Subscribing(usize),
    /// Everything is subscribed.
    Ready,
    /// DISCONNECT is out.
    Leaving,
    /// Its RECEIPT came.
    Left,
}

/// What one read brought about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// The socket has no more.
    Drained,
    /// The buffer was filled: there may be more.
    More,
    /// The peer closed.
    Closed,
}

/// One connection.
pub struct Conn {
    stream: TcpStream,
    /// How far it is.
    pub state: State,
    /// RECEIPTs that came while ready.
    pub receipts: u64,
    /// Nothing is read from it.
    pub never_reads: bool,
    /// The peer shut its side down: read on until the end.
    pub hung_up: bool,
    /// Checks what comes.
    pub receiver: Receiver,
    /// Bytes to be written, from `written` on.
    pub out: Vec<u8>,
    written: usize,
    transport: Transport,
    inbound: Inbound,
    response: Vec<u8>,
    /// How it introduced itself.
    pub login: Rc<Login>,
    subscribe: Vec<u8>,
    subscriptions: usize,
}

impl Conn {
    /// Begins to connect. `subscriptions` are ids and destinations, `headers` further lines of every SUBSCRIBE.
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

    /// The socket takes bytes: goes on with the dialogue or with what waits.
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

    /// Asks for the RECEIPT after which nothing more may come.
    pub fn leave(&mut self) -> Result<(), Fault> {
        self.out.extend(wrap(self.transport, stomp::disconnect("bye")));
        self.state = State::Leaving;
        self.flush()
    }

    /// Whether bytes wait for the socket.
    pub fn is_blocked(&self) -> bool {
        self.written < self.out.len()
    }

    /// Whether the last byte that came ended a frame.
    pub fn is_between_frames(&self) -> bool {
        self.inbound.is_between_frames() && self.receiver.is_between_frames()
    }

    /// Writes what the socket takes.
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

    /// A peer that refuses says so in an ERROR frame: that is read before the failure is reported.
    fn write_failed(&mut self, error: io::Error) -> Result<(), Fault> {
        let mut buffer = vec![0; HEADROOM + 64 * 1024];
        while self.stream.peek(&mut [0]).is_ok_and(|size| size > 0) {
            self.read(&mut buffer)?;
        }
        Err(error.into())
    }

    /// Reads once into `buffer` behind [`HEADROOM`] and checks what came.
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
            self.inbound.take(buffer, HEADROOM, HEADROOM + size, &mut self.receiver)?;
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

    /// Acts on frames that are not messages.
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

/// Over WebSocket one frame of its own for each STOMP frame.
fn wrap(transport: Transport, frame: Vec<u8>) -> Vec<u8> {
    match transport {
        Transport::Tcp => frame,
        Transport::Ws => ws::client_frame(ws::TEXT, &frame),
    }
}
