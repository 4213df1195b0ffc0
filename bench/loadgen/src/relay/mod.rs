//! The ideal relay: what a broker could reach if it did nothing but forward.
//!
//! It has one thread and one topic. Frames are parsed until the role of a connection is known: SUBSCRIBE makes it a
//! subscriber, the first SEND a publisher. From then on a publisher's bytes are forwarded unparsed to every subscriber, with
//! one write for each read. Over WebSocket they are unmasked and leave as one frame per read. A subscriber that lags keeps
//! its own copy of what it has not got; the generator's window bounds that. The relay has no STOMP semantics, limits or
//! errors: it is not a broker.

mod peer;

use std::io::{self, Write};
use std::net::{SocketAddr, TcpListener as StdListener};

use mio::net::TcpListener;
use mio::{Events, Interest, Poll, Token};

use peer::{Peer, Role};

/// Octets read at once.
const READ_MAX: usize = 64 * 1024;
const LISTENER: Token = Token(usize::MAX);

/// Runs the relay on a port of 127.0.0.1 (0: any free port) until the process ends. Logs where it listens, as the broker
/// does.
pub fn serve(port: u16) -> io::Result<()> {
    let (mut relay, address) = Relay::bind(port)?;
    // In one write: a reader must never see half of the address.
    io::stderr().write_all(format!("ideal relay: listening on {address}\n").as_bytes())?;
    loop {
        relay.turn()?;
    }
}

struct Relay {
    poll: Poll,
    events: Events,
    listener: TcpListener,
    peers: Vec<Option<Peer>>,
    free: Vec<usize>,
    /// Connections that receive what publishers send.
    subscribers: Vec<usize>,
    /// Connections whose last read filled the buffer: there may be more bytes without another event.
    undrained: Vec<usize>,
    buffer: Vec<u8>,
    /// What one read brings for the subscribers.
    payload: Vec<u8>,
}

impl Relay {
    fn bind(port: u16) -> io::Result<(Relay, SocketAddr)> {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)?;
        socket.set_reuse_address(true)?;
        socket.set_nonblocking(true)?;
        socket.bind(&SocketAddr::from(([127, 0, 0, 1], port)).into())?;
        socket.listen(4096)?;
        let mut listener = TcpListener::from_std(StdListener::from(socket));
        let poll = Poll::new()?;
        poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
        let address = listener.local_addr()?;
        let relay = Relay {
            poll,
            events: Events::with_capacity(1024),
            listener,
            peers: Vec::new(),
            free: Vec::new(),
            subscribers: Vec::new(),
            undrained: Vec::new(),
            buffer: vec![0; READ_MAX],
            payload: Vec::with_capacity(READ_MAX),
        };
        Ok((relay, address))
    }

    fn turn(&mut self) -> io::Result<()> {
        let wait = if self.undrained.is_empty() { None } else { Some(std::time::Duration::ZERO) };
        match self.poll.poll(&mut self.events, wait) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
            other => other?,
        }
        let mut ready = std::mem::take(&mut self.undrained);
        let mut accept = false;
        for event in &self.events {
            let Token(index) = event.token();
            if event.token() == LISTENER {
                accept = true;
                continue;
            }
            if event.is_writable()
                && let Some(Some(peer)) = self.peers.get_mut(index)
            {
                peer.flush();
            }
            if event.is_readable() && !ready.contains(&index) {
                ready.push(index);
            }
        }
        if accept {
            self.accept()?;
        }
        for index in ready {
            self.read(index);
        }
        Ok(())
    }

    fn accept(&mut self) -> io::Result<()> {
        loop {
            let (mut stream, _) = match self.listener.accept() {
                Ok(accepted) => accepted,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            };
            stream.set_nodelay(true)?;
            let index = self.free.pop().unwrap_or(self.peers.len());
            self.poll.registry().register(
                &mut stream,
                Token(index),
                Interest::READABLE | Interest::WRITABLE,
            )?;
            if index == self.peers.len() {
                self.peers.push(None);
            }
            self.peers[index] = Some(Peer::new(stream));
        }
    }

    fn read(&mut self, index: usize) {
        let Some(Some(peer)) = self.peers.get_mut(index) else { return };
        self.payload.clear();
        let outcome = peer.read(&mut self.buffer, &mut self.payload);
        if peer.became_subscriber() {
            self.subscribers.push(index);
        }
        if peer.role == Role::Publisher && !self.payload.is_empty() {
            self.forward();
        }
        match outcome {
            Ok(full) => {
                if full {
                    self.undrained.push(index);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => {
                self.peers[index] = None;
                self.free.push(index);
                self.subscribers.retain(|&subscriber| subscriber != index);
            }
        }
    }

    fn forward(&mut self) {
        let mut header = Vec::with_capacity(16);
        crate::ws::write_header(&mut header, crate::ws::TEXT, self.payload.len(), None);
        for &index in &self.subscribers {
            if let Some(peer) = &mut self.peers[index] {
                peer.deliver(&header, &self.payload);
            }
        }
    }
}
