use std::io;

use super::super::block::{Block, Recorded};
use super::super::reader::portion;
use super::*;
use crate::door::sync::Mutex;
use crate::store::file::medium_double::{Disk, Fault};

fn block(name: &str, first: u64, count: u64) -> Arc<Block> {
    let mut block = Block::new(name.as_bytes().into(), 1, first, 5);
    for _ in 0..count {
        block.push(&Recorded {
            time_ms: 5,
            plain: true,
            persistent: false,
            id: b"i",
            headers: b"",
            body: b"0123456789",
        });
    }
    Arc::new(block)
}

/// Three groups in one segment, ended in order.
fn recorded() -> Disk {
    let disk = Disk::new(64 << 20);
    let (mut log, _) = open(Box::new(disk.clone()), 1 << 20, 1, |_, _| true).expect("a recording");
    for first in [1, 11, 21] {
        let blocks = [block("/topic/a", first, 10), block("/topic/b", first, 10)];
        assert_eq!(log.write(&blocks).expect("a disk that works"), 2);
        log.sync().expect("a disk that works");
    }
    log.close().expect("a disk that works");
    disk
}

fn numbers(log: &RecordLog, name: &str) -> Vec<u64> {
    let catalog: &Mutex<Catalog> = log.catalog();
    let found = portion(catalog, name.as_bytes(), 1, None).expect("a disk that works");
    found.blocks.iter().flat_map(|block| block.first..block.next()).collect()
}

#[test]
fn every_flipped_byte_costs_one_block_at_most_and_is_reported() {
    let length = recorded().open("0000000001.rec").and_then(|file| file.length()).expect("a segment");
    for at in HEADER_BYTES..length {
        let disk = recorded();
        let file = disk.open("0000000001.rec").expect("a segment");
        let mut byte = [0];
        file.read_at(&mut byte, at).expect("a byte");
        file.write_at(&[byte[0] ^ 0x10], at).expect("room");
        let (log, report) = open(Box::new(disk.clone()), 1 << 20, 1, |_, _| true).expect("a recording");
        let (a, b) = (numbers(&log, "/topic/a"), numbers(&log, "/topic/b"));
        assert!(a.len() + b.len() >= 50 || report.holes.iter().any(|hole| hole.to - hole.from > 300), "{at}");
        let is_reported = !report.holes.is_empty() || report.torn_bytes > 0;
        assert!(is_reported, "{at}");
        if a.len() + b.len() < 60 {
            assert!(report.holes.iter().all(|hole| hole.copy.is_some()), "{at}");
        }
        assert!(a.is_sorted() && b.is_sorted());
    }
}

#[test]
fn foreign_files_and_newer_versions_are_refused_and_not_changed() {
    let disk = Disk::new(1 << 20);
    let file = disk.create("0000000001.rec", 100).expect("room");
    file.write_at(b"something else", 0).expect("room");
    let refused = |disk: &Disk| open(Box::new(disk.clone()), 1 << 16, 1, |_, _| true).expect_err("refused");
    assert!(matches!(refused(&disk), OpenError::Foreign(_)));
    let mut header = Header { number: 1, epoch: 1, group: 1, salt: Salt(1) }.bytes();
    header[8] = 9;
    let checksum = crc32c::crc32c(&header[..40]).to_le_bytes();
    header[40..].copy_from_slice(&checksum);
    file.write_at(&header, 0).expect("room");
    assert!(matches!(refused(&disk), OpenError::Version { version: 9, .. }));
    assert_eq!(disk.list().expect("names"), ["0000000001.rec"]);
}

/// Opens the recording of another process that was killed, and looks what it has.
fn found(disk: &Disk) -> (Vec<u64>, Vec<u64>) {
    let (log, report) = open(Box::new(disk.kill()), 1 << 14, 1, |_, _| true).expect("a recording");
    assert!(report.holes.is_empty());
    (numbers(&log, "/topic/a"), numbers(&log, "/topic/b"))
}

#[test]
fn after_a_sync_that_failed_the_next_process_makes_safe_what_it_finds() {
    for (calls, seed) in (0..8).flat_map(|calls| (0..10).map(move |seed| (calls, seed))) {
        let disk = Disk::new(64 << 20);
        let (mut log, _) = open(Box::new(disk.clone()), 1 << 14, 1, |_, _| true).expect("a recording");
        disk.plan(calls, Fault::Once(io::ErrorKind::Other));
        let has_failed = (0..5).any(|at| {
            let blocks = [block("/topic/a", 1 + 10 * at, 10), block("/topic/b", 1 + 10 * at, 10)];
            log.write(&blocks).and_then(|_| log.sync()).is_err()
        });
        assert!(has_failed, "{calls} calls");
        // The system still gives the next process what it has not written. The disk may fail that one, too.
        let expected = found(&disk);
        for later in 0..10 {
            let disk = disk.kill();
            disk.plan(later, Fault::Once(io::ErrorKind::Other));
            let disk = match open(Box::new(disk.clone()), 1 << 14, 1, |_, _| true) {
                Ok(_) => disk,
                Err(_) => {
                    let again = disk.kill();
                    open(Box::new(again.clone()), 1 << 14, 1, |_, _| true).expect("a recording");
                    again
                }
            };
            assert_eq!(found(&disk.crash(seed)), expected, "{calls} and {later} calls, seed {seed}");
        }
    }
}
