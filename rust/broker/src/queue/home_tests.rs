//! Tests of homes; the tests act as the shard of the consumers.

#[path = "home_model.rs"]
mod model;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use std::mem::take;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use proptest::prelude::*;
use proptest::sample::Index;
use stompica_proto::encode::Message;

use super::*;
use crate::collections::keyed::Key;
use crate::ids::NO_RECORD;
use crate::ids::ShardId;
use crate::ids::Subscriber;
use crate::message::held_bytes;
use crate::queue::types::{Consumed, Delivery, Taker};
use crate::store::Memory;
use crate::store::paging_double::PagingStore;

const IDLE_MS: u64 = 500;
const DELAY_MS: u64 = 10;
const DELIVERIES_MAX: u32 = 3;

fn home() -> Home {
    home_with(Box::new(Memory))
}

fn home_with(store: Box<dyn Store>) -> Home {
    let config = Config {
        queue_idle_expiry: Duration::from_millis(IDLE_MS),
        redelivery_delay: Duration::from_millis(DELAY_MS),
        max_deliveries: DELIVERIES_MAX,
        ..Config::default()
    };
    Home::new(&config, foldhash::fast::RandomState::default(), store)
}

fn subscriber(number: usize) -> Subscriber {
    Subscriber { shard: ShardId(0), key: Key { index: number as u32, generation: 1 } }
}

fn message(name: &str, id: usize, len: usize) -> OwnedMessage {
    let (id, body) = (id.to_string(), vec![b'x'; len]);
    OwnedMessage::new(&Message {
        destination: name.as_bytes(),
        id: id.as_bytes(),
        sender: 0,
        headers: b"",
        plain: true,
        body: &body,
    })
}

/// A home with a dead-letter queue of this many messages, which expire at these times.
fn with_expiring(count: usize, expires_ms: impl Fn(usize) -> u64) -> (Home, QueueKey) {
    let mut home = home();
    let queue = home.create(b"/queue/dlq/a", QueueKind::Work);
    for id in 0..count {
        let mut message = message("/queue/dlq/a", id, 1);
        message.expires_ms = expires_ms(id);
        home.enqueue(queue, message);
    }
    (home, queue)
}

fn id_of(message: &OwnedMessage) -> usize {
    let id = std::str::from_utf8(message.message().id).expect("a number");
    id.parse().expect("a number")
}

/// Credit that is limited only in messages.
fn messages(messages: i64) -> Credit {
    Credit { messages, bytes: Credit::UNLIMITED }
}

/// Removes the deliveries from the effects of a home; the other effects remain.
fn take_deliveries(home: &mut Home) -> Vec<Delivery> {
    let (deliveries, others) = take(&mut home.effects).into_iter().partition::<Vec<_>, _>(is_delivery);
    home.effects = others;
    deliveries.into_iter().filter_map(delivery).collect()
}

fn is_delivery(effect: &Effect) -> bool {
    matches!(effect, Effect::Deliver(_))
}

fn delivery(effect: Effect) -> Option<Delivery> {
    if let Effect::Deliver(delivery) = effect { Some(delivery) } else { None }
}

fn settled(delivery: &Delivery, messages: i64) -> Progress {
    Progress {
        queue: delivery.queue,
        consumer: delivery.consumer,
        settled: 1,
        settled_bytes: delivery.message.size() as u64,
        credit: Credit { messages, bytes: 0 },
    }
}

#[test]
fn a_queue_can_request_credit_again_after_its_credit_was_revoked() {
    let mut home = home();
    let key = home.attach_pattern(b"/queue/*", subscriber(1), messages(1));
    let queue = home.create(b"/queue/a", QueueKind::Work);
    home.enqueue(queue, message("/queue/a", 1, 1));
    let mut short_lived = message("/queue/a", 2, 1);
    short_lived.expires_ms = 10;
    home.enqueue(queue, short_lived);
    home.dispatch(usize::MAX);
    let first = take_deliveries(&mut home);
    assert!(
        home.effects.iter().any(|effect| matches!(effect, Effect::CreditRequest(..))),
        "the second message is pending"
    );
    home.set_time(10);
    home.handle_due(queue);
    // The first message is acknowledged. Its credit stays at the consumer's shard, for the first home that requests it:
    // this one.
    home.progress(&settled(&first[0], 0));
    home.grant(key, 1);
    home.revoke(subscriber(1));
    home.dispatch(usize::MAX);
    assert!(
        home.effects.iter().any(|effect| matches!(effect, Effect::CreditReturn(_, 1))),
        "no message is pending"
    );
    home.effects.clear();
    home.enqueue(queue, message("/queue/a", 3, 1));
    home.dispatch(usize::MAX);
    assert!(
        home.effects.iter().any(|effect| matches!(effect, Effect::CreditRequest(..))),
        "{:?}",
        home.effects
    );
}

#[test]
fn timers_do_not_accumulate_while_a_queue_is_used() {
    let mut home = home();
    let mut timers = BinaryHeap::new();
    let queue = home.create(b"/queue/a", QueueKind::Work);
    home.attach_pattern(b"/queue/*", subscriber(1), messages(Credit::UNLIMITED));
    for step in 0..1000_usize {
        let now_ms = 50 * step as u64;
        home.set_time(now_ms);
        while timers.peek().is_some_and(|Reverse(at_ms)| *at_ms <= now_ms) {
            timers.pop();
            home.handle_due(queue);
        }
        let mut message = message("/queue/a", step, 1);
        message.expires_ms = now_ms + 40;
        home.enqueue(queue, message);
        home.dispatch(usize::MAX);
        for effect in take(&mut home.effects) {
            match effect {
                Effect::Timer(at_ms, _) => timers.push(Reverse(at_ms)),
                Effect::Deliver(delivery) => home.progress(&settled(&delivery, 1)),
                other => panic!("unexpected: {other:?}"),
            }
        }
    }
    assert!(timers.len() as u64 <= 2 * IDLE_MS / 40, "{} timers wait for one queue", timers.len());
}

#[test]
fn a_queue_is_idle_from_the_expiry_of_its_last_message() {
    let mut home = home();
    let queue = home.create(b"/queue/dlq/a", QueueKind::Work);
    let mut message = message("/queue/dlq/a", 1, 1);
    message.expires_ms = 2 * IDLE_MS;
    home.enqueue(queue, message);
    home.set_time(2 * IDLE_MS);
    home.handle_due(queue);
    assert_eq!(home.counts.expired, 1);
    assert!(home.queue(queue).is_some(), "it had a message a moment ago");
    home.set_time(3 * IDLE_MS);
    home.handle_due(queue);
    assert!(home.queue(queue).is_none());
}

#[test]
fn remaining_overdue_messages_do_not_precede_the_deadlines_of_other_queues() {
    let (mut home, queue) = with_expiring(1000, |at| 10 + at as u64 / 500);
    home.set_time(100);
    home.effects.clear();
    let mut meets = 0;
    while home.queue(queue).is_some_and(|queue| queue.size() > 0) && meets < 10 {
        home.handle_due(queue);
        meets += 1;
        let timers = take(&mut home.effects).into_iter().filter_map(|effect| match effect {
            Effect::Timer(at_ms, _) => Some(at_ms),
            _ => None,
        });
        assert!(timers.min().is_some_and(|at_ms| at_ms >= 100), "after {meets}");
    }
    assert_eq!((meets, home.counts.expired), (4, 1000));
}

#[test]
fn a_nacked_message_goes_to_a_consumer_that_got_credit_in_the_same_turn() {
    let mut home = home();
    let queue = home.create(b"/queue/a", QueueKind::Work);
    let first = home.attach(queue, subscriber(1), messages(10));
    home.attach(queue, subscriber(2), messages(1));
    (0..2).for_each(|id| home.enqueue(queue, message("/queue/a", id, 1)));
    home.dispatch(usize::MAX);
    let mut held = take_deliveries(&mut home);
    assert_eq!(held.iter().map(|it| it.subscriber.key.index).collect::<Vec<_>>(), [1, 2]);
    let why = GivenBack::Failed { deliveries_max: u32::MAX, delay_ms: 0, credit: messages(1) };
    home.give_back(queue, first, held.remove(0).message, why);
    home.set_time(DELAY_MS);
    home.handle_due(queue);
    home.progress(&settled(&held[0], 1));
    home.dispatch(usize::MAX);
    let again = take_deliveries(&mut home);
    assert_eq!((id_of(&again[0].message), again[0].subscriber.key.index), (0, 2));
}

#[test]
fn a_worker_topic_delivers_nothing_after_a_stale_message() {
    let mut home = home();
    let worker = home.create(b"#w", QueueKind::Worker);
    home.attach(worker, subscriber(1), messages(9));
    let enqueue = |home: &mut Home, seq| {
        let mut message = message("#w", seq as usize, 1);
        message.seq = seq;
        home.enqueue(worker, message);
        home.dispatch(9);
        take_deliveries(home).iter().map(|delivery| id_of(&delivery.message)).collect::<Vec<_>>()
    };
    home.hold_behind(worker, Some(3));
    assert_eq!((enqueue(&mut home, 5), enqueue(&mut home, 2)), (vec![], vec![2]));
    assert_eq!(home.allowance(worker), None, "the next message would be kept");
    home.hold_behind(worker, Some(4));
    assert_eq!((enqueue(&mut home, 6), enqueue(&mut home, 3)), (vec![], vec![3]));
    home.hold_behind(worker, None);
    assert!(home.has_work() && home.allowance(worker).is_some());
    assert_eq!(enqueue(&mut home, 4), [4, 5, 6]);
}

#[test]
fn the_memory_of_a_home_is_released_with_it() {
    let before = held_bytes();
    let mut home = home();
    let queue = home.create(b"/queue/a", QueueKind::Work);
    let worker = home.create(b"#w", QueueKind::Worker);
    let consumer = home.attach(queue, subscriber(1), messages(3));
    for id in 0..6 {
        let mut message = message("/queue/a", id, 1000);
        message.expires_ms = [0, 50][id % 2];
        message.failures_max = u16::from(id == 2);
        home.enqueue(queue, message);
    }
    home.enqueue(worker, message("#w", 6, 1000));
    home.dispatch(2);
    let mut held = take_deliveries(&mut home);
    let why = GivenBack::Failed { deliveries_max: u32::MAX, delay_ms: 0, credit: messages(1) };
    home.give_back(queue, consumer, held.remove(0).message, why); // delayed
    home.give_back(queue, consumer, held.remove(0).message, GivenBack::Lost); // at its old place
    home.dispatch(2); // to the consumer
    let failed = take_deliveries(&mut home).remove(1).message;
    home.give_back(queue, consumer, failed, why); // a dead letter
    home.dispatch(1);
    home.set_time(50);
    home.handle_due(queue); // others expire
    assert!(held_bytes() > before + 5000);
    let is_letter = |effect: &&Effect| matches!(effect, Effect::DeadLetter(_));
    assert!(home.effects.iter().filter(is_letter).count() > 1 && home.effects.iter().any(is_delivery));
    assert!(home.effects.iter().any(|effect| matches!(effect, Effect::Unmatched(_))));
    assert!(home.queue(queue).is_some_and(|queue| queue.pending.len() > 0));
    drop(home);
    assert_eq!(held_bytes(), before);
}

#[test]
fn consumers_of_a_pattern_cost_its_queues_nothing() {
    let mut home = home();
    for number in 0..2000 {
        home.create(format!("/queue/{number}").as_bytes(), QueueKind::Work);
    }
    home.attach_pattern(b"/queue/>", subscriber(0), messages(1));
    home.proceed(usize::MAX);
    let (bytes, references) = (home.held_bytes(), home.references);
    home.visited = 0;
    for number in 1..1000 {
        home.attach_pattern(b"/queue/>", subscriber(number), messages(1));
    }
    assert_eq!((references, home.references, home.visited), (2000, 2000, 0));
    assert!(!home.is_sweeping() && home.held_bytes() - bytes < 1000 * 200, "{}", home.held_bytes() - bytes);
    for number in 0..1000 {
        home.detach(subscriber(number));
    }
    home.proceed(usize::MAX);
    assert_eq!((home.references, home.patterns.is_empty()), (0, true));
}

#[test]
fn several_changes_of_patterns_cause_one_walk_over_the_queues() {
    let mut home = home();
    for number in 0..5000 {
        home.create(format!("/queue/{number}").as_bytes(), QueueKind::Work);
    }
    home.visited = 0;
    for number in 0..1000 {
        home.attach_pattern(format!("/queue/{number}*").as_bytes(), subscriber(number), messages(1));
        if number % 2 == 0 {
            home.detach(subscriber(number));
        }
    }
    assert_eq!(home.visited, 0, "no queue is visited at once");
    let mut walked = 0;
    while home.is_sweeping() {
        home.proceed(100);
        let visited = take(&mut home.visited);
        assert!(visited <= 200, "{visited} in one portion of 100");
        walked += visited;
    }
    // Each step walks down the tree, and the patterns are at the end of three paths.
    assert!(walked < 20 * home.queues.slots(), "{walked} for {} queues", home.queues.len());
}

#[test]
fn pending_messages_reach_a_new_pattern_in_portions() {
    let mut home = home();
    for number in 0..100 {
        let name = format!("/queue/{number}");
        let queue = home.create(name.as_bytes(), QueueKind::Work);
        home.enqueue(queue, message(&name, number, 1));
    }
    home.dispatch(usize::MAX);
    home.attach_pattern(b"/queue/*", subscriber(1), messages(Credit::UNLIMITED));
    let mut seen = BTreeSet::new();
    while home.is_sweeping() {
        home.proceed(10);
        home.dispatch(usize::MAX);
        let portion = take_deliveries(&mut home);
        assert!(portion.len() <= 20, "{} at once", portion.len());
        seen.extend(portion.iter().map(|delivery| id_of(&delivery.message)));
    }
    assert_eq!(seen.len(), 100);
}

#[test]
fn a_full_queue_is_removed_in_portions() {
    let before = held_bytes();
    let mut home = home();
    let queue = home.create(b"/queue/a", QueueKind::Work);
    (0..5000).for_each(|id| home.enqueue(queue, message("/queue/a", id, 1)));
    let worker = home.create(b"#w", QueueKind::Worker);
    home.attach(worker, subscriber(1), messages(0));
    (0..5000).for_each(|id| home.enqueue(worker, message("#w", id, 1)));
    home.visited = 0;
    home.delete(queue);
    home.detach(subscriber(1));
    assert!(home.visited <= 600 && home.is_sweeping(), "{} at once", home.visited);
    while home.is_sweeping() {
        home.visited = 0;
        home.proceed(100);
        assert!(home.visited <= 400, "{} at once", home.visited);
    }
    let unmatched = take(&mut home.effects).into_iter().filter(|it| matches!(it, Effect::Unmatched(_)));
    assert_eq!((unmatched.count(), home.counts.dropped), (5000, 5000));
    drop(home);
    assert_eq!(held_bytes(), before);
}

#[test]
fn each_of_very_many_busy_queues_is_served_soon() {
    let mut home = home();
    let mut queue = |number: usize, count: usize| {
        let name = format!("/queue/{number}");
        let queue = home.create(name.as_bytes(), QueueKind::Work);
        home.attach(queue, subscriber(number), messages(1000));
        (0..count).for_each(|id| home.enqueue(queue, message(&name, id, 1)));
        queue
    };
    (0..5000).for_each(|number| _ = queue(number, 60));
    let last = queue(5000, 1);
    let mut delivered = 0;
    let mut is_served = false;
    while !is_served {
        delivered += home.dispatch(64);
        is_served = take_deliveries(&mut home).iter().any(|delivery| delivery.queue == last);
    }
    assert!(delivered < 5100, "{delivered} deliveries");
}

#[test]
fn the_growth_of_a_list_counts_as_visits() {
    let mut home = home();
    let queue = home.create(b"/queue/a", QueueKind::Work);
    home.visited = 0;
    (0..1000).for_each(|id| home.enqueue(queue, message("/queue/a", id, 1)));
    let few = take(&mut home.visited);
    (1000..100_000).for_each(|id| home.enqueue(queue, message("/queue/a", id, 1)));
    assert!(few >= 100 && home.visited >= 50 * few, "{few} and {} visits", home.visited);
}

#[test]
fn many_queues_removed_together_drop_their_messages_in_portions() {
    let mut home = home();
    let queues: Vec<_> =
        (0..100).map(|at| home.create(format!("/queue/{at}").as_bytes(), QueueKind::Work)).collect();
    for queue in &queues {
        (0..100).for_each(|id| home.enqueue(*queue, message("/queue/a", id, 1)));
    }
    home.visited = 0;
    queues.into_iter().for_each(|queue| home.delete(queue));
    assert!(home.visited < 600 && home.is_sweeping(), "{} at once", home.visited);
    home.proceed(usize::MAX);
    assert_eq!((home.counts.dropped, home.is_sweeping()), (10_000, false));
}

#[test]
fn messages_that_expire_together_are_dropped_in_portions() {
    let (mut home, queue) = with_expiring(5000, |id| if id == 0 { 0 } else { 50 });
    home.set_time(50);
    let mut portions = 0;
    while home.counts.expired < 4999 {
        home.visited = 0;
        home.handle_due(queue);
        assert!(home.visited <= 300, "{} at once", home.visited);
        portions += 1;
    }
    assert!(portions < 30 && home.queue(queue).is_some_and(|queue| queue.size() == 1));
}

/// A store that records its calls.
#[derive(Clone, Debug, Default)]
struct Ledger(Arc<Mutex<(u64, Vec<u64>)>>);

impl Ledger {
    /// How many messages were kept, and which were forgotten.
    fn calls(&self) -> (u64, Vec<u64>) {
        self.0.lock().expect("no test panics while it holds the lock").clone()
    }
}

impl Store for Ledger {
    fn keep(&mut self, _: &[u8], _: &OwnedMessage) -> u64 {
        let mut ledger = self.0.lock().expect("no test panics while it holds the lock");
        ledger.0 += 1;
        ledger.0
    }

    fn forget(&mut self, record: u64) {
        self.0.lock().expect("no test panics while it holds the lock").1.push(record);
    }
}

#[test]
fn a_store_forgets_each_message_once_however_the_message_ends() {
    let ledger = Ledger::default();
    let config = Config { max_deliveries: 1, ..Config::default() };
    let mut home = Home::new(&config, foldhash::fast::RandomState::default(), Box::new(ledger.clone()));
    home.set_time(1);
    let queue = home.create(b"/queue/a", QueueKind::Work);
    for number in 0..6_u8 {
        let body = [number];
        let message =
            Message { destination: b"/queue/a", id: b"i", sender: 0, headers: b"", plain: true, body: &body };
        let mut owned = OwnedMessage::new(&message);
        owned.persistent = number != 5;
        owned.expires_ms = if number == 4 { 10 } else { 0 };
        home.enqueue(queue, owned);
    }
    let subscriber = Subscriber { shard: ShardId(0), key: Key { index: 0, generation: 0 } };
    let credit = Credit { messages: 2, bytes: 1000 };
    home.attach(queue, subscriber, credit);
    home.dispatch(10);
    let mut delivered = Vec::new();
    for effect in take(&mut home.effects) {
        if let Effect::Deliver(delivery) = effect {
            delivered.push(delivery);
        }
    }
    let failed = delivered.remove(0);
    let why = GivenBack::Failed { deliveries_max: 9, delay_ms: 0, credit: Credit::default() };
    home.give_back(failed.queue, failed.consumer, failed.message, why); // dead
    home.forget(&delivered.remove(0).message); // acknowledged
    home.set_time(20);
    home.handle_due(queue); // the fifth has expired
    home.delete(queue);
    let letters = home.create(b"/queue/dlq/a", QueueKind::Work);
    for effect in take(&mut home.effects) {
        if let Effect::DeadLetter(dead) = effect {
            let before = ledger.0.lock().expect("as above").1.clone();
            assert!(
                dead.record != NO_RECORD && !before.contains(&dead.record),
                "the store keeps it meanwhile"
            );
            home.enqueue(letters, dead);
        }
    }
    home.delete(letters);
    let (kept, mut forgotten) = ledger.0.lock().expect("as above").clone();
    forgotten.sort_unstable();
    assert_eq!(
        (kept, forgotten),
        (7, (1..=7).collect()),
        "two dead letters, but the sixth was not to be kept"
    );
}

/// Adds one message to each of this many queues, one after another. Returns how many each consumer gets.
fn deliveries_of_queues(home: &mut Home, queues: usize, consumers: usize) -> Vec<usize> {
    let mut counts = vec![0; consumers];
    for number in 0..queues {
        let name = format!("/queue/{number}");
        let queue = home.create(name.as_bytes(), QueueKind::Work);
        home.enqueue(queue, message(&name, number, 1));
        home.dispatch(usize::MAX);
        for delivery in take_deliveries(home) {
            counts[delivery.subscriber.key.index as usize] += 1;
        }
    }
    counts
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn equal_consumers_get_equally_many_messages(
        patterns in prop::collection::vec(any::<bool>(), 1..6),
        batches in prop::collection::vec((0..10_usize, 1..10_usize), 1..20),
    ) {
        let mut home = home();
        let queue = home.create(b"/queue/a", QueueKind::Work);
        for (number, pattern) in patterns.iter().enumerate() {
            match pattern {
                true => home.attach_pattern(b"/queue/*", subscriber(number), messages(Credit::UNLIMITED)),
                false => home.attach(queue, subscriber(number), messages(Credit::UNLIMITED)),
            };
        }
        let mut counts = vec![0_usize; patterns.len()];
        for (count, portion) in batches {
            (0..count).for_each(|id| home.enqueue(queue, message("/queue/a", id, 1)));
            home.dispatch(portion);
            for delivery in take_deliveries(&mut home) {
                counts[delivery.subscriber.key.index as usize] += 1;
                let (least, most) = (counts.iter().min(), counts.iter().max());
                prop_assert!(most.zip(least).is_some_and(|(most, least)| most - least <= 1), "{:?}", counts);
            }
        }
    }

    #[test]
    fn several_patterns_share_many_queues_by_their_consumers(sizes in prop::collection::vec(1..4_usize, 1..4)) {
        let mut home = home();
        let mut consumers = 0;
        for (pattern, size) in sizes.iter().enumerate() {
            for _ in 0..*size {
                let text = ["/queue/*", "/queue/>", "/queue/#"][pattern];
                home.attach_pattern(text.as_bytes(), subscriber(consumers), messages(Credit::UNLIMITED));
                consumers += 1;
            }
        }
        let counts = deliveries_of_queues(&mut home, 10 * consumers, consumers);
        prop_assert!(counts.iter().all(|count| *count == 10), "{:?}", counts);
    }

    #[test]
    fn each_queue_serves_all_consumers_of_a_pattern_in_turn(
        consumers in 1..6_usize,
        order in prop::collection::vec(0..4_usize, 1..100),
    ) {
        let mut home = home();
        for number in 0..consumers {
            home.attach_pattern(b"#jobs/*", subscriber(number), messages(Credit::UNLIMITED));
        }
        let names = ["#jobs/a", "#jobs/b", "#jobs/c", "#jobs/d"];
        let queues = names.map(|name| home.create(name.as_bytes(), QueueKind::Worker));
        let mut counts = vec![vec![0_usize; consumers]; names.len()];
        for (id, queue) in order.iter().enumerate() {
            home.enqueue(queues[*queue], message(names[*queue], id, 1));
            home.dispatch(usize::MAX);
            for delivery in take_deliveries(&mut home) {
                counts[*queue][delivery.subscriber.key.index as usize] += 1;
            }
        }
        for (queue, of) in counts.iter().enumerate() {
            prop_assert!(of.iter().max() <= of.iter().min().map(|least| least + 1).as_ref(), "{}: {:?}", queue, of);
        }
    }

    #[test]
    fn many_queues_with_one_message_each_are_shared_evenly(consumers in 1..6_usize, queues in 1..40_usize) {
        let mut home = home();
        for number in 0..consumers {
            home.attach_pattern(b"/queue/*", subscriber(number), messages(Credit::UNLIMITED));
        }
        let counts = deliveries_of_queues(&mut home, queues, consumers);
        let (least, most) = (counts.iter().min(), counts.iter().max());
        prop_assert!(most.zip(least).is_some_and(|(most, least)| most - least <= 1), "{:?}", counts);
        prop_assert_eq!(counts.iter().sum::<usize>(), queues);
    }
}

#[test]
fn consumers_of_a_closed_shard_are_suspended_until_it_is_opened() {
    let mut home = home();
    let far = |number| Subscriber { shard: ShardId(5), ..subscriber(number) };
    let queues = ["/queue/a", "/queue/b"].map(|name| home.create(name.as_bytes(), QueueKind::Work));
    home.attach(queues[0], far(1), messages(10));
    home.attach_pattern(b"/queue/b*", far(2), messages(3));
    let near = home.attach(queues[1], subscriber(3), messages(1));
    home.close(ShardId(5));
    for id in 0..4 {
        home.enqueue(queues[0], message("/queue/a", id, 1));
        home.enqueue(queues[1], message("/queue/b", id, 1));
    }
    home.dispatch(usize::MAX);
    let shards =
        |home: &mut Home| take_deliveries(home).iter().map(|it| it.subscriber.shard.0).collect::<Vec<_>>();
    assert_eq!(
        (shards(&mut home), home.has_work()),
        (vec![0], false),
        "others go on, and nothing is tried again"
    );
    // Granted or revoked credit changes nothing meanwhile.
    let [pattern, exact] = [2, 1].map(|number| home.consumer_of(far(number)).expect("it consumes"));
    home.add_credit(exact, messages(1));
    home.grant(pattern, 1);
    home.dispatch(usize::MAX);
    assert_eq!((shards(&mut home), home.has_work()), (vec![], false));
    home.detach(far(1));
    home.attach(queues[0], far(4), messages(10));
    home.dispatch(usize::MAX);
    home.open(ShardId(5));
    assert!(home.has_work());
    home.dispatch(1);
    home.close(ShardId(5));
    let first = shards(&mut home).len();
    home.open(ShardId(5));
    home.dispatch(usize::MAX);
    assert_eq!(
        (first + shards(&mut home).len(), home.has_work()),
        (7, false),
        "all pending messages, once each"
    );
    home.add_credit(near, messages(1));
    assert!(!home.has_work());
}
