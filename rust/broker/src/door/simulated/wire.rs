//! The client's end of a connection, for the driver.

use super::network::Link;
use super::poll::Readiness;
use super::with;
use super::writes::Written;

/// The client's end of a connection, and the network between.
#[derive(Debug)]
pub struct Wire {
    link: usize,
}

/// Opens a connection, which waits to be accepted. `None`: nobody listens.
#[must_use]
pub fn connect() -> Option<Wire> {
    with(|outside| {
        let waiting = outside.listening.as_mut()?;
        let link = outside.links.len();
        waiting.links.push_back(link);
        if let Some((poll, token)) = waiting.registration {
            outside.polls[poll].report(token, Readiness { readable: true, ..Readiness::default() });
        }
        outside.links.push(Link::new());
        Some(Wire { link })
    })
}

impl Wire {
    fn with<T>(&self, act: impl FnOnce(&mut Link) -> T) -> T {
        with(|outside| act(&mut outside.links[self.link]))
    }

    /// Sends bytes, which are in transit then.
    pub fn send(&self, bytes: &[u8]) {
        self.with(|link| {
            if link.broken.is_none() && !link.inbound_ends {
                link.inbound.extend(bytes);
            }
        });
    }

    /// The number of bytes in transit to the broker.
    #[must_use]
    pub fn in_transit(&self) -> usize {
        self.with(|link| link.inbound.len() - link.arrived)
    }

    /// Lets bytes that are in transit arrive, at most this many.
    pub fn arrive(&self, bytes_max: usize) {
        with(|outside| {
            let link = &mut outside.links[self.link];
            let len = bytes_max.min(link.inbound.len() - link.arrived);
            link.arrived += len;
            let state = Readiness { writable: false, ..link.state() };
            if len > 0 {
                outside.report(self.link, state);
            }
        });
    }

    /// Shuts the client's write side, behind what it has sent.
    pub fn finish(&self) {
        with(|outside| {
            let link = &mut outside.links[self.link];
            link.inbound_ends = true;
            let state = Readiness { writable: false, ..link.state() };
            outside.report(self.link, state);
        });
    }

    /// Closes the client's end: it takes nothing more, and the broker notices when it writes.
    pub fn abandon(&self) {
        self.with(|link| {
            link.is_abandoned = true;
            link.lose_outbound();
        });
        self.finish();
    }

    /// Breaks the connection: everything on the way is lost in both directions.
    pub fn reset(&self) {
        with(|outside| {
            let link = &mut outside.links[self.link];
            link.lose_outbound();
            link.break_now();
            outside.report_all(self.link);
        });
    }

    /// Sets how many bytes the broker can write before the client takes some.
    pub fn set_buffer(&self, bytes: usize) {
        self.with(|link| link.outbound_max = bytes);
        self.make_room();
    }

    /// Takes bytes of the broker, at most this many.
    #[must_use]
    pub fn receive(&self, bytes_max: usize) -> Vec<u8> {
        let mut received = Vec::new();
        loop {
            let (bytes, _) = self.receive_written(bytes_max - received.len());
            if bytes.is_empty() {
                return received;
            }
            received.extend(bytes);
        }
    }

    /// Takes bytes of one write of the broker, at most this many, and what is known about their times.
    #[must_use]
    pub fn receive_written(&self, bytes_max: usize) -> (Vec<u8>, Written) {
        let taken = self.with(|link| {
            let (len, written) = link.writes.take(bytes_max.min(link.outbound.len()));
            (link.outbound.drain(..len).collect(), written)
        });
        self.make_room();
        taken
    }

    /// Takes the bytes that the broker has written and the client can never receive.
    #[must_use]
    pub fn take_lost(&self) -> Vec<u8> {
        self.with(|link| std::mem::take(&mut link.lost))
    }

    /// Tells a broker that waits for room that a good part of the buffer is free, as the system does.
    fn make_room(&self) {
        with(|outside| {
            let link = &mut outside.links[self.link];
            if link.wants_room && link.outbound.len() <= link.outbound_max - link.outbound_max.div_ceil(3) {
                (link.wants_room, link.made_room) = (false, Some(outside.now));
                outside.report(self.link, Readiness { writable: true, ..Readiness::default() });
            }
        });
    }

    /// The number of bytes that can be received.
    #[must_use]
    pub fn receivable(&self) -> usize {
        self.with(|link| link.outbound.len())
    }

    /// Whether the broker has closed its side and everything before that was received.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        self.with(|link| link.outbound.is_empty() && (link.outbound_ends || link.broken.is_some()))
    }

    /// Whether the connection is broken.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        self.with(|link| link.broken.is_some())
    }

    /// Whether the broker closed its end although it had more to write: the client did not read.
    #[must_use]
    pub fn was_cut_off(&self) -> bool {
        self.with(|link| link.was_cut_off)
    }

    /// Whether the broker still has its end.
    #[must_use]
    pub fn has_broker(&self) -> bool {
        self.with(|link| link.has_broker)
    }
}
