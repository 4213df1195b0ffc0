//! Temporary queues whose owner has gone: they go with all they hold, over several turns if there are many.

use super::Shard;
use crate::command::temporary::full_name;
use crate::connection::temporary::Temporary;
use crate::ids::ConnKey;
use crate::queue::orphans::Orphans;
use crate::turn::jobs::Job;

/// What is done before another job has its turn, in visits.
const VISITS_MAX: usize = 1000;
/// Bytes of a name that are copied and hashed for the price of one visit.
const VISIT_BYTES: usize = 1 << 10;

impl Shard {
    /// A connection ends, and its temporary destinations with it.
    pub(super) fn forget_temporary(&mut self, key: ConnKey) {
        let Some(own) = self.connections.table.get_mut(key).and_then(|conn| conn.temporary.take()) else {
            return;
        };
        let Temporary { secret, names, .. } = *own;
        self.proceed_with_orphans(Orphans { secret, names: names.into_iter().collect() });
    }

    /// Removes some of the queues.
    pub(super) fn proceed_with_orphans(&mut self, mut orphans: Orphans) {
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
}
