//! Work that takes several turns: COMMITs of connections here, reservations of this home for any connection, and
//! other walks over many items.

use super::Shard;
use crate::command::commits::Applying;
use crate::connection::pausing::Pause;
use crate::delivery::memory::must_wait_for_memory;
use crate::turn::budget::Budget;
use crate::turn::jobs::Job;

impl Shard {
    /// Whether there is a job that can continue.
    pub(super) fn has_jobs(&self) -> bool {
        !self.turn.jobs.is_empty() || self.commits.held.iter().any(|applying| self.may_apply(applying))
    }

    /// Whether a COMMIT that waits can continue.
    fn may_apply(&self, applying: &Applying) -> bool {
        let wait_reason = applying.wait_reason;
        wait_reason.is_none_or(|it| !it.stands(&self.turn, &self.connections, &self.deliveries, &self.peers))
    }

    /// Continues COMMITs whose wait is over.
    fn release_commits(&mut self) {
        self.peers.share_room(self.connections.parking.first_of(&[Pause::LargeFanOut]).is_some());
        for _ in 0..self.commits.held.len() {
            let Some(applying) = self.commits.held.pop_front() else { return };
            match self.may_apply(&applying) {
                true => {
                    self.commits.applying.push_back(applying);
                    self.turn.jobs.push(Job::Apply);
                }
                false => self.commits.held.push_back(applying),
            }
        }
    }

    /// Continues jobs of earlier turns, for half of this part of the turn, or a quarter if mail has used half of it.
    pub(super) fn proceed_with_jobs(&mut self) {
        self.release_commits();
        let is_over = match self.turn.budget.is_half_spent() {
            true => Budget::is_mostly_spent,
            false => Budget::is_half_spent,
        };
        // At least one job continues, however much mail there was.
        while let Some(job) = self.turn.jobs.pop() {
            self.proceed_with(job);
            if is_over(self.turn.budget) {
                break;
            }
        }
    }

    /// Begins new jobs of a frame at once, for half of a part of the turn.
    pub(super) fn begin_jobs(&mut self) {
        while !self.turn.budget.is_half_spent()
            && let Some(job) = self.turn.jobs.pop()
        {
            self.proceed_with(job);
        }
    }

    fn proceed_with(&mut self, job: Job) {
        match job {
            Job::Check(key, token) => self.command().check_commit(key, token),
            Job::Apply => {
                if let Some(applying) = self.commits.applying.pop_front() {
                    self.command().apply(applying);
                }
            }
            Job::Reserve(shard, token) => self.queue().proceed_with_reservation((shard, token)),
            Job::Revive => self.queue().proceed_with_revivals(),
            Job::Ask => self.diag().ask_next(),
            Job::Survey => self.diag().proceed_with_survey(),
            Job::Assemble => {
                if let Some(assembly) = self.diagnostics.assemblies.pop_front() {
                    self.diag().proceed_with_assembly(assembly);
                }
            }
            Job::Tell => {
                if let Some(subject) = self.diagnostics.told_later.pop_front() {
                    self.diag().tell_some(subject);
                }
            }
            Job::Forget => self.delivery().proceed_with_forgetting(),
            Job::Discard => {
                if let Some(discarded) = self.commits.discarded.pop_front() {
                    self.command().proceed_with_discarding(discarded);
                }
            }
            Job::Leave(key) => self.proceed_with_leaving(key),
            Job::Orphans => self.queue().proceed_with_orphans(),
            Job::Restore => self.queue().proceed_with_restoring(),
        }
        self.settle();
    }

    /// Whether no job is left.
    pub(super) fn has_no_jobs(&self) -> bool {
        self.turn.jobs.is_empty() && self.commits.held.is_empty()
    }

    /// Whether fan-outs and deferred deliveries have work for the next turn.
    pub(super) fn has_deliveries(&self) -> bool {
        let replays = &self.queues.replays;
        let waits_for_memory = self.deliveries.fan_outs.first().is_some()
            || replays.has_work()
            || replays.wait_for_memory()
            || self.queues.recorded.replays.has_listed();
        !self.connections.refill.is_empty()
            || (waits_for_memory && !must_wait_for_memory(&self.turn, &self.connections))
    }

    /// Continues the work of earlier turns, each kind for half of a turn.
    pub(super) fn proceed_with_deliveries(&mut self) {
        self.delivery().proceed_with_fan_outs(2);
        self.delivery().refill_outboxes();
        self.delivery().pull_again();
        self.proceed_with_replays();
        self.delivery().proceed_with_history();
        self.settle();
    }

    /// Drops deferred deliveries and ends subscriptions when the shard ends, since there are no more turns.
    pub(super) fn drop_all_deferred(&mut self) {
        while let Some(job) = self.turn.jobs.pop() {
            self.turn.budget = Budget::default();
            match job {
                Job::Forget => self.delivery().proceed_with_forgetting(),
                Job::Leave(key) => self.proceed_with_leaving(key),
                _ => {}
            }
        }
    }
}
