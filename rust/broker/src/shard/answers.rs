//! Answers to frames, as far as others are concerned: what leads to a COMMIT, and credit behind a RECEIPT.
//! [`crate::connection::answering`] has the rest.

use stompica_proto::encode::Offender;
use stompica_proto::{Frame, ProtocolError};

use super::Shard;
use crate::ids::ConnKey;
use crate::log::Level;
use crate::requester::{self};

impl Shard {
    /// What a connection asked for took effect at one more place.
    pub(super) fn applied(&mut self, key: ConnKey, token: u64) {
        self.connections.applied(&mut self.turn, key, token);
    }

    /// What a connection asked for was refused elsewhere; frames behind it may have taken effect.
    pub(super) fn refused(&mut self, key: ConnKey, token: u64, refusal: (ProtocolError, Offender)) {
        if self.command().is_deciding(key, token) {
            return self.command().prepare_answered(key, Err(refusal.0));
        }
        self.connections.refused(&mut self.turn, key, token, refusal);
    }

    /// Answers a peer's mistake with ERROR and closes (STOMP 1.2, "ERROR").
    pub(crate) fn fail(&mut self, key: ConnKey, error: ProtocolError, frame: Option<&Frame<'_>>) {
        self.connections.fail(&mut self.turn, key, error, frame);
    }

    /// The same for a frame that is described already.
    pub(super) fn fail_with(&mut self, key: ConnKey, error: ProtocolError, offender: &Offender) {
        self.connections.fail_with(&mut self.turn, key, error, offender);
    }

    /// Closes a connection that has said its last word, once everything due to it is in its outbox.
    pub(crate) fn end_if_done(&mut self, key: ConnKey) {
        self.connections.end_if_done(&mut self.turn, key);
    }

    /// Counts answers that this turn has dropped.
    pub(super) fn note_lost_answers(&mut self) {
        let lost = requester::take_lost();
        if lost > 0 {
            self.turn.counters.lost_answers += lost;
            self.turn.log(Level::Error, || format!("{lost} answers were dropped (a bug in stompica)"));
        }
        debug_assert_eq!(lost, 0, "whoever waits is answered");
    }
}
