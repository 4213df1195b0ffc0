//! A shard's access to its store, and the answers that wait for it.

use std::collections::VecDeque;
use std::mem::{replace, take};

use stompica_proto::ProtocolError;

use super::{Position, Store, TransactionId, Unreadable};
#[cfg(any(test, simulated))]
use crate::audit::Audit;
use crate::door::{HashMap, planted};
#[cfg(any(test, simulated))]
use crate::ids::ConnKey;
use crate::ids::{NO_RECORD, RecordId};
use crate::message::OwnedMessage;
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
    known: HashMap<RecordId, (u32, u16)>,
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
            self.store.deliver(message.record, message.deliveries, message.failures);
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
            && let Some((deliveries, failures)) = self.known.remove(&record)
            && let Ok(message) = &mut loaded
        {
            message.deliveries = message.deliveries.max(deliveries);
            message.failures = message.failures.max(failures);
        }
        Some((record, loaded))
    }

    /// Notes how often a message was delivered by an earlier process, and how often that has failed, until it is loaded.
    pub fn remember(&mut self, record: RecordId, counts: (u32, u16)) {
        self.known.insert(record, counts);
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
    /// `E-STORE-IO`.
    pub fn accepts(&mut self) -> Result<(), ProtocolError> {
        if self.is_durable { self.store.accepts() } else { Ok(()) }
    }

    /// Whether the store has failed: nothing more will be safe.
    pub fn has_failed(&mut self) -> bool {
        self.store.safe().is_err()
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
mod tests {
    use stompica_proto::encode::Message;

    use super::*;
    use crate::ids::{ConnKey, ShardId};
    use crate::requester::AnswerTo;
    use crate::store::Memory;
    use crate::store::double::{Call, Journal};

    fn requester(token: u64) -> Requester {
        AnswerTo { shard: ShardId(0), conn: ConnKey::NONE, token, awaited: true }.requester()
    }

    /// A persistent message.
    fn persistent() -> OwnedMessage {
        let destination = b"/queue/a".as_slice();
        let sent = Message {
            destination,
            id: b"i",
            sender: 7,
            headers: b"",
            plain: true,
            expires_ms: 0,
            body: b"x",
        };
        let mut message = OwnedMessage::new(&sent);
        message.persistent = true;
        message
    }

    /// The tokens of the answers that are ready, with the shards to ask next or the failure.
    fn answers(handle: &mut Handle) -> Vec<(u64, Result<u64, String>)> {
        std::iter::from_fn(|| handle.next_answer())
            .map(|(requester, outcome)| (requester.answered().token, outcome.map_err(|error| error.detail)))
            .collect()
    }

    /// A store that has not saved a message yet, for which the requester with token 1 waits.
    fn with_waiting() -> (Journal, Handle) {
        let journal = Journal::default();
        let mut handle = Handle::new(journal.handle());
        handle.keep(b"/queue/a", &mut persistent());
        handle.hold(requester(1), 0);
        (journal, handle)
    }

    #[test]
    fn an_answer_waits_until_earlier_calls_are_safe() {
        let (journal, mut handle) = with_waiting();
        handle.keep(b"/queue/a", &mut persistent());
        handle.hold(requester(2), 0b100);
        handle.hold(requester(3), 0);
        assert!(answers(&mut handle).is_empty() && handle.is_behind());
        journal.save_one();
        assert_eq!(answers(&mut handle), [(1, Ok(0))]);
        assert!(handle.is_behind() && !handle.is_settled());
        journal.save_one();
        assert_eq!(answers(&mut handle), [(2, Ok(0b100)), (3, Ok(0))]);
        assert!(!handle.is_behind() && handle.is_settled() && !handle.is_waited_for());
    }

    #[test]
    fn a_failed_store_answers_everything_with_its_failure() {
        let (journal, mut handle) = with_waiting();
        journal.fail();
        assert!(handle.is_behind(), "calls of a failed store are never safe");
        assert_eq!(answers(&mut handle), [(1, Err("the store has failed".to_owned()))]);
        handle.hold(requester(2), 0);
        assert_eq!(answers(&mut handle), [(2, Err("the store has failed".to_owned()))]);
        assert!(handle.is_settled(), "a drain does not wait for calls that can never be safe");
    }

    #[test]
    fn only_calls_since_the_beginning_of_a_frame_count_as_its_own() {
        let mut handle = Handle::new(Journal::default().handle());
        handle.begin();
        assert!(!handle.has_written());
        handle.keep(b"/queue/a", &mut persistent());
        assert!(handle.has_written());
        handle.begin();
        assert!(!handle.has_written() && handle.is_behind());
        handle.began_before();
        assert!(handle.has_written(), "it began in an earlier turn");
    }

    #[test]
    fn a_moved_message_is_kept_at_its_new_place_before_it_is_forgotten_at_the_old_one() {
        let journal = Journal::default();
        let mut handle = Handle::new(journal.handle());
        let mut message = persistent();
        handle.move_to(b"/queue/a", true, &mut message);
        handle.move_to(b"/queue/b", true, &mut message);
        handle.move_to(b"/temp-queue/c", false, &mut message);
        assert_eq!(message.record, NO_RECORD);
        let keep = |record, name: &str| Call::Keep(record, name.to_owned());
        let calls = [keep(1, "/queue/a"), keep(2, "/queue/b"), Call::Forget(1), Call::Forget(2)];
        assert_eq!(journal.calls(), calls);
    }

    #[test]
    fn a_store_in_memory_is_never_behind_and_asks_no_other_shards() {
        let mut handle = Handle::new(Box::new(Memory));
        handle.begin();
        handle.move_to(b"/queue/a", true, &mut persistent());
        handle.add_concerned(0b10);
        handle.moves(0b10);
        handle.began_before();
        assert!(!handle.has_written() && !handle.is_behind() && handle.is_settled());
        assert_eq!((handle.take_concerned(), handle.moved(), handle.begin_transaction()), (0, 0, None));
    }

    #[test]
    fn concerned_shards_are_reset_by_each_frame() {
        let mut handle = Handle::new(Journal::default().handle());
        handle.add_concerned(0b10);
        handle.add_concerned(0b100);
        assert_eq!(handle.take_concerned(), 0b110);
        assert_eq!(handle.take_concerned(), 0);
        handle.add_concerned(0b10);
        handle.begin();
        assert_eq!(handle.take_concerned(), 0);
    }

    #[test]
    fn shards_that_messages_were_sent_to_are_asked_together_and_again_after_their_answer() {
        let mut handle = Handle::new(Journal::default().handle());
        assert_eq!(handle.ask_for_moved(), None);
        handle.moves(0b10);
        handle.moves(0b100);
        assert_eq!(handle.ask_for_moved(), Some(0b110));
        handle.moves(0b1000);
        assert_eq!((handle.ask_for_moved(), handle.moved()), (None, 0b1110));
        handle.moved_is_saved();
        assert_eq!((handle.moved(), handle.is_settled()), (0b1000, false));
        assert_eq!(handle.ask_for_moved(), Some(0b1000));
        handle.moved_is_saved();
        assert!(handle.moved() == 0 && handle.is_settled());
    }

    #[test]
    fn answers_of_a_shard_that_ends_are_abandoned_not_lost() {
        let mut handle = Handle::new(Journal::default().handle());
        handle.keep(b"/queue/a", &mut persistent());
        handle.hold(requester(1), 0);
        handle.abandon_answers();
        assert!(!handle.is_waited_for() && crate::requester::take_lost() == 0);
    }
}
