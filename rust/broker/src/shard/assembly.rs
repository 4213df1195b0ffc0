//! An answer of DIAG that has many rows: sorted and written over as many turns as that takes.

use super::Shard;
use crate::diag::assembly::Assembly;
use crate::diag::survey::ROWS_BYTES_MAX;
use crate::report::answer::Answer;
use crate::turn::jobs::Job;

impl Shard {
    /// Goes on with an answer; the last step brings it to all who asked.
    pub(super) fn proceed_with_assembly(&mut self, mut assembly: Box<Assembly>) {
        if !self.is_still_awaited(assembly.subject) {
            return;
        }
        let limit = ROWS_BYTES_MAX.min(self.turn.config.outbox_limit);
        let rows = assembly.proceed(limit);
        self.turn.budget.visit(rows);
        if rows > 0 {
            self.diagnostics.assemblies.push_back(assembly);
            return self.turn.jobs.push(Job::Assemble);
        }
        let text = assembly.finish();
        self.turn.budget.encoded += text.len();
        let answer = Answer::of_text(assembly.subject.query(), text, assembly.left_out);
        self.announce(assembly.subject, answer);
    }
}
