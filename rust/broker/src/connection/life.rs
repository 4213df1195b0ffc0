//! The phases of a connection, from accept to its end.

use super::leaving::Leaving;
use crate::timer::NEVER;

/// The phase of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Reading and writing.
    Open,
    /// Input is discarded and subscriptions are removed; nothing is written, so that no subscription is left once the
    /// peer reads its last frames.
    Leaving,
    /// Input is discarded, the outbox is being flushed; then the write side is shut.
    Closing,
    /// The write side is shut: reads and discards until the peer closes too.
    Lingering,
}

/// The life of one connection.
#[derive(Debug)]
pub struct Life {
    /// Its phase.
    pub phase: Phase,
    /// Accepted only to be refused with an error.
    pub refused: bool,
    /// DISCONNECT was received, or an ERROR is pending: it is not read any more, and closes after its pending
    /// answers.
    pub ending: bool,
    /// Distinguishes this connection from earlier ones in the same slot.
    pub generation: u32,
    /// The subscriptions that are still to be removed; nothing is delivered to them any more.
    pub leaving: Option<Box<Leaving>>,
    /// The time at which it was accepted, and later the time at which its closing began.
    pub since_ms: u64,
    /// The deadline that is set in the timers.
    pub deadline_ms: u64,
}

impl Life {
    /// The state of a connection that was just accepted.
    #[must_use]
    pub fn new(refused: bool, now_ms: u64) -> Self {
        let (phase, since_ms) = (Phase::Open, now_ms);
        Life { phase, refused, ending: false, generation: 0, leaving: None, since_ms, deadline_ms: NEVER }
    }

    /// Whether it reads and writes.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.phase == Phase::Open
    }

    /// Begins the next phase.
    pub fn go_on_to(&mut self, phase: Phase, now_ms: u64) {
        (self.phase, self.since_ms) = (phase, now_ms);
    }

    /// Marks the connection for removal with its last subscription, since nothing can be sent to the peer any more.
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
    fn each_phase_has_its_own_start_time() {
        let mut life = Life::new(false, 5);
        assert!(life.is_open());
        life.go_on_to(Phase::Closing, 9);
        assert_eq!((life.is_open(), life.phase, life.since_ms), (false, Phase::Closing, 9));
    }

    #[test]
    fn a_lost_connection_is_removed_after_its_subscriptions() {
        let mut life = Life::new(false, 0);
        life.leaving = Some(Box::new(Leaving { subscriptions: vec![1], full: false, is_lost: false }));
        life.is_lost();
        assert!(!life.is_open() && life.leaving.is_some_and(|leaving| leaving.is_lost));
    }
}
