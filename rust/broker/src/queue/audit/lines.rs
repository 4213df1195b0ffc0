//! The pending messages of one queue.

use std::collections::BTreeSet;

use crate::audit::Audit;
use crate::message::OwnedMessage;
use crate::queue::paged::Paged;
use crate::queue::pending::Pending;

impl Pending {
    /// Visits the messages, and compares their number, bytes and expiries with the counts.
    pub(super) fn audit(&self, audit: &mut Audit) {
        let line = self.fresh.iter().chain(self.returned.values());
        let line: Vec<&OwnedMessage> =
            line.chain(self.paged.iter().flat_map(|paged| paged.head.iter())).collect();
        let delayed = self.delayed.values();
        line.iter().copied().chain(delayed.clone()).for_each(|message| message.audit(audit));
        let mut bytes: usize = line.iter().copied().chain(delayed).map(OwnedMessage::size).sum();
        let expires = |expires_ms: u64, seq: u64| (expires_ms != 0).then_some((expires_ms, seq));
        let mut expiring: BTreeSet<(u64, u64)> =
            line.iter().filter_map(|message| expires(message.expires_ms, message.seq)).collect();
        if let Some(paged) = self.paged.as_deref() {
            paged.audit(audit);
            bytes += paged.all_stubs().map(|stub| stub.bytes as usize).sum::<usize>();
            let in_line = paged.stubs.iter().chain(paged.loading.values().copied());
            // One that was requested after its expiry has left the line.
            let in_line = in_line.filter(|stub| self.expiring.contains(&(stub.expires_ms, stub.seq)));
            expiring.extend(in_line.filter_map(|stub| expires(stub.expires_ms, stub.seq)));
        }
        audit.equal("bytes of pending messages", self.bytes, bytes);
        if self.expiring != expiring {
            audit.find(format!("expiries of pending messages: {:?}, found {expiring:?}", self.expiring));
        }
        let is_sorted = self.fresh.iter().is_sorted_by(|one, other| one.seq < other.seq);
        audit.require(is_sorted, || "pending messages are not in the order of their places".to_owned());
        let has_places = self.returned.iter().all(|(seq, message)| *seq == message.seq);
        audit.require(has_places, || "requeued messages are not at their places".to_owned());
    }
}

impl Paged {
    /// All stubs.
    fn all_stubs(&self) -> impl Iterator<Item = crate::queue::paged::Stub> {
        self.stubs.iter().chain(self.loading.values().copied()).chain(self.expired.iter().copied())
    }

    fn audit(&self, audit: &mut Audit) {
        audit.message_bytes += self.counted;
        audit.equal("bytes of stubs", self.counted, self.stub_bytes());
        audit.equal(
            "bytes of loaded messages",
            self.head_bytes,
            self.head.iter().map(OwnedMessage::size).sum(),
        );
        let loading = self.loading.values().map(|stub| stub.bytes as usize).sum();
        audit.equal("bytes of requested messages", self.loading_bytes, loading);
    }
}
