use std::os::unix::fs::FileExt as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tempfile::TempDir;

use super::*;
use crate::config::Fsync;
use crate::door::Directory;
use crate::store::file::batch::Batch;
use crate::store::file::entry::{Message, Salt};
use crate::store::file::inbox::Loaded;
use crate::store::file::log::Log;
use crate::store::file::writer::Writer;

/// A log that has messages with these bodies, their records counted from 256, and the shards that it has woken.
struct Fixture {
    at: TempDir,
    inbox: Arc<Inbox>,
    writer: Writer,
    woken: Arc<Mutex<Vec<usize>>>,
}

fn keep(record: RecordId, body: &[u8]) -> Batch {
    let mut batch = Batch::default();
    batch.keep(&Message { record, queue: b"/queue/a", destination: b"/queue/a", body, ..Message::default() });
    batch
}

impl Fixture {
    fn new(bodies: &[Vec<u8>]) -> Self {
        let at = TempDir::new_in("/dev/shm").or_else(|_| TempDir::new()).expect("a disk with room");
        let directory = Directory::claim(at.path(), "this test").expect("nobody else uses it");
        let (log, _) = Log::open(directory, 1 << 20, |_, _| true).expect("an empty log");
        let woken: Arc<Mutex<Vec<usize>>> = Arc::default();
        let note = Arc::clone(&woken);
        let wake = Box::new(move |shard| note.lock().expect("no panic").push(shard));
        let inbox = Inbox::new(2, log.next_record(), wake);
        _ = inbox.records();
        let mut fixture = Fixture { at, inbox, writer: Writer::new(log, Fsync::Always), woken };
        for (record, body) in (256..).zip(bodies) {
            fixture.inbox.post(0, keep(record, body), record, &mut Vec::new());
        }
        fixture.requests(&[]);
        fixture
    }

    /// Where these messages are, each with the shard that wants it.
    fn requests(&mut self, wanted: &[(usize, RecordId)]) -> Vec<Request> {
        for (shard, record) in wanted {
            self.inbox.post(*shard, Batch::default(), 0, &mut vec![*record]);
        }
        let (inbox, mut requests) = (Arc::clone(&self.inbox), Vec::new());
        let work = inbox.take(Some(Duration::ZERO));
        self.writer.turn(work, &inbox, &mut |request| requests.push(request)).expect("a disk that works");
        self.woken.lock().expect("no panic").clear();
        requests
    }

    fn woken(&self) -> Vec<usize> {
        self.woken.lock().expect("no panic").clone()
    }

    /// What was read for a shard: each record with its body.
    fn loaded(&self, shard: usize) -> Vec<(RecordId, Result<Vec<u8>, Unreadable>)> {
        let body = |bytes: Vec<u8>| match Found::at(&bytes, Salt::NONE) {
            Found::Entry(Entry::Message(message), _) => message.body.to_vec(),
            other => panic!("{other:?}"),
        };
        let read = |(record, read): Loaded| (record, read.map(body));
        self.inbox.loaded(shard).into_iter().map(read).collect()
    }
}

fn bodies(lengths: &[usize]) -> Vec<Vec<u8>> {
    lengths.iter().zip(b'a'..).map(|(length, letter)| vec![letter; *length]).collect()
}

#[test]
fn neighbours_are_read_at_once_and_their_shard_is_woken_once() {
    let bodies = bodies(&[100, 0, 300, 5]);
    let mut fixture = Fixture::new(&bodies);
    let requests = fixture.requests(&[(1, 256), (1, 257), (1, 258), (1, 259)]);
    assert!(requests.windows(2).all(|pair| pair[1].follows(&pair[0])));
    answer_all(&requests, &fixture.inbox);
    assert_eq!(fixture.woken(), [1]);
    let expected: Vec<_> = (256..).zip(bodies.into_iter().map(Ok)).collect();
    assert_eq!(fixture.loaded(1), expected);
}

#[test]
fn messages_far_apart_out_of_order_or_for_other_shards_are_read_as_well() {
    let bodies = bodies(&[100, 5_000, 100, 100, 200_000, 100_000, 10]);
    let mut fixture = Fixture::new(&bodies);
    let wanted = [(0, 256), (0, 258), (1, 259), (0, 257), (1, 261), (0, 260), (0, 261), (0, 262)];
    let requests = fixture.requests(&wanted);
    assert!(!requests[1].follows(&requests[0]), "too much is between them");
    assert!(!requests[2].follows(&requests[1]), "of another shard");
    assert!(requests[6].follows(&requests[5]), "but they are too long to be read at once");
    answer_all(&requests, &fixture.inbox);
    for shard in [0, 1] {
        let own = wanted.iter().filter(|(of, _)| *of == shard);
        let expected: Vec<_> =
            own.map(|(_, record)| (*record, Ok(bodies[*record as usize - 256].clone()))).collect();
        assert_eq!(fixture.loaded(shard), expected);
    }
    assert_eq!(fixture.woken(), [0, 0, 1, 0, 1, 0, 0], "the last two are neighbours");
}

#[test]
fn a_damaged_message_is_unreadable_and_its_neighbours_are_not() {
    let bodies = bodies(&[100, 100, 100]);
    let mut fixture = Fixture::new(&bodies);
    let requests = fixture.requests(&[(0, 256), (0, 257), (0, 258)]);
    let file = std::fs::File::options().write(true).open(fixture.at.path().join("0000000001.log"));
    file.expect("its segment").write_all_at(b"!", requests[1].stored.place.offset + 60).expect("room");
    answer_all(&requests, &fixture.inbox);
    let expected = [(256, Ok(bodies[0].clone())), (257, Err(Unreadable)), (258, Ok(bodies[2].clone()))];
    assert_eq!(fixture.loaded(0), expected);
}

#[test]
fn a_message_that_is_written_does_not_wait_for_the_next_group() {
    let mut fixture = Fixture::new(&bodies(&[100]));
    fixture.inbox.post(0, keep(257, b"next"), 257, &mut vec![256, 257]);
    let (inbox, mut found) = (Arc::clone(&fixture.inbox), Vec::new());
    let work = inbox.take(Some(Duration::ZERO));
    let mut read = |request: Request| found.push((request.record, inbox.safe(0).expect("it has not failed")));
    fixture.writer.turn(work, &inbox, &mut read).expect("a disk that works");
    assert_eq!(found, [(256, 256), (257, 257)], "the second one is read once it is safe");
}
