//! Readiness, edge-triggered as the system reports it: an event tells that something has changed since the last one.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use rand::Rng as _;
use rand::seq::SliceRandom as _;

use super::with;
use crate::door::{Interest, Token};

/// The changes of one source.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Readiness {
    pub(super) readable: bool,
    pub(super) writable: bool,
    pub(super) read_closed: bool,
    pub(super) error: bool,
}

impl Readiness {
    pub(super) fn add(&mut self, other: Readiness) {
        self.readable |= other.readable;
        self.writable |= other.writable;
        self.read_closed |= other.read_closed;
        self.error |= other.error;
    }
}

/// The state of one poll.
#[derive(Debug, Default)]
pub(super) struct PollState {
    ready: VecDeque<(Token, Readiness)>,
}

impl PollState {
    /// Adds changes of a source to those that the poll has not reported.
    pub(super) fn report(&mut self, token: Token, changes: Readiness) {
        match self.ready.iter_mut().find(|(other, _)| *other == token) {
            Some((_, readiness)) => readiness.add(changes),
            None => self.ready.push_back((token, changes)),
        }
    }

    pub(super) fn forget(&mut self, token: Token) {
        self.ready.retain(|(other, _)| *other != token);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ready.is_empty()
    }
}

/// One reported event.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    token: Token,
    readiness: Readiness,
}

impl Event {
    /// The source.
    #[must_use]
    pub fn token(&self) -> Token {
        self.token
    }

    /// Something can be read.
    #[must_use]
    pub fn is_readable(&self) -> bool {
        self.readiness.readable
    }

    /// There is room to write.
    #[must_use]
    pub fn is_writable(&self) -> bool {
        self.readiness.writable
    }

    /// The peer has shut its write side, or the connection is broken.
    #[must_use]
    pub fn is_read_closed(&self) -> bool {
        self.readiness.read_closed
    }

    /// The connection is broken.
    #[must_use]
    pub fn is_error(&self) -> bool {
        self.readiness.error
    }
}

/// The events of one call of [`Poll::poll`].
#[derive(Debug)]
pub struct Events {
    events: Vec<Event>,
    capacity: usize,
}

impl Events {
    /// Room for this many events.
    #[must_use]
    pub fn with_capacity(capacity: usize) -> Self {
        Events { events: Vec::new(), capacity }
    }
}

impl<'a> IntoIterator for &'a Events {
    type Item = &'a Event;
    type IntoIter = std::slice::Iter<'a, Event>;

    fn into_iter(self) -> Self::IntoIter {
        self.events.iter()
    }
}

/// A source that can be registered.
pub trait Source {
    /// Begins or ends to report its changes.
    fn set_registration(&mut self, registration: Option<(usize, Token)>);
}

/// Registers sources with a poll.
#[derive(Clone, Copy, Debug)]
pub struct Registry {
    poll: usize,
}

impl Registry {
    /// Begins to report the changes of a source, and reports its current state.
    ///
    /// # Errors
    /// None.
    pub fn register(&self, source: &mut impl Source, token: Token, _: Interest) -> io::Result<()> {
        source.set_registration(Some((self.poll, token)));
        Ok(())
    }

    /// Ends to report the changes of a source.
    ///
    /// # Errors
    /// None.
    pub fn deregister(&self, source: &mut impl Source) -> io::Result<()> {
        source.set_registration(None);
        Ok(())
    }
}

/// Reports the readiness of sources.
#[derive(Debug)]
pub struct Poll {
    registry: Registry,
}

impl Poll {
    /// A poll without sources.
    ///
    /// # Errors
    /// None.
    pub fn new() -> io::Result<Self> {
        with(|outside| {
            outside.polls.push(PollState::default());
            Ok(Poll { registry: Registry { poll: outside.polls.len() - 1 } })
        })
    }

    /// Registers sources.
    #[must_use]
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Whether the next call of [`Poll::poll`] reports an event.
    #[must_use]
    pub fn has_events(&self) -> bool {
        with(|outside| !outside.polls[self.registry.poll].is_empty())
    }

    /// Reports events, in any order; sometimes it leaves some of them to the next call. It never waits: the driver
    /// calls it when there are events or the time has come.
    ///
    /// # Errors
    /// None.
    pub fn poll(&mut self, events: &mut Events, _: Option<Duration>) -> io::Result<()> {
        with(|outside| {
            let ready = &mut outside.polls[self.registry.poll].ready;
            ready.make_contiguous().shuffle(&mut outside.random);
            let whole = ready.len().min(events.capacity);
            let len = if outside.random.random_ratio(1, 8) { whole.div_ceil(2) } else { whole };
            events.events.clear();
            events.events.extend(ready.drain(..len).map(|(token, readiness)| Event { token, readiness }));
            Ok(())
        })
    }
}

/// Makes a poll report an event, from any shard.
#[derive(Debug)]
pub struct Waker {
    poll: usize,
    token: Token,
}

impl Waker {
    /// A waker of a poll.
    ///
    /// # Errors
    /// None.
    pub fn new(registry: &Registry, token: Token) -> io::Result<Self> {
        Ok(Waker { poll: registry.poll, token })
    }

    /// Reports an event.
    ///
    /// # Errors
    /// None.
    pub fn wake(&self) -> io::Result<()> {
        with(|outside| {
            let readable = Readiness { readable: true, ..Readiness::default() };
            if let Some(poll) = outside.polls.get_mut(self.poll) {
                poll.report(self.token, readable);
            }
            Ok(())
        })
    }
}
