//! Tests of when a shard pages out.

use std::sync::atomic::AtomicBool;

use std::sync::Arc;

use super::*;
use crate::ids::{ConsumerKey, ShardId};
use crate::log::LogQueue;
use crate::queue::notes::Notes;
use crate::queue::queues::Queues;
use crate::queue::stale::StaleCounts;
use crate::router::Router;
use crate::store::Memory;
use crate::totals::Totals;
use crate::turn::Turn;

#[test]
fn a_shard_pages_out_from_60_percent_on_and_logs_what_cannot_be_read() {
    let config = Config { writers: 1, ..Config::default() };
    let hasher = crate::door::HashState::default();
    let log = LogQueue::new(10, Level::Error);
    let mut router = Router::new(&config, hasher.clone());
    let mut queues = Queues::new(
        ShardId(0),
        &config,
        hasher.clone(),
        Arc::new(StaleCounts::new(1)),
        Arc::default(),
        Box::new(Memory),
    );
    let mut notes = Notes::new(ShardId(0), 1);
    let totals = Arc::new(Totals::default());
    let mut turn = Turn::new(ShardId(0), 1, Arc::new(config), totals, Arc::clone(&log), hasher, "e");
    let mut owners = Owners { turn: &mut turn, notes: &mut notes, router: &mut router, queues: &mut queues };
    let store = PagingStore::new(1, 100);
    for (used_percent, is_paging_store, stubs) in [(70, false, 0), (50, true, 0), (70, true, 36)] {
        let handle = if is_paging_store { store.handle() } else { Box::new(Memory) };
        owners.queues.home.use_store(handle);
        let name = format!("/queue/{used_percent}{is_paging_store}");
        let queue = owners.queues.home.create(name.as_bytes(), QueueKind::Work);
        (0..100).for_each(|number: usize| owners.queues.home.enqueue(queue, message(&number.to_string())));
        owners.turn.memory.compare(used_percent, 100, &AtomicBool::new(false));
        owners.proceed_with_paging();
        assert_eq!(
            owners.queues.home.queue(queue).map(|it| it.pending.stubs()),
            Some(stubs),
            "{used_percent} %"
        );
        owners.queues.home.delete(queue);
        owners.queues.home.proceed(usize::MAX);
    }
    let queue = owners.queues.home.create(b"/queue/a", QueueKind::Work);
    (0..100).for_each(|number: usize| owners.queues.home.enqueue(queue, message(&number.to_string())));
    owners.proceed_with_paging();
    store.damage(b"64");
    let consumer: ConsumerKey = owners.queues.home.attach(queue, subscriber(1), credit(100));
    owners.queues.home.dispatch(100);
    owners.proceed_with_paging();
    owners.run_effects();
    let lines = log.drain(std::time::Duration::ZERO);
    assert!(lines.iter().any(|line| line.text.contains("a message of '/queue/a' is dropped")), "{lines:?}");
    assert!(owners.queues.home.consumers.get(consumer).is_some());
}
