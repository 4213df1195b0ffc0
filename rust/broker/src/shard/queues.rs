//! Queues whose home is this shard, and notes to those of others.
//!
//! What concerns this shard's own home is done at once, without mail. What a home wants done is in `effects.rs`.

use std::sync::atomic::Ordering;

use stompica_proto::encode::Offender;
use stompica_proto::error::Code;
use stompica_proto::{ProtocolError, Version, escape};

use super::Shard;
use super::survey::ReportTo;
use crate::destination::Kind;
use crate::ids::QueueKey;
use crate::ids::ShardId;
use crate::message::OwnedMessage;
use crate::queue::QueueKind;
use crate::queue::mail::QueueMail;
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
    /// Tells a shard; what concerns this one is done at once.
    pub(crate) fn tell(&mut self, shard: ShardId, mail: QueueMail) {
        if shard == self.turn.id {
            self.read_queue_mail(shard, mail);
        } else {
            self.peers.notes[usize::from(shard.0)].push(mail);
        }
    }

    /// Tells every shard, this one included.
    pub(crate) fn tell_everyone(&mut self, mut mail: impl FnMut() -> QueueMail) {
        for shard in 0..self.shared_len() {
            self.tell(ShardId(shard as u8), mail());
        }
    }

    pub(super) fn read_queue_mail(&mut self, from: ShardId, mail: QueueMail) {
        match mail {
            QueueMail::Enqueue(stored, requester) => self.enqueue_for(stored, requester),
            QueueMail::Deliver(delivery) => self.receive(from, delivery),
            QueueMail::Progress(progress) => self.queues.home.progress(&progress),
            QueueMail::GiveBack(origin, stored, why) => {
                self.queues.home.give_back(origin.queue, origin.consumer, stored, why);
            }
            QueueMail::Attach(attach) => self.attach_here(*attach),
            QueueMail::Detach(subscriber) => self.queues.home.detach(subscriber),
            QueueMail::CreditRequest(key, consumer) => self.credit_requested(from, key, consumer),
            QueueMail::CreditGrant(consumer, messages) => self.queues.home.grant(consumer, messages),
            QueueMail::CreditRevoke(subscriber) => self.queues.home.revoke(subscriber),
            QueueMail::CreditReturn(key, messages) => self.credit_returned(key, messages),
            QueueMail::Opens(conn, token, credit) => self.open_behind(conn, token, from, credit),
            QueueMail::Applied(conn, token) => self.applied(conn, token),
            QueueMail::Refused(conn, token, refusal) => self.refused(conn, token, *refusal),
            QueueMail::RoundTrip(requester) => self.answer(requester, Ok(())),
            QueueMail::MayPass(name) => self.tell_allowance(from, &name),
            QueueMail::Passes(hash, allowance) => self.let_pass(hash, allowance, true),
            QueueMail::Stale(stored) => self.place_stale(stored),
            QueueMail::DropStale => self.drop_stale(),
            QueueMail::Replayed(key, stored, retained) => self.take_replayed(key, stored, retained),
            QueueMail::InterestAck(subscriber) => self.interest_acknowledged(subscriber),
            QueueMail::ReplayEnd(key) => self.replay_ended(from, key),
            QueueMail::ReplayPause(key) => self.replay_paused(from, key),
            QueueMail::ReplayMore(subscriber) => self.replay_more(subscriber),
            QueueMail::ReplayUnacked(subscriber) => self.answer_before_the_end(subscriber),
            QueueMail::ReplayStop(subscriber) => self.stop_replay(subscriber),
            QueueMail::Retain(stored, set, requester) => self.retain_here(stored, set, requester),
            QueueMail::Prepare(reservations, requester) => {
                let token = requester.to().token;
                self.prepare(reservations, (from, token), requester);
            }
            QueueMail::Cancel(token) => self.cancel((from, token)),
            QueueMail::Commit(messages, prepared, requester) => {
                self.settle_prepared((from, prepared), messages, requester);
            }
            QueueMail::EndDurable(name, requester, offender) => {
                let ended = self.end_durable(&name);
                self.answer(requester, ended.map_err(|error| (error, *offender)));
            }
            QueueMail::Diagnose(query, number) => {
                self.survey(query, ReportTo::Shard(from, number));
            }
            QueueMail::Diagnosed(number, report) => self.diagnosed(number, *report),
        }
        self.count_visits();
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
        let out = &mut self.peers.notes[usize::from(home.0)];
        match out.last_mut() {
            Some(QueueMail::Progress(last)) if last.is_of_same(&progress) => last.add(&progress),
            _ => out.push(QueueMail::Progress(progress)),
        }
    }
}
