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

/// A log with a page file beside it: a handle, and both writers with their inboxes.
struct Paging {
    handle: LogHandle,
    logs: [(Arc<Inbox>, Writer, TempDir); 2],
}

impl Paging {
    fn new() -> Self {
        let log = |next_record: Option<RecordId>| {
            let Fixture { at, writer, inbox, .. } = Fixture::new();
            let inbox = next_record.map_or(inbox, |next| Inbox::new(2, next, Box::new(|_| ())));
            (inbox, writer, at)
        };
        let logs = [log(None), log(Some(PAGE_FILE_RECORD))];
        let [(kept, ..), (paged, ..)] = &logs;
        let handle = LogHandle::new(0, Arc::clone(kept)).with_page_file(Arc::clone(paged));
        Paging { handle, logs }
    }

    fn turn(&mut self) {
        self.handle.end_turn();
        for (inbox, writer, _) in &mut self.logs {
            let inbox = Arc::clone(inbox);
            let work = inbox.take(Some(Duration::ZERO));
            let turn = writer.turn(work, &inbox, &mut |request| request.answer(&inbox));
            turn.expect("a disk that works");
        }
    }

    /// The messages in the log and in the page file.
    fn messages(&self) -> [u64; 2] {
        [0, 1].map(|at: usize| self.logs[at].1.figures().0.messages)
    }
}

fn transient(body: &[u8]) -> OwnedMessage {
    let mut transient = message(body, 0);
    transient.persistent = false;
    transient
}

#[test]
fn a_message_that_is_not_kept_is_paged_out_beside_the_log_and_loaded_once() {
    let mut paging = Paging::new();
    let record = paging.handle.page_out(b"/queue/a", &transient(b"x"));
    paging.handle.load(record); // before it is written
    paging.turn();
    assert_eq!(paging.messages(), [0, 1]);
    let (found, loaded) = paging.handle.loaded().expect("an answer");
    let loaded = loaded.expect("it can be read");
    assert_eq!((found, loaded.record, loaded.persistent), (record, NO_RECORD, false));
    assert_eq!((loaded.message().body, loaded.message().sender), (&b"x"[..], 7));
    paging.turn();
    assert_eq!(paging.messages(), [0, 0], "its record has ended");
    // One that is dropped before.
    let record = paging.handle.page_out(b"/queue/a", &transient(b"y"));
    paging.turn();
    paging.handle.load(record);
    paging.handle.forget(record);
    assert!(matches!(paging.handle.loaded(), Some((found, Err(Unreadable))) if found == record));
    paging.turn();
    assert_eq!((paging.messages(), paging.handle.loaded().is_none()), ([0, 0], true));
}

#[test]
fn a_message_that_is_kept_is_not_written_again_to_be_paged_out() {
    let mut paging = Paging::new();
    let mut kept = message(b"x", 0);
    kept.record = paging.handle.keep(b"/queue/a", &kept);
    assert_eq!(paging.handle.page_out(b"/queue/a", &kept), kept.record);
    paging.turn();
    assert_eq!(paging.messages(), [1, 0]);
}

#[test]
fn a_transaction_of_kept_messages_and_what_it_pages_out_are_apart() {
    let mut paging = Paging::new();
    let transaction = paging.handle.begin_transaction();
    paging.handle.enter(Some(transaction));
    paging.handle.keep(b"/queue/a", &message(b"x", 0));
    let paged = paging.handle.page_out(b"/queue/b", &transient(b"y"));
    paging.handle.enter(None);
    paging.turn();
    assert_eq!(paging.messages(), [0, 1]);
    paging.handle.forget(paged);
    paging.handle.end_transaction(transaction);
    paging.turn();
    assert_eq!(paging.messages(), [1, 0]);
}

#[test]
fn a_page_file_that_is_behind_lets_shards_wait_and_one_that_has_failed_takes_nothing() {
    let mut paging = Paging::new();
    paging.turn();
    assert!(paging.handle.has_room_to_page());
    paging.handle.page_out(b"/queue/a", &transient(&[b'x'; 2000]));
    paging.handle.end_turn();
    assert!(!paging.handle.has_room_to_page());
    paging.turn();
    assert!(paging.handle.has_room_to_page());
    paging.logs[1].0.fail(ProtocolError::new(stompica_proto::error::Code::StoreIo, "broken".to_owned()));
    assert_eq!(paging.handle.page_out(b"/queue/a", &transient(b"x")), NO_RECORD);
    assert!(paging.handle.has_room_to_page() && paging.handle.safe().is_ok(), "the store goes on");
}
