//! A shard's access to its store, and the answers that wait for it.

use std::collections::VecDeque;
use std::mem::{replace, take};

use stompica_proto::ProtocolError;

use super::{Position, Store, TransactionId};
use crate::ids::{NO_RECORD, RecordId};
use crate::message::OwnedMessage;
use crate::requester::Requester;

/// An answer that waits.
#[derive(Debug)]
struct Waiting {
    position: Position,
    requester: Requester,
    next: u64,
}

/// A store, the position behind the last call, and the answers that wait until a position is safe.
#[derive(Debug)]
pub struct Handle {
    store: Box<dyn Store>,
    is_durable: bool,
    /// Behind the last call.
    position: Position,
    /// The same at the beginning of the frame or note at hand.
    began: Position,
    /// Other shards that may tell their stores something because of the frame at hand, a bit for each.
    concerned: u64,
    /// Other shards that were sent messages which this store keeps until theirs does, a bit for each.
    moved: u64,
    /// Answers in the order of the positions that they wait for.
    waiting: VecDeque<Waiting>,
    failure: Option<ProtocolError>,
}

impl Handle {
    /// Access to this store.
    #[must_use]
    pub fn new(store: Box<dyn Store>) -> Self {
        Handle {
            is_durable: store.is_durable(),
            position: store.position(),
            began: store.position(),
            store,
            concerned: 0,
            moved: 0,
            waiting: VecDeque::new(),
            failure: None,
        }
    }

    /// Whether messages survive the end of the process.
    #[must_use]
    pub fn is_durable(&self) -> bool {
        self.is_durable
    }

    /// Keeps a message that is put into a queue, if both are to survive, and then forgets it where it was kept before.
    #[inline]
    pub fn move_to(&mut self, queue: &[u8], survives: bool, message: &mut OwnedMessage) {
        if message.persistent || message.record != NO_RECORD {
            self.move_record(queue, survives, message);
        }
    }

    fn move_record(&mut self, queue: &[u8], survives: bool, message: &mut OwnedMessage) {
        let before = replace(&mut message.record, NO_RECORD);
        if message.persistent && survives {
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
        }
    }

    /// Begins a record for one COMMIT; `None` if the store loses everything anyway.
    pub fn begin_transaction(&mut self) -> Option<TransactionId> {
        self.is_durable.then(|| self.store.begin_transaction())
    }

    /// What is kept and forgotten from now on belongs to this transaction, or to none.
    #[inline]
    pub fn enter(&mut self, transaction: Option<TransactionId>) {
        if self.is_durable {
            self.store.enter(transaction);
        }
    }

    /// The record of a transaction is complete.
    pub fn end_transaction(&mut self, transaction: TransactionId) {
        self.store.end_transaction(transaction);
        self.position = self.store.position();
    }

    /// A frame or a note begins to take effect.
    #[inline]
    pub fn begin(&mut self) {
        (self.began, self.concerned) = (self.position, 0);
    }

    /// The frame at hand began in an earlier turn: whatever the store was told meanwhile counts as its own.
    pub fn began_before(&mut self) {
        if self.is_durable {
            self.began = Position::MAX;
        }
    }

    /// Whether the frame or note at hand told the store something.
    #[inline]
    #[must_use]
    pub fn has_written(&self) -> bool {
        self.position != self.began
    }

    /// These other shards may tell their stores something because of the frame at hand.
    #[inline]
    pub fn concern(&mut self, shards: u64) {
        if self.is_durable {
            self.concerned |= shards;
        }
    }

    /// Takes out the other shards that may tell their stores something because of the frame at hand.
    #[inline]
    pub fn take_concerned(&mut self) -> u64 {
        take(&mut self.concerned)
    }

    /// Messages are on their way to these other shards, whose stores keep them before this one forgets them.
    #[inline]
    pub fn moves(&mut self, shards: u64) {
        if self.is_durable {
            self.moved |= shards;
        }
    }

    /// The other shards that messages are on their way to.
    #[must_use]
    pub fn moved(&self) -> u64 {
        self.moved
    }

    /// Nobody waits for messages that are on their way to other shards.
    #[inline]
    pub fn forget_moved(&mut self) {
        self.moved = 0;
    }

    /// Whether something is not safe yet.
    pub fn is_behind(&mut self) -> bool {
        self.is_durable && !self.store.safe().is_ok_and(|safe| safe >= self.position)
    }

    /// Whether nothing is left that may become safe, and no answer waits.
    pub fn is_settled(&mut self) -> bool {
        self.waiting.is_empty() && self.store.safe().map_or(true, |safe| safe >= self.position)
    }

    /// Lets an answer wait until everything that the store was told so far is safe; then these other shards are to be asked,
    /// a bit for each.
    pub fn hold(&mut self, requester: Requester, next: u64) {
        self.waiting.push_back(Waiting { position: self.position, requester, next });
    }

    /// Whether an answer waits.
    #[must_use]
    pub fn is_waited_for(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// The next answer that need not wait any more: success, with the shards to be asked next, or the store's failure.
    pub fn next_answer(&mut self) -> Option<(Requester, Result<u64, ProtocolError>)> {
        let position = self.waiting.front()?.position;
        if self.failure.is_none() {
            match self.store.safe() {
                Ok(safe) if safe < position => return None,
                Ok(_) => {}
                Err(failure) => self.failure = Some(failure),
            }
        }
        let Waiting { requester, next, .. } = self.waiting.pop_front()?;
        Some((requester, self.failure.clone().map_or(Ok(next), Err)))
    }

    /// The shard ends: nobody is left to be answered.
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

    /// A message that is to be kept.
    fn persistent() -> OwnedMessage {
        let destination = b"/queue/a".as_slice();
        let sent = Message { destination, id: b"i", sender: 7, headers: b"", plain: true, body: b"x" };
        let mut message = OwnedMessage::new(&sent);
        message.persistent = true;
        message
    }

    /// The tokens of the answers that need not wait, with the shards to be asked next or the failure.
    fn answers(handle: &mut Handle) -> Vec<(u64, Result<u64, String>)> {
        std::iter::from_fn(|| handle.next_answer())
            .map(|(requester, outcome)| (requester.answered().token, outcome.map_err(|error| error.detail)))
            .collect()
    }

    #[test]
    fn an_answer_waits_until_what_was_told_before_it_is_safe() {
        let journal = Journal::default();
        let mut handle = Handle::new(journal.handle());
        handle.keep(b"/queue/a", &mut persistent());
        handle.hold(requester(1), 0);
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
        let journal = Journal::default();
        let mut handle = Handle::new(journal.handle());
        handle.keep(b"/queue/a", &mut persistent());
        handle.hold(requester(1), 0);
        journal.fail();
        assert!(handle.is_behind(), "what is told to a failed store is never safe");
        assert_eq!(answers(&mut handle), [(1, Err("the store has failed".to_owned()))]);
        handle.hold(requester(2), 0);
        assert_eq!(answers(&mut handle), [(2, Err("the store has failed".to_owned()))]);
        assert!(handle.is_settled(), "a drain does not wait for what can never be safe");
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
        handle.concern(0b10);
        handle.moves(0b10);
        handle.began_before();
        assert!(!handle.has_written() && !handle.is_behind() && handle.is_settled());
        assert_eq!((handle.take_concerned(), handle.moved(), handle.begin_transaction()), (0, 0, None));
    }

    #[test]
    fn shards_are_concerned_by_one_frame_and_messages_on_their_way_count_until_nobody_waits() {
        let mut handle = Handle::new(Journal::default().handle());
        handle.concern(0b10);
        handle.concern(0b100);
        handle.moves(0b1000);
        assert_eq!(handle.take_concerned(), 0b110);
        assert_eq!(handle.take_concerned(), 0);
        handle.concern(0b10);
        handle.begin();
        assert_eq!((handle.take_concerned(), handle.moved()), (0, 0b1000));
        handle.forget_moved();
        assert_eq!(handle.moved(), 0);
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
