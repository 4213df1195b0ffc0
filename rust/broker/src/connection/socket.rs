//! A connection's socket: the only way in which a connection reads and writes. It is a plain TCP stream now; an
//! encrypted one would be another variant of [`Stream`].
//!
//! Two answers are the socket's own, because only it can know them: whether more can be read now
//! ([`Received::Bytes`]), and how many of the bytes that it took it still holds back itself ([`Socket::held_bytes`]).
//! A frame counts as written once the socket has passed all of it to the system, see [`super::outbox::Outbox`].

use std::io::{self, IoSlice, Read as _, Write};
use std::net::Shutdown;

use crate::door::{Interest, Registry, TcpStream, Token, untaken_bytes};

/// The stream that carries the bytes.
#[derive(Debug)]
enum Stream {
    /// TCP without encryption.
    Plain(TcpStream),
    /// A test double.
    #[cfg(test)]
    Scripted(Box<Script>),
}

/// The result of one read.
#[derive(Debug)]
pub enum Received {
    /// A number of bytes, at least one.
    Bytes {
        /// The number.
        len: usize,
        /// Nothing more can be read before the poll reports that the socket is ready again.
        is_drained: bool,
    },
    /// Nothing, until the poll reports that the socket is ready.
    Blocked,
    /// Nothing, but reading again may bring something.
    Interrupted,
    /// The peer has shut its write side.
    End,
    /// The connection is broken.
    Failed(io::Error),
}

impl Received {
    /// The number of bytes read.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Received::Bytes { len, .. } => *len,
            _ => 0,
        }
    }
}

/// The socket of one connection.
#[derive(Debug)]
pub struct Socket {
    stream: Stream,
    /// The poll has reported a hang-up: a short read does not mean that nothing more can be read.
    has_hung_up: bool,
    /// Bytes that the system held at the last check, and the time when the peer had taken some of them.
    untaken: u32,
    taken_ms: u64,
}

impl Socket {
    /// A connection without encryption.
    #[must_use]
    pub fn plain(stream: TcpStream, now_ms: u64) -> Self {
        Socket { stream: Stream::Plain(stream), has_hung_up: false, untaken: 0, taken_ms: now_ms }
    }

    /// Registers the socket with the poll.
    ///
    /// # Errors
    /// An error of the poll.
    pub fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        match &mut self.stream {
            Stream::Plain(stream) => {
                registry.register(stream, token, Interest::READABLE | Interest::WRITABLE)
            }
            #[cfg(test)]
            Stream::Scripted(_) => Ok(()),
        }
    }

    /// Removes the socket from the poll.
    pub fn deregister(&mut self, registry: &Registry) {
        match &mut self.stream {
            // The poll forgets the socket when it is closed; an error here means that it was never registered.
            Stream::Plain(stream) => _ = registry.deregister(stream),
            #[cfg(test)]
            Stream::Scripted(_) => {}
        }
    }

    /// Notes that the poll has reported a hang-up: the socket is drained only at its end, or when it would block.
    pub fn hang_up(&mut self) {
        self.has_hung_up = true;
    }

    /// Whether the poll has reported a hang-up.
    #[must_use]
    pub fn has_hung_up(&self) -> bool {
        self.has_hung_up
    }

    /// Reads once.
    pub fn receive(&mut self, buffer: &mut [u8]) -> Received {
        let (read, may_hold_more) = match &mut self.stream {
            Stream::Plain(stream) => (stream.read(buffer), false),
            #[cfg(test)]
            Stream::Scripted(script) => (script.read(buffer), script.holds_more_to_read),
        };
        match read {
            Ok(0) => Received::End,
            Ok(len) => {
                let is_drained = len < buffer.len() && !may_hold_more && !self.has_hung_up;
                Received::Bytes { len, is_drained }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Received::Blocked,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Received::Interrupted,
            Err(error) => Received::Failed(error),
        }
    }

    /// Bytes that it took in [`Write::write_vectored`] and has not passed to the system, such as encrypted records.
    /// They do not count as written. [`Write::flush`] passes them on.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        match &self.stream {
            Stream::Plain(_) => 0,
            #[cfg(test)]
            Stream::Scripted(script) => script.held,
        }
    }

    /// Tells the peer that nothing more will be written.
    ///
    /// # Errors
    /// The connection is lost.
    pub fn shut_write(&mut self) -> io::Result<()> {
        match &mut self.stream {
            Stream::Plain(stream) => stream.shutdown(Shutdown::Write),
            #[cfg(test)]
            Stream::Scripted(script) => script.shut_write(),
        }
    }

    /// Updates whether the peer has taken some of the bytes that the system held at the last check.
    pub fn check_untaken(&mut self, now_ms: u64) {
        let untaken = match &self.stream {
            Stream::Plain(stream) => untaken_bytes(stream),
            #[cfg(test)]
            Stream::Scripted(script) => Some(script.untaken),
        };
        let Some(untaken) = untaken else { return };
        // A peer that has taken everything does not hold up the rest, whenever that was.
        if untaken < self.untaken || untaken == 0 {
            self.taken_ms = now_ms;
        }
        self.untaken = untaken;
    }

    /// The last time at which the peer took bytes, as far as [`Socket::check_untaken`] has observed it.
    #[must_use]
    pub fn taken_ms(&self) -> u64 {
        self.taken_ms
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match &mut self.stream {
            Stream::Plain(stream) => stream.write_vectored(slices),
            #[cfg(test)]
            Stream::Scripted(script) => script.write_vectored(slices),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.stream {
            Stream::Plain(stream) => stream.flush(),
            #[cfg(test)]
            Stream::Scripted(script) => script.flush(),
        }
    }
}

#[cfg(test)]
pub(crate) use self::double::Script;

/// A socket for tests that follows a script and keeps the bytes written to it.
#[cfg(test)]
mod double {
    use std::collections::VecDeque;

    use super::*;

    /// The behaviour of a socket in a test.
    #[derive(Debug, Default)]
    pub(crate) struct Script {
        /// The results of the next reads; after them, reads would block.
        pub(crate) incoming: VecDeque<io::Result<Vec<u8>>>,
        /// It holds more to read although a read was short, such as the rest of a decrypted record.
        pub(crate) holds_more_to_read: bool,
        /// Bytes that it takes before it would block.
        pub(crate) room: usize,
        /// It holds back the bytes that it takes until it is flushed.
        pub(crate) holds_back: bool,
        /// Bytes of [`Script::taken`] that it holds back.
        pub(crate) held: usize,
        /// Bytes that the peer has not taken.
        pub(crate) untaken: u32,
        /// The bytes that it took.
        pub(crate) taken: Vec<u8>,
        /// The connection is broken.
        pub(crate) is_broken: bool,
        /// Its write side is shut.
        pub(crate) is_shut: bool,
    }

    impl Script {
        pub(super) fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let mut bytes =
                self.incoming.pop_front().unwrap_or_else(|| Err(io::ErrorKind::WouldBlock.into()))?;
            let len = bytes.len().min(buffer.len());
            buffer[..len].copy_from_slice(&bytes[..len]);
            if len < bytes.len() {
                self.incoming.push_front(Ok(bytes.split_off(len)));
            }
            Ok(len)
        }

        pub(super) fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
            if self.is_broken {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            let before = self.taken.len();
            for slice in slices {
                let count = slice.len().min(self.room);
                self.taken.extend_from_slice(&slice[..count]);
                self.room -= count;
            }
            let count = self.taken.len() - before;
            self.held += if self.holds_back { count } else { 0 };
            if count == 0 { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(count) }
        }

        pub(super) fn flush(&mut self) -> io::Result<()> {
            if self.holds_back && self.held > 0 {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            self.held = 0;
            Ok(())
        }

        pub(super) fn shut_write(&mut self) -> io::Result<()> {
            self.is_shut = true;
            Ok(())
        }
    }

    impl Socket {
        /// A socket that follows the script.
        pub(crate) fn scripted(script: Script) -> Self {
            let stream = Stream::Scripted(Box::new(script));
            Socket { stream, has_hung_up: false, untaken: 0, taken_ms: 0 }
        }

        /// A socket that takes this many bytes, then would block.
        pub(crate) fn with_room(room: usize) -> Self {
            Socket::scripted(Script { room, ..Script::default() })
        }

        /// The script of its further behaviour.
        pub(crate) fn script(&mut self) -> &mut Script {
            match &mut self.stream {
                Stream::Scripted(script) => script,
                Stream::Plain(_) => panic!("not a test double"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reads(incoming: impl IntoIterator<Item = io::Result<Vec<u8>>>) -> Socket {
        Socket::scripted(Script { incoming: incoming.into_iter().collect(), ..Script::default() })
    }

    #[test]
    fn a_short_read_drains_a_socket_and_a_full_one_does_not() {
        let mut socket = reads([Ok(b"abcdef".to_vec())]);
        let mut buffer = [0; 4];
        assert!(matches!(socket.receive(&mut buffer), Received::Bytes { len: 4, is_drained: false }));
        assert!(matches!(socket.receive(&mut buffer), Received::Bytes { len: 2, is_drained: true }));
        assert!(matches!(socket.receive(&mut buffer), Received::Blocked));
    }

    #[test]
    fn after_a_hang_up_only_the_end_drains_it() {
        let interrupted = Err(io::ErrorKind::Interrupted.into());
        let mut socket = reads([Ok(b"ab".to_vec()), interrupted, Ok(Vec::new())]);
        socket.hang_up();
        let mut buffer = [0; 4];
        assert!(matches!(socket.receive(&mut buffer), Received::Bytes { len: 2, is_drained: false }));
        assert!(matches!(socket.receive(&mut buffer), Received::Interrupted));
        assert!(socket.has_hung_up() && matches!(socket.receive(&mut buffer), Received::End));
    }

    #[test]
    fn a_socket_decides_itself_whether_it_is_drained() {
        let mut socket = reads([Ok(b"ab".to_vec())]);
        socket.script().holds_more_to_read = true;
        assert!(matches!(socket.receive(&mut [0; 4]), Received::Bytes { len: 2, is_drained: false }));
        socket.script().incoming.push_back(Err(io::ErrorKind::ConnectionReset.into()));
        assert!(matches!(socket.receive(&mut [0; 4]), Received::Failed(_)));
    }

    #[test]
    fn progress_is_seen_when_the_system_holds_less_than_before() {
        let mut socket = Socket::with_room(0);
        socket.script().untaken = 9;
        socket.check_untaken(5);
        assert_eq!(socket.taken_ms(), 0);
        socket.script().untaken = 8;
        socket.check_untaken(7);
        socket.check_untaken(8);
        assert_eq!(socket.taken_ms(), 7);
        socket.script().untaken = 0;
        [9, 12].into_iter().for_each(|now_ms| socket.check_untaken(now_ms));
        assert_eq!(socket.taken_ms(), 12, "what was written meanwhile is taken, too");
    }
}
