//! This shard's reports to those who ask about the broker's inside.

use std::sync::atomic::Ordering;

use super::Shard;
use crate::diag::View;
use crate::diag::survey::{ReportTo, Survey};
use crate::log::Level;
use crate::queue::mail::DiagnosticsNote;
use crate::report::Query;
use crate::report::types::ShardReport;
use crate::text::Weight;
use crate::turn::jobs::Job;

impl Shard {
    /// Makes this shard's report, behind those that were asked for before.
    pub(super) fn survey(&mut self, query: Query, to: ReportTo) {
        let is_idle = self.diagnostics.surveys.is_empty();
        self.diagnostics.surveys.push_back(Survey::new(query, to));
        if is_idle {
            self.proceed_with_survey();
        }
    }

    /// Goes on with the first survey.
    pub(super) fn proceed_with_survey(&mut self) {
        let Some(mut survey) = self.diagnostics.surveys.pop_front() else { return };
        let visits = self.view().walk(&mut survey);
        self.turn.budget.visit(visits);
        if survey.is_over() {
            self.report_survey(survey);
        } else {
            survey.count_rows();
            self.diagnostics.surveys.push_front(survey);
        }
        if !self.diagnostics.surveys.is_empty() {
            self.turn.jobs.push(Job::Survey);
        }
    }

    fn report_survey(&mut self, survey: Survey) {
        let (query, to, mut report, left_out, row_bytes) = survey.into_parts();
        if query == Query::Benchmark {
            self.turn.stages.switch_on(self.turn.now_ms);
            self.turn.observe();
        }
        self.view().complete(&mut report);
        if left_out > 0 {
            let name = query.name();
            self.turn.log(Level::Warn, || {
                format!("an answer to the query '{name}' has no room for {left_out} rows of this thread")
            });
        }
        match to {
            ReportTo::Shard(shard, number) => {
                let report = ShardReport { report, left_out, weight: Weight::new(row_bytes) };
                self.tell(shard, DiagnosticsNote::Diagnosed(number, Box::new(report)));
            }
            ReportTo::Handle(reply) => _ = reply.send(report), // who asked may have given up waiting
        }
    }

    /// What is told of this shard.
    pub(super) fn view(&self) -> View<'_> {
        View {
            turn: &self.turn,
            connections: &self.connections,
            router: &self.router,
            queues: &self.queues,
            mailbox_frames: self.shared.mailboxes[usize::from(self.turn.id.0)].add_frames(0),
            stale: self.shared.stale.count.load(Ordering::Relaxed),
            unanswered: self.asked_elsewhere(),
        }
    }

    /// What waits for other shards, but for RECEIPTs.
    fn asked_elsewhere(&self) -> usize {
        self.queues.prepared.len() + self.queues.pending_replays.len() + self.diagnostics.asked()
    }

    /// What waits for other shards.
    #[cfg(any(test, feature = "simulation"))]
    pub(super) fn unanswered(&self) -> usize {
        let receipts: usize = self.connections.table.iter().map(|(_, conn)| conn.answers.len()).sum();
        receipts + self.asked_elsewhere()
    }
}
