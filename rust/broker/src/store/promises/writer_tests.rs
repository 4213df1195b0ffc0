//! What the thread of a store does with what shards hand over.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use stompica_proto::ProtocolError;
use stompica_proto::error::Code;

use super::{Backend, Fixture, for_each_store};
use crate::config::Fsync;
use crate::ids::RecordId;
use crate::store::file::batch::{Batch, Call, Commit};
use crate::store::file::entry::{Entry, Found, Message, Salt};
use crate::store::{Counts, Position, Unreadable};

fn message(record: RecordId, body: &[u8]) -> Message<'_> {
    Message { record, queue: b"/queue/a", destination: b"/queue/a", body, ..Message::default() }
}

fn keep(record: RecordId, body: &[u8]) -> Batch {
    let mut batch = Batch::default();
    batch.keep(&message(record, body));
    batch
}

fn forget(record: RecordId) -> Batch {
    Batch { calls: vec![Call::Forget(record)], ..Batch::default() }
}

impl<B: Backend> Fixture<B> {
    fn post(&self, shard: usize, batch: Batch, position: Position, loads: &[RecordId]) {
        self.inbox.post(shard, batch, position, &mut loads.to_vec());
    }

    fn safe(&self, shard: usize) -> Position {
        self.inbox.safe(shard).expect("it has not failed")
    }

    /// What was read for a shard: each record with its body.
    fn loaded(&self, shard: usize) -> Vec<(RecordId, Result<Vec<u8>, Unreadable>)> {
        let body = |bytes: Vec<u8>| match Found::at(&bytes, Salt::NONE) {
            Found::Entry(Entry::Message(message), _) => message.body.to_vec(),
            other => panic!("{other:?}"),
        };
        self.inbox.loaded(shard).into_iter().map(|(record, read)| (record, read.map(body))).collect()
    }
}

for_each_store! {
    fn what_a_shard_told_is_safe_after_a_turn_and_the_shard_is_woken<B>() {
        let mut fixture = Fixture::<B>::new();
        let first = fixture.inbox.first_record();
        fixture.post(1, keep(first, b"x"), 1, &[]);
        fixture.post(0, keep(first + 256, b"y"), 7, &[]);
        assert_eq!((fixture.safe(0), fixture.safe(1)), (0, 0));
        assert!(fixture.turn());
        assert_eq!((fixture.safe(0), fixture.safe(1)), (7, 1));
        assert_eq!(*fixture.woken.lock().expect("no panic"), [0, 1]);
    }

    fn without_syncs_a_written_group_counts_as_safe<B>() {
        let mut fixture = Fixture::<B>::with(Fsync::Never);
        let first = fixture.inbox.first_record();
        fixture.post(0, keep(first, b"x"), 1, &[]);
        fixture.turn();
        assert_eq!(fixture.safe(0), 1);
        fixture.inbox.end();
        assert!(!fixture.turn());
        assert_eq!(fixture.records_after_end(), [first]);
    }

    fn an_interval_bounds_the_time_until_a_sync<B>() {
        let mut fixture = Fixture::<B>::with(Fsync::Interval(Duration::from_secs(3600)));
        fixture.post(0, keep(fixture.inbox.first_record(), b"x"), 1, &[]);
        fixture.turn();
        fixture.turn();
        assert_eq!(fixture.safe(0), 1, "written is enough");
        let patience = fixture.store.patience().expect("it waits for the time to sync");
        assert!(patience > Duration::from_secs(3000) && patience <= Duration::from_secs(3600));
    }

    fn what_is_synced_always_waits_for_nothing<B>() {
        let mut fixture = Fixture::<B>::new();
        fixture.post(0, keep(fixture.inbox.first_record(), b"x"), 1, &[]);
        fixture.turn();
        fixture.turn();
        assert_eq!(fixture.store.patience(), None);
    }

    fn messages_are_read_again_also_those_that_come_with_the_request_or_later<B>() {
        let mut fixture = Fixture::<B>::new();
        let (first, long) = (fixture.inbox.first_record(), vec![b'l'; 100_000]);
        fixture.post(0, keep(first, b"x"), 1, &[first]);
        fixture.post(1, Batch::default(), 0, &[first + 1]);
        fixture.turn();
        assert_eq!(fixture.loaded(0), [(first, Ok(b"x".to_vec()))]);
        assert_eq!(fixture.loaded(1), [], "it has not come");
        fixture.post(0, keep(first + 1, &long), 2, &[]);
        fixture.turn();
        assert_eq!(fixture.loaded(1), [(first + 1, Ok(long))]);
    }

    fn nobody_waits_for_what_was_forgotten_before_it_came<B>() {
        let mut fixture = Fixture::<B>::new();
        let first = fixture.inbox.first_record();
        fixture.post(0, Batch::default(), 0, &[first]);
        fixture.turn();
        fixture.post(0, forget(first), 1, &[]);
        fixture.turn();
        assert_eq!(fixture.loaded(0), [(first, Err(Unreadable))]);
        fixture.post(1, keep(first, b"x"), 1, &[]);
        fixture.turn();
        assert!(fixture.records_after_end().is_empty());
    }

    fn a_message_of_a_transaction_may_be_forgotten_before_it_comes<B>() {
        let mut fixture = Fixture::<B>::new();
        let first = fixture.inbox.first_record();
        fixture.post(0, forget(first), 1, &[]);
        fixture.turn();
        let mut batch = Batch::default();
        let kept = [first, first + 1].map(|record| batch.add(&message(record, b"x"))).to_vec();
        batch.calls.push(Call::Commit(Commit { kept, forgotten: Vec::new() }));
        fixture.post(1, batch, 1, &[]);
        fixture.turn();
        assert_eq!((fixture.safe(0), fixture.safe(1)), (1, 1));
        assert_eq!(fixture.records_after_end(), [first + 1]);
    }

    fn an_unknown_record_of_an_earlier_process_is_unreadable_at_once<B>() {
        let mut fixture = Fixture::<B>::new();
        let first = fixture.inbox.first_record();
        fixture.post(0, keep(first, b"x"), 1, &[]);
        fixture.turn();
        let (mut fixture, _) = fixture.reopen();
        fixture.post(0, forget(first), 1, &[]);
        fixture.turn();
        fixture.post(1, Batch::default(), 0, &[first]);
        fixture.turn();
        assert_eq!(fixture.loaded(1), [(first, Err(Unreadable))]);
    }

    fn a_thread_works_until_the_end_and_leaves_everything<B>() {
        let Fixture { at, inbox, mut store, .. } = Fixture::<B>::new();
        let thread = {
            let inbox = Arc::clone(&inbox);
            thread::spawn(move || store.run(&inbox))
        };
        let shards: Vec<_> = (0..2)
            .map(|shard| {
                let inbox = Arc::clone(&inbox);
                thread::spawn(move || {
                    let mut position = 0;
                    for _ in 0..4 {
                        for record in inbox.records() {
                            position += 1;
                            inbox.post(shard, keep(record, b"x"), position, &mut Vec::new());
                        }
                    }
                })
            })
            .collect();
        shards.into_iter().for_each(|shard| shard.join().expect("no panic"));
        inbox.end();
        thread.join().expect("no panic").expect("a disk that works");
        assert_eq!((inbox.safe(0), inbox.safe(1)), (Ok(4 * 256), Ok(4 * 256)));
        let (_, recovered) = Fixture::<B>::open(at, Fsync::Always);
        assert_eq!(recovered.queues[&b"/queue/a"[..]].len(), 2 * 4 * 256);
    }

    fn a_large_batch_is_written_in_several_groups_and_confirmed_behind_the_last<B>() {
        let mut fixture = Fixture::<B>::new();
        let first = fixture.inbox.first_record();
        let (mut batch, body) = (Batch::default(), vec![b'x'; 100_000]);
        (0..200).for_each(|at| batch.keep(&message(first + at, &body)));
        fixture.post(0, batch, 200, &[]);
        fixture.turn();
        assert_eq!(fixture.safe(0), 200);
        assert_eq!(fixture.records_after_end().len(), 200);
    }

    fn what_is_there_can_be_read_after_a_failure<B>() {
        let mut fixture = Fixture::<B>::new();
        let first = fixture.inbox.first_record();
        fixture.post(0, keep(first, b"x"), 1, &[]);
        fixture.turn();
        fixture.inbox.fail(ProtocolError::new(Code::StoreIo, "it has failed"));
        // A message that is delivered again and again, since its consumer does not acknowledge it.
        for deliveries in 2..10_000 {
            let calls = vec![Call::Deliver(first, Counts { deliveries, failures: 0 })];
            fixture.post(0, Batch { calls, ..Batch::default() }, 1, &[]);
        }
        fixture.post(0, keep(first + 1, b"y"), 2, &[first + 1, first]);
        fixture.inbox.end();
        let inbox = Arc::clone(&fixture.inbox);
        fixture.store.serve_reads(&inbox);
        let mut loaded = fixture.loaded(0);
        loaded.sort_by_key(|(record, _)| *record);
        assert_eq!(loaded, [(first, Ok(b"x".to_vec())), (first + 1, Ok(b"y".to_vec()))]);
        assert_eq!(fixture.records_after_end(), [first], "nothing more was written");
    }
}
