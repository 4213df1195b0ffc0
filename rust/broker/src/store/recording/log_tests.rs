use proptest::prelude::*;

use super::*;
use crate::store::file::medium_double::Disk;
use crate::store::recording::block::{Lease, Recorded};
use crate::store::recording::catalog::Start;
use crate::store::recording::reader::{portion, seq_at};
use crate::store::recording::recovery::{Report, open};

const SEGMENT: u64 = 1 << 20;
const MIB: u64 = 1 << 20;

fn opened(disk: &Disk) -> (RecordLog, Report) {
    open(Box::new(disk.clone()), SEGMENT, 1, |_, _| true).expect("a recording")
}

/// A block of messages of this destination, each with its number as body and time.
fn block(name: &str, start: Start, count: u64, length: usize) -> Arc<Block> {
    let mut block = Block::new(name.as_bytes().into(), start.epoch, start.next, start.next);
    for seq in start.next..start.next + count {
        let mut body = format!("{seq:020}");
        body.insert_str(0, &"0".repeat(length.saturating_sub(20)));
        let (id, headers, body) = (&b"id"[..], &b"a:b\n"[..], body.as_bytes());
        block.push(&Recorded { time_ms: seq, plain: true, persistent: true, id, headers, body });
    }
    Arc::new(block)
}

/// Records so many messages in blocks of this many.
fn record(log: &mut RecordLog, name: &str, count: u64, at_once: u64, length: usize) {
    let mut left = count;
    while left > 0 {
        let start = lock(log.catalog()).start(name.as_bytes());
        let part = at_once.min(left);
        assert_eq!(log.write(&[block(name, start, part, length)]).expect("a disk that works"), 1);
        left -= part;
    }
    log.sync().expect("a disk that works");
}

/// The numbers of all messages from one on, each of which is also its body; and whether there was a hole.
fn read_from(log: &RecordLog, name: &str, from: u64) -> Vec<u64> {
    let (mut all, mut next, mut place) = (Vec::new(), from, None);
    loop {
        let found = portion(log.catalog(), name.as_bytes(), next, place).expect("a disk that works");
        for block in &found.blocks {
            let mut seq = block.first;
            for message in block.messages(0, block.time_ms) {
                let body: u64 = std::str::from_utf8(message.body).expect("digits").parse().expect("a number");
                assert_eq!((body, message.time_ms), (seq, seq));
                if seq >= next {
                    all.push(seq);
                    next = seq + 1;
                }
                seq += 1;
            }
            assert_eq!(seq, block.next());
        }
        if found.is_end {
            return all;
        }
        place = found.place;
    }
}

fn extent(log: &RecordLog, name: &str) -> (u64, u64, u64) {
    let extent = lock(log.catalog()).extent(name.as_bytes()).expect("a recorded destination");
    (extent.first, extent.next, extent.durable)
}

#[test]
fn what_was_recorded_is_read_from_any_number_on() {
    let disk = Disk::new(64 * MIB);
    let (mut log, _) = opened(&disk);
    for _ in 0..30 {
        record(&mut log, "/topic/a", 100, 7, 400);
        record(&mut log, "/queue/b", 30, 30, 2000);
        record(&mut log, "/topic/rare", 1, 1, 5);
    }
    assert!(lock(log.catalog()).segments.len() > 2);
    for from in [1, 2, 99, 100, 1500, 2999, 3000] {
        assert!(read_from(&log, "/topic/a", from).into_iter().eq(from..=3000), "{from}");
    }
    assert!(read_from(&log, "/queue/b", 1).into_iter().eq(1..=900));
    assert!(read_from(&log, "/topic/rare", 4).into_iter().eq(4..=30));
    assert!(read_from(&log, "/topic/a", 3001).is_empty() && read_from(&log, "/topic/none", 1).is_empty());
    for time in [0, 1, 1000, 2999, 3000] {
        let found = seq_at(log.catalog(), b"/topic/a", time).expect("a disk that works");
        assert_eq!(found, Some(time.max(1)));
    }
    assert_eq!(seq_at(log.catalog(), b"/topic/a", 3001).expect("a disk that works"), None);
}

#[test]
fn a_long_message_between_others_is_read() {
    let disk = Disk::new(64 * MIB);
    let (mut log, _) = opened(&disk);
    record(&mut log, "/topic/a", 10, 1, 10);
    record(&mut log, "/topic/b", 1, 1, 3 * MIB as usize);
    record(&mut log, "/topic/a", 1, 1, 2 * MIB as usize);
    record(&mut log, "/topic/a", 10, 1, 10);
    assert!(read_from(&log, "/topic/a", 1).into_iter().eq(1..=21));
    assert_eq!(read_from(&log, "/topic/b", 1), [1]);
}

#[test]
fn many_destinations_are_read_with_few_marks() {
    let disk = Disk::new(64 * MIB);
    let (mut log, _) = opened(&disk);
    for _ in 0..40 {
        for name in 0..50 {
            record(&mut log, &format!("/topic/{name}"), 3, 2, 100);
        }
    }
    for _ in 0..6 {
        assert!(read_from(&log, "/topic/7", 50).into_iter().eq(50..=120));
        lock(log.catalog()).thin_out();
    }
}

#[test]
fn an_ordered_end_keeps_the_epoch_and_a_crash_begins_a_new_one() {
    let disk = Disk::new(64 * MIB);
    let (mut log, _) = opened(&disk);
    record(&mut log, "/topic/a", 5, 1, 10);
    let first = lock(log.catalog()).start(b"/topic/a");
    log.close().expect("a disk that works");
    let (mut log, report) = opened(&disk);
    assert_eq!((report.messages, report.torn_bytes, report.holes.len()), (5, 0, 0));
    assert_eq!(lock(log.catalog()).start(b"/topic/a"), first);
    assert!(lock(log.catalog()).start(b"/topic/new").epoch > first.epoch);
    // This one ends without an order, also if it has recorded nothing.
    let (log_after, _) = opened(&disk.crash(1));
    let next = lock(log_after.catalog()).start(b"/topic/a");
    assert!(next.epoch > first.epoch && next.next == 6);
    record(&mut log, "/topic/a", 3, 1, 10);
    let (mut log, _) = opened(&disk.crash(2));
    record(&mut log, "/topic/a", 2, 1, 10);
    let spans = lock(log.catalog()).extent(b"/topic/a").expect("recorded").spans;
    assert_eq!(spans.iter().map(|span| (span.first, span.last)).collect::<Vec<_>>(), [(1, 8), (9, 10)]);
    assert!(read_from(&log, "/topic/a", 1).into_iter().eq(1..=10));
}

#[test]
fn the_oldest_segments_are_removed_and_numbers_go_on() {
    let disk = Disk::new(64 * MIB);
    let (mut log, _) = opened(&disk);
    record(&mut log, "/topic/rare", 3, 1, 10);
    record(&mut log, "/topic/a", 4000, 10, 1000);
    let retention = Retention { age_ms: u64::MAX, bytes: 2 * SEGMENT };
    log.retain(1, retention).expect("a disk that works");
    assert!(lock(log.catalog()).disk_bytes() <= 2 * SEGMENT);
    let (first, next, durable) = extent(&log, "/topic/a");
    assert!(first > 1000 && next == 4001 && durable == 4001);
    assert!(
        read_from(&log, "/topic/a", 1).into_iter().eq(first..=4000),
        "a reader learns that it begins later"
    );
    assert_eq!(extent(&log, "/topic/rare"), (4, 4, 4));
    log.close().expect("a disk that works");
    let (mut log, _) = opened(&disk);
    assert_eq!(extent(&log, "/topic/rare"), (4, 4, 4));
    record(&mut log, "/topic/rare", 1, 1, 10);
    assert_eq!(read_from(&log, "/topic/rare", 1), [4]);
    // By age everything goes, also what stands in the current segment.
    log.retain(10_000, Retention { age_ms: 100, bytes: u64::MAX }).expect("a disk that works");
    assert_eq!(extent(&log, "/topic/a"), (4001, 4001, 4001));
    assert!(lock(log.catalog()).disk_bytes() <= SEGMENT);
}

#[test]
fn a_destination_that_nobody_uses_is_forgotten_in_the_end() {
    let disk = Disk::new(64 * MIB);
    let (mut log, _) = opened(&disk);
    (0..60).for_each(|at| record(&mut log, &format!("/topic/rare/{at}"), 3, 1, 10));
    let retention = Retention { age_ms: u64::MAX, bytes: SEGMENT };
    for _ in 0..5 {
        record(&mut log, "/topic/a", 2000, 10, 1000);
        log.retain(1, retention).expect("a disk that works");
    }
    assert_eq!(lock(log.catalog()).len(), 1);
    assert!(lock(log.catalog()).extent(b"/topic/rare/7").is_none());
}

#[test]
fn a_lease_keeps_what_its_reader_has_not_read_up_to_a_limit() {
    let disk = Disk::new(64 * MIB);
    let (mut log, _) = opened(&disk);
    let lease = |next, expires_ms| Lease {
        name: b"r"[..].into(),
        destination: b"/topic/a"[..].into(),
        next,
        expires_ms,
    };
    let retention = Retention { age_ms: u64::MAX, bytes: 3 * SEGMENT };
    record(&mut log, "/topic/a", 4000, 10, 1000);
    assert!(lock(log.catalog()).set_lease(lease(1500, 100)));
    log.retain(1, retention).expect("a disk that works");
    let (first, ..) = extent(&log, "/topic/a");
    assert!(first <= 1500, "{first}");
    let (mut log, _) = opened(&disk.crash(7));
    assert_eq!(lock(log.catalog()).leases(), [lease(1500, 100)]);
    assert!(lock(log.catalog()).set_lease(lease(3900, 100)));
    log.retain(1, retention).expect("a disk that works");
    assert!(extent(&log, "/topic/a").0 > 1500);
    let before = extent(&log, "/topic/a").0;
    record(&mut log, "/topic/a", 8000, 10, 1000);
    log.retain(2, retention).expect("a disk that works");
    assert!(extent(&log, "/topic/a").0 > before.max(3900), "it keeps no more than as much again");
    log.retain(200, retention).expect("a disk that works");
    assert!(lock(log.catalog()).leases().is_empty() && lock(log.catalog()).disk_bytes() <= 3 * SEGMENT);
}

#[test]
fn a_full_disk_takes_nothing_and_goes_on_when_there_is_room() {
    let disk = Disk::new(3 * MIB);
    let (mut log, _) = opened(&disk);
    let start = Start { epoch: 1, next: 1, last_ms: 0 };
    let mut next = 1;
    while log.write(&[block("/topic/a", Start { next, ..start }, 10, 1000)]).expect("no failure") == 1 {
        next += 10;
    }
    log.sync().expect("no failure");
    disk.set_capacity(20 * MIB);
    let waiting = block("/topic/a", Start { next, ..start }, 10, 1000);
    assert_eq!(log.write(&[waiting]).expect("no failure"), 1);
    assert!(read_from(&log, "/topic/a", 1).into_iter().eq(1..next + 10));
}

proptest! {
    #[test]
    fn a_crash_loses_nothing_that_was_safe_and_leaves_no_hole(
        parts in proptest::collection::vec((0..3_usize, 1..40_u64, any::<bool>()), 1..60),
        seed: u64,
        segment in prop::sample::select(vec![8_u64 << 10, 64 << 10, 1 << 20]),
    ) {
        let disk = Disk::new(64 * MIB);
        let names = ["/topic/a", "/topic/b", "/queue/c"];
        let (mut log, _) = open(Box::new(disk.clone()), segment, 1, |_, _| true).expect("a recording");
        for (name, count, syncs) in parts {
            let start = lock(log.catalog()).start(names[name].as_bytes());
            prop_assert_eq!(log.write(&[block(names[name], start, count, 60)]).expect("no failure"), 1);
            if syncs {
                log.sync().expect("no failure");
            }
        }
        let durable = names.map(|name| lock(log.catalog()).extent(name.as_bytes()).map_or(1, |extent| extent.durable));
        let after = disk.crash(seed);
        let (log, report) = open(Box::new(after.clone()), segment, 1, |_, _| true).expect("a recording");
        prop_assert!(report.holes.is_empty(), "{:?}", report.holes);
        for (name, durable) in names.into_iter().zip(durable) {
            let found = read_from(&log, name, 1);
            prop_assert!(found.len() as u64 >= durable - 1, "{} of {}", found.len(), durable - 1);
            let count = found.len() as u64;
            prop_assert!(found.into_iter().eq(1..=count));
        }
        // And again, after a second crash without anything new.
        let (_, report) = open(Box::new(after.crash(seed ^ 1)), segment, 1, |_, _| true).expect("a recording");
        prop_assert!(report.holes.is_empty() && report.torn_bytes == 0, "{:?}", report);
    }
}
