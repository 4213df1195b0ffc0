//! Tests of homes; the tests act as the shard of the consumers.

#[path = "home_bounds_tests.rs"]
mod bounds_tests;
#[path = "home_model.rs"]
mod model;
#[path = "home_sharing_tests.rs"]
mod sharing_tests;

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
use crate::config::Compat;
use crate::held;
use crate::ids::NO_RECORD;
use crate::ids::ShardId;
use crate::ids::Subscriber;
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
    Home::new(&config, crate::door::HashState::default(), store)
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
        expires_ms: 0,
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
fn what_consumers_give_back_while_the_broker_ends_is_delivered_to_nobody() {
    let mut home = home();
    let queue = home.create(b"/queue/a", QueueKind::Work);
    home.attach(queue, subscriber(1), messages(5));
    home.attach(queue, subscriber(2), messages(5));
    home.enqueue(queue, message("/queue/a", 1, 1));
    home.dispatch(usize::MAX);
    let first = take_deliveries(&mut home).remove(0);
    home.is_ending = true;
    home.detach(first.subscriber);
    home.give_back(queue, first.consumer, first.message, GivenBack::Lost);
    home.dispatch(usize::MAX);
    assert!(take_deliveries(&mut home).is_empty(), "nobody could acknowledge it");
    assert_eq!(home.held_for_later(), 1, "the log has the number of these messages");
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
    let mut home = Home::new(&config, crate::door::HashState::default(), Box::new(ledger.clone()));
    home.set_time(1);
    let queue = home.create(b"/queue/a", QueueKind::Work);
    for number in 0..6_u8 {
        let body = [number];
        let message = Message {
            destination: b"/queue/a",
            id: b"i",
            sender: 0,
            headers: b"",
            plain: true,
            expires_ms: 0,
            body: &body,
        };
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

#[test]
fn what_fails_is_dropped_where_there_are_no_queues_for_dead_letters() {
    let ledger = Ledger::default();
    let config = Config { max_deliveries: 1, compat: Compat::Stompica, ..Config::default() };
    let mut home = Home::new(&config, crate::door::HashState::default(), Box::new(ledger.clone()));
    let queue = home.create(b"durable", QueueKind::Durable { shared: false });
    home.attach(queue, subscriber(1), messages(1));
    let mut message = message("/topic/a", 1, 1);
    message.persistent = true;
    home.enqueue(queue, message);
    home.dispatch(10);
    let failed = take_deliveries(&mut home).remove(0);
    let why = GivenBack::Failed { deliveries_max: 9, delay_ms: 0, credit: Credit::default() };
    home.give_back(failed.queue, failed.consumer, failed.message, why);
    assert!(!home.effects.iter().any(|effect| matches!(effect, Effect::DeadLetter(_))));
    assert_eq!((home.counts.dropped, home.counts.dead_lettered, ledger.calls()), (1, 0, (1, vec![1])));
}
