//! Work that goes on over several turns: which piece comes next. What a piece works on waits with its owner.

use std::collections::VecDeque;

use crate::ids::{ConnKey, ShardId};

/// Room for more pieces than these is given back once they are done.
const KEPT: usize = 64;

/// One piece of work. It does a part and queues up again behind the others. Where it names nothing, it goes on with the
/// first of its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Job {
    /// Check the operations of this connection's COMMIT, which has this token.
    Check(ConnKey, u64),
    /// Carry out a COMMIT that was decided.
    Apply,
    /// Go on with the room that is kept, or was kept, for the transaction with this token of this shard.
    Reserve(ShardId, u64),
    /// Go on with what waited for a consumer of worker topics.
    Revive,
    /// Go on with this shard's report to those who ask about the broker's inside.
    Survey,
    /// Ask all shards the next question about the broker's inside.
    Ask,
    /// Put an answer to such a question together.
    Assemble,
    /// Go on with telling those who asked.
    Tell,
    /// Go on with forgetting deliveries that waited for an outbox and are not wanted any more.
    Forget,
    /// Go on with forgetting a transaction of which nothing comes.
    Discard,
    /// Go on with removing the subscriptions of this connection, which ends.
    Leave(ConnKey),
    /// Go on with removing the temporary queues of a connection that has gone.
    Orphans,
}

/// The pieces of work that are left over, in their order.
#[derive(Debug, Default)]
pub struct Jobs {
    waiting: VecDeque<Job>,
}

impl Jobs {
    /// Adds a piece behind all others.
    pub fn push(&mut self, job: Job) {
        self.waiting.push_back(job);
    }

    /// Takes the next piece.
    pub fn pop(&mut self) -> Option<Job> {
        let job = self.waiting.pop_front();
        if self.waiting.is_empty() && self.waiting.capacity() > KEPT {
            self.waiting = VecDeque::new();
        }
        job
    }

    /// Whether nothing is left over.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_work_go_on_in_turns() {
        let mut jobs = Jobs::default();
        jobs.push(Job::Survey);
        jobs.push(Job::Apply);
        let first = jobs.pop().expect("two wait");
        jobs.push(first);
        assert_eq!([jobs.pop(), jobs.pop(), jobs.pop()], [Some(Job::Apply), Some(Job::Survey), None]);
        assert!(jobs.is_empty());
    }

    #[test]
    fn the_room_of_many_pieces_is_given_back() {
        let mut jobs = Jobs::default();
        (0..=KEPT).for_each(|_| jobs.push(Job::Ask));
        while jobs.pop().is_some() {}
        assert_eq!(jobs.waiting.capacity(), 0);
    }
}
