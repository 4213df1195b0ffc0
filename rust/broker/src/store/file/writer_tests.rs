use std::sync::{Arc, Mutex};
use std::thread;

use stompica_proto::ProtocolError;
use tempfile::TempDir;

use super::*;
use crate::door::Directory;
use crate::ids::RecordId;
use crate::store::Position;
use crate::store::Unreadable;
use crate::store::file::entry::{Entry, Found, Message, Salt};

/// A log in a directory of its own, without a thread: the test takes its turns.
struct Fixture {
    at: TempDir,
    inbox: Arc<Inbox>,
    writer: Writer,
    woken: Arc<Mutex<Vec<usize>>>,
}

impl Fixture {
    fn new(fsync: Fsync) -> Self {
        let at = TempDir::new_in("/dev/shm").or_else(|_| TempDir::new()).expect("a disk with room");
        let directory = Directory::claim(at.path(), "this test").expect("nobody else uses it");
        let (log, _) = Log::open(directory, 4096, |_, _| true).expect("an empty log");
        let woken: Arc<Mutex<Vec<usize>>> = Arc::default();
        let note = Arc::clone(&woken);
        let wake = Box::new(move |shard| note.lock().expect("no panic").push(shard));
        let inbox = Inbox::new(2, log.next_record(), wake);
        _ = inbox.records(); // 256 to 511
        Fixture { at, inbox, writer: Writer::new(log, fsync), woken }
    }

    /// A turn with everything that has arrived. Returns whether the log goes on.
    fn turn(&mut self) -> bool {
        let inbox = Arc::clone(&self.inbox);
        let work = inbox.take(Some(Duration::ZERO));
        self.writer
            .turn(work, &inbox, &mut |request: Request| request.answer(&inbox))
            .expect("a disk that works")
    }

    fn post(&self, shard: usize, batch: Batch, position: Position, loads: &[RecordId]) {
        self.inbox.post(shard, batch, position, &mut loads.to_vec());
    }

    fn safe(&self, shard: usize) -> Position {
        self.inbox.safe(shard).expect("it has not failed")
    }

    /// What was read for a shard: each record with its body.
    fn loaded(&self, shard: usize) -> Vec<(RecordId, Result<Vec<u8>, Unreadable>)> {
        let body = |bytes: Vec<u8>| match Found::at(&bytes, Salt::NONE) {
            Found::Entry(Entry::Message(message), _) => message.body.to_vec(),
            other => panic!("{other:?}"),
        };
        self.inbox.loaded(shard).into_iter().map(|(record, read)| (record, read.map(body))).collect()
    }
}

fn keep(record: RecordId, body: &[u8]) -> Batch {
    let mut batch = Batch::default();
    batch.keep(&Message { record, queue: b"/queue/a", destination: b"/queue/a", body, ..Message::default() });
    batch
}

fn forget(record: RecordId) -> Batch {
    Batch { calls: vec![Call::Forget(record)], ..Batch::default() }
}

#[test]
fn what_a_shard_told_is_safe_after_a_turn_and_the_shard_is_woken() {
    let mut fixture = Fixture::new(Fsync::Always);
    fixture.post(1, keep(256, b"x"), 1, &[]);
    fixture.post(0, keep(512, b"y"), 7, &[]);
    assert_eq!((fixture.safe(0), fixture.safe(1)), (0, 0));
    assert!(fixture.turn());
    assert_eq!((fixture.safe(0), fixture.safe(1)), (7, 1));
    assert_eq!(*fixture.woken.lock().expect("no panic"), [0, 1]);
    let (figures, _) = fixture.writer.figures();
    assert_eq!((figures.groups, figures.syncs, figures.messages), (1, 1, 2), "one group for both");
}

#[test]
fn diagnostics_show_what_a_turn_has_done_and_the_state() {
    let mut fixture = Fixture::new(Fsync::Always);
    fixture.turn();
    let before = fixture.inbox.status();
    assert_eq!((before.state, &*before.reason, before.figures.messages), ("ready", "", 0));
    assert_eq!((before.figures.disk_bytes, before.figures.reserve_bytes), (4096, 2 * 4096), "spare files");
    fixture.post(0, keep(256, b"x"), 1, &[]);
    assert!(fixture.inbox.status().figures.unwritten_bytes > 0);
    fixture.turn();
    let status = fixture.inbox.status();
    assert_eq!((status.figures.groups, status.figures.syncs, status.sync.count), (1, 1, 1));
    assert_eq!((status.figures.messages, status.figures.segments, status.figures.unwritten_bytes), (1, 1, 0));
    assert!(status.figures.needed_bytes > 0 && status.figures.written_bytes > status.figures.needed_bytes);
    assert_eq!(status.figures, fixture.inbox.figures());
    fixture.inbox.set_unwritten_max(0);
    fixture.post(0, keep(257, b"y"), 2, &[]);
    assert_eq!(fixture.inbox.status().state, "behind");
    fixture.inbox.set_full(true);
    assert_eq!(fixture.inbox.status().state, "full");
    fixture.inbox.fail(ProtocolError::new(stompica_proto::error::Code::StoreIo, "it is broken"));
    let failed = fixture.inbox.status();
    assert_eq!((failed.state, &*failed.reason), ("read-only", "it is broken"));
}

#[test]
fn without_syncs_a_written_group_counts_as_safe() {
    let mut fixture = Fixture::new(Fsync::Never);
    fixture.post(0, keep(256, b"x"), 1, &[]);
    fixture.turn();
    assert_eq!((fixture.safe(0), fixture.writer.figures().0.syncs), (1, 0));
    fixture.inbox.end();
    assert!(!fixture.turn());
    assert_eq!(fixture.writer.figures().0.syncs, 2, "the end is in order, and a last group says so");
}

#[test]
fn an_interval_bounds_the_time_until_a_sync() {
    let mut fixture = Fixture::new(Fsync::Interval(Duration::from_secs(3600)));
    fixture.post(0, keep(256, b"x"), 1, &[]);
    fixture.turn();
    assert_eq!((fixture.safe(0), fixture.writer.figures().0.syncs), (1, 0));
    assert!(fixture.writer.patience().is_some_and(|patience| patience > Duration::from_secs(3000)));
    fixture.writer.fsync = Fsync::Interval(Duration::ZERO);
    assert_eq!(fixture.writer.patience(), Some(Duration::ZERO));
    fixture.turn();
    assert_eq!(fixture.writer.figures().0.syncs, 1);
}

#[test]
fn messages_are_read_again_also_those_that_come_with_the_request_or_later() {
    let mut fixture = Fixture::new(Fsync::Always);
    let long = vec![b'l'; 100_000];
    fixture.post(0, keep(256, b"x"), 1, &[256]);
    fixture.post(1, Batch::default(), 0, &[257]);
    fixture.turn();
    assert_eq!(fixture.loaded(0), [(256, Ok(b"x".to_vec()))]);
    assert_eq!(fixture.loaded(1), [], "it has not come");
    fixture.post(0, keep(257, &long), 2, &[]);
    fixture.turn();
    assert_eq!(fixture.loaded(1), [(257, Ok(long))]);
}

#[test]
fn nobody_waits_for_what_was_forgotten_before_it_came() {
    let mut fixture = Fixture::new(Fsync::Always);
    fixture.post(0, Batch::default(), 0, &[256]);
    fixture.turn();
    fixture.post(0, forget(256), 1, &[]);
    fixture.turn();
    assert!(fixture.writer.early.is_empty());
    fixture.post(1, keep(256, b"x"), 1, &[]);
    fixture.turn();
    assert_eq!(fixture.loaded(0), [(256, Err(Unreadable))]);
    assert_eq!(fixture.writer.figures().0.messages, 0);
}

#[test]
fn segments_are_replaced_while_shards_write_and_while_they_are_silent() {
    let mut fixture = Fixture::new(Fsync::Always);
    for record in 256..2000 {
        fixture.post(0, keep(record, b"some body"), record * 2, &[]);
        fixture.turn();
        if record % 50 != 0 {
            fixture.post(0, forget(record), record * 2 + 1, &[]);
            fixture.turn();
        }
    }
    while fixture.writer.patience() == Some(Duration::ZERO) {
        fixture.turn();
    }
    let (figures, lost) = fixture.writer.figures();
    assert_eq!((figures.messages, lost), (34, 0));
    assert!(figures.disk_bytes <= 2 * figures.needed_bytes + 3 * 4096, "{figures:?}");
    fixture.post(0, Batch::default(), 0, &[1950]);
    fixture.turn();
    assert_eq!(fixture.loaded(0), [(1950, Ok(b"some body".to_vec()))]);
}

#[test]
fn a_failure_is_told_to_all_shards_and_never_taken_back() {
    let fixture = Fixture::new(Fsync::Always);
    let failure = |text: &str| ProtocolError::new(stompica_proto::error::Code::Memory, text);
    fixture.inbox.fail(failure("first"));
    fixture.inbox.fail(failure("second"));
    fixture.inbox.set_safe(1, 9);
    for shard in 0..2 {
        assert_eq!(fixture.inbox.safe(shard).expect_err("it has failed").detail, "first");
    }
}

#[test]
fn a_thread_works_until_the_end_and_leaves_a_complete_log() {
    let Fixture { at, inbox, mut writer, .. } = Fixture::new(Fsync::Always);
    let log = {
        let inbox = Arc::clone(&inbox);
        thread::spawn(move || writer.run(&inbox, &mut |_| ()).map(|()| writer.figures().0))
    };
    let shards: Vec<_> = (0..2)
        .map(|shard| {
            let inbox = Arc::clone(&inbox);
            thread::spawn(move || {
                let mut position = 0;
                for _ in 0..4 {
                    for record in inbox.records() {
                        position += 1;
                        inbox.post(shard, keep(record, b"x"), position, &mut Vec::new());
                    }
                }
            })
        })
        .collect();
    shards.into_iter().for_each(|shard| shard.join().expect("no panic"));
    inbox.end();
    let figures = log.join().expect("no panic").expect("a disk that works");
    assert_eq!(figures.messages, 2 * 4 * 256);
    assert!(figures.syncs <= figures.groups + figures.segments, "{figures:?}");
    let directory = Directory::claim(at.path(), "this test").expect("its last user has ended");
    let (_, recovered) = Log::open(directory, 4096, |_, _| true).expect("a log");
    assert_eq!(recovered.queues[&b"/queue/a"[..]].len(), 2 * 4 * 256);
}

#[test]
fn a_failed_log_does_not_collect_what_it_will_never_write() {
    let mut fixture = Fixture::new(Fsync::Always);
    fixture.post(0, keep(256, b"x"), 1, &[]);
    fixture.turn();
    let inbox = Arc::clone(&fixture.inbox);
    inbox.fail(ProtocolError::new(stompica_proto::error::Code::StoreIo, "it has failed"));
    // A message that is delivered again and again, since its consumer does not acknowledge it.
    for deliveries in 2..10_000 {
        let counts = crate::store::file::entry::Counts { deliveries, failures: 0 };
        let batch = Batch { calls: vec![Call::Deliver(256, counts)], ..Batch::default() };
        fixture.post(0, batch, 1, &[]);
    }
    inbox.end();
    fixture.writer.serve_reads(&inbox, &mut |_| ());
    let left = fixture.writer.waiting.batches().count();
    assert!(left < 100, "{left} batches are kept although nothing will ever take them");
}
