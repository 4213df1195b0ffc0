//! Counts anew the messages on their way to outboxes.

use super::Deliveries;
use super::admission::Admission;
use super::growing_queues::GrowingQueues;
use super::returning::{Part, Returning};
use crate::audit::Audit;
use crate::connection::audit::References;
use crate::router::Router;

impl Deliveries {
    /// Visits all messages and indices. `references` have those of connections.
    pub fn audit(&self, audit: &mut Audit, router: &Router, references: &mut References) {
        self.forgotten.iter().for_each(|deferred| deferred.audit(audit, references));
        self.fan_outs.audit(audit, &references.copies);
        self.returning.audit(audit);
        self.round_trips.audit(audit);
        self.admission.audit(audit);
        self.growing_queues.audit(audit, router);
        let open = router.groups.iter().filter_map(|(_, group)| group.open);
        open.for_each(|chunk| references.chunk(chunk));
        for (place, index) in self.open_groups.iter().enumerate() {
            let group = router.groups.get(*index as usize);
            let is_open = group.is_some_and(|group| group.open.is_some() && group.open_at as usize == place);
            audit.require(is_open, || format!("group {index} is on the list of open ones: {group:?}"));
        }
        let open = router.groups.iter().filter(|(_, group)| group.open.is_some()).count();
        audit.equal("open groups", self.open_groups.len(), open);
    }
}

impl Returning {
    fn audit(&self, audit: &mut Audit) {
        for part in &self.parts {
            match part {
                Part::Held(_, unacked) => unacked.audit(audit, false),
                Part::Unwritten(writes) => writes.iter().for_each(|write| write.audit(audit)),
            }
        }
    }
}

impl Admission {
    fn audit(&self, audit: &mut Audit) {
        for (hash, waiting) in &self.waiting {
            audit.text(&waiting.name);
            let name = String::from_utf8_lossy(&waiting.name);
            audit.require(!waiting.conns.is_empty(), || format!("nobody waits for the queue '{name}'"));
            let is_asked = self.round.at(waiting.place) == Some(hash);
            audit.require(is_asked, || format!("the home of the queue '{name}' is not asked again"));
            for key in waiting.conns.iter() {
                let wanted = self.wanted.get(key).map(|(wanted, _)| *wanted);
                audit.require(wanted == Some(*hash), || {
                    format!("{key:?} waits for '{name}', and wants {wanted:?}")
                });
            }
        }
        let conns = self.waiting.values().map(|waiting| waiting.conns.len()).sum();
        audit.equal("connections that want a name", self.wanted.len(), conns);
        audit.equal("names whose homes are asked", self.round.len(), self.waiting.len());
    }
}

impl GrowingQueues {
    fn audit(&self, audit: &mut Audit, router: &Router) {
        for (index, (_, place)) in &self.queues {
            let is_listed = self.round.at(*place) == Some(index);
            audit.require(is_listed, || format!("the queue of subscription {index} is not checked again"));
            let is_there = router.subscriptions.get(*index as usize).is_some();
            audit.require(is_there, || format!("the queue of subscription {index}, which has ended, grows"));
        }
        audit.equal("growing queues on the list", self.round.len(), self.queues.len());
        let growing: u32 = router.filters.iter().map(|(_, filter)| filter.growing_local).sum();
        audit.equal("growing queues of filters", growing as usize, self.queues.len());
    }
}
