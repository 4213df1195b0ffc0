//! The queues of this shard as the rest of it sees them, and what waits among its notes.

use stompica_proto::ProtocolError;
use stompica_proto::encode::Offender;

use super::Shard;
use crate::diag::survey::ReportTo;
use crate::ids::ShardId;
use crate::queue::Owners;
use crate::queue::mail::{AnswerNote, DiagnosticsNote, MemoryNote, Note};
use crate::queue::notes::Local;
use crate::queue::replay::Newcomer;
use crate::queue::types::Progress;
use crate::requester::Requester;

impl Shard {
    /// The queues, with what they need.
    #[inline]
    pub(crate) fn queue(&mut self) -> Owners<'_> {
        Owners {
            turn: &mut self.turn,
            notes: &mut self.notes,
            router: &mut self.router,
            queues: &mut self.queues,
        }
    }

    /// Tells a shard. The home of this one acts at once; what leads to its connections waits for [`Shard::settle`].
    pub(crate) fn tell(&mut self, shard: ShardId, note: impl Into<Note>) {
        self.queue().tell(shard, note);
    }

    /// Answers a frame; see [`Notes::answer`](crate::queue::notes::Notes::answer).
    pub(super) fn answer(&mut self, requester: Requester, outcome: Result<(), (ProtocolError, Offender)>) {
        self.notes.answer(requester, outcome);
    }

    /// Acts on what connections have left to do, and on what waits for this shard, until nothing is left: runs after every
    /// frame, note, job and deadline.
    #[inline]
    pub(crate) fn settle(&mut self) {
        // After most frames there is nothing to do.
        if !self.connections.effects.is_empty() || self.notes.has_local() {
            self.settle_all_left();
        }
    }

    fn settle_all_left(&mut self) {
        loop {
            while let Some(effect) = self.connections.effects.pop_front() {
                self.carry_out_for_connection(effect);
            }
            let Some(local) = self.notes.next_local() else { break };
            self.carry_out_local(local);
        }
    }

    fn carry_out_local(&mut self, local: Local) {
        match local {
            Local::Note(note) => self.read_note(self.turn.id, note),
            Local::Publish(stored) => self.publish_late(&stored),
            Local::Announce { topic, to, newcomer } => {
                self.tell_interest(&topic, to, newcomer);
                newcomer.into_iter().for_each(|newcomer| self.note_width_of(newcomer.key.index));
            }
            Local::Unbind(subscription) => {
                if self.router.subscription_mut(subscription).is_some() {
                    self.command().remove_subscription(subscription.index, false);
                }
            }
        }
    }

    pub(super) fn read_note(&mut self, from: ShardId, note: Note) {
        match note {
            Note::Consumer(note) => self.delivery().read_consumer_note(from, note),
            Note::Answer(note) => self.read_answer_note(from, note),
            Note::Memory(MemoryNote::Passes(hash, allowance)) => self.let_pass(hash, allowance, true),
            Note::Diagnostics(DiagnosticsNote::Diagnose(query, number)) => {
                self.survey(query, ReportTo::Shard(from, number));
            }
            Note::Diagnostics(DiagnosticsNote::Diagnosed(number, report)) => {
                self.diag().diagnosed(number, *report)
            }
            note @ (Note::Home(_)
            | Note::Replay(_)
            | Note::Transaction(_)
            | Note::Memory(MemoryNote::MayPass(_))) => self.queue().read(from, note),
        }
        self.queue().count_visits();
    }

    fn read_answer_note(&mut self, from: ShardId, note: AnswerNote) {
        match note {
            AnswerNote::Applied(conn, token) => self.applied(conn, token),
            AnswerNote::Reserved(conn, token, places) => {
                if self.command().is_deciding(conn, token) {
                    self.command().prepare_answered(conn, Ok((from, places)));
                }
            }
            AnswerNote::Refused(conn, token, refusal) => self.refused(conn, token, *refusal),
            AnswerNote::RoundTrip(requester) => self.answer(requester, Ok(())),
        }
    }

    /// See [`Owners::count_queues`].
    pub(crate) fn count_queues(&mut self) {
        self.queue().count_queues();
    }

    /// See [`Owners::report`].
    pub(super) fn report(&mut self, home: ShardId, progress: Progress) {
        self.queue().report(home, progress);
    }

    /// See [`Owners::await_replay`].
    pub(crate) fn await_replay(
        &mut self,
        name: &[u8],
        shard: ShardId,
        newcomer: Newcomer,
        reply: Option<Requester>,
    ) {
        self.queue().await_replay(name, shard, newcomer, reply);
    }
}
