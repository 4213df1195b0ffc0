//! The part of a transaction at one home: the home reserves room and places in queues; then it adds the messages there,
//! or releases the room.
//!
//! ```text
//! Prepare ─► keeping ─► kept ─► Commit ─► placing ─► freeing ─► answer
//!               └─ no room, or Cancel ─► giving back
//! ```
//! Each step takes as many turns as it needs. Meanwhile, nothing after a reserved place is delivered.

use stompica_proto::ProtocolError;
use stompica_proto::encode::Offender;

use super::Owners;
use super::mail::{AnswerNote, Placed, Places, Reservation, Reservations};
use crate::collections::paged_deque::PagedDeque;
use crate::destination::Kind;
use crate::door::planted;
use crate::ids::ShardId;
use crate::requester::Requester;
use crate::turn::jobs::Job;

/// The visits that a reservation counts as: its queue may have to be created.
const KEEP_VISITS: usize = 4;
/// The visits that the addition of a message, or a release, counts as.
const PLACE_VISITS: usize = 2;

/// The key of the reservations of a transaction: the asking shard, and its token.
pub(crate) type Prepared = (ShardId, u64);

/// The progress of a transaction at a home.
#[derive(Debug)]
pub(crate) enum Step {
    /// The reservations before `next` have their room.
    Keeping { next: usize, requester: Requester },
    /// All reservations have their room; the transaction is not decided yet.
    Kept,
    /// The messages are being added at their places.
    Placing { messages: PagedDeque<Placed>, requester: Requester },
    /// The remaining reservations have to release their room.
    Freeing { requester: Requester },
    /// The same for a cancelled transaction.
    GivingBack,
}

/// The reservations of one transaction.
#[derive(Debug)]
pub(crate) struct PreparedCommit {
    pub reservations: Reservations,
    pub step: Step,
}

impl Owners<'_> {
    /// Reserves room for a transaction in queues of this home, in all of them or none; then answers.
    pub(super) fn prepare(&mut self, reservations: Reservations, name: Prepared, requester: Requester) {
        self.queues
            .prepared
            .insert(name, PreparedCommit { reservations, step: Step::Keeping { next: 0, requester } });
        self.turn.jobs.push(Job::Reserve(name.0, name.1));
    }

    /// Releases the reserved room of a cancelled transaction.
    pub(super) fn cancel(&mut self, name: Prepared) {
        let Some(found) = self.queues.prepared.get_mut(&name) else { return };
        let step = std::mem::replace(&mut found.step, Step::GivingBack);
        match step {
            Step::Kept => self.turn.jobs.push(Job::Reserve(name.0, name.1)), // otherwise its job exists already
            Step::Keeping { requester, .. } => self.notes.answer(requester, Ok(())), // the answer is no longer used
            decided => found.step = decided,
        }
    }

    /// Adds the messages of a decided transaction at their reserved places. Messages to worker topics, and to temporary
    /// queues that were gone already, have no reserved places and are added at the end. Later notes of the asking shard
    /// would overtake them, so the connection's next frame waits for the answer.
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

    /// Continues with a transaction as far as the turn allows.
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
                true => return self.answer_when_all_is_safe(requester, 0),
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

    /// Answers whether there is room, and at which places. This comes last: if the answer decides the transaction, the
    /// next step follows at once.
    fn end_keeping(
        &mut self,
        name: Prepared,
        prepared: PreparedCommit,
        requester: Requester,
        outcome: Result<(), ProtocolError>,
    ) {
        let places: Places = prepared.reservations.iter().map(|it| it.first).collect();
        if outcome.is_ok() && planted!("reservation-released-early") {
            for it in prepared.reservations.iter() {
                it.queue
                    .into_iter()
                    .for_each(|queue| self.queues.home.release(queue, it.first, it.count, it.bytes));
            }
        }
        self.queues.prepared.insert(name, prepared);
        match outcome {
            Ok(()) => {
                let to = requester.answered();
                self.notes.tell(to.shard, AnswerNote::Reserved(to.conn, to.token, places));
            }
            Err(error) => self.notes.answer(requester, Err((error, Offender::default()))),
        }
    }

    /// Reserves room for one reservation after the other. Returns the position at which to continue, `None` at the end.
    ///
    /// # Errors
    /// The error of [`Owners::reserve`] for one of them.
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
            self.claim_retained(&reservation.name)?;
            reservation.reserved = true;
            return Ok(());
        }
        let is_new = self.queues.home.find(&reservation.name).is_none();
        if self.router.kind(&reservation.name) == Kind::WorkerTopic {
            // Its messages have no reserved places, since stale ones may precede them; but there is a queue for them.
            return self.queue_for(&reservation.name, reservation.count, reservation.bytes).map(|_| ());
        }
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
            let Some(Placed { reservation, message }) = messages.pop_front() else {
                return Step::Freeing { requester };
            };
            self.turn.budget.visit(PLACE_VISITS);
            let reservation = reservation.and_then(|at| reservations.get_mut(at as usize));
            match reservation {
                Some(Reservation { queue: Some(queue), first, placed, count, bytes, .. }) => {
                    let size = message.size() as u64;
                    (*count, *bytes) = (count.saturating_sub(1), bytes.saturating_sub(size));
                    self.queues.home.fill(*queue, size);
                    let message = if self.is_recorded(&message) { self.record(message) } else { message };
                    self.queues.home.enqueue_at(*queue, message, *first + *placed);
                    if !planted!("commit-at-one-place") {
                        *placed += 1;
                    }
                }
                _ => self.enqueue_for(message, None),
            }
        }
        Step::Placing { messages, requester }
    }

    /// Releases room, and removes queues that were created for it. Returns whether all is done.
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
                None => self.queues.retained.unclaim(&reservation.name),
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
