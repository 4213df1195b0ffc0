//! Connections that are not read for a while, and what ends the wait of each.
//!
//! | waits for | ends by |
//! |---|---|
//! | room ([`Pause`]) | a retry: its frame is looked at again, and may have to wait again |
//! | an answer ([`Question`]) | that answer, nothing else |
//! | either | the end of the connection |
//!
//! Only [`Parking`] changes what a connection waits for, so that its list and the connections agree. A retry costs a
//! look at the frame that waits; so each kind of room has a list of its own, and a turn takes some of them.

use super::Shard;
use crate::connection::conn::Phase;
use crate::connection::pausing::{Parking, Pause, Question};
use crate::ids::ConnKey;

/// Connections that try again in one turn.
const TURN_RETRIES_MAX: usize = 256;
/// Bytes of a frame that are looked at for the price of one visit.
const VISIT_BYTES: usize = 4 << 10;

impl Shard {
    /// Leaves a connection's next frame, and all behind it, unread until there is room.
    pub(crate) fn park(&mut self, key: ConnKey, pause: Pause) {
        if self.connections.parking.hold(&mut self.connections.table, key, pause, self.turn.now_ms) {
            self.turn.counters.parked += 1;
        }
        self.rearm(key);
    }

    /// Leaves a connection unread until an answer has come.
    pub(super) fn wait_for(&mut self, key: ConnKey, question: Question) {
        self.connections.parking.ask(&mut self.connections.table, key, question, self.turn.now_ms);
        self.rearm(key);
    }

    /// Ends the wait of a connection that ends itself, whatever it is for.
    pub(super) fn end_wait(&mut self, key: ConnKey) {
        self.connections.parking.end(&mut self.connections.table, key);
        self.memory.passing.leave(key);
    }

    /// The same without reading it again; false if it does not wait for that.
    pub(super) fn end_wait_for(&mut self, key: ConnKey, question: Question) -> bool {
        Parking::answered(&mut self.connections.table, key, question)
    }

    /// An answer has come: whoever waits for it is read again.
    pub(super) fn go_on_after(&mut self, key: ConnKey, question: Question) {
        if Parking::answered(&mut self.connections.table, key, question) {
            self.go_on(key);
        }
    }

    /// Reads a connection again that waits for room, alone: it is its turn.
    pub(super) fn unpark(&mut self, key: ConnKey) {
        if self.connections.parking.let_go(&mut self.connections.table, key) {
            self.try_again(key);
        }
    }

    /// What waited for room was a COMMIT, or the next frame.
    fn try_again(&mut self, key: ConnKey) {
        if !self.resume_commit(key) {
            self.go_on(key);
        }
    }

    fn go_on(&mut self, key: ConnKey) {
        let Some(conn) = self.connections.table.get_mut(key).filter(|conn| conn.phase == Phase::Open) else {
            return;
        };
        conn.input.has_unparsed = true;
        conn.expect_again(self.turn.now_ms);
        self.turn.budget.visit(1 + conn.input.bytes.len() / VISIT_BYTES);
        self.queue_for_reading(key);
    }

    /// Lets those try again that wait for this kind of room, some in each turn.
    pub(super) fn retry_parked(&mut self, pauses: &[Pause]) {
        pauses.iter().for_each(|pause| self.connections.parking.retry(*pause));
    }

    /// The same for all that wait for room.
    pub(super) fn retry_all_parked(&mut self) {
        self.retry_parked(&Pause::ALL);
    }

    /// Reads those again that are to try again, as many as one turn allows: by turns before and behind those that have
    /// something new to say, so that neither find all room taken by the others for ever.
    pub(super) fn resume_parked(&mut self) {
        let ready = self.connections.undrained.len();
        for _ in 0..TURN_RETRIES_MAX {
            if self.turn.budget.is_exhausted() {
                break;
            }
            let Some(key) = self.connections.parking.next_to_retry(&mut self.connections.table) else {
                break;
            };
            self.try_again(key);
        }
        if self.connections.undrained.len() > ready {
            self.connections.parking.went_first = !self.connections.parking.went_first;
            if self.connections.parking.went_first {
                self.connections.undrained.rotate_left(ready);
            }
        }
        self.peers.busy.sends_first = false;
    }
}
