//! What subscriptions that ended had not acknowledged, and what was not written to connections that ended, where it is
//! much: it goes back to its queues a portion per turn.
//!
//! A home puts what comes back at its old place, so nothing depends on when it comes.

use super::Shard;
use crate::collections::paged_deque::PagedDeque;
use crate::connection::pending_writes::PendingWrite;
use crate::delivery::returning::{Fate, Part, Returned};
use crate::queue::mail::HomeNote;
use crate::queue::types::GivenBack;
use crate::queue::unacked::Unacked;

/// So many go back at once.
const AT_ONCE: usize = 256;
/// So many of those that wait go back in one turn.
const PER_TURN: usize = 4000;

impl Shard {
    /// Lets deliveries meet their fate, now or, where there are many, in the turns to come.
    pub(super) fn return_deliveries(&mut self, fate: Fate, held: Unacked) {
        let count = held.len();
        self.return_part(Part::Held(fate, held), count);
    }

    /// The same for what was not written to a connection.
    pub(super) fn return_unwritten(&mut self, writing: PagedDeque<PendingWrite>) {
        let count = writing.len();
        self.return_part(Part::Unwritten(writing), count);
    }

    fn return_part(&mut self, part: Part, count: usize) {
        if count == 0 {
            return;
        }
        let at_once =
            count <= AT_ONCE && self.deliveries.returning.is_empty() && !self.turn.budget.is_exhausted();
        self.deliveries.returning.add(part);
        if at_once {
            self.turn.budget.visit(count);
            self.return_all();
        }
    }

    /// Goes on with those that wait, for half of this part of the turn.
    pub(super) fn proceed_with_returning(&mut self) {
        for done in 0..PER_TURN {
            // Some of them, whatever else the turn did: who consumes the queue waits for them.
            if done >= AT_ONCE && self.turn.budget.is_half_spent() {
                return;
            }
            let Some(next) = self.deliveries.returning.next() else { return };
            self.turn.budget.visit(1);
            if let Some(returned) = next {
                self.return_one(returned);
            }
        }
    }

    /// Goes on with all of them.
    pub(super) fn return_all(&mut self) {
        while let Some(next) = self.deliveries.returning.next() {
            next.into_iter().for_each(|returned| self.return_one(returned));
        }
    }

    fn return_one(&mut self, (fate, origin, stored): Returned) {
        match fate {
            Fate::GiveBack => self.tell(origin.home, HomeNote::GiveBack(origin, stored, GivenBack::Lost)),
            Fate::Drop => self.queues.home.forget(&stored),
        }
    }
}
