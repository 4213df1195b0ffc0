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

use super::Shard;
use super::jobs::Job;
use crate::asker::Asker;
use crate::collections::paged_deque::PagedDeque;
use crate::connection::transaction::plan::Needs;
use crate::ids::ShardId;
use crate::queue::mail::{Need, Placed};

/// The name under which a home keeps room: who asked, and its token.
pub(super) type Prepared = (ShardId, u64);

/// What keeping room costs of a turn's visits: a queue may have to be made for it.
const KEEP_VISITS: usize = 4;
/// What placing a message costs, and giving room free.
const PLACE_VISITS: usize = 2;

#[derive(Debug)]
enum Step {
    /// The needs below `next` have their room.
    Keeping { next: usize, asker: Asker },
    /// All have; the transaction is not decided yet.
    Kept,
    /// The messages come to their places.
    Placing { messages: PagedDeque<Placed>, asker: Asker },
    /// The needs that are left have to give their room free.
    Freeing { asker: Asker },
    /// The same for a transaction of which nothing comes.
    GivingBack,
}

/// The room that is kept for one transaction.
#[derive(Debug)]
pub(super) struct Reservation {
    needs: Needs,
    step: Step,
}

impl Shard {
    /// Keeps room for a transaction in queues of this home, in all of them or none; then answers.
    pub(super) fn prepare(&mut self, needs: Needs, name: Prepared, asker: Asker) {
        self.prepared.insert(name, Reservation { needs, step: Step::Keeping { next: 0, asker } });
        self.jobs.push(Job::Reserve(name));
    }

    /// Nothing comes of a transaction: gives the room free that was kept for it.
    pub(super) fn cancel(&mut self, name: Prepared) {
        let Some(found) = self.prepared.get_mut(&name) else { return };
        let step = std::mem::replace(&mut found.step, Step::GivingBack);
        match step {
            Step::Kept => self.jobs.push(Job::Reserve(name)), // the others have their job already
            Step::Keeping { asker, .. } => self.answer(asker, Ok(())), // nobody listens any more
            decided => found.step = decided,
        }
    }

    /// A transaction was decided: puts its messages at the places that were kept for them; those to worker topics and
    /// temporary queues, for which none are, behind all others.
    pub(super) fn settle_prepared(&mut self, name: Prepared, messages: PagedDeque<Placed>, asker: Asker) {
        let needs = self.prepared.remove(&name).map(|found| found.needs).unwrap_or_default();
        let step = Step::Placing { messages, asker };
        self.prepared.insert(name, Reservation { needs, step });
        self.jobs.push(Job::Reserve(name));
    }

    /// Goes on with a reservation as far as the turn allows.
    pub(super) fn proceed_with_reservation(&mut self, name: Prepared) {
        let Some(Reservation { mut needs, step }) = self.prepared.remove(&name) else { return };
        let step = match step {
            Step::Keeping { next, asker } => match self.keep(&mut needs, next) {
                Ok(Some(next)) => Step::Keeping { next, asker },
                Ok(None) => {
                    return self.end_keeping(name, Reservation { needs, step: Step::Kept }, asker, Ok(()));
                }
                Err(error) => {
                    self.jobs.push(Job::Reserve(name));
                    let reservation = Reservation { needs, step: Step::GivingBack };
                    return self.end_keeping(name, reservation, asker, Err(error));
                }
            },
            Step::Kept => Step::Kept,
            Step::Placing { messages, asker } => self.place(&mut needs, messages, asker),
            Step::Freeing { asker } => match self.free(&mut needs, false) {
                false => Step::Freeing { asker },
                true => return self.answer(asker, Ok(())),
            },
            Step::GivingBack => match self.free(&mut needs, true) {
                false => Step::GivingBack,
                true => return,
            },
        };
        if !matches!(step, Step::Kept) {
            self.jobs.push(Job::Reserve(name));
        }
        self.prepared.insert(name, Reservation { needs, step });
    }

    /// Says whether there is room. The answer comes last: where it is the one that decides, it is followed at once by
    /// what becomes of the reservation.
    fn end_keeping(
        &mut self,
        name: Prepared,
        reservation: Reservation,
        asker: Asker,
        outcome: Result<(), ProtocolError>,
    ) {
        self.prepared.insert(name, reservation);
        self.answer(asker, outcome.map_err(|error| (error, Offender::default())));
    }

    /// Keeps room for one need after the other. Returns where to go on, `None` at the end.
    ///
    /// # Errors
    /// What [`Shard::reserve`] says of one of them.
    fn keep(&mut self, needs: &mut Needs, from: usize) -> Result<Option<usize>, ProtocolError> {
        for at in from..needs.len() {
            if self.budget.is_exhausted() {
                return Ok(Some(at));
            }
            self.budget.visit(KEEP_VISITS);
            if let Some(need) = needs.get_mut(at) {
                self.reserve(need)?;
            }
        }
        Ok(None)
    }

    /// # Errors
    /// `E-QUEUE-FULL`, `E-DEST-COUNT`, `E-RETAINED-COUNT`.
    fn reserve(&mut self, need: &mut Need) -> Result<(), ProtocolError> {
        if need.retained {
            need.reserved = self.reserve_retained(&need.name)?;
            return Ok(());
        }
        let is_new = self.home.find(&need.name).is_none();
        if let Some(queue) = self.queue_for(&need.name, need.count, need.bytes)? {
            (need.reserved, need.created, need.queue) = (true, is_new, Some(queue));
            need.first = self.home.reserve(queue, need.count, need.bytes);
        }
        Ok(())
    }

    fn place(&mut self, needs: &mut Needs, mut messages: PagedDeque<Placed>, asker: Asker) -> Step {
        while !self.budget.is_exhausted() {
            let Some(Placed { need, retain, stored }) = messages.pop_front() else {
                return Step::Freeing { asker };
            };
            self.budget.visit(PLACE_VISITS);
            let need = need.and_then(|at| needs.get_mut(at as usize));
            match (retain, need) {
                (Some(false), _) => _ = self.retained.remove(stored.destination()),
                (Some(true), need) => {
                    // First, so that nobody else takes the place that is kept for it.
                    self.retained.set(stored);
                    if need.is_some_and(|need| std::mem::take(&mut need.reserved)) {
                        self.retained.reserve(-1, 0);
                    }
                }
                (None, Some(Need { queue: Some(queue), first, placed, .. })) => {
                    self.home.enqueue_at(*queue, stored, *first + *placed);
                    *placed += 1;
                }
                (None, _) => self.enqueue_all(vec![stored]),
            }
        }
        Step::Placing { messages, asker }
    }

    /// Gives room free, and forgets what it was for. Returns whether that is done.
    fn free(&mut self, needs: &mut Needs, undo: bool) -> bool {
        while !needs.is_empty() {
            if self.budget.is_exhausted() {
                return false;
            }
            self.budget.visit(PLACE_VISITS);
            let Some(need) = needs.pop_front() else { break };
            if !need.reserved {
                continue;
            }
            match need.queue {
                None => _ = self.retained.reserve(-1, 0),
                Some(queue) => {
                    self.home.release(queue, need.first, need.count, need.bytes);
                    if undo && need.created {
                        self.home.delete_unused(queue);
                    }
                }
            }
        }
        self.rearm_waiting();
        self.count_queues();
        true
    }
}
