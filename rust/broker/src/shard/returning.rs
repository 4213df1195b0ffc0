//! What subscriptions that ended had not acknowledged, where it is much: it goes back to its queues a portion per turn.
//!
//! A home puts what comes back at its old place, so nothing depends on when it comes.

use std::collections::VecDeque;

use super::Shard;
use crate::queue::mail::QueueMail;
use crate::queue::parts::GivenBack;
use crate::queue::unacked::{Taken, Unacked};

/// So many go back at once.
const AT_ONCE: usize = 256;
/// So many of those that wait go back in one turn.
const PER_TURN: usize = 4000;

/// What becomes of a delivery that nobody acknowledges any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It goes back to its queue.
    GiveBack,
    /// Its queue has gone, too.
    Drop,
}

/// Deliveries that wait for it.
#[derive(Debug, Default)]
pub(super) struct Returning {
    parts: VecDeque<(Fate, Unacked)>,
}

impl Returning {
    pub(super) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    fn add(&mut self, fate: Fate, held: Unacked) {
        if held.len() > 0 {
            self.parts.push_back((fate, held));
        }
    }

    fn next(&mut self) -> Option<(Fate, Taken)> {
        loop {
            let (fate, part) = self.parts.front_mut()?;
            if let Some(taken) = part.pop() {
                return Some((*fate, taken));
            }
            self.parts.pop_front();
        }
    }
}

impl Shard {
    /// Lets deliveries meet their fate, now or, where there are many, in the turns to come.
    pub(super) fn return_deliveries(&mut self, fate: Fate, mut held: Unacked) {
        if held.len() > AT_ONCE || !self.returning.is_empty() || self.budget.is_exhausted() {
            return self.returning.add(fate, held);
        }
        self.budget.visit(held.len());
        while let Some(taken) = held.pop() {
            self.return_one(fate, taken);
        }
    }

    /// Goes on with those that wait.
    pub(super) fn proceed_with_returning(&mut self) {
        for done in 0..PER_TURN {
            // Some of them, whatever else the turn did: who consumes the queue waits for them.
            if done >= AT_ONCE && self.budget.is_exhausted() {
                return;
            }
            let Some((fate, taken)) = self.returning.next() else { return };
            self.budget.visit(1);
            self.return_one(fate, taken);
        }
    }

    fn return_one(&mut self, fate: Fate, Taken { origin, stored, .. }: Taken) {
        match fate {
            Fate::GiveBack => self.tell(origin.home, QueueMail::GiveBack(origin, stored, GivenBack::Lost)),
            Fate::Drop => self.home.forget(&stored),
        }
    }
}

#[cfg(test)]
mod tests {
    use stompica_proto::encode::Message;

    use super::*;
    use crate::ids::ShardId;
    use crate::keyed::Key;
    use crate::queue::stored::Stored;
    use crate::queue::unacked::Origin;

    fn held(numbers: std::ops::Range<u64>) -> Unacked {
        let key = Key { index: 0, generation: 0 };
        let origin = Origin { home: ShardId(0), queue: key, consumer: key };
        let message =
            Message { destination: b"/queue/a", id: b"i", sender: 0, headers: b"", plain: true, body: b"" };
        let mut held = Unacked::default();
        numbers.for_each(|number| held.push(number, 0, 0, origin, Stored::new(&message)));
        held
    }

    #[test]
    fn each_meets_its_fate_once_in_order() {
        let mut returning = Returning::default();
        returning.add(Fate::GiveBack, held(0..3));
        returning.add(Fate::Drop, held(0..0));
        returning.add(Fate::Drop, held(3..5));
        let all = std::iter::from_fn(|| returning.next()).map(|(fate, taken)| (fate, taken.number));
        let expected = [0, 1, 2].map(|number| (Fate::GiveBack, number)).into_iter();
        assert!(all.eq(expected.chain([3, 4].map(|number| (Fate::Drop, number)))));
        assert!(returning.is_empty());
    }
}
