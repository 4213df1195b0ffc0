//! Carries out the work that owners leave to the shard: effects of connections, notes to itself, and effects of
//! homes.
//!
//! This happens after every frame, note, job and deadline, until none is left.

use stompica_proto::ProtocolError;
use stompica_proto::encode::Offender;

use super::Shard;
use crate::connection::Effect;
use crate::connection::pausing::Pause;
use crate::delivery::memory::must_wait_for_memory;
use crate::delivery::memory::must_wait_for_outboxes;
use crate::diag::survey::ReportTo;
use crate::ids::{ConnKey, ShardId};
use crate::log::Level;
use crate::mail::mailbox::Mail;
use crate::queue::mail::{AnswerNote, DiagnosticsNote, MemoryNote, Note};
use crate::queue::notes::Local;
use crate::requester::{self};
use crate::router::group::SubscriptionIndex;

impl Shard {
    /// Carries out all effects of connections and all notes of this shard to itself, until none is left: called after
    /// every frame, note, job and deadline.
    #[inline(always)]
    pub(crate) fn settle(&mut self) {
        // After most frames there is none.
        if !self.connections.effects.is_empty() || self.notes.has_local() {
            self.settle_all_left();
        }
    }

    #[inline(never)]
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
            Local::Publish(message) => self.delivery().publish_late(&message),
            Local::Announce { topic, to, newcomer } => {
                self.peers.tell_interest(&self.router, &topic, to, newcomer);
                newcomer.into_iter().for_each(|newcomer| self.tell_fan_out_size_of(newcomer.key.index));
            }
            Local::Unbind(subscription) => {
                if self.router.subscription_mut(subscription).is_some() {
                    self.command().remove_subscription(subscription.index, false);
                }
            }
        }
    }

    pub(super) fn read_note(&mut self, from: ShardId, note: Note) {
        self.queues.home.store.begin();
        match note {
            Note::Consumer(note) => self.delivery().read_consumer_note(from, note),
            Note::Answer(note) => self.read_answer_note(from, note),
            Note::Memory(MemoryNote::AllowanceGrant(hash, allowance)) => {
                self.delivery().admit(hash, allowance, true)
            }
            Note::Diagnostics(DiagnosticsNote::Diagnose(query, number)) => {
                self.diag().survey(query, ReportTo::Shard(from, number));
            }
            Note::Diagnostics(DiagnosticsNote::Diagnosed(number, report)) => {
                self.diag().diagnosed(number, *report)
            }
            Note::Home(note) => self.queue().read_home_note(note),
            Note::Record(note) => self.delivery().read_record_note(from, note),
            note @ (Note::Replay(_)
            | Note::Transaction(_)
            | Note::Memory(MemoryNote::AllowanceRequest(_))) => self.queue().read(from, note),
        }
        self.queue().count_visits();
    }

    fn read_answer_note(&mut self, from: ShardId, note: AnswerNote) {
        match note {
            AnswerNote::Applied(ConnKey::NONE, _) | AnswerNote::Refused(ConnKey::NONE, ..) => {
                self.queues.home.store.moved_is_saved();
            }
            AnswerNote::Applied(conn, token) => self.connections.applied(&mut self.turn, conn, token),
            AnswerNote::Reserved(conn, token, places) => {
                if self.command().is_deciding(conn, token) {
                    self.command().prepare_answered(conn, Ok((from, places)));
                }
            }
            AnswerNote::Refused(conn, token, refusal) => self.refused(conn, token, *refusal),
            AnswerNote::RoundTrip(requester, next) => self.delivery().answer_round_trip(requester, next),
        }
    }

    /// Carries out an effect of a connection.
    pub(super) fn carry_out_for_connection(&mut self, effect: Effect) {
        match effect {
            Effect::RetriesCommit => self.begin_jobs(),
            Effect::StopsWaiting(key) => self.deliveries.admission.leave(key),
            Effect::AbandonsCommit(commit) => self.command().forget_commit(*commit),
            Effect::DiscardsTransactions(open) => self.command().discard_transactions(Some(open)),
            Effect::Leaves(key) => self.proceed_with_leaving(key),
            Effect::AsksForRoundTrips(to, shards) => {
                for shard in ShardId::of_bits(shards) {
                    self.queue().tell(shard, AnswerNote::RoundTrip(to.requester(), None));
                }
            }
            Effect::Credits(home, credit) => self.queue().report(home, credit),
        }
    }

    /// Resumes reading parked connections that are to retry, as many as one turn allows.
    pub(super) fn resume_parked(&mut self) {
        if self.connections.parking.first_of(&[Pause::Store]).is_some()
            && !self.queues.home.store.is_far_behind()
            && !self.queues.recorded.is_far_behind()
        {
            self.connections.retry_parked(&[Pause::Store]);
        }
        self.connections.resume_parked(&mut self.turn);
        self.settle();
        self.peers.busy.sends_first = false;
    }

    /// Handles the refusal of a request of this connection by another shard; later frames may have taken effect.
    pub(super) fn refused(&mut self, key: ConnKey, token: u64, refusal: (ProtocolError, Offender)) {
        if self.command().is_deciding(key, token) {
            return self.command().prepare_answered(key, Err(refusal.0));
        }
        self.connections.refused(&mut self.turn, key, token, refusal);
    }

    /// Reports answers that were dropped in this turn.
    pub(super) fn note_lost_answers(&mut self) {
        let lost = requester::take_lost();
        if lost > 0 {
            self.turn.counters.lost_answers += lost;
            self.turn.log(Level::Error, || format!("{lost} answers were dropped (a bug in stompica)"));
        }
        debug_assert_eq!(lost, 0, "every requester must be answered");
    }

    /// Whether [`Shard::dispatch_queues`] has something to do.
    pub(super) fn has_queue_work(&self) -> bool {
        self.queues.home.is_busy()
            || (self.queues.home.holds_copies_back()
                && !must_wait_for_outboxes(&self.turn, &self.connections))
            || !self.deliveries.returning.is_empty()
            || self.queues.home.has_paging_work(self.turn.memory.is_paging)
    }

    /// If the mail has granted credit to consumers without any, dispatches to them at once and posts the deliveries. At
    /// the end of the turn, the deliveries would also wait for all sockets of this shard.
    pub(super) fn dispatch_after_mail(&mut self) {
        self.settle();
        if self.queues.home.has_regained_credit() && self.queues.home.has_work() {
            self.delivery().dispatch();
            self.settle();
            self.post();
        }
    }

    /// Delivers queued messages and continues long work, as far as this part of the turn allows.
    pub(super) fn dispatch_queues(&mut self) {
        self.queue().proceed_with_paging();
        self.delivery().proceed_with_returning();
        self.delivery().run_effects();
        self.settle();
        self.delivery().dispatch();
        self.settle();
    }

    /// Answers frames that waited for the store, here or at another shard.
    pub(super) fn answer_saved(&mut self) {
        if !self.deliveries.round_trips.is_empty() {
            self.delivery().answer_round_trips();
        }
        self.queue().ask_for_moved();
        if self.queues.recorded.is_waited_for() {
            self.queue().answer_recorded();
        }
        if self.queues.home.store.is_waited_for() {
            self.queue().answer_saved();
        }
        self.settle();
    }

    /// Once this home has everything from the store, and has told the other shards, clients may log in as soon as that holds
    /// for all homes.
    pub(super) fn tell_restored(&mut self) {
        if self.queues.restoration.is_some()
            && let Some(homes) = self.queue().take_restored()
            && homes.is_last()
        {
            self.shared.mailboxes.iter().for_each(|mailbox| mailbox.post(&mut vec![Mail::Ready]));
        }
    }

    /// All homes have what the store has kept: clients may log in.
    pub(super) fn open_logins(&mut self) {
        self.turn.is_ready = true;
        self.connections.open_logins(&mut self.turn);
    }

    /// Continues replays that have a window, one after the other, as far as the turn and memory allow: new subscriptions may
    /// have asked for any number of windows at once.
    pub(super) fn proceed_with_replays(&mut self) {
        while !self.turn.budget.is_exhausted()
            && !must_wait_for_memory(&self.turn, &self.connections)
            && self.queue().proceed_with_next_replay()
        {
            self.settle();
        }
    }

    /// Carries out all effects of homes, including those that follow from them.
    pub(super) fn run_all_effects(&mut self) {
        self.settle();
        while !self.queues.home.effects.is_empty() {
            self.delivery().run_effects();
            self.settle();
        }
    }

    /// Tells the other shards the number of recipients of the filter that a new subscription uses.
    fn tell_fan_out_size_of(&mut self, subscription: SubscriptionIndex) {
        if let Some(filter) = self.router.subscriptions[subscription as usize].filter_index() {
            self.peers.tell_fan_out_size(&mut self.router, filter);
        }
    }
}
