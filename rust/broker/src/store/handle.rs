//! A shard's access to its store, and the answers that wait for it.

use std::collections::VecDeque;
use std::mem::{replace, take};

use stompica_proto::ProtocolError;
use stompica_proto::error::Code;

use super::{Counts, Position, Room, Store, TransactionId, Unreadable};
#[cfg(any(test, simulated))]
use crate::audit::Audit;
use crate::door::{HashMap, planted};
#[cfg(any(test, simulated))]
use crate::ids::ConnKey;
use crate::ids::{NO_RECORD, RecordId};
use crate::message::OwnedMessage;
use crate::report::types::StoreStatus;
use crate::requester::Requester;

/// An answer that waits for the store.
#[derive(Debug)]
struct Waiting {
    position: Position,
    requester: Requester,
    next: u64,
}

/// A store, the position of its last call, and the answers that wait until a position is safe.
#[derive(Debug)]
pub struct Handle {
    store: Box<dyn Store>,
    is_durable: bool,
    /// The position after the last call.
    position: Position,
    /// The position at the beginning of the current frame or note.
    began: Position,
    /// Other shards that may call their stores because of the current frame, as bits.
    concerned: u64,
    /// Other shards that were sent messages which this store keeps until their stores keep them, as bits.
    moved: u64,
    /// The shards that were asked to answer when their stores keep the messages sent to them, as bits.
    asked: u64,
    /// Answers, in the order of the positions that they wait for.
    waiting: VecDeque<Waiting>,
    failure: Option<ProtocolError>,
    /// What an earlier process has noted of deliveries, until the messages are loaded.
    known: HashMap<RecordId, Counts>,
}

impl Handle {
    /// A handle of this store.
    #[must_use]
    pub fn new(store: Box<dyn Store>) -> Self {
        Handle {
            is_durable: store.is_durable(),
            position: store.position(),
            began: store.position(),
            store,
            concerned: 0,
            moved: 0,
            asked: 0,
            waiting: VecDeque::new(),
            failure: None,
            known: HashMap::default(),
        }
    }

    /// Whether messages survive the end of the process.
    #[must_use]
    pub fn is_durable(&self) -> bool {
        self.is_durable
    }

    /// Keeps a message that is added to a queue, if message and queue are persistent, and then forgets its previous
    /// record.
    #[inline]
    pub fn move_to(&mut self, queue: &[u8], survives: bool, message: &mut OwnedMessage) {
        if message.persistent || message.record != NO_RECORD {
            self.move_record(queue, survives, message);
        }
    }

    fn move_record(&mut self, queue: &[u8], survives: bool, message: &mut OwnedMessage) {
        let before = replace(&mut message.record, NO_RECORD);
        let is_kept = message.persistent && survives;
        if is_kept && before != NO_RECORD && planted!("old-record-forgotten-first") {
            self.forget(before);
            return self.keep(queue, message);
        }
        if is_kept {
            self.keep(queue, message);
        }
        self.forget(before);
    }

    /// Keeps a message of a queue.
    pub fn keep(&mut self, queue: &[u8], message: &mut OwnedMessage) {
        message.record = self.store.keep(queue, message);
        self.position = self.store.position();
    }

    /// Removes a record, if there is one.
    #[inline]
    pub fn forget(&mut self, record: RecordId) {
        if record != NO_RECORD {
            self.store.forget(record);
            self.position = self.store.position();
            if !self.known.is_empty() {
                self.known.remove(&record);
            }
        }
    }

    /// Notes the deliveries of a message that is kept, for the next process.
    #[inline]
    pub fn deliver(&mut self, message: &OwnedMessage) {
        if message.record != NO_RECORD {
            let counts = Counts { deliveries: message.deliveries, failures: message.failures };
            self.store.deliver(message.record, counts);
        }
    }

    /// A turn begins, at this time of the broker's clock.
    #[inline]
    pub fn begin_turn(&mut self, now_ms: u64) {
        self.store.begin_turn(now_ms);
    }

    /// Hands over the calls so far, before anything that they have caused leaves the shard.
    #[inline]
    pub fn end_turn(&mut self) {
        self.store.end_turn();
    }

    /// Whether messages can be loaded again.
    #[must_use]
    pub fn pages(&self) -> bool {
        self.store.pages()
    }

    /// See [`Store::has_room_to_page`].
    #[must_use]
    pub fn has_room_to_page(&self) -> bool {
        self.store.has_room_to_page()
    }

    /// Makes sure that a message can be loaded: see [`Store::page_out`].
    pub fn page_out(&mut self, queue: &[u8], message: &OwnedMessage) -> RecordId {
        self.store.page_out(queue, message)
    }

    /// Requests a message.
    pub fn load(&mut self, record: RecordId) {
        self.store.load(record);
    }

    /// The next message that was requested, with its record.
    pub fn loaded(&mut self) -> Option<(RecordId, Result<OwnedMessage, Unreadable>)> {
        let (record, mut loaded) = self.store.loaded()?;
        if !self.known.is_empty()
            && let Some(counts) = self.known.remove(&record)
            && let Ok(message) = &mut loaded
        {
            message.deliveries = message.deliveries.max(counts.deliveries);
            message.failures = message.failures.max(counts.failures);
        }
        Some((record, loaded))
    }

    /// The same, of a store with messages that an earlier process has delivered: as often as `known` says.
    #[must_use]
    pub fn knowing(self, known: HashMap<RecordId, Counts>) -> Self {
        Handle { known, ..self }
    }

    /// Begins the record of a COMMIT; `None` if the store is not durable.
    pub fn begin_transaction(&mut self) -> Option<TransactionId> {
        self.is_durable.then(|| self.store.begin_transaction())
    }

    /// Assigns later calls to this transaction, or to none.
    #[inline]
    pub fn enter(&mut self, transaction: Option<TransactionId>) {
        if self.is_durable && !(transaction.is_some() && planted!("commit-in-pieces")) {
            self.store.enter(transaction);
        }
    }

    /// Completes the record of a transaction.
    pub fn end_transaction(&mut self, transaction: TransactionId) {
        self.store.end_transaction(transaction);
        self.position = self.store.position();
    }

    /// Records that the handling of a frame or note begins.
    #[inline]
    pub fn begin(&mut self) {
        (self.began, self.concerned) = (self.position, 0);
    }

    /// Records that the current frame began in an earlier turn: calls since then count as its calls.
    pub fn began_before(&mut self) {
        if self.is_durable {
            self.began = Position::MAX;
        }
    }

    /// Whether the current frame or note has called the store.
    #[inline]
    #[must_use]
    pub fn has_written(&self) -> bool {
        self.position != self.began
    }

    /// Records that these other shards may call their stores because of the current frame.
    #[inline]
    pub fn add_concerned(&mut self, shards: u64) {
        if self.is_durable {
            self.concerned |= shards;
        }
    }

    /// Removes and returns the other shards that may call their stores because of the current frame.
    #[inline]
    pub fn take_concerned(&mut self) -> u64 {
        take(&mut self.concerned)
    }

    /// Records that messages were sent to these other shards, whose stores keep them before this one forgets them.
    #[inline]
    pub fn moves(&mut self, shards: u64) {
        if self.is_durable {
            self.moved |= shards;
        }
    }

    /// The other shards that messages were sent to, until their stores keep them.
    #[must_use]
    pub fn moved(&self) -> u64 {
        self.moved | self.asked
    }

    /// The shards to ask whether their stores keep the messages sent to them. All are asked together, and again only
    /// after their answer.
    #[inline]
    pub fn ask_for_moved(&mut self) -> Option<u64> {
        if self.moved == 0 || self.asked != 0 {
            return None;
        }
        self.asked = take(&mut self.moved);
        Some(self.asked)
    }

    /// The stores of the shards that were asked keep the messages, or one of them has failed.
    pub fn moved_is_saved(&mut self) {
        self.asked = 0;
    }

    /// Whether some calls are not safe yet.
    pub fn is_behind(&mut self) -> bool {
        self.is_durable && !self.store.safe().is_ok_and(|safe| safe >= self.position)
    }

    /// Whether no answer waits, and no call can still become safe, here or at shards that messages were sent to.
    pub fn is_settled(&mut self) -> bool {
        self.waiting.is_empty()
            && self.moved() == 0
            && self.store.safe().map_or(true, |safe| safe >= self.position)
    }

    /// Whether the store takes messages now, if it keeps any.
    ///
    /// # Errors
    /// `E-STORE-IO`, `E-STORE-FULL`.
    pub fn accepts(&mut self) -> Result<(), ProtocolError> {
        if !self.is_durable {
            return Ok(());
        }
        self.store.safe()?;
        match self.store.room() {
            Room::Free | Room::Behind => Ok(()),
            Room::Full => {
                Err(ProtocolError::new(Code::StoreFull, "there is no room on the disk of the store"))
            }
        }
    }

    /// Whether publishers have to pause until the store has written more.
    #[must_use]
    pub fn is_far_behind(&self) -> bool {
        self.is_durable && self.store.room() == Room::Behind
    }

    /// Whether the store has failed: nothing more will be safe.
    pub fn has_failed(&mut self) -> bool {
        self.store.safe().is_err()
    }

    /// What the store says of itself, for diagnostics.
    #[must_use]
    pub fn status(&self) -> StoreStatus {
        self.store.status()
    }

    /// Makes an answer wait until all calls so far are safe; then the shards `next` are asked, as bits.
    pub fn hold(&mut self, requester: Requester, next: u64) {
        self.waiting.push_back(Waiting { position: self.position, requester, next });
    }

    /// Whether an answer waits.
    #[must_use]
    pub fn is_waited_for(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// The next answer that is ready: success, with the shards to ask next, or the store's failure.
    pub fn next_answer(&mut self) -> Option<(Requester, Result<u64, ProtocolError>)> {
        let position = self.waiting.front()?.position;
        if self.failure.is_none() {
            match self.store.safe() {
                Ok(safe) if safe < position && !planted!("stored-receipt-early") => return None,
                Ok(_) => {}
                Err(failure) => self.failure = Some(failure),
            }
        }
        let Waiting { requester, next, .. } = self.waiting.pop_front()?;
        Some((requester, self.failure.clone().map_or(Ok(next), Err)))
    }

    /// Visits the answers that wait.
    #[cfg(any(test, simulated))]
    pub fn audit(&self, audit: &mut Audit) {
        self.waiting.iter().for_each(|waiting| audit.answer(waiting.requester.to()));
        if self.asked != 0 {
            audit.awaited(ConnKey::NONE, 0, 1);
        }
    }

    /// Drops all answers, because the shard ends.
    pub fn abandon_answers(&mut self) {
        self.waiting.drain(..).for_each(|waiting| _ = waiting.requester.answered());
    }
}

#[cfg(test)]
#[path = "handle_tests.rs"]
mod tests;
