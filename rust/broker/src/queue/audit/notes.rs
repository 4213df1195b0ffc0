//! Notes on their way from one shard to another, or to its own connections.

use crate::audit::{Amount, Audit};
use crate::ids::ShardId;
use crate::queue::mail::{
    AnswerNote, ConsumerNote, DiagnosticsNote, HomeNote, Note, RecordNote, Source, TransactionNote,
};
use crate::queue::notes::{Local, Notes};
use crate::queue::types::{Credit, Delivery, GivenBack, Progress};

impl Notes {
    /// Visits the notes that wait.
    pub fn audit(&self, audit: &mut Audit) {
        let own = audit.shard;
        for (at, outgoing) in self.outgoing.iter().enumerate() {
            outgoing.list.iter().for_each(|note| note.audit(audit, own, ShardId(at as u8)));
        }
        for local in &self.local {
            match local {
                Local::Note(note) => note.audit(audit, own, own),
                Local::Publish(message) => message.audit(audit),
                Local::Announce { topic, to, .. } => {
                    audit.shared_text(topic);
                    to.iter().for_each(|to| audit.answers_of_others(*to));
                }
                Local::Unbind(_) => {}
            }
        }
    }
}

impl Note {
    /// Visits a note from one shard to another.
    pub fn audit(&self, audit: &mut Audit, from: ShardId, to: ShardId) {
        match self {
            Note::Home(note) => audit_home_note(note, audit, to),
            Note::Consumer(note) => audit_consumer_note(note, audit, from, to),
            Note::Answer(AnswerNote::RoundTrip(requester, _)) => audit.answer(requester.to()),
            Note::Answer(AnswerNote::Applied(conn, token) | AnswerNote::Reserved(conn, token, _)) => {
                audit.answer_to(to, *conn, *token)
            }
            Note::Answer(AnswerNote::Refused(conn, token, _)) => {
                (0..audit.shards).for_each(|_| audit.answer_to(to, *conn, *token)); // others need not answer
            }
            Note::Transaction(TransactionNote::Prepare(_, requester)) => audit.answer(requester.to()),
            Note::Transaction(TransactionNote::Commit(messages, _, requester)) => {
                messages.iter().for_each(|placed| placed.message.audit(audit));
                audit.answer(requester.to());
            }
            Note::Record(
                RecordNote::Publish(message, requester) | RecordNote::PublishRetained(message, requester),
            ) => {
                message.audit(audit);
                requester.iter().for_each(|requester| audit.answer(requester.to()));
            }
            Note::Record(_) => {}
            Note::Diagnostics(DiagnosticsNote::Diagnosed(_, report)) => audit.weight(&report.weight),
            Note::Diagnostics(DiagnosticsNote::Diagnose(..))
            | Note::Transaction(TransactionNote::Cancel(_))
            | Note::Replay(_)
            | Note::Memory(_) => {}
        }
    }
}

fn audit_home_note(note: &HomeNote, audit: &mut Audit, to: ShardId) {
    match note {
        HomeNote::Enqueue(message, requester) | HomeNote::Retain(message, _, requester) => {
            audit.retained += usize::from(matches!(note, HomeNote::Retain(_, true, Some(_))));
            message.audit(audit);
            requester.iter().for_each(|requester| audit.answer(requester.to()));
        }
        HomeNote::Progress(progress) => progress.audit(audit, to),
        HomeNote::GiveBack(origin, message, why) => {
            message.audit(audit);
            audit.in_flight(origin.home, origin.queue, 1, message.size() as u64);
            if let GivenBack::Failed { credit, .. } = **why {
                audit.credit(origin.home, origin.consumer, credit.amount());
            }
        }
        HomeNote::Attach(attach) => {
            audit.answer(attach.requester.to());
            if matches!(attach.source, Source::Durable { .. }) {
                audit.answers_of_others(attach.requester.to()); // the home asks them
            }
            audit.credit_of(attach.subscriber, attach.credit.amount());
        }
        HomeNote::EndDurable(_, requester, _) => audit.answer(requester.to()),
        HomeNote::CreditGrant(consumer, messages) => audit.credit(to, *consumer, Amount::new(*messages, 0)),
        HomeNote::Stale(message) => message.audit(audit),
        HomeNote::CreditRevoke(subscriber) => audit.revokes_credit(*subscriber, to),
        HomeNote::Detach(_) | HomeNote::DropStale => {}
    }
}

fn audit_consumer_note(note: &ConsumerNote, audit: &mut Audit, from: ShardId, to: ShardId) {
    match note {
        ConsumerNote::Deliver(delivery) => delivery.audit(audit, from),
        ConsumerNote::CreditReturn(key, messages) => {
            let subscriber = crate::ids::Subscriber { shard: to, key: *key };
            audit.credit_of(subscriber, Amount::new(*messages, 0));
        }
        ConsumerNote::Opens(_, _, progress) => progress.audit(audit, from),
        ConsumerNote::Replayed(_, message, _) => message.audit(audit),
        ConsumerNote::CreditRequest(..) | ConsumerNote::ReplayPause(_) | ConsumerNote::ReplayEnd(_) => {}
    }
}

impl Progress {
    /// Visits a report to a home.
    pub fn audit(&self, audit: &mut Audit, home: ShardId) {
        audit.in_flight(home, self.queue, self.settled, self.settled_bytes);
        audit.credit(home, self.consumer, self.credit.amount());
    }
}

impl Delivery {
    /// Visits a delivery of a home that its consumer has not received.
    pub fn audit(&self, audit: &mut Audit, home: ShardId) {
        self.message.audit(audit);
        let bytes = self.message.size();
        audit.in_flight(home, self.queue, 1, bytes as u64);
        audit.credit(home, self.consumer, Amount::new(1, bytes as i64));
    }
}

impl Credit {
    /// As an amount.
    #[must_use]
    pub fn amount(self) -> Amount {
        Amount::new(self.messages, self.bytes)
    }
}
