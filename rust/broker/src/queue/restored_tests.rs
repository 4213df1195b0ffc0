//! What a store has twice is restored once.

use super::*;
use crate::config::Config;
use crate::ids::ShardId;
use crate::log::LogQueue;
use crate::queue::notes::Notes;
use crate::queue::queues::Queues;
use crate::queue::stale::StaleCounts;
use crate::router::Router;
use crate::store::Memory;
use crate::store::double::{Call, Journal};
use crate::totals::Totals;
use crate::turn::Turn;

/// Restores these at a shard that is alone, and runs `check`.
fn restored(
    definitions: Vec<OwnedMessage>,
    retained: Vec<OwnedMessage>,
    lines: Vec<Line>,
    check: impl FnOnce(&mut Owners<'_>, &Journal),
) {
    let config = Config { writers: 1, ..Config::default() };
    let hasher = crate::door::HashState::default();
    let log = LogQueue::new(10, Level::Error);
    let mut router = Router::new(&config, hasher.clone());
    let stale = Arc::new(StaleCounts::new(1));
    let memory = Box::new(Memory);
    let mut queues = Queues::new(ShardId(0), &config, hasher.clone(), stale, Arc::default(), memory);
    let mut notes = Notes::new(ShardId(0), 1);
    let totals = Arc::new(Totals::default());
    let mut turn = Turn::new(ShardId(0), 1, Arc::new(config), totals, log, hasher, "e");
    let mut owners = Owners { turn: &mut turn, notes: &mut notes, router: &mut router, queues: &mut queues };
    let journal = Journal::default();
    let homes = Restoring::new(1);
    owners.restore(Share {
        store: journal.handle(),
        counts: HashMap::default(),
        definitions,
        retained,
        lines,
        homes,
    });
    owners.proceed_with_restoring();
    assert!(owners.take_restored().is_some());
    check(&mut owners, &journal);
}

/// The store has both if the process has ended, or the disk has lost, between the new value and the end of the old one.
#[test]
fn a_retained_message_that_was_replaced_is_forgotten_and_not_counted() {
    let value = |record| {
        let mut message = crate::queue::stale::tests::message(b"/t/a", b"x", 0);
        message.record = record;
        message
    };
    restored(Vec::new(), vec![value(5), value(6)], Vec::new(), |owners, journal| {
        assert_eq!(owners.queues.retained.record_of(b"/t/a"), 6);
        let facts = (owners.queues.retained.count(), journal.calls());
        assert_eq!(facts, (1, vec![Call::Forget(5)]), "one value, and the older one is forgotten");
    });
}

#[test]
fn a_durable_subscription_that_was_defined_anew_is_restored_once() {
    let name = b"durable\n\nd";
    let defined = |record, shared| {
        let mut message = definition(name, b"/topic/a", shared, NO_RECORD);
        message.record = record;
        message
    };
    restored(vec![defined(5, false), defined(6, true)], Vec::new(), Vec::new(), |owners, journal| {
        let facts = (owners.queues.home.iter().count(), owners.queues.bindings.len(), journal.calls());
        assert_eq!(facts, (1, 1, vec![Call::Forget(5)]), "one queue, one binding");
    });
}

/// The process has ended before all messages of the subscription that was ended were forgotten: its places were used again.
#[test]
fn messages_of_an_earlier_subscription_of_the_same_name_are_forgotten() {
    let name = b"durable\n\nd";
    let stub = |record, seq| Stub { record, seq: FIRST_SEQ + seq, expires_ms: 0, bytes: 10 };
    let line = || vec![(name[..].into(), vec![stub(5, 0), stub(8, 0), stub(6, 1), stub(9, 1)])];
    for (since, left) in [(NO_RECORD, 2), (6, 3), (1, 4)] {
        let mut defined = definition(name, b"/topic/a", false, since);
        defined.record = 7;
        restored(vec![defined], Vec::new(), line(), |owners, journal| {
            let queue = owners.queues.home.find(name).and_then(|key| owners.queues.home.queue(key));
            assert_eq!(queue.map(|queue| queue.pending.len()), Some(left), "since {since}");
            let forgotten = [5, 6].into_iter().take(4 - left).map(Call::Forget);
            assert_eq!(journal.calls(), forgotten.collect::<Vec<_>>());
        });
    }
}

/// The bytes that a shard holds were too few by what the thread of the store had created.
#[test]
fn what_the_thread_of_the_store_has_created_is_counted_where_it_goes() {
    let created = std::thread::spawn(|| {
        let value = crate::queue::stale::tests::message(b"/t/a", b"x", 0);
        (definition(b"durable\n\nd", b"/topic/a", false, NO_RECORD), value)
    });
    let (defined, value) = created.join().expect("no panic");
    let before = crate::held::bytes();
    restored(vec![defined], vec![value], Vec::new(), |owners, _| {
        assert!(crate::held::bytes() > before, "the value is held");
        assert_eq!(owners.queues.retained.count(), 1);
    });
    assert_eq!(crate::held::bytes(), before, "everything is gone");
}
