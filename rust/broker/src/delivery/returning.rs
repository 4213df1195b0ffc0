//! Deliveries that nobody acknowledges any more, on their way back to their queues.

use std::collections::VecDeque;

use crate::collections::paged_deque::PagedDeque;
use crate::connection::pending_writes::PendingWrite;
use crate::message::OwnedMessage;
use crate::queue::unacked::{Origin, Unacked};

/// What becomes of a delivery that nobody acknowledges any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It goes back to its queue.
    GiveBack,
    /// Its queue has gone, too.
    Drop,
}

/// Deliveries that wait for it, of one subscription or connection.
#[derive(Debug)]
pub(crate) enum Part {
    Held(Fate, Unacked),
    Unwritten(PagedDeque<PendingWrite>),
}

/// One of them.
pub(crate) type Returned = (Fate, Origin, OwnedMessage);

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Returning {
    parts: VecDeque<Part>,
}

impl Returning {
    pub(crate) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    pub(crate) fn add(&mut self, part: Part) {
        self.parts.push_back(part);
    }

    /// The next step: it brings nothing at the end of a part, and where a subscription holds what is being written.
    pub(crate) fn next(&mut self) -> Option<Option<Returned>> {
        let returned = match self.parts.front_mut()? {
            Part::Held(fate, held) => held.pop().map(|taken| Some((*fate, taken.origin, taken.stored))),
            Part::Unwritten(writing) => {
                writing.pop_front().map(|it| Some((Fate::GiveBack, it.origin, it.stored?)))
            }
        };
        if returned.is_none() {
            self.parts.pop_front();
        }
        Some(returned.flatten())
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
        let message =
            Message { destination: b"/queue/a", id: b"i", sender: 0, headers: b"", plain: true, body: b"" };
        let mut held = Unacked::default();
        numbers.for_each(|number| held.push(number, 0, 0, origin, OwnedMessage::new(&message)));
        held
    }

    #[test]
    fn each_meets_its_fate_once_in_order() {
        let mut returning = Returning::default();
        returning.add(Part::Held(Fate::GiveBack, held(0..3)));
        returning.add(Part::Held(Fate::Drop, held(3..5)));
        let subscription = Key { index: 0, generation: 0 };
        let writing =
            std::iter::from_fn(|| held(5..6).pop()).take(2).enumerate().map(|(at, taken)| PendingWrite {
                subscription,
                origin: taken.origin,
                bytes: 0,
                stored: (at == 0).then_some(taken.stored),
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
