//! Tests of homes against a plain list of messages; the shard of the consumers is played here.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::mem::take;
use std::time::Duration;

use stompica_proto::encode::Message;

use super::*;
use crate::keyed::Key;
use crate::queue::parts::Delivery;

const IDLE_MS: u64 = 500;
const DELAY_MS: u64 = 10;
const DELIVERIES_MAX: u32 = 3;

fn home() -> Home {
    let config = Config {
        queue_idle_expiry: Duration::from_millis(IDLE_MS),
        redelivery_delay: Duration::from_millis(DELAY_MS),
        max_deliveries: DELIVERIES_MAX,
        ..Config::default()
    };
    Home::new(&config, foldhash::fast::RandomState::default(), Box::new(crate::store::Memory))
}

fn subscriber(number: usize) -> Subscriber {
    Subscriber { shard: ShardId(0), key: Key { index: number as u32, generation: 1 } }
}

fn stored(name: &str, id: usize, len: usize) -> Stored {
    let (id, body) = (id.to_string(), vec![b'x'; len]);
    Stored::new(&Message {
        destination: name.as_bytes(),
        id: id.as_bytes(),
        headers: b"",
        plain: true,
        body: &body,
    })
}

/// Credit without bounds but in messages.
fn messages(messages: i64) -> Credit {
    Credit { messages, bytes: Credit::UNLIMITED }
}

/// What a home wants delivered, and to whom; everything else it wants is kept.
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
        settled_bytes: delivery.stored.size() as u64,
        credit: Credit { messages, bytes: 0 },
    }
}

#[test]
fn credit_that_is_wanted_back_leaves_no_queue_behind_that_cannot_ask_again() {
    let mut home = home();
    let key = home.attach_pattern(b"/queue/*", subscriber(1), messages(1));
    let queue = home.create(b"/queue/a", QueueKind::Work);
    home.enqueue(queue, stored("/queue/a", 1, 1));
    let mut short_lived = stored("/queue/a", 2, 1);
    short_lived.expires_ms = 10;
    home.enqueue(queue, short_lived);
    home.dispatch(usize::MAX);
    let first = take_deliveries(&mut home);
    assert!(home.effects.iter().any(|effect| matches!(effect, Effect::Want(..))), "the second one waits");
    home.set_time(10);
    home.meet(queue);
    // The first is acknowledged, and its credit kept at the consumer's shard for whoever wants it: this home.
    home.progress(&settled(&first[0], 0));
    home.lend(key, 1);
    home.dispatch(usize::MAX);
    assert!(
        home.effects.iter().any(|effect| matches!(effect, Effect::Unused(_, 1))),
        "nothing waits any more"
    );
    home.effects.clear();
    home.enqueue(queue, stored("/queue/a", 3, 1));
    home.dispatch(usize::MAX);
    assert!(home.effects.iter().any(|effect| matches!(effect, Effect::Want(..))), "{:?}", home.effects);
}

#[test]
fn timers_do_not_pile_up_while_a_queue_is_used() {
    let mut home = home();
    let mut timers = BinaryHeap::new();
    let queue = home.create(b"/queue/a", QueueKind::Work);
    home.attach_pattern(b"/queue/*", subscriber(1), messages(Credit::UNLIMITED));
    for step in 0..1000_usize {
        let now_ms = 50 * step as u64;
        home.set_time(now_ms);
        while timers.peek().is_some_and(|Reverse(at_ms)| *at_ms <= now_ms) {
            timers.pop();
            home.meet(queue);
        }
        let mut message = stored("/queue/a", step, 1);
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
fn a_queue_is_idle_from_the_moment_its_last_message_expired() {
    let mut home = home();
    let queue = home.create(b"/queue/dlq/a", QueueKind::Work);
    let mut message = stored("/queue/dlq/a", 1, 1);
    message.expires_ms = 2 * IDLE_MS;
    home.enqueue(queue, message);
    home.set_time(2 * IDLE_MS);
    home.meet(queue);
    assert_eq!(home.counts.expired, 1);
    assert!(home.queue(queue).is_some(), "it held a message a moment ago");
    home.set_time(3 * IDLE_MS);
    home.meet(queue);
    assert!(home.queue(queue).is_none());
}

/// A store that remembers what it was told.
#[derive(Clone, Debug, Default)]
struct Ledger(std::sync::Arc<std::sync::Mutex<(u64, Vec<u64>)>>);

impl crate::store::Store for Ledger {
    fn keep(&mut self, _: &[u8], _: &Stored) -> u64 {
        let mut ledger = self.0.lock().expect("no test panics while it holds the lock");
        ledger.0 += 1;
        ledger.0
    }

    fn forget(&mut self, record: u64) {
        self.0.lock().expect("no test panics while it holds the lock").1.push(record);
    }
}

#[test]
fn a_store_forgets_each_message_it_keeps_once_however_it_ends() {
    let ledger = Ledger::default();
    let config = Config { max_deliveries: 1, ..Config::default() };
    let mut home = Home::new(&config, foldhash::fast::RandomState::default(), Box::new(ledger.clone()));
    home.set_time(1);
    let queue = home.create(b"/queue/a", QueueKind::Work);
    for number in 0..6_u8 {
        let body = [number];
        let message = Message { destination: b"/queue/a", id: b"i", headers: b"", plain: true, body: &body };
        let mut stored = Stored::new(&message);
        stored.persistent = number != 5;
        stored.expires_ms = if number == 4 { 10 } else { 0 };
        home.enqueue(queue, stored);
    }
    let subscriber = Subscriber { shard: crate::ids::ShardId(0), key: Key { index: 0, generation: 0 } };
    let credit = Credit { messages: 2, bytes: 1000 };
    home.attach(queue, subscriber, credit);
    home.dispatch(10);
    let mut delivered = Vec::new();
    for effect in std::mem::take(&mut home.effects) {
        if let Effect::Deliver(delivery) = effect {
            delivered.push(delivery);
        }
    }
    let failed = delivered.remove(0);
    let why = GivenBack::Failed { deliveries_max: 9, delay_ms: 0, credit: Credit::default() };
    home.give_back(failed.queue, failed.consumer, failed.stored, why); // dead
    home.forget(&delivered.remove(0).stored); // acknowledged
    home.set_time(20);
    home.meet(queue); // the fifth has expired
    home.delete(queue);
    let (kept, mut forgotten) = ledger.0.lock().expect("as above").clone();
    forgotten.sort_unstable();
    assert_eq!((kept, forgotten), (5, vec![1, 2, 3, 4, 5]), "the sixth was not to be kept");
}
