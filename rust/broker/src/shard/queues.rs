//! Queues whose home is this shard, and notes to those of others.
//!
//! What concerns this shard's own home is done at once, without mail. What a home wants done is in `effects.rs`.

use std::sync::atomic::Ordering;

use stompica_proto::encode::Offender;
use stompica_proto::error::Code;
use stompica_proto::{ProtocolError, Version, escape};

use super::Shard;
use crate::destination::Kind;
use crate::diag::survey::ReportTo;
use crate::ids::QueueKey;
use crate::ids::ShardId;
use crate::message::OwnedMessage;
use crate::queue::QueueKind;
use crate::queue::mail::{
    AnswerNote, ConsumerNote, DiagnosticsNote, HomeNote, MemoryNote, Note, ReplayNote, TransactionNote,
};
use crate::queue::types::{Progress, Refusal};
use crate::requester::Requester;
use crate::router::Destination;

/// The ERROR for a message that a queue does not take.
fn refused(refusal: Refusal) -> ProtocolError {
    let Refusal::Full(text) = refusal;
    ProtocolError::new(Code::QueueFull, text)
}

/// What an ERROR tells about a SEND that was refused after it had been taken.
pub(super) fn describe(stored: &OwnedMessage) -> Offender {
    let message = stored.message();
    Offender { receipt: None, subscription: None, head: head_of_send(message.destination, message.headers) }
}

/// Its first lines, but for those that only the broker reads.
pub(super) fn head_of_send(destination: &[u8], headers: &[u8]) -> Vec<u8> {
    let mut head = b"SEND\ndestination:".to_vec();
    escape::escape_into(&mut head, destination, Version::V1_2);
    head.push(b'\n');
    head.extend_from_slice(headers);
    head
}

impl Shard {
    /// Tells a shard. The home of this one acts at once; what leads to its connections waits for [`Shard::settle`].
    pub(crate) fn tell(&mut self, shard: ShardId, note: impl Into<Note>) {
        let note = note.into();
        if shard == self.turn.id && note.is_for_home() {
            self.read_note(shard, note);
        } else {
            self.notes.tell(shard, note);
        }
    }

    /// Tells every shard, this one included.
    pub(crate) fn tell_everyone<N: Into<Note>>(&mut self, mut note: impl FnMut() -> N) {
        for shard in 0..self.shared_len() {
            self.tell(ShardId(shard as u8), note());
        }
    }

    /// Acts on what connections have left to do, and on what waits for this shard, until nothing is left: runs after every
    /// frame, note, job and deadline.
    pub(crate) fn settle(&mut self) {
        loop {
            while let Some(effect) = self.connections.effects.pop_front() {
                self.carry_out_for_connection(effect);
            }
            let Some(note) = self.notes.next_local() else { break };
            self.read_note(self.turn.id, note);
        }
    }

    /// Answers a frame; see [`Notes::answer`](crate::queue::notes::Notes::answer).
    pub(super) fn answer(&mut self, requester: Requester, outcome: Result<(), (ProtocolError, Offender)>) {
        self.notes.answer(requester, outcome);
    }

    pub(super) fn read_note(&mut self, from: ShardId, note: Note) {
        match note {
            Note::Home(note) => self.read_home_note(note),
            Note::Consumer(note) => self.read_consumer_note(from, note),
            Note::Answer(note) => self.read_answer_note(note),
            Note::Replay(note) => self.read_replay_note(note),
            Note::Transaction(note) => self.read_transaction_note(from, note),
            Note::Memory(MemoryNote::MayPass(name)) => self.tell_allowance(from, &name),
            Note::Memory(MemoryNote::Passes(hash, allowance)) => self.let_pass(hash, allowance, true),
            Note::Diagnostics(DiagnosticsNote::Diagnose(query, number)) => {
                self.survey(query, ReportTo::Shard(from, number));
            }
            Note::Diagnostics(DiagnosticsNote::Diagnosed(number, report)) => self.diagnosed(number, *report),
        }
        self.count_visits();
    }

    fn read_home_note(&mut self, note: HomeNote) {
        match note {
            HomeNote::Enqueue(stored, requester) => self.enqueue_for(stored, requester),
            HomeNote::Progress(progress) => self.queues.home.progress(&progress),
            HomeNote::GiveBack(origin, stored, why) => {
                self.queues.home.give_back(origin.queue, origin.consumer, stored, why);
            }
            HomeNote::Attach(attach) => self.attach_here(*attach),
            HomeNote::Detach(subscriber) => self.queues.home.detach(subscriber),
            HomeNote::EndDurable(name, requester, offender) => {
                let ended = self.end_durable(&name);
                self.answer(requester, ended.map_err(|error| (error, *offender)));
            }
            HomeNote::CreditGrant(consumer, messages) => self.queues.home.grant(consumer, messages),
            HomeNote::CreditRevoke(subscriber) => self.queues.home.revoke(subscriber),
            HomeNote::Stale(stored) => self.place_stale(stored),
            HomeNote::DropStale => self.drop_stale(),
            HomeNote::Retain(stored, set, requester) => self.retain_here(stored, set, requester),
        }
    }

    fn read_consumer_note(&mut self, from: ShardId, note: ConsumerNote) {
        match note {
            ConsumerNote::Deliver(delivery) => self.receive(from, delivery),
            ConsumerNote::CreditRequest(key, consumer) => self.credit_requested(from, key, consumer),
            ConsumerNote::CreditReturn(key, messages) => self.credit_returned(key, messages),
            ConsumerNote::Opens(conn, token, credit) => self.open_behind(conn, token, from, credit),
            ConsumerNote::Replayed(key, stored, retained) => self.take_replayed(key, stored, retained),
            ConsumerNote::ReplayPause(key) => self.replay_paused(from, key),
            ConsumerNote::ReplayEnd(key) => self.replay_ended(from, key),
        }
    }

    fn read_answer_note(&mut self, note: AnswerNote) {
        match note {
            AnswerNote::Applied(conn, token) => self.applied(conn, token),
            AnswerNote::Refused(conn, token, refusal) => self.refused(conn, token, *refusal),
            AnswerNote::RoundTrip(requester) => self.answer(requester, Ok(())),
        }
    }

    fn read_replay_note(&mut self, note: ReplayNote) {
        match note {
            ReplayNote::InterestAck(subscriber) => self.interest_acknowledged(subscriber),
            ReplayNote::More(subscriber) => self.replay_more(subscriber),
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
            TransactionNote::Commit(messages, prepared, requester) => {
                self.settle_prepared((from, prepared), messages, requester);
            }
        }
    }

    /// The queue that messages to a name go to, made if need be, with room for `count` of `bytes` in all. `None`: the
    /// name has no queue and gets none, so the message has nowhere to go.
    ///
    /// # Errors
    /// `E-QUEUE-FULL`, `E-DEST-COUNT`.
    pub(super) fn queue_for(
        &mut self,
        name: &[u8],
        count: u64,
        bytes: u64,
    ) -> Result<Option<QueueKey>, ProtocolError> {
        let destination = self.destination(name)?;
        self.queue_at(destination, name, count, bytes)
    }

    /// The same for a name that was looked up.
    fn queue_at(
        &mut self,
        destination: Destination,
        name: &[u8],
        count: u64,
        bytes: u64,
    ) -> Result<Option<QueueKey>, ProtocolError> {
        let kind = destination.kind;
        let cached = self.router.queue_of(destination).filter(|key| self.queues.home.queue(*key).is_some());
        let key = match cached.or_else(|| self.queues.home.find(name)) {
            Some(key) => key,
            None => match kind {
                Kind::Queue => self.create_queue(name, QueueKind::Work)?,
                Kind::WorkerTopic if self.queues.home.has_patterns() => {
                    self.create_queue(name, QueueKind::Worker)?
                }
                _ => return Ok(None),
            },
        };
        if cached.is_none() {
            self.router.set_queue(destination, key);
        }
        if kind == Kind::Queue {
            self.queues.home.check_room(key, count, bytes).map_err(refused)?;
        }
        Ok(Some(key))
    }

    /// Makes a queue.
    ///
    /// # Errors
    /// `E-DEST-COUNT`.
    pub(crate) fn create_queue(&mut self, name: &[u8], kind: QueueKind) -> Result<QueueKey, ProtocolError> {
        self.count_queues();
        // Counted before it is made: another home may make one at the same moment.
        let others = self.turn.totals.queues.fetch_add(1, Ordering::Relaxed);
        if self.router.is_at_limit(others) {
            self.turn.totals.queues.fetch_sub(1, Ordering::Relaxed);
            return Err(self.router.too_many());
        }
        self.queues.counted += 1;
        let key = self.queues.home.create(name, kind);
        if kind == QueueKind::Worker {
            self.hold_behind_stale(key);
        }
        Ok(key)
    }

    /// Brings the number of this home's queues into the broker's count.
    pub(crate) fn count_queues(&mut self) {
        let (now, before) = (self.queues.home.named(), self.queues.counted);
        if now != before {
            self.turn.totals.queues.fetch_add(now.wrapping_sub(before), Ordering::Relaxed);
            self.queues.counted = now;
        }
    }

    pub(crate) fn queues_everywhere(&self) -> usize {
        self.turn.totals.queues.load(Ordering::Relaxed)
    }

    /// Puts a message into the queue it names, here.
    ///
    /// # Errors
    /// `E-QUEUE-FULL`, `E-DEST-COUNT`, with the message.
    pub(crate) fn enqueue_here(&mut self, stored: OwnedMessage) -> Result<(), (ProtocolError, OwnedMessage)> {
        match self.destination(stored.destination()) {
            Ok(destination) => self.enqueue_at(stored, destination),
            Err(error) => Err((error, stored)),
        }
    }

    /// The same for a message whose destination was looked up.
    ///
    /// # Errors
    /// `E-QUEUE-FULL`, `E-DEST-COUNT`, with the message.
    pub(crate) fn enqueue_at(
        &mut self,
        mut stored: OwnedMessage,
        destination: Destination,
    ) -> Result<(), (ProtocolError, OwnedMessage)> {
        match self.queue_at(destination, stored.destination(), 1, stored.size() as u64) {
            Ok(Some(key)) => {
                if stored.grouped {
                    self.warn_of_grouping(key);
                }
                if stored.seq == 0 && destination.kind == Kind::WorkerTopic {
                    stored.seq = self.queues.stale.next_arrival();
                }
                self.queues.home.enqueue(key, stored);
            }
            Ok(None) => self.unmatched(stored),
            Err(error) => return Err((error, stored)),
        }
        self.count_visits();
        Ok(())
    }

    /// Tells once that a group's messages go to any consumer.
    #[cold]
    fn warn_of_grouping(&mut self, key: QueueKey) {
        let found = self.queues.home.queue(key).filter(|queue| self.queues.home.consumers_of(queue) > 1);
        if let Some(name) = found.map(|queue| String::from_utf8_lossy(&queue.name).into_owned())
            && self.turn.totals.grouping.is_first()
        {
            self.turn.log(crate::log::Level::Warn, || {
                format!(
                    "JMSXGroupID was asked for on '{name}', which has several consumers: groups are not built \
                     yet, its messages are shared out like others"
                )
            });
        }
    }

    fn enqueue_for(&mut self, stored: OwnedMessage, requester: Option<Requester>) {
        let outcome = self.enqueue_here(stored);
        match (outcome, requester) {
            (outcome, Some(requester)) => {
                self.answer(requester, outcome.map_err(|(error, stored)| (error, describe(&stored))));
            }
            (outcome, None) => self.drop_refused(outcome),
        }
    }

    /// A message that no queue has room for, and whose sender does not wait for an answer, is dropped.
    pub(super) fn drop_refused(&mut self, outcome: Result<(), (ProtocolError, OwnedMessage)>) {
        if let Err((error, stored)) = outcome {
            self.turn.counters.dropped += 1;
            let name = String::from_utf8_lossy(stored.destination()).into_owned();
            self.turn.log(crate::log::Level::Warn, || format!("a message to '{name}' is dropped: {error}"));
        }
    }

    /// Puts messages of a transaction into their queues; room was kept for them.
    pub(super) fn enqueue_all(&mut self, messages: Vec<OwnedMessage>) {
        for stored in messages {
            self.enqueue_for(stored, None);
        }
    }

    /// A message that no queue takes: it is held while `TTL` allows, or dropped.
    pub(super) fn unmatched(&mut self, stored: OwnedMessage) {
        if self.router.kind(stored.destination()) == Kind::WorkerTopic {
            match self.queues.home.find(stored.destination()) {
                // Somebody has come since: nobody else would bring it to them.
                Some(queue) if self.queues.home.is_consumed(queue) => {
                    let outcome = self.enqueue_here(stored);
                    self.drop_refused(outcome);
                }
                _ => self.hold_stale(stored),
            }
        } else {
            // A temporary queue that went with its owner.
            self.turn.counters.unmatched += 1;
        }
    }

    /// Notes that messages were consumed or written; consecutive notes about one consumer are one.
    pub(super) fn report(&mut self, home: ShardId, progress: Progress) {
        if home == self.turn.id {
            return self.queues.home.progress(&progress);
        }
        self.notes.report(home, progress);
    }
}
