//! Temporary queues whose owner has gone: they go with all they hold, over several turns if there are many.

use super::Owners;
use crate::destination::full_name;
use crate::text::Text;
use crate::turn::jobs::Job;

/// What is done before another job has its turn, in visits.
const VISITS_MAX: usize = 1000;
/// Bytes of a name that are copied and hashed for the price of one visit.
const VISIT_BYTES: usize = 1 << 10;

/// Temporary destinations of one connection that has gone.
#[derive(Debug)]
pub(crate) struct Orphans {
    pub(crate) secret: String,
    pub(crate) names: Vec<Text>,
}

impl Owners<'_> {
    /// Removes some of the temporary queues of a connection that has gone; the others are a job.
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

    /// Goes on with the first of those jobs.
    pub(crate) fn proceed_with_orphans(&mut self) {
        if let Some(orphans) = self.queues.orphans.pop_front() {
            self.remove_orphans(orphans);
        }
    }
}
