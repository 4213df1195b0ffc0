//! Counts anew what pending diagnostics queries hold.

use super::inquiries::{Audience, Diagnostics, Inquiry, Purpose};
use crate::audit::Audit;
use crate::connection::Connections;
use crate::connection::pausing::Question;
use crate::router::Router;
use crate::text::Text;

impl Inquiry {
    /// All who wait for an answer.
    fn audiences(&self) -> impl Iterator<Item = &Audience> {
        let (gather, telling) = (self.gather.as_ref(), self.telling.as_ref());
        let pending = gather.map(|gather| &gather.audience);
        [Some(&self.next), pending, telling.map(|telling| &telling.audience)].into_iter().flatten()
    }
}

impl Purpose {
    fn texts(&self) -> impl Iterator<Item = &Text> {
        let texts = match self {
            Purpose::Frame(receipt) => [receipt.as_ref(), None, None],
            Purpose::Publish { name, headers, receipt } => [Some(name), Some(headers), receipt.as_ref()],
        };
        texts.into_iter().flatten()
    }
}

impl Diagnostics {
    /// Visits all queries and their recipients.
    pub fn audit(&self, audit: &mut Audit, router: &Router) {
        self.surveys.iter().for_each(|survey| audit.weight(survey.weight()));
        self.assemblies.iter().for_each(|assembly| assembly.audit(audit));
        for (subject, inquiry) in &self.inquiries {
            if let Some(gather) = &inquiry.gather {
                gather.reports.iter().for_each(|report| audit.weight(&report.weight));
            }
            inquiry.telling.iter().for_each(|telling| audit.weight(&telling._weight));
            let texts = inquiry.audiences().flat_map(|it| &it.requesters).flat_map(|it| it.purpose.texts());
            texts.for_each(|text| audit.weight(text.weight()));
            let is_listed = self.later.contains(subject);
            audit.require(inquiry.is_queued == is_listed, || {
                format!("{subject:?} is queued: {}, and on the list: {is_listed}", inquiry.is_queued)
            });
            let is_asked = inquiry.is_queued || inquiry.gather.is_some();
            audit.require(inquiry.next.len() == 0 || is_asked, || format!("nobody asks {subject:?} again"));
            let is_told = self.told_later.contains(subject);
            audit.require(inquiry.telling.is_none() || is_told, || {
                format!("nobody tells the answer to {subject:?}")
            });
        }
        for (key, watch) in &self.watches {
            audit.weight(watch.name.weight());
            let found = router.subscriptions.get(key.index as usize);
            let is_there = found.is_some_and(|found| found.generation == key.generation);
            audit.require(is_there, || format!("{key:?}, which has ended, gets periodic answers"));
        }
    }

    /// Connections that wait for an answer are among its recipients.
    pub fn audit_questions(&self, audit: &mut Audit, connections: &Connections) {
        for (key, conn) in connections.table.iter() {
            let Some(Question::Query(number)) = conn.wait.question() else { continue };
            let audiences = self.inquiries.values().flat_map(Inquiry::audiences);
            let mut recipients = audiences.flat_map(|audience| &audience.requesters);
            let is_told = recipients.any(|it| it.conn == key && it.number == number);
            audit.require(is_told, || format!("nobody will answer query {number} of {key:?}"));
        }
    }
}
