//! The order of jobs, which are pieces of work that take several turns. Their data are kept by their owners.

use std::collections::VecDeque;

use crate::ids::{ConnKey, ShardId};

/// Capacity for more jobs than these is freed once they are done.
const KEPT: usize = 64;

/// A job does one part of its work and is queued again after the others. A variant without data continues the first
/// piece of work of its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Job {
    /// Check the operations of this connection's COMMIT, which has this token.
    Check(ConnKey, u64),
    /// Apply a COMMIT that was decided.
    Apply,
    /// Make or release the reservation of the transaction with this token of this shard.
    Reserve(ShardId, u64),
    /// Deliver stale messages of worker topics that now have a consumer.
    Revive,
    /// Continue this shard's report for a diagnostics query.
    Survey,
    /// Ask all shards the next diagnostics query.
    Ask,
    /// Assemble the answer to a diagnostics query.
    Assemble,
    /// Continue to send answers to subscribers of diagnostics.
    Tell,
    /// Continue to drop deferred deliveries that are no longer needed.
    Forget,
    /// Continue to discard a transaction that was aborted.
    Discard,
    /// Continue to remove the subscriptions of this connection, which ends.
    Leave(ConnKey),
    /// Continue to remove the temporary queues of a connection that has ended.
    Orphans,
    /// Continue to restore what the store has.
    Restore,
}

/// The jobs that are left, in order.
#[derive(Debug, Default)]
pub struct Jobs {
    waiting: VecDeque<Job>,
}

impl Jobs {
    /// Adds a job after all others.
    pub fn push(&mut self, job: Job) {
        self.waiting.push_back(job);
    }

    /// Takes the next job.
    pub fn pop(&mut self) -> Option<Job> {
        let job = self.waiting.pop_front();
        if self.waiting.is_empty() && self.waiting.capacity() > KEPT {
            self.waiting = VecDeque::new();
        }
        job
    }

    /// Whether no job is left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_take_turns() {
        let mut jobs = Jobs::default();
        jobs.push(Job::Survey);
        jobs.push(Job::Apply);
        let first = jobs.pop().expect("two jobs are queued");
        jobs.push(first);
        assert_eq!([jobs.pop(), jobs.pop(), jobs.pop()], [Some(Job::Apply), Some(Job::Survey), None]);
        assert!(jobs.is_empty());
    }

    #[test]
    fn the_capacity_for_many_jobs_is_freed() {
        let mut jobs = Jobs::default();
        (0..=KEPT).for_each(|_| jobs.push(Job::Ask));
        while jobs.pop().is_some() {}
        assert_eq!(jobs.waiting.capacity(), 0);
    }
}
