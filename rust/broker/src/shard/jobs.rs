//! Work that goes on over several turns: the COMMIT of a connection here, the room that this home keeps for any
//! connection, and other walks over many items. Each job does a part and queues up again behind the others.

use std::collections::{HashMap, VecDeque};

use super::Shard;
use super::apply::{Applying, LateOnes};
use super::assembly::Assembly;
use super::commit::Discarded;
use super::inquiries::Subject;
use super::orphans::Orphans;
use super::revival::Revival;
use crate::connection::deferred::Deferred;
use crate::ids::ConnKey;
use crate::queue::prepared::Prepared;
use crate::turn::budget::Budget;

/// One piece of work.
#[derive(Debug)]
pub(super) enum Job {
    /// Check the operations of this connection's COMMIT, which has this token.
    Check(ConnKey, u64),
    /// Carry out a COMMIT that was decided.
    Apply(Box<Applying>),
    /// Go on with the room that is kept, or was kept, for a transaction.
    Reserve(Prepared),
    /// Go on with what waited for a consumer of worker topics.
    Revive(Box<Revival>),
    /// Go on with what the first of those who ask about the broker's inside is told.
    Survey,
    /// Ask all shards the next question about the broker's inside.
    Ask,
    /// Put an answer to them together.
    Assemble(Box<Assembly>),
    /// Go on with telling those who asked.
    Tell(Subject),
    /// Go on with forgetting what a connection was owed.
    Forget(Box<Deferred>),
    /// Go on with forgetting a transaction of which nothing comes.
    Discard(Box<Discarded>),
    /// Go on with removing the subscriptions of this connection, which ends.
    Leave(ConnKey),
    /// Go on with removing the temporary queues of a connection that has gone.
    Orphans(Orphans),
}

/// The work that is left over, in its order.
#[derive(Debug, Default)]
pub(super) struct Jobs {
    waiting: VecDeque<Job>,
    /// What is left of subscriptions whose connection has lost them while its COMMIT takes effect.
    pub(super) late: HashMap<ConnKey, LateOnes>,
    /// COMMITs that wait for something.
    held: VecDeque<Box<Applying>>,
}

impl Jobs {
    /// Adds a job behind all others.
    pub(super) fn push(&mut self, job: Job) {
        self.waiting.push_back(job);
    }

    /// Lets a COMMIT wait until what it waits for is over.
    pub(super) fn hold(&mut self, applying: Box<Applying>) {
        self.held.push_back(applying);
    }

    /// Takes the next job.
    pub(super) fn pop(&mut self) -> Option<Job> {
        let job = self.waiting.pop_front();
        if self.waiting.is_empty() && self.waiting.capacity() > 64 {
            self.waiting = VecDeque::new();
        }
        job
    }

    /// Whether nothing is left over.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.held.is_empty()
    }
}

impl Shard {
    /// Whether there is something to go on with.
    pub(super) fn has_jobs(&self) -> bool {
        !self.jobs.waiting.is_empty() || self.jobs.held.iter().any(|applying| self.may_apply(applying))
    }

    /// Lets COMMITs go on that need not wait any more.
    fn release_commits(&mut self) {
        self.share_room();
        for _ in 0..self.jobs.held.len() {
            let Some(applying) = self.jobs.held.pop_front() else { return };
            match self.may_apply(&applying) {
                true => self.jobs.push(Job::Apply(applying)),
                false => self.jobs.hold(applying),
            }
        }
    }

    /// Goes on with what earlier turns began, for half of this part of the turn, or a quarter if mail has used half.
    pub(super) fn proceed_with_jobs(&mut self) {
        self.release_commits();
        let is_over = match self.turn.budget.is_half_spent() {
            true => Budget::is_mostly_spent,
            false => Budget::is_half_spent,
        };
        // At least one, however much mail there was.
        while let Some(job) = self.jobs.pop() {
            self.proceed_with(job);
            if is_over(self.turn.budget) {
                break;
            }
        }
    }

    /// Begins what a frame asks for at once, for half of a part of the turn.
    pub(super) fn begin_jobs(&mut self) {
        while !self.turn.budget.is_half_spent()
            && let Some(job) = self.jobs.pop()
        {
            self.proceed_with(job);
        }
    }

    fn proceed_with(&mut self, job: Job) {
        match job {
            Job::Check(key, token) => self.check_commit(key, token),
            Job::Apply(applying) => self.apply(applying),
            Job::Reserve(name) => self.proceed_with_reservation(name),
            Job::Revive(revival) => self.proceed_with_revival(revival),
            Job::Ask => self.ask_next(),
            Job::Survey => self.proceed_with_survey(),
            Job::Assemble(assembly) => self.proceed_with_assembly(assembly),
            Job::Tell(subject) => self.tell_some(subject),
            Job::Forget(deferred) => self.drop_deferred(deferred),
            Job::Discard(discarded) => self.proceed_with_discarding(discarded),
            Job::Leave(key) => self.proceed_with_leaving(key),
            Job::Orphans(orphans) => self.proceed_with_orphans(orphans),
        }
    }
}
