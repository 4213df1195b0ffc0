//! Handles the notes to a home, and carries out its effects.

use std::mem::take;

use stompica_proto::ProtocolError;
use stompica_proto::encode::Offender;

use super::Owners;
use super::mail::{AnswerNote, ConsumerNote, HomeNote, MemoryNote, Note, ReplayNote, TransactionNote};
use super::types::{Delivery, Effect, Progress};
use crate::door::planted;
use crate::ids::{ConnKey, QueueKey, ShardId};
use crate::requester::{AnswerTo, Requester};
use crate::timer::Due;

impl Owners<'_> {
    /// Sends a note to a shard. This home handles its notes at once; notes for connections of this shard wait.
    pub(crate) fn tell(&mut self, shard: ShardId, note: impl Into<Note>) {
        match shard == self.turn.id {
            true => self.read(shard, note.into()),
            false => self.notes.tell(shard, note),
        }
    }

    /// Handles a note to this home; other notes wait.
    pub(crate) fn read(&mut self, from: ShardId, note: Note) {
        match note {
            Note::Home(note) => self.read_home_note(note),
            Note::Replay(note) => self.read_replay_note(note),
            Note::Transaction(note) => self.read_transaction_note(from, note),
            Note::Memory(MemoryNote::AllowanceRequest(name)) => self.tell_allowance(from, &name),
            Note::Memory(MemoryNote::AllowanceGrant(..))
            | Note::Consumer(_)
            | Note::Answer(_)
            | Note::Diagnostics(_)
            | Note::Record(_) => self.notes.tell(self.turn.id, note),
        }
        self.count_visits();
    }

    /// Handles a note to this home. Its callers count the visits.
    #[inline]
    pub(crate) fn read_home_note(&mut self, note: HomeNote) {
        match note {
            HomeNote::Enqueue(message, requester) => self.enqueue_for(message, requester),
            HomeNote::Progress(progress) => self.queues.home.progress(&progress),
            HomeNote::GiveBack(origin, message, why) => {
                self.queues.home.give_back(origin.queue, origin.consumer, message, *why);
            }
            HomeNote::Attach(attach) => self.attach(*attach),
            HomeNote::Detach(subscriber) => self.queues.home.detach(subscriber),
            HomeNote::EndDurable(name, requester, offender) => {
                let ended = self.end_durable(&name);
                self.answer(requester, ended.map_err(|error| (error, *offender)));
            }
            HomeNote::CreditGrant(consumer, messages) => self.queues.home.grant(consumer, messages),
            HomeNote::CreditRevoke(subscriber) => self.queues.home.revoke(subscriber),
            HomeNote::Stale(message) => self.place_stale(message),
            HomeNote::DropStale => self.drop_stale(),
            HomeNote::Retain(message, set, requester) => self.retain(message, set, requester),
        }
    }

    fn read_replay_note(&mut self, note: ReplayNote) {
        match note {
            ReplayNote::InterestAck(subscriber) => self.interest_acknowledged(subscriber),
            ReplayNote::More(subscriber) => self.queues.replays.open(subscriber),
            ReplayNote::Unacked(subscriber) => self.answer_before_the_end(subscriber),
            ReplayNote::Stop(subscriber) => self.stop_replay(subscriber),
        }
    }

    fn read_transaction_note(&mut self, from: ShardId, note: TransactionNote) {
        match note {
            TransactionNote::Prepare(reservations, requester) => {
                let token = requester.to().token;
                self.prepare(reservations, (from, token), requester);
            }
            TransactionNote::Cancel(token) => self.cancel((from, token)),
            TransactionNote::Commit(messages, token, requester) => {
                self.place_prepared((from, token), messages, requester);
            }
        }
    }

    /// Answers a frame, once the store has everything that the current note has caused.
    pub(crate) fn answer(&mut self, requester: Requester, outcome: Result<(), (ProtocolError, Offender)>) {
        match outcome {
            Ok(()) if self.queues.home.store.take_concerned() != 0 => {
                self.notes.tell(self.turn.id, AnswerNote::RoundTrip(requester, None));
            }
            Ok(()) if self.queues.home.store.has_written() => self.queues.home.store.hold(requester, 0),
            outcome => self.notes.answer(requester, outcome),
        }
    }

    /// Reports success to a frame, once all calls of the store so far are safe, and then those of the stores of these
    /// other shards, as bits.
    pub(crate) fn answer_when_saved(&mut self, requester: Requester, next: u64) {
        match self.queues.home.store.is_behind() {
            true => self.queues.home.store.hold(requester, next),
            false => self.saved(requester, next),
        }
    }

    /// Handles an answer that is no longer waiting for this store.
    fn saved(&mut self, requester: Requester, next: u64) {
        if next == 0 {
            return self.notes.answer(requester, Ok(()));
        }
        let shard = ShardId(next.trailing_zeros() as u8);
        self.notes.tell(shard, AnswerNote::RoundTrip(requester, Some(next & !shard.bit())));
    }

    /// Asks the shards that messages were sent to whether their stores keep them, unless they have yet to answer.
    pub(crate) fn ask_for_moved(&mut self) {
        if let Some(shards) = self.queues.home.store.ask_for_moved() {
            let to = AnswerTo { shard: self.turn.id, conn: ConnKey::NONE, token: 0, awaited: true };
            self.saved(to.requester(), shards);
        }
    }

    /// Answers the frames whose calls of the store are safe.
    pub(crate) fn answer_saved(&mut self) {
        while let Some((requester, outcome)) = self.queues.home.store.next_answer() {
            match outcome {
                Ok(next) => self.saved(requester, next),
                Err(error) => self.notes.answer(requester, Err((error, Offender::default()))),
            }
        }
    }

    /// Reports messages that were consumed or written to their home; consecutive reports about one consumer are merged.
    pub(crate) fn report(&mut self, home: ShardId, progress: Progress) {
        match home == self.turn.id {
            true => self.queues.home.progress(&progress),
            false => self.notes.report(home, progress),
        }
    }

    /// Counts the visits of the home in the turn's budget.
    pub(crate) fn count_visits(&mut self) {
        self.turn.budget.visit(take(&mut self.queues.home.visited));
    }

    /// Dispatches one queue at once; deliveries to this shard wait among its notes. All other effects of the home are
    /// left to the turn.
    pub(crate) fn dispatch_at_once(&mut self, queue: QueueKey) {
        let earlier = self.queues.home.effects.len();
        self.queues.home.dispatch_at_once(queue);
        let mut effects = take(&mut self.queues.home.effects);
        for effect in effects.drain(earlier..) {
            match effect {
                Effect::Deliver(delivery) => self.deliver(delivery),
                other => self.queues.home.effects.push(other),
            }
        }
        effects.append(&mut self.queues.home.effects);
        self.queues.home.effects = effects;
    }

    /// Carries out the effects of the home; deliveries to this shard wait among its notes.
    pub(crate) fn run_effects(&mut self) {
        self.count_visits();
        while !self.queues.home.effects.is_empty() {
            take(&mut self.queues.home.effects).into_iter().for_each(|effect| self.run_effect(effect));
        }
    }

    fn deliver(&mut self, delivery: Delivery) {
        if delivery.subscriber.shard == self.turn.id {
            self.turn.budget.deliver();
            self.notes.tell(self.turn.id, ConsumerNote::Deliver(delivery));
        } else {
            self.send_delivery(delivery);
        }
    }

    /// Sends a delivery to its consumer's shard, which is another one.
    #[inline]
    pub(crate) fn send_delivery(&mut self, delivery: Delivery) {
        self.turn.budget.deliveries += 1;
        self.turn.budget.encoded += delivery.message.size();
        self.notes.deliver(delivery);
    }

    /// Carries out an effect of the home that is not a delivery.
    pub(crate) fn run_effect(&mut self, effect: Effect) {
        match effect {
            Effect::Deliver(delivery) => self.deliver(delivery),
            Effect::DeadLetter(message) => {
                let home = self.router.home(message.destination());
                if home != self.turn.id {
                    self.queues.home.store.moves(home.bit());
                }
                self.tell(home, HomeNote::Enqueue(message, None));
            }
            Effect::Feed(queue) => {
                let replays = &mut self.queues.recorded.replays;
                replays.of_queue(queue).into_iter().for_each(|key| replays.list(key));
            }
            Effect::Unmatched(message) => self.unmatched(message),
            Effect::CreditRequest(subscriber, consumer) => {
                self.tell(subscriber.shard, ConsumerNote::CreditRequest(subscriber.key, consumer));
            }
            Effect::CreditReturn(subscriber, messages) => {
                self.tell(subscriber.shard, ConsumerNote::CreditReturn(subscriber.key, messages));
            }
            Effect::Unreadable(key, record) => self.note_unreadable(key, record),
            Effect::Timer(..) if planted!("queue-timer-lost") => {}
            Effect::Timer(at_ms, key) => self.turn.timers.set(at_ms, Due::Queue(key)),
        }
    }
}
