//! Sockets whose bytes arrive when the driver says so.
//!
//! ```text
//! Wire::send ─► in transit ─► Wire::arrive ─► TcpStream::read        (the client sends)
//! Wire::receive ◄─ the kernel's buffer, of a size that the driver sets ◄─ TcpStream::write
//! ```

use std::collections::VecDeque;
use std::io::{self, IoSlice, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::time::Duration;

use rand::Rng as _;

use super::Token;
use super::poll::{Readiness, Source};
use super::writes::Writes;
use super::{Outside, with};

/// The error for "too many open files".
const EMFILE: i32 = 24;
/// The size of a new connection's buffer towards the client.
const BUFFER_BYTES: usize = 64 << 10;

/// A write of this many slices may have left others to the next turn.
const SLICES_MAX: usize = 512;
/// The precision of the broker's deadlines.
const DEADLINES: Duration = Duration::from_millis(1);

/// Connections that wait to be accepted.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    pub(super) links: VecDeque<usize>,
    pub(super) registration: Option<(usize, Token)>,
}

/// A connection between a client and the broker.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) registration: Option<(usize, Token)>,
    /// Bytes of the client; the first `arrived` of them can be read.
    pub(super) inbound: VecDeque<u8>,
    pub(super) arrived: usize,
    /// The client has shut its write side, behind `inbound`.
    pub(super) inbound_ends: bool,
    /// Bytes of the broker that the client has not taken.
    pub(super) outbound: VecDeque<u8>,
    /// The writes that these bytes come from.
    pub(super) writes: Writes,
    /// Bytes that the broker has written and the client can never take.
    pub(super) lost: Vec<u8>,
    pub(super) outbound_max: usize,
    /// The broker has shut its write side, behind `outbound`.
    pub(super) outbound_ends: bool,
    /// The broker waits for room.
    pub(super) wants_room: bool,
    /// When the client made the room that the broker had waited for, until the broker writes.
    pub(super) made_room: Option<Duration>,
    /// The client takes nothing more: the next write breaks the connection.
    pub(super) is_abandoned: bool,
    /// The connection is broken, and the broker has not been told yet (`Some(false)`), or it has.
    pub(super) broken: Option<bool>,
    pub(super) has_broker: bool,
    /// The broker closed its end while it waited for room.
    pub(super) was_cut_off: bool,
}

impl Link {
    pub(super) fn new() -> Self {
        Link {
            registration: None,
            inbound: VecDeque::new(),
            arrived: 0,
            inbound_ends: false,
            outbound: VecDeque::new(),
            writes: Writes::default(),
            lost: Vec::new(),
            outbound_max: BUFFER_BYTES,
            outbound_ends: false,
            wants_room: false,
            made_room: None,
            is_abandoned: false,
            broken: None,
            has_broker: true,
            was_cut_off: false,
        }
    }

    /// Whether the broker can read the end of the client's bytes.
    fn is_at_end(&self) -> bool {
        self.inbound_ends && self.inbound.is_empty()
    }

    pub(super) fn state(&self) -> Readiness {
        Readiness {
            readable: self.arrived > 0 || self.is_at_end() || self.broken.is_some(),
            writable: self.outbound.len() < self.outbound_max || self.broken.is_some(),
            read_closed: (self.inbound_ends && self.inbound.len() == self.arrived) || self.broken.is_some(),
            error: self.broken.is_some(),
        }
    }

    /// The client can never take what it has not taken; what follows it may be lost already.
    pub(super) fn lose_outbound(&mut self) {
        self.lost.splice(0..0, self.outbound.drain(..));
    }

    pub(super) fn break_now(&mut self) {
        if self.broken.is_none() {
            self.broken = Some(false);
            self.inbound.clear();
            self.arrived = 0;
        }
    }
}

impl Outside {
    pub(super) fn report(&mut self, link: usize, changes: Readiness) {
        if let Some((poll, token)) = self.links[link].registration {
            self.polls[poll].report(token, changes);
        }
    }

    pub(super) fn report_all(&mut self, link: usize) {
        let state = self.links[link].state();
        self.report(link, state);
    }
}

/// The broker's end of a connection.
#[derive(Debug)]
pub struct TcpStream {
    link: usize,
}

impl TcpStream {
    fn with<T>(&self, act: impl FnOnce(&mut Link) -> T) -> T {
        with(|outside| act(&mut outside.links[self.link]))
    }

    /// Small frames are always sent at once here.
    ///
    /// # Errors
    /// None.
    pub fn set_nodelay(&self, _: bool) -> io::Result<()> {
        Ok(())
    }

    /// Shuts the write side.
    ///
    /// # Errors
    /// The connection is broken.
    pub fn shutdown(&self, _: Shutdown) -> io::Result<()> {
        self.with(|link| {
            link.outbound_ends = true;
            if link.broken.is_some() { Err(io::ErrorKind::NotConnected.into()) } else { Ok(()) }
        })
    }
}

impl Read for TcpStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.with(|link| {
            if let Some(told) = &mut link.broken {
                return if std::mem::replace(told, true) {
                    Ok(0)
                } else {
                    Err(io::ErrorKind::ConnectionReset.into())
                };
            }
            if link.arrived == 0 {
                return if link.is_at_end() { Ok(0) } else { Err(io::ErrorKind::WouldBlock.into()) };
            }
            let len = buffer.len().min(link.arrived);
            for (into, byte) in buffer.iter_mut().zip(link.inbound.drain(..len)) {
                *into = byte;
            }
            link.arrived -= len;
            Ok(len)
        });
        let len = read.as_ref().map_or(0, |len| *len);
        with(|outside| {
            outside.traffic.reads += usize::from(len > 0);
            outside.traffic.read += len;
        });
        read
    }
}

impl Write for TcpStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let (now, quiet) = with(|outside| (outside.now, outside.quiet));
        let written = self.with(|link| {
            if link.broken.is_some() || link.outbound_ends {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            let all: usize = slices.iter().map(|slice| slice.len()).sum();
            let bytes = slices.iter().flat_map(|slice| slice.iter());
            if link.is_abandoned {
                link.lost.extend(bytes);
                link.break_now();
                return Ok(all); // the kernel takes it, and learns only then that nobody reads
            }
            let len = all.min(link.outbound_max.saturating_sub(link.outbound.len()));
            (link.wants_room, link.made_room) = (len < all, None);
            link.writes.note(len, now, quiet, link.wants_room || slices.len() >= SLICES_MAX);
            if len == 0 && all > 0 {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            link.outbound.extend(bytes.take(len));
            Ok(len)
        });
        if self.with(|link| link.broken == Some(false)) {
            with(|outside| outside.report_all(self.link));
        }
        let len = written.as_ref().map_or(0, |len| *len);
        with(|outside| {
            outside.traffic.writes += usize::from(len > 0);
            outside.traffic.written += len;
        });
        written
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Source for TcpStream {
    fn set_registration(&mut self, registration: Option<(usize, Token)>) {
        with(|outside| {
            if let Some((poll, token)) = outside.links[self.link].registration {
                outside.polls[poll].forget(token);
            }
            outside.links[self.link].registration = registration;
            if registration.is_some() {
                outside.report_all(self.link);
            }
        });
    }
}

impl Drop for TcpStream {
    fn drop(&mut self) {
        with(|outside| {
            let random = &mut outside.random;
            let Some(link) = outside.links.get_mut(self.link) else { return };
            if !link.inbound.is_empty() && link.broken.is_none() {
                // A socket that is closed with unread bytes breaks the connection: what is on the way is lost.
                let kept = random.random_range(0..=link.outbound.len());
                link.lost.extend(link.outbound.drain(kept..));
                link.break_now();
            }
            if let Some((poll, token)) = link.registration.take() {
                outside.polls[poll].forget(token);
            }
            // Room that came at the moment of a deadline came too late.
            let is_too_late = link.made_room.is_some_and(|at| outside.now - at <= DEADLINES);
            link.was_cut_off = (link.wants_room || is_too_late) && !link.outbound_ends;
            (link.has_broker, link.outbound_ends) = (false, true);
            outside.descriptors = outside.descriptors.saturating_add(1);
        });
    }
}

/// The broker's listening socket.
#[derive(Debug)]
pub struct TcpListener {
    address: SocketAddr,
}

/// Listens; any address is free.
///
/// # Errors
/// None.
pub fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    with(|outside| {
        outside.listening = Some(Waiting::default());
        Ok(TcpListener { address })
    })
}

impl TcpListener {
    /// The address it listens on.
    ///
    /// # Errors
    /// None.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.address)
    }

    /// Accepts the next connection.
    ///
    /// # Errors
    /// No connection waits, or no descriptor is left.
    pub fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        with(|outside| {
            let waiting = outside.listening.as_mut().ok_or(io::ErrorKind::NotConnected)?;
            if waiting.links.is_empty() {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            if outside.descriptors == 0 {
                return Err(io::Error::from_raw_os_error(EMFILE));
            }
            let link = waiting.links.pop_front().ok_or(io::ErrorKind::WouldBlock)?;
            outside.descriptors -= 1;
            Ok((TcpStream { link }, SocketAddr::from(([127, 0, 0, 1], 1 + (link % 60_000) as u16))))
        })
    }
}

impl Source for TcpListener {
    fn set_registration(&mut self, registration: Option<(usize, Token)>) {
        with(|outside| {
            if let Some(waiting) = &mut outside.listening {
                waiting.registration = registration;
            }
        });
    }
}

impl Drop for TcpListener {
    fn drop(&mut self) {
        with(|outside| {
            for link in outside.listening.take().map_or_else(VecDeque::new, |waiting| waiting.links) {
                outside.links[link].has_broker = false;
                outside.links[link].outbound_ends = true;
                outside.links[link].break_now();
            }
        });
    }
}

/// A descriptor that is closed when one is needed.
#[derive(Debug)]
pub struct SpareDescriptor(());

impl SpareDescriptor {
    /// Opens one, unless there is none left.
    #[must_use]
    pub fn open() -> Option<Self> {
        with(|outside| {
            outside.descriptors = outside.descriptors.checked_sub(1)?;
            Some(SpareDescriptor(()))
        })
    }
}

impl Drop for SpareDescriptor {
    fn drop(&mut self) {
        with(|outside| outside.descriptors = outside.descriptors.saturating_add(1));
    }
}

/// Written bytes that the client has not taken.
#[must_use]
pub fn untaken_bytes(stream: &TcpStream) -> Option<u32> {
    Some(u32::try_from(stream.with(|link| link.outbound.len())).unwrap_or(u32::MAX))
}
