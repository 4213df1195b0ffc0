//! How far a connection has come, from accept to its end.

use super::leaving::Leaving;
use crate::timer::NEVER;

/// How far a connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Reading and writing.
    Open,
    /// Input is discarded, its subscriptions go; nothing is written, so that none is left once the peer reads its last
    /// frames.
    Leaving,
    /// Input is discarded, the outbox is being flushed; then the write side is shut.
    Closing,
    /// The write side is shut: reading and discarding until the peer closes too.
    Lingering,
}

/// The course of one connection.
#[derive(Debug)]
pub struct Life {
    /// How far it has come.
    pub phase: Phase,
    /// Accepted only to be refused.
    pub refused: bool,
    /// DISCONNECT was taken, or an ERROR waits: read no more, and close once the answers due are written.
    pub ending: bool,
    /// Its subscriptions that are about to go: nothing is delivered to them any more.
    pub leaving: Option<Box<Leaving>>,
    /// When it was accepted, and later when its closing began.
    pub since_ms: u64,
    /// The deadline that is in the timers.
    pub deadline_ms: u64,
}

impl Life {
    /// A connection that was just accepted.
    #[must_use]
    pub fn new(refused: bool, now_ms: u64) -> Self {
        let (phase, since_ms) = (Phase::Open, now_ms);
        Life { phase, refused, ending: false, leaving: None, since_ms, deadline_ms: NEVER }
    }

    /// Whether it reads and writes.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.phase == Phase::Open
    }

    /// Its next phase begins.
    pub fn go_on_to(&mut self, phase: Phase, now_ms: u64) {
        (self.phase, self.since_ms) = (phase, now_ms);
    }

    /// The connection goes as soon as its last subscription has gone: nothing more can be said to the peer.
    pub fn is_lost(&mut self) {
        self.phase = Phase::Leaving;
        if let Some(leaving) = &mut self.leaving {
            leaving.is_lost = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phase_has_its_own_beginning() {
        let mut life = Life::new(false, 5);
        assert!(life.is_open());
        life.go_on_to(Phase::Closing, 9);
        assert_eq!((life.is_open(), life.phase, life.since_ms), (false, Phase::Closing, 9));
    }

    #[test]
    fn a_lost_connection_goes_behind_its_subscriptions() {
        let mut life = Life::new(false, 0);
        life.leaving = Some(Box::new(Leaving { subscriptions: vec![1], full: false, is_lost: false }));
        life.is_lost();
        assert!(!life.is_open() && life.leaving.is_some_and(|leaving| leaving.is_lost));
    }
}
