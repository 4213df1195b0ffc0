use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use proptest::prelude::*;
use tempfile::TempDir;

use super::*;
use crate::door::Directory;
use crate::store::file::batch::{Call, Commit};
use crate::store::file::compaction::{self, Replacing};
use crate::store::file::entry::{Counts, Message};
use crate::store::file::segment::HEADER_BYTES;

/// A directory in memory where there is such a file system: these tests sync thousands of times.
fn directory() -> TempDir {
    TempDir::new_in("/dev/shm").or_else(|_| TempDir::new()).expect("a disk with room")
}

fn open_at(path: &Path) -> Result<(Log, Recovered), OpenError> {
    let directory = Directory::claim(path, "this test").expect("nobody else uses it");
    Log::open(directory, 4096, |_, _| true)
}

fn open(path: &Path) -> (Log, Recovered) {
    open_at(path).expect("a log")
}

fn message(record: RecordId) -> Message<'static> {
    let queue: &[u8] = if record.is_multiple_of(2) { b"/queue/even" } else { b"/queue/odd" };
    // Places are not in the order of records.
    Message {
        record,
        place: 1_000_000 - record,
        queue,
        destination: queue,
        id: b"id",
        body: b"body",
        ..Message::default()
    }
}

fn batch(build: impl FnOnce(&mut Batch)) -> Batch {
    let mut batch = Batch::default();
    build(&mut batch);
    batch
}

fn keep(records: impl IntoIterator<Item = RecordId>) -> Batch {
    batch(|batch| records.into_iter().for_each(|record| batch.keep(&message(record))))
}

fn forget(records: impl IntoIterator<Item = RecordId>) -> Batch {
    batch(|batch| batch.calls.extend(records.into_iter().map(Call::Forget)))
}

fn commit(kept: &[RecordId], forgotten: &[RecordId]) -> Batch {
    batch(|batch| {
        let kept = kept.iter().map(|record| batch.add(&message(*record))).collect();
        batch.calls.push(Call::Commit(Commit { kept, forgotten: forgotten.to_vec() }));
    })
}

/// Writes a group.
fn put(log: &mut Log, batches: &[Batch], next_record: RecordId) -> Written {
    log.write(batches, next_record, Purpose::Messages).expect("a disk that works")
}

/// Writes each group, and makes it safe.
fn write(log: &mut Log, groups: &[&[Batch]]) {
    for group in groups {
        put(log, group, 10_000);
        log.sync().expect("a disk that works");
    }
}

/// The records that wait, in the order of their queues.
fn records(recovered: &Recovered) -> BTreeSet<RecordId> {
    recovered.queues.values().flatten().map(|waiting| waiting.record).collect()
}

fn set(records: impl IntoIterator<Item = RecordId>) -> BTreeSet<RecordId> {
    records.into_iter().collect()
}

/// What a log has that was written so and then left without being closed.
fn after(groups: &[&[Batch]]) -> Recovered {
    let at = directory();
    let (mut log, _) = open(at.path());
    write(&mut log, groups);
    drop(log);
    open(at.path()).1
}

/// The only segment's file of a log.
fn only_file(at: &Path) -> std::path::PathBuf {
    at.join(segment_name(1))
}

fn segment_name(number: SegmentNumber) -> String {
    crate::store::file::segment::name(number)
}

#[test]
fn messages_are_there_again_in_the_order_of_their_places() {
    let recovered = after(&[&[keep([1, 2]), keep([5])], &[keep([3]), forget([2])]]);
    let waiting = &recovered.queues[&b"/queue/odd"[..]];
    assert_eq!(waiting.iter().map(|waiting| waiting.record).collect::<Vec<_>>(), [5, 3, 1]);
    assert_eq!((waiting[0].place, waiting[0].bytes), (999_995, "/queue/odd".len() as u32 + 6));
    assert!(!recovered.queues.contains_key(&b"/queue/even"[..]));
    assert_eq!((recovered.torn_bytes, recovered.damages), (0, vec![]));
}

#[test]
fn a_message_that_is_kept_and_forgotten_in_one_group_is_not_written() {
    let at = directory();
    let (mut log, _) = open(at.path());
    assert_eq!(put(&mut log, &[forget([1]), keep([1])], 2), Written::Nothing);
    assert_eq!(log.figures().written_bytes, 0);
    write(&mut log, &[&[keep([2]), forget([2]), keep([3])]]);
    drop(log);
    assert_eq!(records(&open(at.path()).1), set([3]));
}

#[test]
fn a_message_that_is_forgotten_before_it_is_kept_is_not_written() {
    let at = directory();
    let (mut log, _) = open(at.path());
    write(&mut log, &[&[forget([1, 2])], &[commit(&[1, 3], &[])], &[keep([2])]]);
    assert_eq!(log.figures().messages, 1);
    drop(log);
    assert_eq!(records(&open(at.path()).1), set([3]));
}

#[test]
fn counts_survive_with_their_message_and_only_grow() {
    let deliver = |record, deliveries, failures| {
        batch(|batch| batch.calls.push(Call::Deliver(record, Counts { deliveries, failures })))
    };
    let groups: [&[Batch]; 3] = [
        &[keep([1, 2, 3]), deliver(1, 1, 0)],
        &[deliver(1, 3, 2), deliver(1, 2, 1), deliver(2, 1, 0)],
        &[forget([2]), deliver(9, 1, 0)],
    ];
    let recovered = after(&groups);
    let counts: Vec<_> = recovered.counts.into_iter().collect();
    assert_eq!(counts, [(1, Counts { deliveries: 3, failures: 2 })]);
}

#[test]
fn a_transaction_may_forget_what_others_keep_in_the_same_group_and_the_reverse() {
    let recovered = after(&[&[keep([1, 2]), commit(&[3, 4], &[1]), forget([3])], &[commit(&[5], &[2, 4])]]);
    assert_eq!(records(&recovered), set([5]));
}

#[test]
fn a_log_goes_on_in_further_segments_and_after_a_restart() {
    let at = directory();
    for start in 0..4 {
        let (mut log, recovered) = open(at.path());
        assert_eq!(records(&recovered).len(), start * 100);
        for record in 1..=100 {
            write(&mut log, &[&[keep([(start * 100) as u64 + record])]]);
        }
        assert!(log.figures().segments > start as u64 * 2);
    }
}

#[test]
fn records_are_never_given_out_twice() {
    let at = directory();
    let (mut log, _) = open(at.path());
    assert_eq!(log.next_record(), 1);
    put(&mut log, &[keep([1])], 5000);
    drop(log);
    assert!(open(at.path()).0.next_record() >= 2);
    let (mut log, _) = open(at.path());
    write(&mut log, &[&[keep([7])], &[forget([7, 1])]]);
    drop(log);
    let (log, recovered) = open(at.path());
    assert!(log.next_record() >= 5000, "a segment has begun since then, and knows");
    assert!(recovered.queues.is_empty());
}

#[test]
fn a_log_that_is_cut_off_at_any_byte_has_whole_transactions_and_all_groups_before_it() {
    let at = directory();
    let (mut log, _) = open(at.path());
    let groups: [&[Batch]; 4] =
        [&[keep([1, 2, 3])], &[commit(&[4, 6], &[1]), keep([8])], &[forget([2])], &[commit(&[10], &[4, 6])]];
    let states = [set([]), set([1, 2, 3]), set([2, 3, 4, 6, 8]), set([3, 4, 6, 8]), set([3, 8, 10])];
    let mut ends = vec![HEADER_BYTES];
    for group in groups {
        write(&mut log, &[group]);
        ends.push(log.segments.current().expect("it was written to").end);
    }
    drop(log);
    let whole = fs::read(only_file(at.path())).expect("a segment");
    let is_near = |length: &u64| ends.iter().any(|end| end.abs_diff(*length) < 3) || length.is_multiple_of(5);
    for length in (0..=ends[4]).filter(is_near) {
        let at = directory();
        // As long as the file was, with zeros for what did not reach the disk.
        let mut cut = whole.clone();
        cut[length as usize..].fill(0);
        fs::write(only_file(at.path()), &cut).expect("a disk with room");
        let (mut log, recovered) = open(at.path());
        let found = records(&recovered);
        let complete = ends.iter().rposition(|end| *end <= length).unwrap_or(0);
        assert_eq!(found, states[complete], "{length} bytes of {ends:?}");
        assert!(recovered.damages.is_empty());
        // It can be written to, and has everything afterwards.
        write(&mut log, &[&[keep([100])]]);
        drop(log);
        let (_, recovered) = open(at.path());
        assert_eq!(records(&recovered), &found | &set([100]));
        assert_eq!((recovered.torn_bytes, recovered.damages.len()), (0, 0));
    }
}

#[test]
fn damage_of_what_was_never_safe_ends_the_log() {
    let at = directory();
    let (mut log, _) = open(at.path());
    write(&mut log, &[&[keep([1])]]);
    for record in 2..=4 {
        put(&mut log, &[keep([record])], 10);
    }
    let Lookup::At(_, stored) = log.find(2) else { panic!("it was written") };
    let damaged = stored.place.offset + 20;
    drop(log);
    let mut bytes = fs::read(only_file(at.path())).expect("a segment");
    bytes[damaged as usize] ^= 1;
    fs::write(only_file(at.path()), &bytes).expect("a disk with room");
    let (_, recovered) = open(at.path());
    assert_eq!(records(&recovered), set([1]), "what follows may depend on what is lost");
    assert!(recovered.torn_bytes > 0 && recovered.damages.is_empty());
}

#[test]
fn a_directory_of_something_else_is_not_touched() {
    let at = directory();
    let path = only_file(at.path());
    fs::write(&path, "0 this is a log of something else").expect("a disk with room");
    let error = open_at(at.path()).expect_err("it is no segment").to_string();
    assert_eq!(error, "'0000000001.log' is no segment of a stompica store");
    assert_eq!(fs::read(&path).expect("the file"), b"0 this is a log of something else");
}

#[test]
fn a_newer_version_is_refused_by_name_and_not_touched() {
    let at = directory();
    let (mut log, _) = open(at.path());
    write(&mut log, &[&[keep([1])]]);
    drop(log);
    let path = only_file(at.path());
    let mut bytes = fs::read(&path).expect("a segment");
    bytes[8] = 2;
    let checksum = crc32c::crc32c(&bytes[..40]).to_le_bytes();
    bytes[40..44].copy_from_slice(&checksum);
    fs::write(&path, &bytes).expect("a disk with room");
    let error = open_at(at.path()).expect_err("it is newer").to_string();
    assert_eq!(error, "'0000000001.log' has version 2 of the format, and this stompica knows version 1");
    assert_eq!(fs::read(&path).expect("the file"), bytes);
}

#[test]
fn a_directory_is_used_once_at_a_time() {
    let at = directory();
    let first = Directory::claim(at.path(), "process 7").expect("nobody else uses it");
    let error = Directory::claim(at.path(), "process 8").expect_err("it is in use").to_string();
    assert_eq!(error, "it is in use by process 7");
    drop(first);
    assert!(Directory::claim(at.path(), "process 8").is_ok());
}

#[path = "log_compaction_tests.rs"]
mod compaction_tests;
#[path = "log_damage_tests.rs"]
mod damage_tests;
