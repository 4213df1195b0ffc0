//! Temporary queues of an ended connection, which are removed with all messages; large numbers take several turns.

use super::Owners;
use crate::destination::full_name;
use crate::text::Text;
use crate::turn::jobs::Job;

/// The maximum number of visits before another job runs.
const VISITS_MAX: usize = 1000;
/// The bytes of a name whose copying and hashing counts as one visit.
const VISIT_BYTES: usize = 1 << 10;

/// Temporary destinations of an ended connection.
#[derive(Debug)]
pub(crate) struct Orphans {
    pub(crate) secret: String,
    pub(crate) names: Vec<Text>,
}

impl Owners<'_> {
    /// Removes some of the temporary queues of an ended connection; the others become a job.
    pub(crate) fn remove_orphans(&mut self, mut orphans: Orphans) {
        let mut visits = 0;
        while visits < VISITS_MAX
            && let Some(name) = orphans.names.pop()
        {
            visits += 1 + name.len() / VISIT_BYTES;
            if let Some(queue) = self.queues.home.find(&full_name(&name, &orphans.secret)) {
                self.queues.home.delete(queue);
            }
        }
        self.turn.budget.visit(visits);
        self.count_queues();
        if !orphans.names.is_empty() {
            self.queues.orphans.push_back(orphans);
            self.turn.jobs.push(Job::Orphans);
        }
    }

    /// Continues the first of those jobs.
    pub(crate) fn proceed_with_orphans(&mut self) {
        if let Some(orphans) = self.queues.orphans.pop_front() {
            self.remove_orphans(orphans);
        }
    }
}
