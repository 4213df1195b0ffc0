//! The store double as one shard sees it.

use stompica_broker::simulated::{
    Code, NO_RECORD, OwnedMessage, Position, ProtocolError, RecordId, Store, StoreMessage,
    StoreTransactionId, Unreadable,
};

use super::{Disk, State};
use crate::events::{Change, Message, MessageId};

/// A message in the store.
#[derive(Clone, Debug)]
pub(super) struct Stored {
    /// Destination, id, headers, body.
    parts: [Vec<u8>; 4],
    sender: u64,
    plain: bool,
    persistent: bool,
    grouped: bool,
    failures_max: u16,
    /// Whether it was kept, not only paged out.
    is_kept: bool,
    pub(super) is_forgotten: bool,
}

impl Stored {
    fn of(owned: &OwnedMessage, is_kept: bool) -> Self {
        let message = owned.message();
        Stored {
            parts: [message.destination, message.id, message.headers, message.body].map(<[u8]>::to_vec),
            sender: message.sender,
            plain: message.plain,
            persistent: owned.persistent,
            grouped: owned.grouped,
            failures_max: owned.failures_max,
            is_kept,
            is_forgotten: false,
        }
    }

    fn read(&self, record: RecordId) -> OwnedMessage {
        let [destination, id, headers, body] = self.parts.each_ref().map(Vec::as_slice);
        let (sender, plain) = (self.sender, self.plain);
        let mut owned =
            OwnedMessage::new(&StoreMessage { destination, id, sender, headers, plain, expires_ms: 0, body });
        owned.persistent = self.persistent;
        owned.grouped = self.grouped;
        owned.failures_max = self.failures_max;
        owned.record = if self.is_kept { record } else { NO_RECORD };
        owned
    }

    /// The number of the message, if a client of the simulator has sent it.
    pub(super) fn number(&self) -> Option<MessageId> {
        Message::id_in(&self.parts[3])
    }
}

/// The store of one shard.
#[derive(Debug)]
pub(super) struct Handle {
    disk: Disk,
    shard: usize,
    entered: Option<StoreTransactionId>,
}

impl Handle {
    pub(super) fn new(disk: Disk, shard: usize) -> Self {
        Handle { disk, shard, entered: None }
    }

    fn change(&self, state: &mut State, change: Change) {
        let entered = self.entered.and_then(|entered| state.handles[self.shard].open.get_mut(&entered));
        match entered {
            Some(changes) => changes.push(change),
            None => state.call(self.shard, vec![change]),
        }
    }
}

impl Store for Handle {
    fn keep(&mut self, queue: &[u8], message: &OwnedMessage) -> RecordId {
        let state = &mut *self.disk.lock();
        let (record, message) = state.add(Stored::of(message, true));
        let queue = String::from_utf8_lossy(queue).into_owned();
        self.change(state, Change::Kept { record, queue, message });
        record
    }

    fn forget(&mut self, record: RecordId) {
        let state = &mut *self.disk.lock();
        let is_kept = match state.records.get_mut(&record).filter(|stored| !stored.is_forgotten) {
            Some(stored) => {
                stored.is_forgotten = true;
                stored.is_kept
            }
            None => return state.complain(format!("record {record} is forgotten, but does not exist")),
        };
        if is_kept {
            self.change(state, Change::Forgotten(record));
        } else {
            state.records.remove(&record);
        }
    }

    fn pages(&self) -> bool {
        self.disk.lock().options.pages
    }

    fn page_out(&mut self, _: &[u8], message: &OwnedMessage) -> RecordId {
        if message.record != NO_RECORD {
            return message.record;
        }
        // Some messages cannot be paged out.
        let is_refused = Message::id_in(message.message().body).is_some_and(|id| id % 16 == 0);
        if is_refused { NO_RECORD } else { self.disk.lock().add(Stored::of(message, false)).0 }
    }

    fn load(&mut self, record: RecordId) {
        let state = &mut *self.disk.lock();
        if state.records.get(&record).is_none_or(|stored| stored.is_forgotten) {
            state.complain(format!("record {record} is requested, but does not exist"));
        }
        state.handles[self.shard].requested.push(record);
    }

    fn loaded(&mut self) -> Option<(RecordId, Result<OwnedMessage, Unreadable>)> {
        let state = &mut *self.disk.lock();
        let (record, is_readable) = state.handles[self.shard].answers.pop_front()?;
        // It may have been forgotten meanwhile.
        let found = state.records.get(&record).filter(|stored| is_readable && !stored.is_forgotten);
        let Some(found) = found.cloned() else { return Some((record, Err(Unreadable))) };
        if !found.is_kept {
            state.records.remove(&record);
        }
        Some((record, Ok(found.read(record))))
    }

    fn end_turn(&mut self) {
        self.disk.lock().hand_over(self.shard);
    }

    fn position(&self) -> Position {
        self.disk.lock().handles[self.shard].position
    }

    fn safe(&mut self) -> Result<Position, ProtocolError> {
        let state = self.disk.lock();
        match state.has_failed {
            true => Err(ProtocolError::new(Code::Memory, "the store has failed")),
            false => Ok(state.handles[self.shard].safe),
        }
    }

    fn is_durable(&self) -> bool {
        self.disk.lock().options.is_durable
    }

    fn begin_transaction(&mut self) -> StoreTransactionId {
        let state = &mut *self.disk.lock();
        state.last_transaction += 1;
        state.handles[self.shard].open.insert(state.last_transaction, Vec::new());
        state.last_transaction
    }

    fn enter(&mut self, transaction: Option<StoreTransactionId>) {
        self.entered = transaction;
    }

    fn end_transaction(&mut self, transaction: StoreTransactionId) {
        let state = &mut *self.disk.lock();
        let changes = state.handles[self.shard].open.remove(&transaction).unwrap_or_default();
        if !changes.is_empty() {
            state.call(self.shard, changes);
        }
    }
}
