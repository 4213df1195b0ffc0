//! A writer on a disk that is full, that fails, or whose database somebody else writes to.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::Connection;
use tempfile::TempDir;

use super::database::Database;
use super::reader::{Reader, Request};
use super::schema::FILE;
use super::writer::Writer;
use crate::config::Fsync;
use crate::door::Directory;
use crate::ids::RecordId;
use crate::store::file::batch::{Batch, Call, Commit};
use crate::store::file::entry::{Entry, Found, Message, Salt};
use crate::store::file::inbox::Inbox;
use crate::store::{Position, Room};

/// A database whose file may have so many pages; the rest of the disk is large. The reserve is what the database itself has free.
struct Fixture {
    at: TempDir,
    inbox: Arc<Inbox>,
    writer: Writer,
    reader: Reader,
    position: Position,
    next: RecordId,
}

fn message(record: RecordId, body: &[u8]) -> Message<'_> {
    Message {
        record,
        place: record,
        queue: b"/queue/a",
        destination: b"/queue/a",
        body,
        ..Message::default()
    }
}

fn keep(record: RecordId, bytes: usize) -> Batch {
    let mut batch = Batch::default();
    batch.keep(&message(record, &vec![b'x'; bytes]));
    batch
}

fn forget(records: impl IntoIterator<Item = RecordId>) -> Batch {
    Batch { calls: records.into_iter().map(Call::Forget).collect(), ..Batch::default() }
}

/// The largest length of a file in pages.
const PAGES: i64 = 800;

impl Fixture {
    fn new() -> Self {
        let at = TempDir::new_in("/dev/shm").or_else(|_| TempDir::new()).expect("a disk with room");
        let directory = Directory::claim(at.path(), "this test").expect("nobody else uses it");
        let (database, _) = Database::open(directory, Fsync::Always, 0, |_| true).expect("a database");
        let reader = Reader::new(database.directory()).expect("a database");
        let inbox = Inbox::new(2, database.next_record(), Box::new(|_| ()));
        (0..100).for_each(|_| _ = inbox.records());
        let next = inbox.first_record();
        Fixture { at, writer: Writer::new(database, Fsync::Always), reader, inbox, position: 0, next }
    }

    fn with_pages(pages: i64) -> Self {
        let fixture = Self::new();
        fixture.writer.set_pages_max(pages);
        fixture
    }

    fn try_turn(&mut self) -> Result<bool, String> {
        let (inbox, reader) = (Arc::clone(&self.inbox), &self.reader);
        self.writer.retry_now();
        let work = inbox.take(Some(Duration::ZERO));
        self.writer
            .turn(work, &inbox, &mut |request: Request| assert_eq!(reader.answer(&[request], &inbox), 1))
    }

    fn turn(&mut self) {
        assert!(self.try_turn().expect("a disk that works"));
    }

    fn post(&mut self, shard: usize, batch: Batch) -> Position {
        self.position += 1;
        self.inbox.post(shard, batch, self.position, &mut Vec::new());
        self.position
    }

    /// Keeps a message of about a thousand bytes. Returns its record.
    fn keep(&mut self) -> RecordId {
        let record = self.next;
        self.next += 1;
        self.post(0, keep(record, 1000));
        record
    }

    /// Keeps messages, as a shard would, until there is no room. Returns their records.
    fn fill(&mut self) -> Vec<RecordId> {
        let mut kept = Vec::new();
        while self.inbox.room() != Room::Full {
            kept.extend((0..20).map(|_| self.keep()));
            self.turn();
        }
        kept
    }

    fn safe(&self, shard: usize) -> Position {
        self.inbox.safe(shard).expect("it has not failed")
    }

    /// The records that are in the database.
    fn found(&self) -> BTreeSet<RecordId> {
        let connection = Connection::open(self.at.path().join(FILE)).expect("a database");
        let mut statement = connection.prepare("SELECT record FROM messages").expect("a table");
        let records = statement.query_map([], |row| row.get::<_, i64>(0)).expect("rows");
        records.map(|record| record.expect("a number").cast_unsigned()).collect()
    }
}

#[test]
fn on_a_full_disk_nothing_is_lost_and_the_store_goes_on_once_there_is_room() {
    let mut fixture = Fixture::with_pages(PAGES);
    let mut kept = fixture.fill();
    assert!(kept.len() > 1000, "{}", kept.len());
    kept.extend((0..100).map(|_| fixture.keep()));
    fixture.turn();
    let confirmed = fixture.safe(0);
    assert!(confirmed < fixture.position);
    assert!(kept[..confirmed as usize].iter().all(|record| fixture.found().contains(record)));
    fixture.writer.set_pages_max(4 * PAGES);
    fixture.turn();
    assert_eq!((fixture.safe(0), fixture.inbox.room()), (fixture.position, Room::Free));
    assert_eq!(fixture.found(), kept.into_iter().collect());
}

#[test]
fn on_a_full_disk_acknowledgements_are_confirmed_and_make_room() {
    let mut fixture = Fixture::with_pages(PAGES);
    let mut kept = fixture.fill();
    kept.extend((0..100).map(|_| fixture.keep()));
    fixture.turn();
    assert!(fixture.safe(0) < fixture.position);
    let (dead, live): (Vec<_>, Vec<_>) = kept.iter().partition(|record| **record % 2 == 0);
    for chunk in dead.chunks(7) {
        let position = fixture.post(1, forget(chunk.iter().copied()));
        fixture.turn();
        assert_eq!(fixture.safe(1), position, "it need not wait for room");
    }
    fixture.turn();
    assert_eq!(fixture.inbox.room(), Room::Free, "half of the database is free now");
    assert_eq!(fixture.found(), live.into_iter().collect());
    assert_eq!(fixture.safe(0), kept.len() as u64, "what has waited is written");
}

#[test]
fn a_message_that_is_forgotten_while_it_waits_is_never_written() {
    let mut fixture = Fixture::with_pages(PAGES);
    let kept = fixture.fill();
    let waiting: Vec<RecordId> = (0..100).map(|_| fixture.keep()).collect();
    fixture.turn();
    let before = fixture.found();
    fixture.post(1, forget(waiting.clone()));
    fixture.turn();
    assert_eq!(fixture.safe(1), fixture.position);
    fixture.writer.set_pages_max(4 * PAGES);
    fixture.turn();
    let found = fixture.found();
    assert!(kept.iter().all(|record| found.contains(record)) && before.is_subset(&found));
    assert!(waiting.iter().all(|record| !found.contains(record)));
}

#[test]
fn a_transaction_waits_for_room_as_a_whole() {
    let mut fixture = Fixture::with_pages(PAGES);
    let kept = fixture.fill();
    let (mut batch, first) = (Batch::default(), fixture.next);
    fixture.next += 200;
    let pieces = (first..first + 200).map(|record| batch.add(&message(record, &[b'c'; 4000]))).collect();
    batch.calls.push(Call::Commit(Commit { kept: pieces, forgotten: vec![kept[0]] }));
    let position = fixture.post(0, batch);
    fixture.turn();
    assert!(fixture.safe(0) < position);
    assert!(fixture.found().contains(&kept[0]) && fixture.found().range(first..).next().is_none());
    fixture.writer.set_pages_max(4 * PAGES);
    fixture.turn();
    assert_eq!(fixture.safe(0), position);
    assert!(!fixture.found().contains(&kept[0]));
    assert_eq!(fixture.found().range(first..).count(), 200);
}

#[test]
fn a_message_that_waits_can_be_loaded() {
    let mut fixture = Fixture::with_pages(PAGES);
    fixture.fill();
    let last = (0..100).map(|_| fixture.keep()).last().expect("some");
    fixture.turn();
    assert!(!fixture.found().contains(&last));
    fixture.inbox.post(1, Batch::default(), 0, &mut vec![last]);
    fixture.turn();
    let loaded = fixture.inbox.loaded(1);
    assert!(matches!(&loaded[..], [(record, Ok(_))] if *record == last), "{loaded:?}");
}

#[test]
fn at_the_end_of_a_full_store_it_is_said_what_is_lost() {
    let mut fixture = Fixture::with_pages(PAGES);
    fixture.fill();
    (0..100).for_each(|_| _ = fixture.keep());
    fixture.turn();
    let lost = fixture.position - fixture.safe(0);
    fixture.inbox.end();
    let error = fixture.try_turn().expect_err("there is no room");
    assert_eq!(error, format!("it is full: {lost} messages that were not confirmed are lost"));
}

#[test]
fn somebody_else_who_writes_delays_the_store_and_does_not_end_it() {
    let mut fixture = Fixture::new();
    let other = Connection::open(fixture.at.path().join(FILE)).expect("a database");
    other.execute_batch("BEGIN IMMEDIATE").expect("nobody else writes");
    let record = fixture.keep();
    fixture.turn();
    assert_eq!(fixture.safe(0), 0);
    assert_eq!(fixture.inbox.room(), Room::Free, "it is not full");
    other.execute_batch("COMMIT").expect("a disk with room");
    fixture.turn();
    assert_eq!((fixture.safe(0), fixture.found()), (1, BTreeSet::from([record])));
}

#[test]
fn somebody_else_who_reads_sees_one_state_and_delays_nothing() {
    let mut fixture = Fixture::new();
    fixture.keep();
    fixture.turn();
    let other = Connection::open(fixture.at.path().join(FILE)).expect("a database");
    let count = || other.query_row("SELECT count(*) FROM messages", [], |row| row.get::<_, i64>(0));
    other.execute_batch("BEGIN").expect("it can be read");
    assert_eq!(count(), Ok(1));
    for _ in 0..3000 {
        fixture.keep();
    }
    fixture.turn();
    assert_eq!(fixture.safe(0), fixture.position);
    assert_eq!(count(), Ok(1));
    other.execute_batch("COMMIT").expect("it can be read");
    assert_eq!(count(), Ok(3001));
}

#[test]
fn a_database_that_is_damaged_ends_the_writing_with_a_clear_line() {
    let mut fixture = Fixture::new();
    (0..2000).for_each(|_| _ = fixture.keep());
    fixture.turn();
    let other = Connection::open(fixture.at.path().join(FILE)).expect("a database");
    other.execute_batch("DROP TABLE messages").expect("nobody prevents it");
    fixture.keep();
    let error = fixture.try_turn().expect_err("there is no table");
    assert!(error.contains("no such table: messages"), "{error}");
}

#[test]
fn room_that_nothing_uses_is_given_back_while_shards_are_silent() {
    let mut fixture = Fixture::new();
    let kept: Vec<RecordId> = (0..30_000).map(|_| fixture.keep()).collect();
    fixture.turn();
    let length = |fixture: &Fixture| fixture.at.path().join(FILE).metadata().expect("a file").len();
    let before = length(&fixture);
    assert!(before > 30_000_000);
    fixture.post(1, forget(kept[1000..].iter().copied()));
    fixture.turn();
    while fixture.writer.patience() == Some(Duration::ZERO) {
        fixture.turn();
    }
    assert_eq!(fixture.found(), kept[..1000].iter().copied().collect());
    assert!(length(&fixture) < before / 3, "{} of {before}", length(&fixture));
}

#[test]
fn what_was_written_is_brought_into_the_database_while_shards_write() {
    let mut fixture = Fixture::new();
    for _ in 0..100 {
        (0..1000).for_each(|_| _ = fixture.keep());
        fixture.turn();
    }
    let wal = fixture.at.path().join(format!("{FILE}-wal")).metadata().expect("a file").len();
    assert!(wal < 50_000_000, "{wal} bytes wait beside the database");
}

#[test]
fn a_reader_answers_each_request_with_its_message() {
    let mut fixture = Fixture::new();
    let records: Vec<RecordId> = (0..1000).map(|_| fixture.keep()).collect();
    fixture.turn();
    let shard = |record: RecordId| usize::from(record.is_multiple_of(7));
    let requests: Vec<_> =
        records.iter().map(|record| Request { shard: shard(*record), record: *record }).collect();
    assert_eq!(fixture.reader.answer(&requests, &fixture.inbox), 1000);
    let mut found: Vec<RecordId> = Vec::new();
    for of_shard in 0..2 {
        for (record, read) in fixture.inbox.loaded(of_shard) {
            let read = read.expect("it can be read");
            let Found::Entry(Entry::Message(message), _) = Found::at(&read, Salt::NONE) else {
                panic!("an entry")
            };
            assert_eq!((message.record, shard(record)), (record, of_shard));
            found.push(record);
        }
    }
    found.sort_unstable();
    assert_eq!(found, records);
}
