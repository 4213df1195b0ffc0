//! Compaction of a log, and a model of all that may happen to one.

use super::*;
use crate::store::file::reader::Request;
use crate::store::file::segment::Segment;

/// One step of compaction. Returns whether there was anything to do.
fn compact(log: &mut Log, replacing: &mut Option<Replacing>) -> bool {
    compact_if(log, replacing, false)
}

fn compact_if(log: &mut Log, replacing: &mut Option<Replacing>, is_full: bool) -> bool {
    match log.compact(replacing, is_full) {
        compaction::Step::Nothing => return false,
        compaction::Step::Write(batch) => write(log, &[&[batch]]),
        compaction::Step::Remove(segment) => {
            assert_eq!(log.remove(segment).expect("a disk that works"), 0);
        }
    }
    true
}

/// A log of which little is needed, and the records that are.
fn mostly_forgotten(at: &Path) -> (Log, BTreeSet<RecordId>) {
    let (mut log, _) = open(at);
    for start in (0..1000).step_by(10) {
        let all = start + 1..=start + 10;
        write(&mut log, &[&[keep(all.clone())], &[forget(all.filter(|record| record % 20 != 0))]]);
    }
    (log, set((20..=1000).step_by(20)))
}

#[test]
fn room_is_given_back_and_nothing_is_lost() {
    let at = directory();
    let (mut log, needed) = mostly_forgotten(at.path());
    let before = log.figures();
    let mut replacing = None;
    while compact(&mut log, &mut replacing) {}
    let after = log.figures();
    assert!(after.disk_bytes < before.disk_bytes / 2, "{before:?} {after:?}");
    assert!(after.disk_bytes <= 2 * after.needed_bytes + 3 * log.segment_bytes(), "{after:?}");
    drop(log);
    let (_, recovered) = open(at.path());
    assert_eq!((records(&recovered), recovered.damages.len()), (needed, 0));
}

/// A message that several queues have: its first copy has record `first`.
fn shared(first: RecordId, record: RecordId) -> Message<'static> {
    const QUEUES: [&[u8]; 8] = [b"a", b"b", b"c", b"d", b"e", b"f", b"g", b"h"];
    const IDS: [&[u8]; 3] = [b"one", b"two", b"three"];
    Message {
        queue: QUEUES[(record - first) as usize],
        destination: b"/topic/t",
        id: IDS[(first % 3) as usize],
        body: &[b'b'; 400],
        ..message(record)
    }
}

fn queue_of(log: &Log, record: RecordId) -> Vec<u8> {
    let Lookup::At(file, stored) = log.find(record) else { panic!("record {record} is not there") };
    let bytes = Request { shard: 0, record, file, stored }.read().expect("a disk that works");
    let mut messages = crate::store::file::entry::messages_in(&bytes);
    let message = messages.next().expect("a message");
    assert_eq!((message.record, message.body, messages.count()), (record, &[b'b'; 400][..], 0));
    message.queue.to_vec()
}

#[test]
fn a_message_of_several_queues_is_written_once_in_a_group_and_lives_as_long_as_one_of_them_needs_it() {
    let at = directory();
    let (mut log, _) = open(at.path());
    let copies = |first: RecordId, records: std::ops::Range<RecordId>| {
        batch(|batch| records.for_each(|record| batch.keep(&shared(first, record))))
    };
    // From two shards, with another message between them.
    write(&mut log, &[&[copies(1, 1..4), copies(12, 12..14), copies(1, 4..7)]]);
    let written = log.figures();
    assert!(written.written_bytes < 2 * 400 + 300, "{written:?}");
    assert_eq!((written.messages, written.needed_bytes), (8, log.figures().needed_bytes));
    assert!((2 * 400 - 100..2 * 400 + 300).contains(&written.needed_bytes), "{written:?}");
    assert_eq!(
        (queue_of(&log, 1), queue_of(&log, 6), queue_of(&log, 13)),
        (b"a".into(), b"f".into(), b"b".into())
    );
    // Most of them end, and compaction writes the rest again.
    write(&mut log, &[&[forget([1, 2, 4, 12, 13])], &[keep(100..160), copies(200, 200..201)]]);
    let mut replacing = None;
    write(&mut log, &[&[forget(100..160)], &[keep(300..360)], &[forget(300..360)]]);
    while compact_if(&mut log, &mut replacing, true) {}
    let needed = log.figures();
    assert!(log.segments.find(1).is_none() && needed.needed_bytes < 2 * 400 + 300, "{needed:?}");
    assert_eq!(
        (queue_of(&log, 3), queue_of(&log, 5), queue_of(&log, 6)),
        (b"c".into(), b"e".into(), b"f".into())
    );
    write(&mut log, &[&[forget([3, 6])]]);
    drop(log);
    let (log, recovered) = open(at.path());
    assert_eq!(records(&recovered), set([5, 200]));
    assert_eq!((queue_of(&log, 5), queue_of(&log, 200)), (b"e".into(), b"a".into()));
}

#[test]
fn a_log_that_ends_in_the_middle_of_compaction_is_complete() {
    for steps in 0..60 {
        let at = directory();
        let (mut log, mut needed) = mostly_forgotten(at.path());
        let mut replacing = None;
        (0..steps).for_each(|_| _ = compact(&mut log, &mut replacing));
        // What is forgotten now may be in a segment that is being replaced.
        if steps % 3 == 0 {
            write(&mut log, &[&[forget([20, 500, 1000])]]);
            [20, 500, 1000].iter().for_each(|record| _ = needed.remove(record));
        }
        drop(log);
        assert_eq!(records(&open(at.path()).1), needed, "{steps} steps");
        assert_eq!(records(&open(at.path()).1), needed, "{steps} steps, opened again");
    }
}

#[test]
fn what_is_forgotten_while_it_is_moved_stays_forgotten() {
    let at = directory();
    let (mut log, needed) = mostly_forgotten(at.path());
    let mut replacing = None;
    let batch = loop {
        match log.compact(&mut replacing, false) {
            compaction::Step::Write(batch)
                if batch.calls.iter().any(|call| matches!(call, Call::Move(..))) =>
            {
                break batch;
            }
            compaction::Step::Write(batch) => write(&mut log, &[&[batch]]),
            compaction::Step::Remove(segment) => _ = log.remove(segment).expect("a disk that works"),
            compaction::Step::Nothing => panic!("nothing is moved"),
        }
    };
    let moved = set(batch.calls.iter().filter_map(|call| match call {
        Call::Move(piece, _) => Some(piece.record),
        _ => None,
    }));
    // In the same group as it is moved: its old segment may still be there after a crash.
    write(&mut log, &[&[batch, forget(moved.clone())]]);
    drop(log);
    assert_eq!(records(&open(at.path()).1), &needed - &moved);
}

#[test]
fn counts_are_moved_with_their_messages() {
    let at = directory();
    let (mut log, _) = mostly_forgotten(at.path());
    let counts = Counts { deliveries: 3, failures: 1 };
    write(&mut log, &[&[batch(|batch| batch.calls.push(Call::Deliver(20, counts)))]]);
    for start in (2000..6000).step_by(10) {
        write(&mut log, &[&[keep(start..start + 10)], &[forget(start..start + 10)]]);
        let mut replacing = None;
        while compact(&mut log, &mut replacing) {}
    }
    drop(log);
    let (_, recovered) = open(at.path());
    assert_eq!(recovered.counts.into_iter().collect::<Vec<_>>(), [(20, counts)]);
}

/// What happens to a log in a test.
#[derive(Clone, Debug)]
enum Step {
    Keep(RecordId),
    KeepShared(RecordId),
    Forget(usize),
    Commit(RecordId, usize),
    EndBatch,
    EndGroup,
    Compact,
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..20u64).prop_map(Step::Keep),
        4 => (1..8u64).prop_map(Step::KeepShared),
        4 => (0..1000usize).prop_map(Step::Forget),
        2 => (0..5u64, 0..1000usize).prop_map(|(kept, forgotten)| Step::Commit(kept, forgotten)),
        3 => Just(Step::EndBatch),
        2 => Just(Step::EndGroup),
        2 => Just(Step::Compact),
        1 => Just(Step::Reopen),
    ]
}

/// What is needed of a segment, which has to be the same after a start.
fn figures(segment: &Segment) -> (u64, u64, u64, usize) {
    (segment.messages, segment.bytes, segment.forgets.count(), segment.shared.len())
}

proptest! {
    #[test]
    fn it_has_what_a_map_has(steps in proptest::collection::vec(step(), 0..120)) {
        let at = directory();
        let (mut log, _) = open(at.path());
        let mut model = BTreeMap::new();
        let (mut next, mut batches, mut current) = (1, Vec::new(), Batch::default());
        let mut replacing = None;
        for step in steps.into_iter().chain([Step::Reopen]) {
            let pick = |model: &BTreeMap<RecordId, ()>, at: usize| {
                model.keys().nth(at % model.len().max(1)).copied()
            };
            match step {
                Step::Keep(count) => for _ in 0..count {
                    current.keep(&message(next));
                    model.insert(next, ());
                    next += 1;
                },
                Step::KeepShared(count) => for copy in 0..count {
                    current.keep(&shared(next - copy, next));
                    model.insert(next, ());
                    next += 1;
                },
                Step::Forget(at) => if let Some(record) = pick(&model, at) {
                    current.calls.push(Call::Forget(record));
                    model.remove(&record);
                },
                Step::Commit(count, at) => {
                    let forgotten: Vec<RecordId> = pick(&model, at).into_iter().collect();
                    forgotten.iter().for_each(|record| _ = model.remove(record));
                    let kept = (next..next + count).map(|record| current.add(&message(record))).collect();
                    (next..next + count).for_each(|record| _ = model.insert(record, ()));
                    next += count;
                    current.calls.push(Call::Commit(Commit { kept, forgotten }));
                }
                Step::Compact => _ = compact(&mut log, &mut replacing),
                Step::EndBatch => batches.push(std::mem::take(&mut current)),
                Step::EndGroup | Step::Reopen => {
                    batches.push(std::mem::take(&mut current));
                    // Batches of different shards come in any order.
                    batches.reverse();
                    put(&mut log, &batches, next);
                    log.sync().expect("a disk that works");
                    batches.clear();
                    prop_assert_eq!(log.figures().messages, model.len() as u64);
                    if matches!(step, Step::Reopen) {
                        let before: Vec<_> = log.segments.iter().map(figures).collect();
                        drop(log);
                        let (again, recovered) = open(at.path());
                        let after: Vec<_> = again.segments.iter().map(figures).collect();
                        prop_assert_eq!(records(&recovered), model.keys().copied().collect());
                        prop_assert_eq!(before, after);
                        prop_assert_eq!((recovered.torn_bytes, recovered.damages.len()), (0, 0));
                        log = again;
                        replacing = None;
                    }
                }
            }
        }
    }
}
