//! Counts anew what COMMITs hold.

use super::commits::{Applying, Commits, Discarded, LateOnes};
use crate::audit::Audit;
use crate::connection::Connections;
use crate::connection::pausing::Question;
use crate::connection::transaction::Committing;
use crate::delivery::Deliveries;
use crate::router::fan_out::FanOutKey;

impl Commits {
    /// Visits all COMMITs that are being applied, and transactions that are being discarded.
    pub fn audit(&self, audit: &mut Audit) {
        self.applying.iter().chain(&self.held).for_each(|applying| applying.audit(audit));
        self.discarded.iter().for_each(|discarded| discarded.audit(audit));
        self.late.values().for_each(|late| audit_late(late, audit));
    }

    /// What connections wait for exists.
    pub fn audit_questions(&self, audit: &mut Audit, connections: &Connections, deliveries: &Deliveries) {
        for (key, conn) in connections.table.iter() {
            let is_applied = || self.applying.iter().chain(&self.held).find(|applying| applying.key == key);
            match conn.wait.question() {
                Some(Question::Commit(token)) => {
                    let is_there = matches!(&conn.committing, Some(Committing::Deciding(commit)) if commit.token == token);
                    audit.require(is_there, || format!("{key:?} waits for COMMIT {token}, which is over"));
                }
                Some(Question::Turn(token)) => {
                    let found = is_applied().map(|applying| applying.requester.to().token);
                    let is_there = found == Some(token) || conn.answers.is_awaited(token);
                    audit.require(is_there, || format!("{key:?} waits for COMMIT {token}, found {found:?}"));
                }
                Some(Question::FanOut(fan_out)) => audit_fan_out(audit, deliveries, conn.id, fan_out),
                Some(Question::Query(_) | Question::Login(_)) | None => {}
            }
            if matches!(conn.committing, Some(Committing::Applying { .. })) {
                audit.require(is_applied().is_some(), || format!("nobody applies the COMMIT of {key:?}"));
            }
        }
    }
}

fn audit_fan_out(audit: &mut Audit, deliveries: &Deliveries, conn: u64, fan_out: FanOutKey) {
    let is_live = deliveries.fan_outs.is_live(fan_out);
    audit.require(is_live, || format!("connection {conn} waits for the end of a fan-out that is over"));
}

impl Applying {
    fn audit(&self, audit: &mut Audit) {
        self.operations.iter().for_each(|operation| operation.audit(audit));
        self.out.iter().flat_map(|(_, placed)| placed.iter()).for_each(|placed| placed.message.audit(audit));
        audit_late(&self.late, audit);
        audit.weight(&self._weight);
        audit.answer(self.requester.to());
    }
}

impl Discarded {
    fn audit(&self, audit: &mut Audit) {
        self.operations.iter().for_each(|operation| operation.audit(audit));
    }
}

fn audit_late(late: &LateOnes, audit: &mut Audit) {
    late.values().for_each(|consumer| consumer.audit(audit));
}
