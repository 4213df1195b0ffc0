//! Stored samples of each version of the format: what an earlier stompica has written is read as it was meant.
//!
//! `STOMPICA_TEST_SAMPLE=DIR cargo test -p stompica-broker todays_log` writes the sample of today's version again, for the day
//! on which the version changes: the samples of earlier versions stay.

use std::collections::BTreeMap;
use std::path::Path;

use tempfile::TempDir;

use super::batch::{Batch, Call, Commit};
use super::entry::{Counts, Entry, Found, Message, Salt};
use super::log::{Log, Lookup, Written};
use super::reader::Request;
use super::segments::Purpose;
use crate::door::Directory;
use crate::ids::RecordId;
use crate::store::{DEFINITIONS, RETAINED};

/// The files of version 1.
const V1: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/store/file/sample/v1");
/// The length of its segments.
const SEGMENT: u64 = 1024;
const LONG: &[u8] = &[b'x'; 600];

/// A message without anything special.
fn plain(record: RecordId, place: u64, body: &'static [u8]) -> Message<'static> {
    let (queue, id) = (&b"/queue/a"[..], &b"s-0-1"[..]);
    Message {
        record,
        place,
        persistent: true,
        plain: true,
        queue,
        destination: queue,
        id,
        body,
        ..Message::default()
    }
}

/// One with everything that a message may have.
fn complete() -> Message<'static> {
    Message {
        record: 257,
        place: (1 << 40) + 1,
        persistent: true,
        plain: false,
        grouped: true,
        expires_ms: 4_102_444_800_000,
        failures_max: 3,
        counts: Counts { deliveries: 2, failures: 1 },
        sender: 7,
        queue: b"/queue/dlq/a",
        destination: b"/topic/x",
        id: b"s-0-2",
        headers: b"a\\cb:1\\n2\ntype:t\n",
        body: b"\0\xff",
    }
}

fn definition() -> Message<'static> {
    Message {
        queue: DEFINITIONS,
        destination: b"/topic/x",
        id: b"shared",
        ..plain(300, 0, b"durable\nreader")
    }
}

fn last_value() -> Message<'static> {
    Message { queue: RETAINED, destination: b"/topic/x", headers: b"retain:set\n", ..plain(301, 0, b"last") }
}

/// What a reader of the sample finds: the messages of each queue in order, with what was noted of their deliveries.
fn expected() -> BTreeMap<Vec<u8>, Vec<(Message<'static>, Counts)>> {
    let noted = Counts { deliveries: 5, failures: 2 };
    let none = Counts::default();
    let queue_a = vec![
        (plain(511, 3, b"in front"), none),
        (plain(256, 1 << 40, b"first"), noted),
        (plain(259, (1 << 40) + 3, b"of a transaction"), none),
        (plain(400, (1 << 40) + 5, LONG), none),
    ];
    BTreeMap::from([
        (b"/queue/a".to_vec(), queue_a),
        (b"/queue/dlq/a".to_vec(), vec![(complete(), complete().counts)]),
        (DEFINITIONS.to_vec(), vec![(definition(), none)]),
        (RETAINED.to_vec(), vec![(last_value(), none)]),
    ])
}

/// Writes the sample: groups of messages, of what is forgotten and delivered, and of a transaction, in two segments.
fn write(directory: &Path) {
    let directory = Directory::claim(directory, "a sample").expect("nobody uses it");
    let (mut log, _) = Log::open(directory, SEGMENT, |_, _| true).expect("it is empty");
    let mut group = |batch: Batch| {
        assert_eq!(log.write(&[batch], 600, Purpose::Messages).expect("a disk that works"), Written::Done);
        log.sync().expect("a disk that works");
    };
    let mut first = Batch::default();
    for message in [&plain(256, 1 << 40, b"first"), &complete(), &plain(258, (1 << 40) + 2, b"forgotten")] {
        first.keep(message);
    }
    [&definition(), &last_value()].into_iter().for_each(|message| first.keep(message));
    group(first);
    let mut commit = Batch::default();
    let kept = [plain(259, (1 << 40) + 3, b"of a transaction"), plain(511, 3, b"in front")];
    let kept = kept.iter().map(|message| commit.add(message)).collect();
    commit.calls.push(Call::Commit(Commit { kept, forgotten: vec![258] }));
    commit.calls.push(Call::Deliver(256, Counts { deliveries: 5, failures: 2 }));
    group(commit);
    let mut last = Batch::default();
    last.keep(&plain(400, (1 << 40) + 5, LONG));
    last.keep(&plain(401, (1 << 40) + 6, b"forgotten later"));
    group(last);
    group(Batch { calls: vec![Call::Forget(401)], ..Batch::default() });
    log.close().expect("a disk that works");
}

/// Compares what is read in a directory with what is expected.
fn check(directory: &Path) {
    let directory = Directory::claim(directory, "a test").expect("nobody uses it");
    let (log, recovered) = Log::open(directory, SEGMENT, |_, _| true).expect("its version is known");
    assert_eq!((&recovered.damages[..], recovered.torn_bytes), (&[][..], 0));
    assert_eq!(log.next_record(), 600);
    let expected = expected();
    assert!(recovered.queues.keys().eq(expected.keys()), "{:?}", recovered.queues.keys());
    for (queue, messages) in &expected {
        let waiting = &recovered.queues[queue];
        assert_eq!(waiting.len(), messages.len(), "{}", String::from_utf8_lossy(queue));
        for (found, (message, counts)) in waiting.iter().zip(messages) {
            assert_eq!(
                (found.record, found.place, found.expires_ms),
                (message.record, message.place, message.expires_ms)
            );
            let Lookup::At(file, stored) = log.find(found.record) else { panic!("{found:?} is nowhere") };
            let bytes =
                Request { shard: 0, record: found.record, file, stored }.read().expect("a disk that works");
            match Found::at(&bytes, Salt::NONE) {
                Found::Entry(Entry::Message(read), length) => {
                    assert_eq!((&read, length), (message, bytes.len()))
                }
                other => panic!("{other:?}"),
            }
            assert_eq!(recovered.counts.get(&found.record).copied().unwrap_or_default(), *counts);
        }
    }
}

#[test]
fn a_log_of_version_1_is_read_message_by_message() {
    let at = TempDir::new().expect("a disk with room");
    for file in std::fs::read_dir(V1).expect("the sample") {
        let file = file.expect("a file");
        std::fs::copy(file.path(), at.path().join(file.file_name())).expect("a disk with room");
    }
    check(at.path());
    check(at.path()); // and as the one before has left it
}

#[test]
fn todays_log_has_what_the_samples_have() {
    let at = TempDir::new().expect("a disk with room");
    let directory = std::env::var_os("STOMPICA_TEST_SAMPLE").map_or(at.path().to_owned(), Into::into);
    write(&directory);
    let files = std::fs::read_dir(&directory).expect("it exists").count();
    assert_eq!(files, 3, "two segments and the lock");
    if directory == at.path() {
        check(&directory);
    }
}
