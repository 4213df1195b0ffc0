//! Room that a home keeps for a transaction, step by step.

use crate::collections::paged_deque::PagedDeque;
use crate::ids::ShardId;
use crate::queue::mail::Placed;
use crate::queue::mail::Reservations;
use crate::requester::Requester;

/// The name under which a home keeps room: who asked, and its token.
pub(crate) type Prepared = (ShardId, u64);

#[derive(Debug)]
pub(crate) enum Step {
    /// The needs below `next` have their room.
    Keeping { next: usize, requester: Requester },
    /// All have; the transaction is not decided yet.
    Kept,
    /// The messages come to their places.
    Placing { messages: PagedDeque<Placed>, requester: Requester },
    /// The needs that are left have to give their room free.
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
