//! A durable store for tests: it receives the calls of its handles in any order, and the test decides when they are
//! safe.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::take;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use stompica_proto::ProtocolError;
use stompica_proto::error::Code;

use super::{DEFINITIONS, Position, Room, Store, TransactionId};
use crate::ids::RecordId;
use crate::message::OwnedMessage;

/// A call of a handle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// `keep` of a message of this queue, with this record id.
    Keep(RecordId, String),
    /// `forget` of the message with this record id.
    Forget(RecordId),
    /// The calls of one transaction, with the place of each kept message.
    Transaction(Vec<(Call, u64)>),
}

#[derive(Debug, Default)]
struct State {
    calls: Vec<Call>,
    records: RecordId,
    transactions: TransactionId,
    /// Whether calls are safe at once.
    is_fast: bool,
    /// The number of calls that are safe.
    safe: Position,
    has_failed: bool,
    room: Option<Room>,
}

/// The calls of all handles, in order.
#[derive(Clone, Debug, Default)]
pub struct Journal(Arc<Mutex<State>>);

/// One handle of the store.
#[derive(Debug)]
struct JournalHandle {
    journal: Journal,
    position: Position,
    /// The calls of incomplete transactions.
    open: BTreeMap<TransactionId, Vec<(Call, u64)>>,
    entered: Option<TransactionId>,
}

/// The messages that remain in the store after all calls.
#[derive(Debug, Default)]
pub struct Kept {
    records: BTreeSet<RecordId>,
    tombstones: BTreeSet<RecordId>,
}

impl Journal {
    /// A store whose calls are safe at once.
    pub fn fast() -> Self {
        let journal = Journal::default();
        journal.lock().is_fast = true;
        journal
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A handle of the store.
    pub fn handle(&self) -> Box<dyn Store> {
        let (journal, open) = (self.clone(), BTreeMap::new());
        Box::new(JournalHandle { journal, position: 0, open, entered: None })
    }

    /// The calls so far, without the definitions of durable subscriptions.
    pub fn calls(&self) -> Vec<Call> {
        let is_definition =
            |call: &Call| matches!(call, Call::Keep(_, queue) if queue.as_bytes() == DEFINITIONS);
        self.lock().calls.iter().filter(|call| !is_definition(call)).cloned().collect()
    }

    /// Makes all calls so far safe.
    pub fn save_all(&self) {
        let mut state = self.lock();
        state.safe = state.calls.len() as Position;
    }

    /// Makes the oldest unsafe call safe.
    pub fn save_one(&self) {
        self.lock().safe += 1;
    }

    /// Sets what the store may be told.
    pub fn set_room(&self, room: Room) {
        self.lock().room = Some(room);
    }

    /// Makes the store fail: unsafe calls never become safe.
    pub fn fail(&self) {
        self.lock().has_failed = true;
    }
}

impl JournalHandle {
    fn call(&mut self, call: Call, place: u64) {
        if let Some(open) = self.entered.and_then(|entered| self.open.get_mut(&entered)) {
            return open.push((call, place));
        }
        let mut state = self.journal.lock();
        state.calls.push(call);
        self.position = state.calls.len() as Position;
    }
}

impl Store for JournalHandle {
    fn keep(&mut self, queue: &[u8], message: &OwnedMessage) -> RecordId {
        let record = {
            let mut state = self.journal.lock();
            state.records += 1;
            state.records
        };
        self.call(Call::Keep(record, String::from_utf8_lossy(queue).into_owned()), message.seq);
        record
    }

    fn forget(&mut self, record: RecordId) {
        self.call(Call::Forget(record), 0);
    }

    fn position(&self) -> Position {
        self.position
    }

    fn safe(&mut self) -> Result<Position, ProtocolError> {
        let state = self.journal.lock();
        match state.has_failed {
            true => Err(ProtocolError::new(Code::StoreIo, "the store has failed")),
            false if state.is_fast => Ok(Position::MAX),
            false => Ok(state.safe),
        }
    }

    fn room(&self) -> Room {
        self.journal.lock().room.unwrap_or(Room::Free)
    }

    fn is_durable(&self) -> bool {
        true
    }

    fn begin_transaction(&mut self) -> TransactionId {
        let transaction = {
            let mut state = self.journal.lock();
            state.transactions += 1;
            state.transactions
        };
        self.open.insert(transaction, Vec::new());
        transaction
    }

    fn enter(&mut self, transaction: Option<TransactionId>) {
        self.entered = transaction;
    }

    fn end_transaction(&mut self, transaction: TransactionId) {
        let calls = self.open.get_mut(&transaction).map(take).unwrap_or_default();
        self.open.remove(&transaction);
        if !calls.is_empty() {
            self.call(Call::Transaction(calls), 0);
        }
    }
}

impl Kept {
    /// The messages that remain after these calls in this order.
    pub fn after<'a>(calls: impl IntoIterator<Item = &'a Call>) -> BTreeSet<RecordId> {
        let mut kept = Kept::default();
        calls.into_iter().for_each(|call| kept.apply(call));
        assert!(kept.tombstones.is_empty(), "each record was kept once");
        kept.records
    }

    fn apply(&mut self, call: &Call) {
        match call {
            Call::Keep(record, _) if !self.tombstones.remove(record) => _ = self.records.insert(*record),
            Call::Forget(record) if !self.records.remove(record) => _ = self.tombstones.insert(*record),
            Call::Transaction(calls) => calls.iter().for_each(|(call, _)| self.apply(call)),
            Call::Keep(..) | Call::Forget(_) => {}
        }
    }
}

#[test]
fn a_record_that_is_forgotten_before_it_is_kept_does_not_remain() {
    let keep = |record| Call::Keep(record, "/queue/a".to_owned());
    let calls = [keep(1), keep(2), Call::Forget(1), keep(3), Call::Forget(3)];
    let in_order = Kept::after(&calls);
    assert_eq!(in_order, BTreeSet::from([2]));
    assert_eq!(Kept::after(calls.iter().rev()), in_order);
}
