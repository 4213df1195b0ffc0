//! Requeues deliveries: those that an ended subscription had not acknowledged, and those that were not written to an
//! ended connection; large numbers take several turns.
//!
//! A home requeues a message at its old place, so the time of its return does not matter.

use std::collections::VecDeque;

use super::Owners;
use crate::collections::paged_deque::PagedDeque;
use crate::connection::pending_writes::PendingWrite;
use crate::message::OwnedMessage;
use crate::queue::types::GivenBack;
use crate::queue::unacked::{Origin, Unacked};

/// Up to this number, deliveries are requeued at once.
const AT_ONCE: usize = 256;
/// Deliveries that are requeued in one turn, of those that wait.
const PER_TURN: usize = 4000;

/// The outcome of a delivery that will not be acknowledged any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It is requeued.
    GiveBack,
    /// Its queue is removed, too.
    Drop,
}

/// Deliveries of one subscription or connection that have to be requeued or dropped.
#[derive(Debug)]
pub(crate) enum Part {
    Held(Fate, Unacked),
    Unwritten(PagedDeque<PendingWrite>),
}

/// One delivery of a part.
pub(crate) type Returned = (Fate, Origin, OwnedMessage);

/// All parts.
#[derive(Debug, Default)]
pub(crate) struct Returning {
    pub(super) parts: VecDeque<Part>,
}

impl Returning {
    pub(crate) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    pub(crate) fn add(&mut self, part: Part) {
        self.parts.push_back(part);
    }

    /// The next step. It has no delivery at the end of a part, and for one that its subscription still holds.
    pub(crate) fn next(&mut self) -> Option<Option<Returned>> {
        let returned = match self.parts.front_mut()? {
            Part::Held(fate, held) => held.pop().map(|taken| Some((*fate, taken.origin, taken.message))),
            Part::Unwritten(writing) => {
                writing.pop_front().map(|it| Some((Fate::GiveBack, it.origin, it.message?)))
            }
        };
        if returned.is_none() {
            self.parts.pop_front();
        }
        Some(returned.flatten())
    }
}

impl Owners<'_> {
    /// Requeues or drops deliveries: now, or in later turns if they are many.
    pub fn return_deliveries(&mut self, fate: Fate, held: Unacked) {
        let count = held.len();
        self.return_part(Part::Held(fate, held), count);
    }

    /// Does the same for deliveries that were not written to a connection.
    pub fn return_unwritten(&mut self, writing: PagedDeque<PendingWrite>) {
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

    /// Continues with deliveries that wait, for half of this part of the turn.
    pub fn proceed_with_returning(&mut self) {
        for done in 0..PER_TURN {
            // A minimum in every turn, because consumers of the queue wait for them.
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

    /// Continues until none is left.
    pub fn return_all(&mut self) {
        while let Some(next) = self.deliveries.returning.next() {
            next.into_iter().for_each(|returned| self.return_one(returned));
        }
    }

    fn return_one(&mut self, (fate, origin, message): Returned) {
        match fate {
            Fate::GiveBack => self.give_back(origin, message, GivenBack::Lost),
            Fate::Drop => self.queues.home.forget(&message),
        }
    }
}

#[cfg(test)]
mod tests {
    use stompica_proto::encode::Message;

    use super::*;
    use crate::collections::keyed::Key;
    use crate::ids::ShardId;
    use crate::message::OwnedMessage;
    use crate::queue::unacked::Origin;

    fn held(numbers: std::ops::Range<u64>) -> Unacked {
        let key = Key { index: 0, generation: 0 };
        let origin = Origin { home: ShardId(0), queue: key, consumer: key };
        let message = Message {
            destination: b"/queue/a",
            id: b"i",
            sender: 0,
            headers: b"",
            plain: true,
            expires_ms: 0,
            body: b"",
        };
        let mut held = Unacked::default();
        numbers.for_each(|number| held.push(number, 0, 0, origin, OwnedMessage::new(&message)));
        held
    }

    #[test]
    fn each_delivery_is_returned_once_in_order() {
        let mut returning = Returning::default();
        returning.add(Part::Held(Fate::GiveBack, held(0..3)));
        returning.add(Part::Held(Fate::Drop, held(3..5)));
        let subscription = Key { index: 0, generation: 0 };
        let writing =
            std::iter::from_fn(|| held(5..6).pop()).take(2).enumerate().map(|(at, taken)| PendingWrite {
                subscription,
                origin: taken.origin,
                bytes: 0,
                message: (at == 0).then_some(taken.message),
            });
        let mut unwritten = PagedDeque::default();
        writing.for_each(|writing| unwritten.push_back(writing));
        returning.add(Part::Unwritten(unwritten));
        let all = std::iter::from_fn(|| returning.next()).flatten().map(|(fate, ..)| fate);
        let (back, drop) = (Fate::GiveBack, Fate::Drop);
        assert!(all.eq([back, back, back, drop, drop, back]));
        assert!(returning.is_empty());
    }
}
