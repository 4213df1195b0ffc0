//! What a home does for a transaction: it keeps room in queues, and the places behind what is in them; then it puts the
//! messages there, or gives the room free.
//!
//! ```text
//! Prepare ─► keeping ─► kept ─► Commit ─► placing ─► freeing ─► answer
//!               └─ no room, or Cancel ─► giving back
//! ```
//! Each step goes on over as many turns as it needs. Behind a kept place nothing is delivered meanwhile.

use stompica_proto::ProtocolError;
use stompica_proto::encode::Offender;

use super::Owners;
use super::mail::{AnswerNote, Placed, Places, Reservation, Reservations};
use crate::collections::paged_deque::PagedDeque;
use crate::ids::ShardId;
use crate::requester::Requester;
use crate::turn::jobs::Job;

/// What keeping room costs of a turn's visits: a queue may have to be made for it.
const KEEP_VISITS: usize = 4;
/// What placing a message costs, and giving room free.
const PLACE_VISITS: usize = 2;

/// The name under which a home keeps room: who asked, and its token.
pub(crate) type Prepared = (ShardId, u64);

/// How far a transaction has come at a home.
#[derive(Debug)]
pub(crate) enum Step {
    /// The reservations below `next` have their room.
    Keeping { next: usize, requester: Requester },
    /// All have; the transaction is not decided yet.
    Kept,
    /// The messages come to their places.
    Placing { messages: PagedDeque<Placed>, requester: Requester },
    /// The reservations that are left have to give their room free.
    Freeing { requester: Requester },
    /// The same for a transaction of which nothing comes.
    GivingBack,
}

/// The room that is kept for one transaction.
#[derive(Debug)]
pub(crate) struct PreparedCommit {
    pub reservations: Reservations,
    pub step: Step,
}

impl Owners<'_> {
    /// Keeps room for a transaction in queues of this home, in all of them or none; then answers.
    pub(super) fn prepare(&mut self, reservations: Reservations, name: Prepared, requester: Requester) {
        self.queues
            .prepared
            .insert(name, PreparedCommit { reservations, step: Step::Keeping { next: 0, requester } });
        self.turn.jobs.push(Job::Reserve(name.0, name.1));
    }

    /// Nothing comes of a transaction: gives the room free that was kept for it.
    pub(super) fn cancel(&mut self, name: Prepared) {
        let Some(found) = self.queues.prepared.get_mut(&name) else { return };
        let step = std::mem::replace(&mut found.step, Step::GivingBack);
        match step {
            Step::Kept => self.turn.jobs.push(Job::Reserve(name.0, name.1)), // the others have their job already
            Step::Keeping { requester, .. } => self.notes.answer(requester, Ok(())), // the answer is not used any more
            decided => found.step = decided,
        }
    }

    /// A transaction was decided: puts its messages at the places that were kept for them; those to worker topics and
    /// temporary queues, for which none are, behind all others.
    pub(super) fn place_prepared(
        &mut self,
        name: Prepared,
        messages: PagedDeque<Placed>,
        requester: Requester,
    ) {
        let reservations =
            self.queues.prepared.remove(&name).map(|found| found.reservations).unwrap_or_default();
        let step = Step::Placing { messages, requester };
        self.queues.prepared.insert(name, PreparedCommit { reservations, step });
        self.turn.jobs.push(Job::Reserve(name.0, name.1));
    }

    /// Goes on with a reservation as far as the turn allows.
    pub(crate) fn proceed_with_reservation(&mut self, name: Prepared) {
        let Some(PreparedCommit { mut reservations, step }) = self.queues.prepared.remove(&name) else {
            return;
        };
        let step = match step {
            Step::Keeping { next, requester } => match self.keep(&mut reservations, next) {
                Ok(Some(next)) => Step::Keeping { next, requester },
                Ok(None) => {
                    return self.end_keeping(
                        name,
                        PreparedCommit { reservations, step: Step::Kept },
                        requester,
                        Ok(()),
                    );
                }
                Err(error) => {
                    self.turn.jobs.push(Job::Reserve(name.0, name.1));
                    let reservation = PreparedCommit { reservations, step: Step::GivingBack };
                    return self.end_keeping(name, reservation, requester, Err(error));
                }
            },
            Step::Kept => Step::Kept,
            Step::Placing { messages, requester } => self.place(&mut reservations, messages, requester),
            Step::Freeing { requester } => match self.free(&mut reservations, false) {
                false => Step::Freeing { requester },
                true => return self.answer_when_saved(requester, 0),
            },
            Step::GivingBack => match self.free(&mut reservations, true) {
                false => Step::GivingBack,
                true => return,
            },
        };
        if !matches!(step, Step::Kept) {
            self.turn.jobs.push(Job::Reserve(name.0, name.1));
        }
        self.queues.prepared.insert(name, PreparedCommit { reservations, step });
    }

    /// Says whether there is room, and where. The answer comes last: where it is the one that decides, it is followed at
    /// once by what becomes of the reservation.
    fn end_keeping(
        &mut self,
        name: Prepared,
        prepared: PreparedCommit,
        requester: Requester,
        outcome: Result<(), ProtocolError>,
    ) {
        let places: Places = prepared.reservations.iter().map(|it| it.first).collect();
        self.queues.prepared.insert(name, prepared);
        match outcome {
            Ok(()) => {
                let to = requester.answered();
                self.notes.tell(to.shard, AnswerNote::Reserved(to.conn, to.token, places));
            }
            Err(error) => self.notes.answer(requester, Err((error, Offender::default()))),
        }
    }

    /// Keeps room for one reservation after the other. Returns where to go on, `None` at the end.
    ///
    /// # Errors
    /// What [`Owners::reserve`] says of one of them.
    fn keep(&mut self, reservations: &mut Reservations, from: usize) -> Result<Option<usize>, ProtocolError> {
        for at in from..reservations.len() {
            if self.turn.budget.is_exhausted() {
                return Ok(Some(at));
            }
            self.turn.budget.visit(KEEP_VISITS);
            if let Some(reservation) = reservations.get_mut(at) {
                self.reserve(reservation)?;
            }
        }
        Ok(None)
    }

    /// # Errors
    /// `E-QUEUE-FULL`, `E-DEST-COUNT`, `E-RETAINED-COUNT`.
    fn reserve(&mut self, reservation: &mut Reservation) -> Result<(), ProtocolError> {
        if reservation.retained {
            reservation.reserved = self.reserve_retained(&reservation.name)?;
            return Ok(());
        }
        let is_new = self.queues.home.find(&reservation.name).is_none();
        if let Some(queue) = self.queue_for(&reservation.name, reservation.count, reservation.bytes)? {
            (reservation.reserved, reservation.created, reservation.queue) = (true, is_new, Some(queue));
            reservation.first = self.queues.home.reserve(queue, reservation.count, reservation.bytes);
        }
        Ok(())
    }

    fn place(
        &mut self,
        reservations: &mut Reservations,
        mut messages: PagedDeque<Placed>,
        requester: Requester,
    ) -> Step {
        while !self.turn.budget.is_exhausted() {
            let Some(Placed { reservation, retain, stored }) = messages.pop_front() else {
                return Step::Freeing { requester };
            };
            self.turn.budget.visit(PLACE_VISITS);
            let reservation = reservation.and_then(|at| reservations.get_mut(at as usize));
            match (retain, reservation) {
                (Some(false), _) => _ = self.queues.retained.remove(stored.destination()),
                (Some(true), reservation) => {
                    // First, so that no other value takes the room that is kept for it.
                    self.queues.retained.set(stored);
                    if reservation.is_some_and(|reservation| std::mem::take(&mut reservation.reserved)) {
                        self.queues.retained.reserve(-1, 0);
                    }
                }
                (None, Some(Reservation { queue: Some(queue), first, placed, .. })) => {
                    self.queues.home.enqueue_at(*queue, stored, *first + *placed);
                    *placed += 1;
                }
                (None, _) => self.enqueue_for(stored, None),
            }
        }
        Step::Placing { messages, requester }
    }

    /// Gives room free, and forgets what it was for. Returns whether that is done.
    fn free(&mut self, reservations: &mut Reservations, undo: bool) -> bool {
        while !reservations.is_empty() {
            if self.turn.budget.is_exhausted() {
                return false;
            }
            self.turn.budget.visit(PLACE_VISITS);
            let Some(reservation) = reservations.pop_front() else { break };
            if !reservation.reserved {
                continue;
            }
            match reservation.queue {
                None => _ = self.queues.retained.reserve(-1, 0),
                Some(queue) => {
                    self.queues.home.release(queue, reservation.first, reservation.count, reservation.bytes);
                    if undo && reservation.created {
                        self.queues.home.delete_unused(queue);
                    }
                }
            }
        }
        self.rearm_waiting();
        self.count_queues();
        true
    }
}
