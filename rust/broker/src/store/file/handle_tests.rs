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
        let (log, _) = Log::open(directory, 4096, |_, _| true).expect("an empty log");
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
        let (_, recovered) = Log::open(directory, 4096, |_, _| true).expect("a log");
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

#[test]
fn a_message_that_could_not_be_read_again_is_refused_and_not_kept() {
    let mut fixture = Fixture::new();
    fixture.handles[0].entry_bytes_max = 1000;
    assert_eq!(fixture.handles[0].keep(b"/queue/a", &message(&[b'x'; 1000], 0)), NO_RECORD);
    let kept = fixture.handles[0].keep(b"/queue/a", &message(&[b'x'; 500], 0));
    // The messages of a transaction are one entry.
    let transaction = fixture.handles[0].begin_transaction();
    fixture.handles[0].enter(Some(transaction));
    let first = fixture.handles[0].keep(b"/queue/a", &message(&[b'x'; 500], 0));
    assert_eq!(fixture.handles[0].keep(b"/queue/a", &message(&[b'x'; 500], 0)), NO_RECORD);
    fixture.handles[0].enter(None);
    fixture.handles[0].end_transaction(transaction);
    fixture.turn();
    let records: Vec<_> = fixture.reopen().into_iter().map(|(record, _)| record).collect();
    assert_eq!(records, [kept, first]);
}
