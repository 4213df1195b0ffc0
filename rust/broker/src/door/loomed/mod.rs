//! The doors of the build with `--cfg loom`: nothing comes from the outside, no time passes, and a poll reports only its
//! waker. What is real here is how threads meet: see [`super::sync`] and `rust/loom`.
//!
//! A wait with a time limit waits without one. So a shard that sleeps although it has mail sleeps forever, and loom
//! reports that all threads wait.

pub mod channel;
pub mod thread;

use std::cell::Cell;
use std::io::{self, IoSlice, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use super::sync::{Condvar, Mutex};
pub use super::values::{HashState, Instant, Interest, Token};

thread_local! {
    /// The planted fault that is switched on. All threads of a test run on the thread that runs the test.
    static FAULT: Cell<Option<&'static str>> = const { Cell::new(None) };
}

/// Switches a planted fault on, or all off.
pub fn plant(fault: Option<&'static str>) {
    FAULT.set(fault);
}

/// Whether this planted fault is switched on.
#[must_use]
pub fn is_planted(fault: &str) -> bool {
    FAULT.get() == Some(fault)
}

/// The keys of the table that decides which shard is the home of a name.
#[must_use]
pub fn hash_state() -> HashState {
    HashState::with_seed(0)
}

/// The time that has passed: none, ever.
#[must_use]
pub fn now() -> Duration {
    Duration::ZERO
}

/// The time since 1970.
#[must_use]
pub fn wall_clock() -> Duration {
    Duration::ZERO
}

/// Processor time of this thread.
#[must_use]
pub fn thread_cpu_time() -> Duration {
    Duration::ZERO
}

/// The same bytes each time.
#[must_use]
pub fn random_bytes<const BYTES: usize>() -> [u8; BYTES] {
    [0; BYTES]
}

/// A turn's work is cut into portions of the shipped size.
#[must_use]
pub const fn turn_divisor() -> usize {
    1
}

/// Whether the waker was used since the last poll, as the system's event counter has it.
#[derive(Debug, Default)]
struct Signal {
    is_on: Mutex<bool>,
    changed: Condvar,
}

/// Gives wakers to their poll; nothing else is ever ready.
#[derive(Debug)]
pub struct Registry {
    signal: Arc<Signal>,
}

impl Registry {
    /// Does nothing: no source is ever ready.
    ///
    /// # Errors
    /// None.
    pub fn register<S>(&self, _: &mut S, _: Token, _: Interest) -> io::Result<()> {
        Ok(())
    }

    /// Does nothing.
    ///
    /// # Errors
    /// None.
    pub fn deregister<S>(&self, _: &mut S) -> io::Result<()> {
        Ok(())
    }
}

/// The event of a waker.
#[derive(Clone, Copy, Debug)]
pub struct Event(Token);

impl Event {
    /// The source.
    #[must_use]
    pub fn token(&self) -> Token {
        self.0
    }

    /// Something can be read.
    #[must_use]
    pub fn is_readable(&self) -> bool {
        true
    }

    /// There is room to write.
    #[must_use]
    pub fn is_writable(&self) -> bool {
        false
    }

    /// The peer has shut its write side.
    #[must_use]
    pub fn is_read_closed(&self) -> bool {
        false
    }

    /// The connection is broken.
    #[must_use]
    pub fn is_error(&self) -> bool {
        false
    }
}

/// The events of one call of [`Poll::poll`]: one at most.
#[derive(Debug)]
pub struct Events(Option<Event>);

impl Events {
    /// Room for this many events.
    #[must_use]
    pub fn with_capacity(_: usize) -> Self {
        Events(None)
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }
}

impl<'a> IntoIterator for &'a Events {
    type Item = &'a Event;
    type IntoIter = std::option::Iter<'a, Event>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

/// Waits for its waker.
#[derive(Debug)]
pub struct Poll {
    registry: Registry,
}

impl Poll {
    /// A poll whose waker was not used yet.
    ///
    /// # Errors
    /// None.
    pub fn new() -> io::Result<Self> {
        Ok(Poll { registry: Registry { signal: Arc::default() } })
    }

    /// Gives wakers to the poll.
    #[must_use]
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Waits until the waker is used; does not wait with a time limit of zero, and ignores any other.
    ///
    /// # Errors
    /// None.
    pub fn poll(&mut self, events: &mut Events, timeout: Option<Duration>) -> io::Result<()> {
        let signal = &self.registry.signal;
        let mut is_on = signal.is_on.lock().expect("nobody panics with the lock");
        while !*is_on && timeout != Some(Duration::ZERO) {
            is_on = signal.changed.wait(is_on).expect("nobody panics with the lock");
        }
        events.0 = std::mem::take(&mut *is_on).then_some(Event(Token(usize::MAX)));
        Ok(())
    }
}

/// Makes a poll report an event.
#[derive(Debug)]
pub struct Waker {
    signal: Arc<Signal>,
}

impl Waker {
    /// A waker of a poll.
    ///
    /// # Errors
    /// None.
    pub fn new(registry: &Registry, _: Token) -> io::Result<Self> {
        Ok(Waker { signal: Arc::clone(&registry.signal) })
    }

    /// Reports an event.
    ///
    /// # Errors
    /// None.
    pub fn wake(&self) -> io::Result<()> {
        *self.signal.is_on.lock().expect("nobody panics with the lock") = true;
        self.signal.changed.notify_all();
        Ok(())
    }
}

/// A connection; there is none.
#[derive(Debug)]
pub enum TcpStream {}

impl TcpStream {
    /// Never called.
    ///
    /// # Errors
    /// None.
    pub fn set_nodelay(&self, _: bool) -> io::Result<()> {
        match *self {}
    }

    /// Never called.
    ///
    /// # Errors
    /// None.
    pub fn shutdown(&self, _: Shutdown) -> io::Result<()> {
        match *self {}
    }
}

impl Read for TcpStream {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        match *self {}
    }
}

impl Write for TcpStream {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        match *self {}
    }

    fn write_vectored(&mut self, _: &[IoSlice<'_>]) -> io::Result<usize> {
        match *self {}
    }

    fn flush(&mut self) -> io::Result<()> {
        match *self {}
    }
}

/// Never called.
#[must_use]
pub fn untaken_bytes(stream: &TcpStream) -> Option<u32> {
    match *stream {}
}

/// A listening socket to which nobody connects.
#[derive(Debug)]
pub struct TcpListener(SocketAddr);

/// Listens on an address.
///
/// # Errors
/// None.
pub fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    Ok(TcpListener(address))
}

impl TcpListener {
    /// Its address.
    ///
    /// # Errors
    /// None.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.0)
    }

    /// Nobody connects.
    ///
    /// # Errors
    /// `WouldBlock`.
    pub fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        Err(io::ErrorKind::WouldBlock.into())
    }
}

/// A descriptor that is closed when one is needed.
#[derive(Debug)]
pub struct SpareDescriptor;

impl SpareDescriptor {
    /// There is always one left.
    #[must_use]
    pub fn open() -> Option<Self> {
        Some(SpareDescriptor)
    }
}
