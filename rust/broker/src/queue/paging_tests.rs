//! Tests of homes whose queues are paged out to a store that answers when the test says so.

#[path = "paging_loss_tests.rs"]
mod loss_tests;
#[path = "paging_owners_tests.rs"]
mod owners_tests;

use std::mem::take;
use std::time::Duration;

use super::super::pick::tests::{Priority, credit, message, subscriber};
use super::super::types::{Credit, Delivery, GivenBack, Progress, Refusal};
use super::*;
use crate::config::Config;
use crate::held;
use crate::store::paging_double::PagingStore;

const WINDOW: usize = 4;

struct World {
    home: Home,
    store: PagingStore,
    next: usize,
}

impl World {
    fn new() -> Self {
        World::with(Config::default())
    }

    fn with(config: Config) -> Self {
        let store = PagingStore::new(1, 100);
        let mut home = Home::new(&config, crate::door::HashState::default(), store.handle());
        home.set_window(WINDOW, 1 << 20);
        World { home, store, next: 0 }
    }

    /// Puts so many messages into a queue. Each third one is persistent.
    fn send(&mut self, queue: QueueKey, count: usize) {
        (0..count).for_each(|_| self.send_one(queue, 0));
    }

    fn send_one(&mut self, queue: QueueKey, expires_ms: u64) {
        let mut message = message(&self.next.to_string());
        message.persistent = self.next.is_multiple_of(3);
        message.expires_ms = expires_ms;
        self.next += 1;
        self.home.enqueue(queue, message);
    }

    fn page_out(&mut self) {
        while self.home.has_paging_work(true) {
            self.home.page_out();
        }
    }

    /// Dispatches without taking anything from the store. Returns the deliveries.
    fn dispatch(&mut self) -> Vec<Delivery> {
        while self.home.has_work() {
            self.home.dispatch(10);
        }
        let (mut deliveries, mut others) = (Vec::new(), Vec::new());
        for effect in take(&mut self.home.effects) {
            match effect {
                Effect::Deliver(delivery) => deliveries.push(delivery),
                other => others.push(other),
            }
        }
        self.home.effects = others;
        deliveries
    }

    /// Dispatches and loads until nothing is left to be done; consumers consume at once.
    fn consume(&mut self) -> Vec<Delivery> {
        let mut consumed = Vec::new();
        loop {
            let deliveries = self.dispatch();
            deliveries.iter().for_each(|delivery| self.settle(delivery));
            let is_over = deliveries.is_empty() && self.home.requested() == 0;
            consumed.extend(deliveries);
            if is_over {
                return consumed;
            }
            self.home.take_loaded();
        }
    }

    fn settle(&mut self, delivery: &Delivery) {
        self.home.forget(&delivery.message);
        let settled_bytes = delivery.message.size() as u64;
        let credit = Credit { messages: 1, bytes: settled_bytes as i64 };
        let (queue, consumer) = (delivery.queue, delivery.consumer);
        self.home.progress(&Progress { queue, consumer, settled: 1, settled_bytes, credit });
    }

    fn queue(&self, key: QueueKey) -> &Queue {
        self.home.queue(key).expect("a queue")
    }
}

/// A work queue whose messages, so many, were paged out.
fn with_paged_out(count: usize) -> (World, QueueKey) {
    let mut world = World::new();
    let queue = world.home.create(b"/queue/a", QueueKind::Work);
    world.send(queue, count);
    world.page_out();
    (world, queue)
}

fn bodies(deliveries: &[Delivery]) -> Vec<usize> {
    let number = |delivery: &Delivery| String::from_utf8_lossy(delivery.message.message().body).parse().ok();
    deliveries.iter().filter_map(number).collect()
}

#[test]
fn a_queue_that_waits_for_the_store_does_not_stop_another_one() {
    let mut world = World::new();
    let [slow, fast] =
        [&b"/queue/slow"[..], b"/queue/fast"].map(|name| world.home.create(name, QueueKind::Work));
    world.send(slow, 10);
    world.page_out();
    world.store.set_readiness(0);
    for (number, queue) in [(1, slow), (2, fast)] {
        world.home.attach(queue, subscriber(number), credit(100));
    }
    world.send(fast, 3);
    assert_eq!(
        bodies(&world.dispatch()),
        [0, 1, 2, 3, 10, 11, 12],
        "its loaded messages, and all of the other one's"
    );
    assert!(!world.home.has_work(), "the queue is not tried again and again");
    world.send(fast, 1);
    assert_eq!(bodies(&world.dispatch()), [13]);
    world.home.take_loaded();
    assert!(world.dispatch().is_empty());
    world.store.set_readiness(100);
    assert_eq!(bodies(&world.consume()), [4, 5, 6, 7, 8, 9]);
}

#[test]
fn a_long_queue_occupies_the_memory_of_its_window_and_its_stubs() {
    let before = held::bytes();
    let mut world = World::new();
    let queue = world.home.create(b"/queue/a", QueueKind::Work);
    world.send(queue, 5000);
    let (loaded, size, bytes) =
        (held::bytes() - before, world.queue(queue).size(), world.queue(queue).waiting_bytes());
    world.page_out();
    assert!(held::bytes() - before < loaded / 3, "{} of {loaded} bytes", held::bytes() - before);
    assert_eq!((world.queue(queue).size(), world.queue(queue).waiting_bytes()), (size, bytes));
    assert_eq!(world.home.stubs(), 5000 - WINDOW);
    world.home.attach(queue, subscriber(1), credit(7));
    let mut consumed = Vec::new();
    while world.queue(queue).size() > 0 {
        let portion = world.dispatch();
        portion.iter().for_each(|delivery| world.settle(delivery));
        consumed.extend(bodies(&portion));
        world.home.take_loaded();
        let loaded = world.queue(queue).pending.len() - world.home.stubs();
        assert!(loaded <= WINDOW, "{loaded} messages are loaded");
    }
    assert!(consumed.into_iter().eq(0..5000));
    assert!(world.store.requested_max() <= WINDOW);
    assert!(world.store.bodies().is_empty(), "the store holds nothing any more");
    drop(world);
    assert_eq!(held::bytes(), before);
}

#[test]
fn while_memory_is_full_a_queue_loads_one_message_when_none_is_in_flight() {
    let (mut world, queue) = with_paged_out(20);
    world.home.attach(queue, subscriber(1), credit(100));
    world.home.note_memory(1 << 30, 1 << 30, 1);
    let first = world.dispatch();
    assert_eq!((first.len(), world.home.requested()), (WINDOW, 0), "those that stayed in memory");
    first.iter().for_each(|delivery| world.settle(delivery));
    for expected in WINDOW..WINDOW + 3 {
        assert!(world.dispatch().is_empty());
        assert_eq!(world.home.requested(), 1);
        world.home.take_loaded();
        let next = world.dispatch();
        assert_eq!((bodies(&next), world.home.requested()), (vec![expected], 0));
        world.settle(&next[0]);
    }
    world.dispatch();
    world.home.take_loaded();
    let held = world.dispatch();
    assert_eq!((held.len(), world.home.requested()), (1, 0), "nothing is loaded ahead");
    world.home.note_memory(0, 1 << 30, 1);
    world.home.proceed(usize::MAX);
    assert_eq!(world.consume().len(), 20 - WINDOW - 4);
}

#[test]
fn what_comes_while_memory_is_full_waits_in_the_store_until_it_is_delivered() {
    let mut world = World::new();
    let queue = world.home.create(b"/queue/dlq/a", QueueKind::Work);
    world.home.attach(queue, subscriber(1), credit(100));
    world.home.note_memory(1 << 30, 1 << 30, 1);
    world.send(queue, 1);
    let first = world.dispatch();
    assert_eq!((bodies(&first), world.home.stubs()), (vec![0], 0), "none was in flight");
    world.send(queue, 3);
    assert!(world.dispatch().is_empty());
    assert_eq!((world.home.stubs(), world.home.requested()), (3, 0));
    world.settle(&first[0]);
    for expected in 1..4 {
        assert!(world.dispatch().is_empty());
        world.home.take_loaded();
        let next = world.dispatch();
        assert_eq!(bodies(&next), [expected]);
        world.settle(&next[0]);
    }
}

#[test]
fn usage_around_95_percent_does_not_visit_all_queues_again_and_again() {
    let (mut world, _) = with_paged_out(20);
    for (percent, is_sweeping) in [(95, false), (94, false), (95, false), (91, false), (89, true)] {
        world.home.note_memory(percent << 20, 100 << 20, 1);
        assert_eq!(world.home.is_sweeping(), is_sweeping, "{percent} %");
    }
}

#[test]
fn queues_together_request_no_more_than_fits_and_take_turns_while_memory_is_full() {
    const QUEUES: usize = 30;
    const COUNT: usize = 12;
    let mut world = World::new();
    let size = message("0").size();
    for at in 0..QUEUES {
        let queue = world.home.create(format!("/queue/{at}").as_bytes(), QueueKind::Work);
        world.send(queue, COUNT);
        world.home.attach(queue, subscriber(at as u32 + 1), credit(100));
    }
    world.page_out();
    world.home.set_window(WINDOW, 2 * size);
    let mut consumed = 0;
    for turn in 0..QUEUES * COUNT {
        // Half of the turns have room for seven messages, and the others for none.
        let held = if turn % 2 == 0 { 95 << 20 } else { (95 << 20) - 7 * size as i64 };
        world.home.note_memory(held, 100 << 20, 1);
        world.home.let_load();
        let deliveries = world.dispatch();
        assert!(world.home.paging.requested_bytes <= 10 * size, "{}", world.home.paging.requested_bytes);
        deliveries.iter().for_each(|delivery| world.settle(delivery));
        consumed += deliveries.len();
        world.home.take_loaded();
    }
    assert_eq!((consumed, world.home.requested(), world.home.stubs()), (QUEUES * COUNT, 0, 0));
}

#[test]
fn a_loaded_message_is_the_one_that_was_paged_out() {
    let mut world = World::new();
    let queue = world.home.create(b"/queue/a", QueueKind::Work);
    world.send(queue, WINDOW);
    let mut sent = message("last");
    (sent.persistent, sent.grouped, sent.failures_max, sent.expires_ms) = (true, true, 5, 1000);
    world.home.enqueue(queue, sent);
    world.page_out();
    assert_eq!(world.home.stubs(), 1);
    world.home.attach(queue, subscriber(1), credit(100));
    let consumed = world.consume();
    let owned = &consumed.last().expect("a message").message;
    let message = owned.message();
    assert_eq!(
        (message.destination, message.id, message.headers),
        (&b"/queue/a"[..], &b"i"[..], &b"h:v\n"[..])
    );
    assert_eq!((message.body, message.sender, message.plain), (&b"last"[..], 7, true));
    assert_eq!(
        (owned.persistent, owned.grouped, owned.failures_max, owned.expires_ms),
        (true, true, 5, 1000)
    );
    assert_eq!(owned.deliveries, 1);
}

#[test]
fn nothing_is_paged_out_again_and_again_while_memory_stays_short() {
    let mut world = World::new();
    let queue = world.home.create(b"/queue/a", QueueKind::Work);
    assert!(!world.home.has_paging_work(false));
    world.send(queue, 10);
    world.page_out();
    assert!(!world.home.has_paging_work(true));
    world.home.attach(queue, subscriber(1), credit(0));
    world.dispatch();
    assert_eq!((world.home.requested(), world.home.stubs()), (0, 10 - WINDOW), "what is loaded is enough");
}

#[test]
fn many_messages_are_paged_out_in_portions_from_all_queues() {
    let mut world = World::new();
    let queues: Vec<_> =
        (0..6).map(|at| world.home.create(format!("/queue/{at}").as_bytes(), QueueKind::Work)).collect();
    queues.iter().for_each(|queue| world.send(*queue, 2000));
    for portion in 1..=2 {
        world.home.visited = 0;
        world.home.page_out();
        assert_eq!(world.home.stubs(), portion * paged_at_once());
        assert!(world.home.visited <= paged_at_once() + looks_max());
    }
    assert!(queues.iter().all(|queue| world.queue(*queue).pending.stubs() >= PORTION));
}

#[test]
fn many_loaded_messages_are_taken_in_portions_without_another_event() {
    let mut world = World::new();
    let queue = world.home.create(b"/queue/a", QueueKind::Work);
    world.send(queue, WINDOW + loaded_at_once() + 1);
    world.page_out();
    world.home.set_window(2 * loaded_at_once(), 1 << 20);
    world.home.attach(queue, subscriber(1), credit(WINDOW as i64));
    assert_eq!(world.dispatch().len(), WINDOW);
    for (left, has_more) in [(loaded_at_once() + 1, false), (1, true), (0, false)] {
        assert_eq!((world.home.requested(), world.home.has_paging_work(false)), (left, has_more));
        world.home.take_loaded();
    }
}

#[test]
fn a_message_that_comes_back_is_delivered_at_its_place() {
    let (mut world, queue) = with_paged_out(10);
    world.home.attach(queue, subscriber(1), credit(3));
    world.home.attach(queue, subscriber(2), credit(0));
    let mut held = world.dispatch();
    assert_eq!(bodies(&held), [0, 1, 2]);
    let give_back = |world: &mut World, delivery: Delivery, why| {
        world.home.give_back(delivery.queue, delivery.consumer, delivery.message, why);
    };
    let why = GivenBack::Failed { deliveries_max: 9, delay_ms: 100, credit: credit(1) };
    give_back(&mut world, held.remove(2), why);
    give_back(&mut world, held.remove(0), GivenBack::Lost);
    world.page_out();
    let next = world.dispatch();
    assert_eq!(bodies(&next), [0], "the redelivery of the other one is delayed");
    assert_eq!(next[0].message.deliveries, 2);
    world.home.set_time(100);
    world.home.handle_due(queue);
    world.settle(&held.remove(0));
    let next = world.dispatch();
    assert_eq!(bodies(&next), [2]);
    world.home.add_credit_of(subscriber(2), credit(100));
    assert_eq!(bodies(&world.consume()), [3, 4, 5, 6, 7, 8, 9]);
}

#[test]
fn a_transaction_has_its_place_among_messages_in_the_store() {
    let mut world = World::new();
    let queue = world.home.create(b"/queue/a", QueueKind::Work);
    world.send(queue, 6);
    let first = world.home.reserve(queue, 2, 100);
    world.send(queue, 6);
    world.page_out();
    world.home.attach(queue, subscriber(1), credit(100));
    assert_eq!(bodies(&world.consume()), [0, 1, 2, 3, 4, 5], "those behind it wait for its end");
    for (nth, body) in ["100", "101"].into_iter().enumerate() {
        world.home.enqueue_at(queue, message(body), first + nth as u64);
    }
    world.home.release(queue, first, 2, 100);
    assert_eq!(bodies(&world.consume()), [100, 101, 6, 7, 8, 9, 10, 11]);
}

#[test]
fn limits_and_allowances_count_messages_in_the_store() {
    let mut world = World::with(Config { max_queue_length: 10, ..Config::default() });
    let queue = world.home.create(b"/queue/a", QueueKind::Work);
    world.send(queue, 10);
    world.page_out();
    assert!(matches!(world.home.check_room(queue, 1, 1), Err(Refusal::Full(_))));
    world.home.attach(queue, subscriber(1), credit(10));
    assert_eq!(world.home.allowance(queue), None, "its credit is for those that wait");
    assert_eq!(world.home.held_for_later(), 10);
    world.consume();
    assert!(world.home.allowance(queue).is_some());
}

#[test]
fn consumers_of_a_pattern_share_queues_that_are_paged_out() {
    let mut world = World::new();
    let queues = [&b"/queue/a"[..], b"/queue/b"].map(|name| world.home.create(name, QueueKind::Work));
    queues.iter().for_each(|queue| world.send(*queue, 20));
    world.page_out();
    (1..=2).for_each(|number| _ = world.home.attach_pattern(b"/queue/*", subscriber(number), credit(3)));
    world.home.proceed(usize::MAX);
    let consumed = world.consume();
    assert_eq!(consumed.len(), 40);
    for queue in queues {
        let numbers: Vec<usize> = consumed
            .iter()
            .filter(|delivery| delivery.queue == queue)
            .flat_map(|delivery| bodies(std::slice::from_ref(delivery)))
            .collect();
        assert!(numbers.is_sorted() && numbers.len() == 20);
    }
    let of = |number| consumed.iter().filter(|it| it.subscriber == subscriber(number)).count();
    assert!(of(1) >= 15 && of(2) >= 15, "{} and {}", of(1), of(2));
}

#[test]
fn worker_topics_and_queues_with_a_pick_stay_in_memory() {
    let mut world = World::new();
    let worker = world.home.create(b"#w", QueueKind::Worker);
    world.home.attach(worker, subscriber(1), credit(0));
    let picked = world.home.create(b"/queue/a", QueueKind::Work);
    world.home.pick_by(picked, Priority);
    for queue in [worker, picked] {
        world.send(queue, 10);
    }
    world.page_out();
    assert_eq!((world.home.stubs(), world.queue(worker).size(), world.queue(picked).size()), (0, 10, 10));
}
