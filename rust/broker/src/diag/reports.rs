//! This shard's reports for diagnostics queries.

use super::survey::{ReportTo, Survey};
use super::{Owners, View};
use crate::door::planted;
use crate::log::Level;
use crate::queue::mail::DiagnosticsNote;
use crate::report::Query;
use crate::report::merge::ShardReport;
use crate::text::Weight;
use crate::turn::jobs::Job;

impl Owners<'_> {
    /// Makes this shard's report, after those that were requested before.
    pub(crate) fn survey(&mut self, query: Query, to: ReportTo) {
        let is_idle = self.diagnostics.surveys.is_empty();
        self.diagnostics.surveys.push_back(Survey::new(query, to));
        if is_idle {
            self.proceed_with_survey();
        }
    }

    /// Continues the first survey.
    pub(crate) fn proceed_with_survey(&mut self) {
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
            ReportTo::Shard(shard, _)
                if self.peers.busy.congested & shard.bit() != 0
                    && planted!("report-dropped-when-congested") => {}
            ReportTo::Shard(shard, number) => {
                let report = ShardReport { report, left_out, weight: Weight::new(row_bytes) };
                self.notes.tell(shard, DiagnosticsNote::Diagnosed(number, Box::new(report)));
            }
            ReportTo::Handle(reply) => _ = reply.send(report), // the caller may have given up waiting
        }
    }

    /// The owners of this shard, for reports.
    pub(crate) fn view(&self) -> View<'_> {
        View {
            turn: self.turn,
            connections: self.connections,
            router: self.router,
            queues: self.queues,
            mailbox_frames: self.peers.waiting_frames(),
            stale: self.queues.stale.everywhere(),
            unanswered: self.diagnostics.asked_elsewhere(self.queues),
        }
    }
}
