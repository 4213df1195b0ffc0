//! The listening socket, and its behaviour when descriptors run out.
//!
//! One spare descriptor is kept: when the table is full, it is closed to accept a connection, which gets an error and
//! is closed instead of hanging. Accepting resumes at the next close, and by timer.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};

use crate::door::{SpareDescriptor, TcpListener, TcpStream, bind, planted};

/// Connections over `max_connections` that are answered at the same time; others are just closed.
const REFUSED_MAX: usize = 64;
/// The delay before accepting is retried after an error.
const RETRY_MS: u64 = 100;

/// The result of one attempt to accept.
#[derive(Debug)]
pub enum Accept {
    /// A connection.
    Stream(TcpStream, SocketAddr),
    /// A connection that uses the spare descriptor.
    Spare(TcpStream, SocketAddr),
    /// No connection is waiting, or none can be accepted now.
    Nothing,
    /// An error that is worth a log record.
    Failed(io::Error),
}

/// The broker's one listening socket.
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    ready: bool,
    retry_at_ms: Option<u64>,
    spare: Option<SpareDescriptor>,
    refused: usize,
    /// The number of the last connection.
    accepted: u64,
}

impl Listener {
    /// Binds `host:port` (port 0: any free one).
    ///
    /// # Errors
    /// The name does not resolve, or the address cannot be bound; the error of the last address.
    pub fn bind(host: &str, port: u16) -> io::Result<Listener> {
        let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
        let mut error = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        for address in (bare, port).to_socket_addrs()? {
            match bind(address) {
                Ok(socket) => {
                    return Ok(Listener {
                        socket,
                        ready: false,
                        retry_at_ms: None,
                        spare: SpareDescriptor::open(),
                        refused: 0,
                        accepted: 0,
                    });
                }
                Err(failed) => error = failed,
            }
        }
        Err(error)
    }

    /// The address it listens on.
    ///
    /// # Errors
    /// The socket's error.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// The socket, for registration with a poll.
    pub fn socket(&mut self) -> &mut TcpListener {
        &mut self.socket
    }

    /// Records that the poll has reported a waiting connection.
    pub fn set_ready(&mut self) {
        self.ready = true;
    }

    /// Whether an attempt to accept may succeed.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.ready
    }

    /// The time of the next attempt after an error.
    #[must_use]
    pub fn retry_at_ms(&self) -> Option<u64> {
        self.retry_at_ms
    }

    /// Records that a descriptor is free again.
    pub fn descriptor_freed(&mut self) {
        if self.spare.is_none() {
            self.spare = SpareDescriptor::open();
        }
        if self.retry_at_ms.take().is_some() {
            self.ready = true;
        }
    }

    /// Records that a refused connection was closed.
    pub fn refused_closed(&mut self) {
        self.refused = self.refused.saturating_sub(1);
    }

    /// Counts one more refused connection; false if there are too many to answer it.
    #[must_use]
    pub fn may_refuse(&mut self) -> bool {
        let may = self.refused < REFUSED_MAX;
        self.refused += usize::from(may);
        may
    }

    /// Returns the number of the next connection.
    pub fn next_id(&mut self) -> u64 {
        self.accepted += 1;
        self.accepted
    }

    /// Accepts one connection.
    pub fn accept(&mut self, now_ms: u64) -> Accept {
        if self.retry_at_ms.is_some_and(|at_ms| now_ms >= at_ms) {
            self.retry_at_ms = None;
            self.ready = true;
        }
        if !self.ready {
            return Accept::Nothing;
        }
        loop {
            return match self.socket.accept() {
                Ok((stream, peer)) => Accept::Stream(stream, peer),
                Err(error) => match error.raw_os_error() {
                    Some(libc::EMFILE | libc::ENFILE) => self.accept_with_spare(now_ms, error),
                    Some(libc::EINTR | libc::ECONNABORTED) => continue,
                    _ if error.kind() == io::ErrorKind::WouldBlock => {
                        self.ready = false;
                        Accept::Nothing
                    }
                    _ => self.wait(now_ms, error),
                },
            };
        }
    }

    /// Accepts one connection with the spare descriptor when no other is left.
    fn accept_with_spare(&mut self, now_ms: u64, error: io::Error) -> Accept {
        if self.spare.take().is_some()
            && let Ok((stream, peer)) = self.socket.accept()
        {
            return Accept::Spare(stream, peer);
        }
        self.wait(now_ms, error)
    }

    fn wait(&mut self, now_ms: u64, error: io::Error) -> Accept {
        self.ready = false;
        if !planted!("accept-not-retried") {
            self.retry_at_ms = Some(now_ms + RETRY_MS);
        }
        if self.spare.is_none() {
            self.spare = SpareDescriptor::open();
        }
        Accept::Failed(error)
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream as Peer;

    use super::*;

    fn listener() -> (Listener, SocketAddr) {
        let listener = Listener::bind("[127.0.0.1]", 0).expect("a free port");
        let address = listener.address().expect("a bound address");
        (listener, address)
    }

    /// An error that accepting may report.
    fn error(code: i32) -> io::Error {
        io::Error::from_raw_os_error(code)
    }

    #[test]
    fn an_address_that_cannot_be_bound_is_an_error() {
        let (_listener, address) = listener();
        assert_eq!(
            Listener::bind("127.0.0.1", address.port()).expect_err("in use").kind(),
            io::ErrorKind::AddrInUse
        );
    }

    #[test]
    fn connections_are_accepted_while_the_poll_says_that_some_wait() {
        let (mut listener, address) = listener();
        let peer = Peer::connect(address).expect("a listening socket");
        assert!(matches!(listener.accept(0), Accept::Nothing), "the poll has reported nothing");
        listener.set_ready();
        let Accept::Stream(_, from) = listener.accept(0) else { panic!("a connection waits") };
        assert_eq!(Some(from), peer.local_addr().ok());
        assert!(listener.is_ready() && matches!(listener.accept(0), Accept::Nothing) && !listener.is_ready());
        assert_eq!([listener.next_id(), listener.next_id()], [1, 2]);
    }

    #[test]
    fn without_descriptors_one_connection_gets_the_spare_one() {
        let (mut listener, address) = listener();
        let _peers = [Peer::connect(address), Peer::connect(address)].map(|peer| peer.expect("it listens"));
        listener.set_ready();
        assert!(matches!(listener.accept_with_spare(0, error(libc::EMFILE)), Accept::Spare(..)));
        // The spare one is in use, so the next connection waits.
        assert!(matches!(listener.accept_with_spare(0, error(libc::EMFILE)), Accept::Failed(_)));
        assert_eq!((listener.is_ready(), listener.retry_at_ms()), (false, Some(RETRY_MS)));
        assert!(matches!(listener.accept(RETRY_MS - 1), Accept::Nothing));
        assert!(matches!(listener.accept(RETRY_MS), Accept::Stream(..)));
        assert_eq!(listener.retry_at_ms(), None);
    }

    #[test]
    fn a_free_descriptor_ends_the_wait() {
        let (mut listener, _) = listener();
        listener.descriptor_freed();
        assert!(!listener.is_ready(), "it did not wait");
        assert!(matches!(listener.wait(5, error(libc::ENOBUFS)), Accept::Failed(_)));
        listener.spare = None;
        listener.descriptor_freed();
        assert!(listener.is_ready() && listener.spare.is_some() && listener.retry_at_ms().is_none());
    }

    #[test]
    fn a_limited_number_of_refused_connections_is_answered() {
        let (mut listener, _) = listener();
        assert_eq!((0..REFUSED_MAX + 9).filter(|_| listener.may_refuse()).count(), REFUSED_MAX);
        listener.refused_closed();
        assert!(listener.may_refuse() && !listener.may_refuse());
    }
}
