//! The log as one shard sees it: calls become entries at once, and are handed over at the end of the turn.

use std::collections::VecDeque;
use std::mem::take;
use std::ops::Range;
use std::sync::Arc;

use stompica_proto::ProtocolError;
use stompica_proto::encode::Message as Sent;

use super::batch::{Batch, Call, Commit};
use super::entry::{Counts, Entry, Found, Message, Salt};
use super::inbox::{Inbox, Loaded};
use crate::door::{HashMap, wall_clock_ms};
use crate::ids::{NO_RECORD, NOBODY, RecordId};
use crate::message::OwnedMessage;
use crate::store::{Position, Store, TransactionId, Unreadable};

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
    /// Records that were requested and have not been answered.
    requested: HashMap<RecordId, ()>,
    loaded: VecDeque<Loaded>,
    /// The first record of this process: senders of earlier messages are gone.
    first_record: RecordId,
    /// The broker's clock at the beginning of the turn.
    now_ms: u64,
    /// The time since 1970 at the same moment, once it was needed.
    wall_ms: Option<u64>,
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
            requested: HashMap::default(),
            loaded: VecDeque::new(),
            now_ms: 0,
            wall_ms: None,
        }
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
        (wall_ms + at_ms).saturating_sub(self.now_ms).max(1)
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
    }

    fn keep(&mut self, queue: &[u8], message: &OwnedMessage) -> RecordId {
        let record = self.next_record();
        let expires_ms = self.since_1970(message.expires_ms);
        let sent = message.message();
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
        self.current().calls.push(Call::Forget(record));
        if !self.requested.is_empty() && self.requested.remove(&record).is_some() {
            self.loaded.push_back((record, Err(Unreadable)));
        }
    }

    fn deliver(&mut self, record: RecordId, deliveries: u32, failures: u16) {
        self.batch.calls.push(Call::Deliver(record, Counts { deliveries, failures }));
    }

    fn position(&self) -> Position {
        self.position
    }

    fn safe(&mut self) -> Result<Position, ProtocolError> {
        self.inbox.safe(self.shard)
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
        self.batch.calls.push(Call::Commit(commit));
        self.position += 1;
    }

    fn end_turn(&mut self) {
        if !self.batch.is_empty() || !self.loads.is_empty() {
            // A record is never 0, which stands for none.
            debug_assert!(self.records.start > NO_RECORD);
            self.inbox.post(self.shard, take(&mut self.batch), self.position, &mut self.loads);
        }
    }

    fn load(&mut self, record: RecordId) {
        self.loads.push(record);
        self.requested.insert(record, ());
    }

    fn loaded(&mut self) -> Option<(RecordId, Result<OwnedMessage, Unreadable>)> {
        if self.loaded.is_empty() {
            let requested = &mut self.requested;
            let wanted = |(record, _): &Loaded| requested.remove(record).is_some();
            self.loaded.extend(self.inbox.loaded(self.shard).into_iter().filter(wanted));
        }
        let (record, read) = self.loaded.pop_front()?;
        let message = read.and_then(|bytes| message_of(&bytes, self.first_record).ok_or(Unreadable));
        Some((record, message))
    }

    fn pages(&self) -> bool {
        true
    }

    fn page_out(&mut self, _: &[u8], message: &OwnedMessage) -> RecordId {
        message.record
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tempfile::TempDir;

    use super::*;
    use crate::config::Fsync;
    use crate::door::Directory;
    use crate::store::file::log::Log;
    use crate::store::file::writer::Writer;

    /// A log and the handles of two shards; the test takes the turns of the log.
    struct Fixture {
        at: TempDir,
        inbox: Arc<Inbox>,
        writer: Writer,
        handles: [LogHandle; 2],
    }

    impl Fixture {
        fn new() -> Self {
            let at = TempDir::new_in("/dev/shm").or_else(|_| TempDir::new()).expect("a disk with room");
            let directory = Directory::claim(at.path(), "this test").expect("nobody else uses it");
            let (log, _) = Log::open(directory, 4096, |_, _| ()).expect("an empty log");
            let inbox = Inbox::new(2, log.next_record(), Box::new(|_| ()));
            let handles = [0, 1].map(|shard| LogHandle::new(shard, Arc::clone(&inbox)));
            Fixture { at, inbox, writer: Writer::new(log, Fsync::Always), handles }
        }

        /// The turns of both shards end, and the log writes.
        fn turn(&mut self) {
            self.handles.iter_mut().for_each(LogHandle::end_turn);
            let inbox = Arc::clone(&self.inbox);
            let work = inbox.take(Some(Duration::ZERO));
            let turn = self.writer.turn(work, &inbox, &mut |request| request.answer(&inbox));
            turn.expect("a disk that works");
        }

        /// The bodies of the messages that wait after the process has ended.
        fn reopen(self) -> Vec<(RecordId, u64)> {
            let Fixture { at, writer, .. } = self;
            drop(writer);
            let directory = Directory::claim(at.path(), "this test").expect("its last user has ended");
            let (_, recovered) = Log::open(directory, 4096, |_, _| ()).expect("a log");
            let waiting = recovered.queues.into_values().flatten();
            waiting.map(|waiting| (waiting.record, waiting.expires_ms)).collect()
        }
    }

    fn message(body: &[u8], expires_ms: u64) -> OwnedMessage {
        let sent = Sent {
            destination: b"/queue/a",
            id: b"i",
            sender: 7,
            headers: b"x:1\n",
            plain: true,
            expires_ms,
            body,
        };
        let mut owned = OwnedMessage::new(&sent);
        owned.persistent = true;
        owned
    }

    #[test]
    fn a_call_is_safe_once_the_log_has_written_it() {
        let mut fixture = Fixture::new();
        let record = fixture.handles[0].keep(b"/queue/a", &message(b"x", 0));
        let position = fixture.handles[0].position();
        assert!(position > fixture.handles[0].safe().expect("it has not failed"));
        fixture.turn();
        assert_eq!(fixture.handles[0].safe().expect("it has not failed"), position);
        // Another shard acknowledges it.
        fixture.handles[1].forget(record);
        fixture.turn();
        assert_eq!(fixture.reopen(), []);
    }

    #[test]
    fn a_message_is_loaded_as_it_was_kept() {
        let mut fixture = Fixture::new();
        let record = fixture.handles[0].keep(b"/queue/a", &message(b"hello", 0));
        fixture.handles[0].load(record);
        fixture.turn();
        let (found, loaded) = fixture.handles[0].loaded().expect("an answer");
        let loaded = loaded.expect("it can be read");
        assert_eq!((found, loaded.record, loaded.persistent), (record, record, true));
        let read = loaded.message();
        assert_eq!((read.destination, read.id, read.sender), (&b"/queue/a"[..], &b"i"[..], 7));
        assert_eq!((read.headers, read.body, read.plain), (&b"x:1\n"[..], &b"hello"[..], true));
        assert!(fixture.handles[0].loaded().is_none());
    }

    #[test]
    fn a_request_is_answered_once_even_if_its_message_is_forgotten_meanwhile() {
        let mut fixture = Fixture::new();
        let record = fixture.handles[0].keep(b"/queue/a", &message(b"x", 0));
        fixture.turn();
        fixture.handles[0].load(record);
        fixture.handles[0].forget(record);
        assert!(matches!(fixture.handles[0].loaded(), Some((found, Err(Unreadable))) if found == record));
        fixture.turn();
        assert!(fixture.handles[0].loaded().is_none());
    }

    #[test]
    fn a_transaction_is_written_when_it_is_complete() {
        let mut fixture = Fixture::new();
        let before = fixture.handles[0].keep(b"/queue/a", &message(b"x", 0));
        fixture.turn();
        let transaction = fixture.handles[0].begin_transaction();
        fixture.handles[0].enter(Some(transaction));
        let inside = fixture.handles[0].keep(b"/queue/a", &message(b"y", 0));
        fixture.handles[0].forget(before);
        fixture.handles[0].enter(None);
        let beside = fixture.handles[0].keep(b"/queue/a", &message(b"z", 0));
        fixture.turn();
        assert_eq!(fixture.writer.figures().0.messages, 2, "nothing of it has taken effect");
        fixture.handles[0].end_transaction(transaction);
        fixture.turn();
        let records: Vec<_> = fixture.reopen().into_iter().map(|(record, _)| record).collect();
        assert_eq!(records, [inside, beside]);
    }

    #[test]
    fn expiry_is_kept_as_a_time_that_the_next_process_understands() {
        let mut fixture = Fixture::new();
        fixture.handles[0].begin_turn(10_000);
        let before = wall_clock_ms();
        fixture.handles[0].keep(b"/queue/a", &message(b"x", 15_000));
        let after = wall_clock_ms();
        fixture.turn();
        let [(_, expires_ms)] = fixture.reopen()[..] else { panic!("one message") };
        assert!((before + 5_000..=after + 5_000).contains(&expires_ms));
    }
}
