//! The log as one shard sees it: calls become entries at once, and are handed over at the end of the turn.

use std::collections::VecDeque;
use std::mem::take;
use std::ops::Range;
use std::sync::Arc;

use stompica_proto::ProtocolError;
use stompica_proto::encode::Message as Sent;

use super::batch::{Batch, Call, Commit};
use super::entry::{Counts, ENTRY_BYTES_MAX, Entry, Found, Message, Salt};
use super::inbox::{Inbox, Loaded};
use crate::door::{HashMap, planted, wall_clock_ms};
use crate::ids::{NO_RECORD, NOBODY, RecordId};
use crate::message::OwnedMessage;
use crate::report::types::StoreStatus;
use crate::store::{Position, Room, Store, TransactionId, Unreadable};

/// What a message takes beside its texts and its body at most.
const MESSAGE_BYTES: usize = 128;
/// What is left of the longest entry for what a transaction forgets: millions of messages.
const COMMIT_RESERVE: usize = 256 << 20;

/// The first record of the page file. No other log ever has so many.
pub const PAGE_FILE_RECORD: RecordId = 1 << 62;

/// The handle of one shard.
#[derive(Debug)]
pub struct LogHandle {
    shard: usize,
    inbox: Arc<Inbox>,
    /// What has to be handed over.
    batch: Batch,
    loads: Vec<RecordId>,
    /// Records that nobody has used.
    records: Range<RecordId>,
    /// The number of calls.
    position: Position,
    /// Transactions that are not complete, each with a batch of its own.
    open: HashMap<TransactionId, Batch>,
    entered: Option<TransactionId>,
    last_transaction: TransactionId,
    /// The longest message of the log, and all messages of a transaction together; shorter in tests.
    entry_bytes_max: usize,
    /// Records that were requested and have not been answered.
    requested: HashMap<RecordId, ()>,
    loaded: VecDeque<Loaded>,
    /// The first record of this process: senders of earlier messages are gone.
    first_record: RecordId,
    /// The broker's clock at the beginning of the turn.
    now_ms: u64,
    /// The time since 1970 at the same moment, once it was needed.
    wall_ms: Option<u64>,
    /// Where messages are paged out that are not kept: a log that ends with the process.
    page_file: Option<Box<LogHandle>>,
}

impl LogHandle {
    /// The handle of a shard.
    #[must_use]
    pub fn new(shard: usize, inbox: Arc<Inbox>) -> Self {
        let records = inbox.records();
        LogHandle {
            shard,
            first_record: inbox.first_record(),
            inbox,
            batch: Batch::default(),
            loads: Vec::new(),
            records,
            position: 0,
            open: HashMap::default(),
            entered: None,
            last_transaction: 0,
            entry_bytes_max: ENTRY_BYTES_MAX - COMMIT_RESERVE,
            requested: HashMap::default(),
            loaded: VecDeque::new(),
            now_ms: 0,
            wall_ms: None,
            page_file: None,
        }
    }

    /// The same handle, which pages out messages that are not kept to the log of this inbox. Its records begin with
    /// [`PAGE_FILE_RECORD`].
    #[must_use]
    pub fn with_page_file(mut self, inbox: Arc<Inbox>) -> Self {
        self.page_file = Some(Box::new(LogHandle::new(self.shard, inbox)));
        self
    }

    /// Whether a message, or the messages of its transaction together, are longer than the log could read again. Such a message
    /// is not kept and has no record. A broker whose `max_message_size` and `max_transaction_size` are below 512 MiB never meets
    /// this.
    fn is_too_long(&self, queue: &[u8], sent: &Sent<'_>) -> bool {
        let parts = [queue, sent.destination, sent.id, sent.headers, sent.body];
        let own: usize = parts.iter().map(|part| part.len()).sum();
        let before = match self.entered.and_then(|entered| self.open.get(&entered)) {
            Some(transaction) => transaction.bytes.len(),
            None => 0,
        };
        before.saturating_add(own).saturating_add(MESSAGE_BYTES) > self.entry_bytes_max
    }

    /// The page file, if it has this record.
    fn page_file_of(&mut self, record: RecordId) -> Option<&mut LogHandle> {
        self.page_file.as_deref_mut().filter(|_| record >= PAGE_FILE_RECORD)
    }

    fn next_record(&mut self) -> RecordId {
        self.records.next().unwrap_or_else(|| {
            self.records = self.inbox.records();
            self.records.start += 1;
            self.records.start - 1
        })
    }

    /// A time of the broker's clock as time since 1970; 0 stays 0.
    fn since_1970(&mut self, at_ms: u64) -> u64 {
        if at_ms == 0 {
            return 0;
        }
        let wall_ms = *self.wall_ms.get_or_insert_with(wall_clock_ms);
        wall_ms.saturating_add(at_ms).saturating_sub(self.now_ms).max(1)
    }

    /// The batch that a call belongs to.
    fn current(&mut self) -> &mut Batch {
        match self.entered.and_then(|entered| self.open.get_mut(&entered)) {
            Some(batch) => batch,
            None => {
                self.position += 1;
                &mut self.batch
            }
        }
    }
}

/// The message of an entry. Its place and its expiry are set by the caller.
pub fn message_of(bytes: &[u8], first_record: RecordId) -> Option<OwnedMessage> {
    let Found::Entry(Entry::Message(stored), _) = Found::at(bytes, Salt::NONE) else { return None };
    let Message { destination, id, headers, body, plain, .. } = stored;
    let sender = if stored.record < first_record { NOBODY } else { stored.sender };
    let mut owned = OwnedMessage::new(&Sent { destination, id, sender, headers, plain, expires_ms: 0, body });
    owned.persistent = stored.persistent;
    owned.grouped = stored.grouped;
    owned.failures_max = stored.failures_max;
    owned.record = stored.record;
    (owned.deliveries, owned.failures) = (stored.counts.deliveries, stored.counts.failures);
    Some(owned)
}

impl Store for LogHandle {
    fn begin_turn(&mut self, now_ms: u64) {
        (self.now_ms, self.wall_ms) = (now_ms, None);
        if let Some(page_file) = &mut self.page_file {
            page_file.begin_turn(now_ms);
        }
    }

    fn keep(&mut self, queue: &[u8], message: &OwnedMessage) -> RecordId {
        let sent = message.message();
        if self.is_too_long(queue, &sent) {
            return NO_RECORD;
        }
        let record = self.next_record();
        let expires_ms = self.since_1970(message.expires_ms);
        self.current().keep(&Message {
            record,
            place: message.seq,
            persistent: message.persistent,
            plain: sent.plain,
            grouped: message.grouped,
            expires_ms,
            failures_max: message.failures_max,
            counts: Counts { deliveries: message.deliveries, failures: message.failures },
            sender: sent.sender,
            queue,
            destination: sent.destination,
            id: sent.id,
            headers: sent.headers,
            body: sent.body,
        });
        record
    }

    fn forget(&mut self, record: RecordId) {
        if let Some(page_file) = self.page_file_of(record) {
            return page_file.forget(record);
        }
        if self.entered.is_none() && planted!("ack-not-awaited") {
            self.batch.calls.push(Call::Forget(record));
        } else {
            self.current().calls.push(Call::Forget(record));
        }
        if !self.requested.is_empty() && self.requested.remove(&record).is_some() {
            self.loaded.push_back((record, Err(Unreadable)));
        }
    }

    fn deliver(&mut self, record: RecordId, counts: Counts) {
        self.batch.calls.push(Call::Deliver(record, counts));
    }

    fn position(&self) -> Position {
        self.position
    }

    fn safe(&mut self) -> Result<Position, ProtocolError> {
        self.inbox.safe(self.shard)
    }

    fn room(&self) -> Room {
        self.inbox.room()
    }

    fn status(&self) -> StoreStatus {
        self.inbox.status()
    }

    fn is_durable(&self) -> bool {
        true
    }

    fn begin_transaction(&mut self) -> TransactionId {
        self.last_transaction += 1;
        self.open.insert(self.last_transaction, Batch::default());
        self.last_transaction
    }

    fn enter(&mut self, transaction: Option<TransactionId>) {
        self.entered = transaction;
    }

    fn end_transaction(&mut self, transaction: TransactionId) {
        let Some(own) = self.open.remove(&transaction).filter(|own| !own.is_empty()) else { return };
        let start = self.batch.bytes.len();
        let mut commit = Commit::default();
        for call in own.calls {
            match call {
                Call::Keep(piece) => commit.kept.push(piece.moved(start)),
                Call::Forget(record) => commit.forgotten.push(record),
                other => self.batch.calls.push(other),
            }
        }
        self.batch.bytes.extend_from_slice(&own.bytes);
        if planted!("transaction-in-parts") {
            self.batch.calls.extend(commit.kept.drain(..).map(Call::Keep));
            self.end_turn();
        }
        self.batch.calls.push(Call::Commit(commit));
        self.position += 1;
    }

    fn end_turn(&mut self) {
        if !self.batch.is_empty() || !self.loads.is_empty() {
            // A record is never 0, which stands for none.
            debug_assert!(self.records.start > NO_RECORD);
            self.inbox.post(self.shard, take(&mut self.batch), self.position, &mut self.loads);
        }
        if let Some(page_file) = &mut self.page_file {
            page_file.end_turn();
        }
    }

    fn load(&mut self, record: RecordId) {
        if let Some(page_file) = self.page_file_of(record) {
            return page_file.load(record);
        }
        self.loads.push(record);
        self.requested.insert(record, ());
    }

    fn loaded(&mut self) -> Option<(RecordId, Result<OwnedMessage, Unreadable>)> {
        if self.loaded.is_empty() {
            let requested = &mut self.requested;
            let wanted = |(record, _): &Loaded| requested.remove(record).is_some();
            self.loaded.extend(self.inbox.loaded(self.shard).into_iter().filter(wanted));
        }
        let Some((record, read)) = self.loaded.pop_front() else {
            let (record, mut read) = self.page_file.as_deref_mut()?.loaded()?;
            if let Ok(message) = &mut read {
                message.record = NO_RECORD;
                self.forget(record);
            }
            return Some((record, read));
        };
        let message = read.and_then(|bytes| message_of(&bytes, self.first_record).ok_or(Unreadable));
        Some((record, message))
    }

    fn pages(&self) -> bool {
        true
    }

    fn has_room_to_page(&self) -> bool {
        self.page_file.as_ref().is_none_or(|page_file| page_file.room() != Room::Behind)
    }

    fn page_out(&mut self, queue: &[u8], message: &OwnedMessage) -> RecordId {
        match self.page_file.as_deref_mut() {
            _ if message.record != NO_RECORD => message.record,
            None => NO_RECORD,
            Some(page_file) if page_file.room() == Room::Full => NO_RECORD,
            Some(page_file) => page_file.safe().map_or(NO_RECORD, |_| page_file.keep(queue, message)),
        }
    }
}

#[cfg(test)]
#[path = "handle_tests.rs"]
mod tests;
