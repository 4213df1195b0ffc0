//! A writer on a disk that is full or fails.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::batch::{Batch, Call};
use super::entry::Message;
use super::inbox::Inbox;
use super::log::Log;
use super::medium_double::{Disk, Fault};
use super::reader::Request;
use super::writer::Writer;
use crate::config::Fsync;
use crate::ids::RecordId;
use crate::store::Room;
use crate::store::{Position, Unreadable};

const SEGMENT: u64 = 4096;

struct Fixture {
    disk: Disk,
    inbox: Arc<Inbox>,
    writer: Writer,
    position: Position,
    next: RecordId,
}

fn keep(record: RecordId, bytes: usize) -> Batch {
    let (mut batch, body) = (Batch::default(), vec![b'x'; bytes]);
    let queue = b"/queue/a";
    batch.keep(&Message { record, queue, destination: queue, body: &body, ..Message::default() });
    batch
}

fn forget(records: impl IntoIterator<Item = RecordId>) -> Batch {
    Batch { calls: records.into_iter().map(Call::Forget).collect(), ..Batch::default() }
}

fn found(disk: &Disk) -> BTreeSet<RecordId> {
    let (_, recovered) = Log::open(disk.clone(), SEGMENT, |_, _| true).expect("a log");
    assert!(recovered.damages.is_empty());
    recovered.queues.into_values().flatten().map(|waiting| waiting.record).collect()
}

impl Fixture {
    fn new(disk: Disk) -> Self {
        let (log, _) = Log::open(disk.clone(), SEGMENT, |_, _| true).expect("a log");
        let inbox = Inbox::new(2, log.next_record(), Box::new(|_| ()));
        (0..100).for_each(|_| _ = inbox.records());
        let (writer, next) = (Writer::new(log, Fsync::Always), inbox.first_record());
        Fixture { disk, inbox, writer, position: 0, next }
    }

    fn try_turn(&mut self) -> io::Result<bool> {
        let inbox = Arc::clone(&self.inbox);
        let work = inbox.take(Some(Duration::ZERO));
        self.writer.retry_now();
        self.writer.turn(work, &inbox, &mut |request: Request| request.answer(&inbox))
    }

    fn turn(&mut self) {
        assert!(self.try_turn().expect("a disk that works"));
    }

    fn post(&mut self, shard: usize, batch: Batch) -> Position {
        self.position += 1;
        self.inbox.post(shard, batch, self.position, &mut Vec::new());
        self.position
    }

    /// Keeps a message of about a hundred bytes. Returns its record.
    fn keep(&mut self) -> RecordId {
        let record = self.next;
        self.next += 1;
        self.post(0, keep(record, 70));
        record
    }

    /// Keeps messages, as a shard would, until the disk is full. Returns their records.
    fn fill(&mut self) -> Vec<RecordId> {
        let mut kept = Vec::new();
        while self.inbox.room() != Room::Full {
            kept.push(self.keep());
            self.turn();
        }
        kept
    }

    fn safe(&self, shard: usize) -> Position {
        self.inbox.safe(shard).expect("it has not failed")
    }
}

#[test]
fn on_a_full_disk_nothing_is_lost_and_the_log_goes_on_once_there_is_room() {
    let mut fixture = Fixture::new(Disk::new(12 * SEGMENT));
    let mut kept = fixture.fill();
    assert!(kept.len() > 100);
    // What is on its way all the same waits, and is not confirmed once the last segment is full, too.
    kept.extend((0..100).map(|_| fixture.keep()));
    fixture.turn();
    assert!(fixture.safe(0) < fixture.position);
    // A crash now loses nothing that is confirmed.
    let confirmed = fixture.safe(0) as usize;
    let after = found(&fixture.disk.crash(1));
    assert!(kept[..confirmed].iter().all(|record| after.contains(record)));
    fixture.disk.set_capacity(30 * SEGMENT);
    fixture.turn();
    assert_eq!((fixture.safe(0), fixture.inbox.room()), (fixture.position, Room::Free));
    assert_eq!(found(&fixture.disk.crash(2)), kept.into_iter().collect());
}

/// Forgets messages one by one on a full disk. All of that is confirmed at last, and there is room again; nothing else is lost,
/// and nothing returns.
fn forget_each(fixture: &mut Fixture, dead: &[RecordId], live: &[RecordId]) {
    for record in dead {
        fixture.post(1, forget([*record]));
        fixture.turn();
    }
    (0..300).for_each(|_| fixture.turn());
    assert_eq!((fixture.inbox.room(), fixture.safe(1)), (Room::Free, fixture.position));
    let after = found(&fixture.disk.crash(1));
    assert!(live.iter().all(|record| after.contains(record)));
    assert!(dead.iter().all(|record| !after.contains(record)));
}

#[test]
fn on_a_full_disk_interleaved_messages_are_not_lost() {
    let mut fixture = Fixture::new(Disk::new(20 * SEGMENT));
    let kept = fixture.fill();
    let (dead, live): (Vec<_>, Vec<_>) = kept.iter().partition(|record| **record % 3 == 0);
    (0..60).for_each(|_| _ = fixture.keep());
    fixture.turn();
    assert!(fixture.safe(0) < fixture.position);
    forget_each(&mut fixture, &dead, &live);
}

#[test]
fn on_a_full_disk_many_acknowledgements_lose_nothing() {
    let mut fixture = Fixture::new(Disk::new(60 * SEGMENT));
    let (live, mut dead): (Vec<_>, Vec<_>) = fixture.fill().into_iter().partition(|record| record % 20 == 0);
    // In an order in which they take much room.
    dead.sort_by_key(|record| record.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    forget_each(&mut fixture, &dead, &live);
}

#[test]
fn on_a_full_disk_of_any_size_every_acknowledgement_is_written_at_last() {
    for segments in [6, 7, 9, 14, 25] {
        for (keeps_one_of, order) in
            [(2, 1), (2, 0x9E37_79B9_7F4A_7C15), (3, 1), (4, 7), (50, 0x9E37_79B9_7F4A_7C15)]
        {
            let mut fixture = Fixture::new(Disk::new(segments * SEGMENT + 100));
            let (live, mut dead): (Vec<_>, Vec<_>) =
                fixture.fill().into_iter().partition(|record| record % keeps_one_of == 0);
            dead.sort_by_key(|record| record.wrapping_mul(order));
            forget_each(&mut fixture, &dead, &live);
        }
    }
}

#[test]
fn a_message_that_is_forgotten_while_it_waits_is_never_written() {
    let mut fixture = Fixture::new(Disk::new(8 * SEGMENT));
    let kept = fixture.fill();
    let waiting: Vec<RecordId> = (0..100).map(|_| fixture.keep()).collect();
    fixture.turn();
    fixture.post(1, forget(waiting.clone()));
    fixture.turn();
    assert_eq!((fixture.safe(0), fixture.safe(1)), (fixture.position - 1, fixture.position));
    fixture.disk.set_capacity(100 * SEGMENT);
    fixture.turn();
    let after = found(&fixture.disk.crash(1));
    assert!(kept.iter().all(|record| after.contains(record)));
    let written = waiting.iter().filter(|record| after.contains(record)).count();
    assert_eq!(written, 0);
}

#[test]
fn a_message_that_waits_can_be_loaded() {
    let mut fixture = Fixture::new(Disk::new(8 * SEGMENT));
    fixture.fill();
    (0..100).for_each(|_| _ = fixture.keep());
    fixture.turn();
    let last = fixture.next - 1;
    fixture.inbox.post(1, Batch::default(), 0, &mut vec![last]);
    fixture.turn();
    let loaded = fixture.inbox.loaded(1);
    assert!(matches!(&loaded[..], [(record, Ok(_))] if *record == last), "{loaded:?}");
}

#[test]
fn a_full_log_opens_again_after_a_crash_without_any_further_room() {
    let mut fixture = Fixture::new(Disk::new(12 * SEGMENT));
    let kept = fixture.fill();
    (0..100).for_each(|_| _ = fixture.keep());
    fixture.turn();
    let confirmed = fixture.safe(0) as usize;
    let disk = fixture.disk.crash(3);
    disk.set_capacity(disk.used());
    let mut fixture = Fixture::new(disk);
    fixture.turn();
    assert_eq!(fixture.inbox.room(), Room::Full);
    fixture.post(1, forget(kept.iter().copied().filter(|record| record % 2 == 0)));
    (0..100).for_each(|_| fixture.turn());
    assert_eq!((fixture.safe(1), fixture.inbox.room()), (fixture.position, Room::Free));
    let live: Vec<_> = kept.into_iter().take(confirmed).filter(|record| record % 2 == 1).collect();
    assert!(live.iter().all(|record| found(&fixture.disk.crash(4)).contains(record)));
}

#[test]
fn a_write_that_found_no_room_is_repeated_with_the_same_bytes() {
    let disk = Disk::new(40 * SEGMENT);
    disk.without_reservations();
    let mut fixture = Fixture::new(disk);
    let mut kept = vec![fixture.keep()];
    fixture.turn();
    fixture.disk.set_capacity(fixture.disk.used() + 150);
    kept.extend((0..5).map(|_| fixture.keep()));
    let last = fixture.next - 1;
    fixture.inbox.post(1, Batch::default(), 0, &mut vec![last]);
    fixture.turn();
    assert_eq!((fixture.safe(0), fixture.inbox.room()), (1, Room::Full));
    assert!(matches!(&fixture.inbox.loaded(1)[..], [(record, Ok(_))] if *record == last));
    fixture.turn();
    assert_eq!(fixture.safe(0), 1);
    fixture.disk.set_capacity(40 * SEGMENT);
    fixture.turn();
    assert_eq!((fixture.safe(0), fixture.inbox.room()), (6, Room::Free));
    assert_eq!(found(&fixture.disk.crash(1)), kept.into_iter().collect());
}

#[test]
fn without_descriptors_the_log_waits_as_on_a_full_disk() {
    let disk = Disk::new(100 * SEGMENT);
    disk.set_descriptors(5);
    let mut fixture = Fixture::new(disk);
    let kept = fixture.fill();
    assert!(kept.len() > 50);
    fixture.disk.set_descriptors(1000);
    fixture.turn();
    assert_eq!((fixture.safe(0), fixture.inbox.room()), (fixture.position, Room::Free));
}

#[test]
fn publishers_should_pause_while_much_is_not_written() {
    let mut fixture = Fixture::new(Disk::new(100 * SEGMENT));
    fixture.turn();
    assert_eq!(fixture.inbox.room(), Room::Free);
    (0..5).for_each(|_| _ = fixture.keep());
    assert_eq!(fixture.inbox.room(), Room::Behind);
    fixture.turn();
    assert_eq!(fixture.inbox.room(), Room::Free);
}

#[test]
fn after_a_failure_messages_are_read_from_where_they_are() {
    for calls in 0..60 {
        let mut fixture = Fixture::new(Disk::new(100 * SEGMENT));
        let kept: Vec<RecordId> = (0..300).map(|_| fixture.keep()).collect();
        fixture.turn();
        fixture.post(1, forget(kept.iter().copied().filter(|record| record % 4 != 0)));
        fixture.disk.fail_after(calls, io::ErrorKind::Other);
        let mut has_failed = false;
        for _ in 0..40 {
            has_failed = has_failed || fixture.try_turn().is_err();
        }
        if !has_failed {
            continue;
        }
        let mut wanted: Vec<RecordId> = kept.into_iter().filter(|record| record % 4 == 0).collect();
        let count = wanted.len();
        wanted.push(fixture.next + 1); // will never come
        fixture.inbox.post(0, Batch::default(), 0, &mut wanted);
        fixture.inbox.end();
        let inbox = Arc::clone(&fixture.inbox);
        fixture.writer.serve_reads(&inbox, &mut |request: Request| request.answer(&inbox));
        let (read, lost): (Vec<_>, Vec<_>) = inbox.loaded(0).into_iter().partition(|(_, read)| read.is_ok());
        assert_eq!(read.len(), count, "{calls} calls");
        assert_eq!(lost, [(fixture.next + 1, Err(Unreadable))]);
    }
}

#[test]
fn requests_that_nobody_can_answer_do_not_pile_up() {
    let mut fixture = Fixture::new(Disk::new(100 * SEGMENT));
    let record = fixture.next;
    fixture.inbox.post(0, forget([record]), 1, &mut vec![record]);
    fixture.turn();
    assert_eq!(fixture.inbox.loaded(0), [(record, Err(Unreadable))], "forgotten by what came with it");
    for record in record + 1..record + 10_000 {
        fixture.inbox.post(0, Batch::default(), 0, &mut vec![record]);
    }
    fixture.turn();
    assert!(fixture.inbox.loaded(0).len() > 5000);
}

#[test]
fn after_a_sync_that_failed_the_next_process_makes_safe_what_it_finds() {
    for (calls, seed) in (0..8).flat_map(|calls| (0..10).map(move |seed| (calls, seed))) {
        let mut fixture = Fixture::new(Disk::new(100 * SEGMENT));
        fixture.keep();
        fixture.turn();
        fixture.disk.plan(calls, Fault::Once(io::ErrorKind::Other));
        let has_failed = (0..5).any(|_| {
            fixture.keep();
            fixture.try_turn().is_err()
        });
        assert!(has_failed, "{calls} calls");
        // The system still gives it what it has not written.
        let mut fixture = Fixture::new(fixture.disk.kill());
        let mut expected = found(&fixture.disk.kill());
        assert!(!expected.is_empty());
        expected.insert(fixture.keep());
        fixture.turn();
        assert_eq!(fixture.safe(0), fixture.position);
        assert_eq!(found(&fixture.disk.crash(seed)), expected, "{calls} calls, seed {seed}");
    }
}
