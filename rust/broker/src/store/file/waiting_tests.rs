use super::*;
use crate::store::file::entry::{Counts, Message};

fn keep(records: &[RecordId]) -> Batch {
    let mut batch = Batch::default();
    records.iter().for_each(|record| batch.keep(&message(*record)));
    batch
}

fn message(record: RecordId) -> Message<'static> {
    Message { record, queue: b"/queue/a", destination: b"/queue/a", body: b"body", ..Message::default() }
}

fn calls(calls: Vec<Call>) -> Batch {
    Batch { calls, ..Batch::default() }
}

/// The records of the messages that wait, in order.
fn kept(waiting: &Waiting) -> Vec<RecordId> {
    find(waiting.batches(), |_| true).into_iter().map(|(record, _)| record).collect()
}

#[test]
fn a_batch_that_is_too_large_for_a_group_is_spread_over_several() {
    let mut waiting = Waiting::default();
    let mut batch = keep(&(0..100).collect::<Vec<_>>());
    let piece = batch.add(&message(100));
    batch.calls.push(Call::Commit(Commit { kept: vec![piece], forgotten: vec![7] }));
    let bytes = batch.bytes.len() as u64;
    waiting.push(1, batch, 9, 1000);
    let (mut records, mut told) = (Vec::new(), Vec::new());
    while !waiting.is_empty() {
        let gathered = waiting.gather(1000);
        assert!(bytes_max(&gathered.batches) <= 1200);
        records.extend(find(gathered.batches.iter(), |_| true).into_iter().map(|(record, _)| record));
        told.extend(gathered.told);
    }
    assert_eq!(records, (0..=100).collect::<Vec<_>>());
    let (last, before) = told.split_last().expect("several groups");
    assert_eq!(*last, (1, Some(9), bytes), "it is confirmed as a whole");
    assert!(before.len() > 5 && before.iter().all(|part| *part == (1, None, 0)));
}

#[test]
fn what_makes_room_is_taken_out_and_what_was_forgotten_while_it_waited_is_dropped() {
    let mut waiting = Waiting::default();
    let counts = Counts { deliveries: 1, failures: 0 };
    waiting.push(0, keep(&[10, 11]), 2, 10_000);
    let deliver = |record| Call::Deliver(record, counts);
    waiting.push(1, calls(vec![Call::Forget(10), Call::Forget(1), deliver(11), deliver(2)]), 4, 10_000);
    let mut urgent = Vec::new();
    waiting.sift(&mut urgent, |record| record < 10);
    assert_eq!(urgent, [Call::Forget(1), deliver(2)]);
    assert_eq!(kept(&waiting), [11]);
    // Nothing is found twice, and later calls are.
    waiting.push(2, calls(vec![Call::Forget(12)]), 1, 10_000);
    urgent.clear();
    waiting.sift(&mut urgent, |record| record < 10);
    assert_eq!(urgent, [Call::Forget(12)], "its message has not come");
}

#[test]
fn what_has_nothing_left_is_done_unless_something_of_its_shard_is_before_it() {
    let mut waiting = Waiting::default();
    waiting.push(0, keep(&[10]), 1, 10_000);
    waiting.push(0, calls(vec![Call::Forget(1)]), 2, 10_000);
    waiting.push(1, calls(vec![Call::Forget(2)]), 5, 10_000);
    waiting.sift(&mut Vec::new(), |record| record < 10);
    assert_eq!(waiting.take_done(), [(1, Some(5), 0)]);
    waiting.push(1, calls(vec![Call::Forget(10)]), 6, 10_000);
    let mut urgent = Vec::new();
    waiting.sift(&mut urgent, |record| record < 10);
    let done: Vec<_> =
        waiting.take_done().into_iter().map(|(shard, position, _)| (shard, position)).collect();
    assert_eq!(done, [(0, Some(1)), (0, Some(2)), (1, Some(6))]);
    assert!(urgent.is_empty() && waiting.is_empty());
}
