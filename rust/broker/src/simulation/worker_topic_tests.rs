//! Worker topics whose consumers come and go while messages are being delivered or requeued.

use std::sync::atomic::Ordering;

use super::SimulatedBroker;
use super::client::Client;
use super::support::{broker, connect, connecting, exchange};
use crate::config::Config;

/// More messages than one turn moves.
const COUNT: usize = 10_000;

fn config() -> Config {
    Config { writers: 1, ttl_ms: 3_600_000, ..Config::default() }
}

fn stale(broker: &SimulatedBroker) -> usize {
    broker.shared.stale.count.load(Ordering::Relaxed)
}

/// Publishes messages whose bodies are numbers.
fn publish(broker: &mut SimulatedBroker, publisher: &mut Client, numbers: std::ops::Range<usize>) {
    for at in numbers {
        publisher.send(format!("SEND\ndestination:#w\n\n{at}\0").as_bytes());
    }
    exchange(broker, publisher);
}

/// A consumer with this `prefetch-count` that acknowledges nothing.
fn holder(broker: &mut SimulatedBroker, destination: &str, credit: usize) -> Client {
    let mut client = connect(broker, 0);
    let head =
        format!("SUBSCRIBE\nid:0\ndestination:{destination}\nack:client\nprefetch-count:{credit}\n\n\0");
    client.send(head.as_bytes());
    broker.run_until_idle();
    client
}

fn unsubscribe(client: &mut Client) {
    client.send(b"UNSUBSCRIBE\nid:0\n\n\0");
}

/// A broker, the publisher of its messages, and their only consumer, which had a number of them in flight and
/// unsubscribes.
fn requeuing(credit: usize) -> (SimulatedBroker, Client, Client) {
    let mut broker = broker(config());
    let mut publisher = connect(&mut broker, 0);
    let mut leaver = holder(&mut broker, "#w", credit);
    publish(&mut broker, &mut publisher, 0..COUNT);
    unsubscribe(&mut leaver);
    (broker, publisher, leaver)
}

/// A new consumer, which gets all messages.
fn consume_all(broker: &mut SimulatedBroker, destination: &str) -> Client {
    let mut client = connecting(broker, 0);
    client.send(format!("SUBSCRIBE\nid:0\ndestination:{destination}\n\n\0").as_bytes());
    exchange(broker, &mut client);
    client
}

#[track_caller]
fn assert_order(client: &Client, expected: impl Iterator<Item = usize>) {
    let came: Vec<usize> = client.bodies.iter().map(|body| body.parse().expect("a number")).collect();
    let expected: Vec<usize> = expected.collect();
    let wrong = came.iter().zip(&expected).position(|(came, expected)| came != expected);
    let around = wrong.map(|at| &came[at.saturating_sub(1)..came.len().min(at + 3)]);
    assert_eq!((wrong, came.len()), (None, expected.len()), "{around:?}");
}

#[test]
fn a_new_consumer_gets_messages_that_are_being_requeued_in_order() {
    // Consumers of patterns attach to their queues later.
    for (left, next) in [("#w", "#w"), ("#*", "#w"), ("#w", "#*"), ("#*", "#*")] {
        for turns in 0..3 {
            let mut broker = broker(config());
            let [mut publisher, mut waiting] = [0; 2].map(|_| connect(&mut broker, 0));
            let mut leaver = holder(&mut broker, left, 1);
            publish(&mut broker, &mut publisher, 0..COUNT);
            unsubscribe(&mut leaver);
            (0..turns).for_each(|_| broker.turn(0));
            assert!(stale(&broker) < COUNT);
            waiting.send(format!("SUBSCRIBE\nid:0\ndestination:{next}\n\n\0").as_bytes());
            exchange(&mut broker, &mut waiting);
            assert_order(&waiting, 0..COUNT);
            let again = waiting.received_frames().filter(|head| head.contains("redelivered:true")).count();
            assert_eq!((again, stale(&broker)), (1, 0));
        }
    }
}

#[test]
fn new_messages_follow_those_that_are_being_requeued() {
    let (mut broker, mut publisher, _leaver) = requeuing(1);
    broker.turn(0);
    publisher.send(format!("SEND\ndestination:#w\n\n{COUNT}\0").as_bytes());
    broker.turn(0);
    assert!(stale(&broker) < COUNT, "it was published meanwhile");
    publish(&mut broker, &mut publisher, COUNT + 1..COUNT + 3);
    assert_eq!(stale(&broker), COUNT + 3);
    assert_order(&consume_all(&mut broker, "#w"), 0..COUNT + 3);
}

#[test]
fn unacknowledged_messages_return_to_their_places() {
    let (mut broker, _publisher, _leaver) = requeuing(5);
    broker.run_until_idle();
    assert_eq!(stale(&broker), COUNT);
    let next = consume_all(&mut broker, "#w");
    assert_order(&next, 0..COUNT);
    let again = next.received_frames().filter(|head| head.starts_with("MESSAGE"));
    assert!(again.map(|head| head.contains("redelivered:true")).eq((0..COUNT).map(|at| at < 5)));
}

#[test]
fn a_consumer_that_unsubscribes_during_delivery_leaves_the_order_intact() {
    for turns in 1..4 {
        let mut broker = broker(config());
        let mut publisher = connect(&mut broker, 0);
        publish(&mut broker, &mut publisher, 0..4 * COUNT);
        assert_eq!(stale(&broker), 4 * COUNT);
        let [mut leaver, mut last] = [0; 2].map(|_| connect(&mut broker, 0));
        leaver.send(b"SUBSCRIBE\nid:0\ndestination:#w\nack:client\nprefetch-count:3\n\n\0");
        (0..turns).for_each(|_| broker.turn(0));
        assert!(stale(&broker) > 0, "after {turns} turns");
        unsubscribe(&mut leaver);
        publisher.send(format!("SEND\ndestination:#w\n\n{}\0", 4 * COUNT).as_bytes());
        broker.turn(0);
        last.send(b"SUBSCRIBE\nid:0\ndestination:#w\n\n\0");
        broker.turn(0);
        publisher.send(format!("SEND\ndestination:#w\n\n{}\0", 4 * COUNT + 1).as_bytes());
        exchange(&mut broker, &mut last);
        assert_order(&last, 0..4 * COUNT + 2);
        assert_eq!(stale(&broker), 0);
    }
}

#[test]
fn messages_that_remain_after_dropping_the_oldest_come_in_order() {
    const MAX: usize = 300;
    let mut broker = broker(Config { max_stale_queue_size: MAX, ..config() });
    let [mut publisher, mut next] = [0; 2].map(|_| connect(&mut broker, 0));
    let mut leaver = holder(&mut broker, "#w", 1);
    publish(&mut broker, &mut publisher, 0..COUNT);
    unsubscribe(&mut leaver);
    broker.turn(0);
    assert_eq!(stale(&broker), MAX);
    next.send(b"SUBSCRIBE\nid:0\ndestination:#w\n\n\0");
    exchange(&mut broker, &mut next);
    let dropped = broker.threads[0].shard.turn.counters.dropped as usize;
    assert!(dropped > 0 && dropped < COUNT - MAX, "{dropped} of {COUNT}");
    assert_order(&next, dropped..COUNT);
}

#[test]
fn expired_messages_do_not_hold_back_later_ones() {
    let mut broker = broker(config());
    let [mut publisher, mut next] = [0; 2].map(|_| connect(&mut broker, 0));
    let mut leaver = holder(&mut broker, "#w", 1);
    for at in 0..COUNT {
        let ttl = if at < COUNT / 2 { "ttl:60000\n" } else { "" };
        publisher.send(format!("SEND\ndestination:#w\n{ttl}\n{at}\0").as_bytes());
    }
    exchange(&mut broker, &mut publisher);
    unsubscribe(&mut leaver);
    broker.turn(0);
    assert!(stale(&broker) > 0 && stale(&broker) < COUNT / 2, "{}", stale(&broker));
    broker.advance_ms(61_000);
    next.send(b"SUBSCRIBE\nid:0\ndestination:#w\n\n\0");
    exchange(&mut broker, &mut next);
    assert_order(&next, COUNT / 2..COUNT);
    assert_eq!(stale(&broker), 0);
}

/// Pseudo-random numbers, the same for each seed.
struct Random(u64);

impl Random {
    fn below(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % sides
    }
}

#[test]
fn the_last_consumer_gets_all_messages_in_order_after_random_changes() {
    for seed in 0..32 {
        let mut random = Random(seed);
        let writers = 1 + seed as usize % 2;
        let mut broker = broker(Config { writers, ..config() });
        let mut publisher = connect(&mut broker, 0);
        let mut others: Vec<Client> = Vec::new();
        let mut sent = 0;
        for _ in 0..40 {
            match random.below(6) {
                0 | 1 => {
                    let next = sent + random.below(2000);
                    let sends = (sent..next).map(|at| format!("SEND\ndestination:#w\n\n{at}\0"));
                    publisher.send(sends.collect::<String>().as_bytes());
                    sent = next;
                }
                2 => {
                    let mut other = connecting(&mut broker, random.below(writers));
                    let (name, credit) = (["#w", "#*"][random.below(2)], 1 + random.below(8));
                    let head = format!("SUBSCRIBE\nid:0\ndestination:{name}\nack:client\n");
                    other.send(format!("{head}prefetch-count:{credit}\n\n\0").as_bytes());
                    others.push(other);
                }
                3 if !others.is_empty() => {
                    let at = random.below(others.len());
                    unsubscribe(&mut others[at]);
                    others.remove(at);
                }
                _ => (0..random.below(4)).for_each(|_| broker.turn(random.below(writers))),
            }
            publisher.read(usize::MAX);
            others.iter_mut().for_each(|other| _ = other.read(usize::MAX));
        }
        exchange(&mut broker, &mut publisher);
        others.clear();
        match writers {
            1 => (0..random.below(4)).for_each(|_| broker.turn(0)),
            _ => broker.run_until_idle(), // messages of a lost consumer on another shard are in the mail until then
        }
        let last = consume_all(&mut broker, ["#w", "#*"][random.below(2)]);
        assert_order(&last, 0..sent);
        assert_eq!(stale(&broker), 0);
    }
}

#[test]
fn a_message_stays_that_would_need_more_queues_than_there_may_be() {
    let mut broker = broker(Config { max_destinations: 1, ..config() });
    let [mut publisher, mut consumer] = [0; 2].map(|shard| connect(&mut broker, shard));
    for name in ["#a", "#b"] {
        let receipt = publisher.expect_receipt();
        publisher.send(format!("SEND\ndestination:{name}\nreceipt:{receipt}\n\n{name}\0").as_bytes());
    }
    exchange(&mut broker, &mut publisher);
    assert!(publisher.has_all_receipts() && stale(&broker) == 2);
    consumer.send(b"SUBSCRIBE\nid:0\ndestination:#*\nack:client\n\n\0");
    exchange(&mut broker, &mut consumer);
    let is_refused = consumer.received_frames().any(|head| head.contains("code:E-DEST-COUNT"));
    assert!(is_refused && consumer.is_closed());
    broker.run_until_idle();
    assert_eq!(stale(&broker), 2, "nothing is lost");
    assert_eq!(consume_all(&mut broker, "#a").bodies, ["#a"]);
    assert_eq!(broker.audit(), Vec::<String>::new());
}

#[test]
fn a_commit_that_would_need_more_queues_than_there_may_be_is_refused() {
    let mut broker = broker(Config { max_destinations: 1, ..config() });
    let [mut publisher, mut consumer] = [0; 2].map(|shard| connect(&mut broker, shard));
    consumer.send(b"SUBSCRIBE\nid:0\ndestination:#*\nack:client\n\n\0");
    exchange(&mut broker, &mut consumer);
    publisher.send(b"BEGIN\ntransaction:t\n\n\0");
    for name in ["#a", "#b"] {
        publisher.send(format!("SEND\ndestination:{name}\ntransaction:t\n\n{name}\0").as_bytes());
    }
    let receipt = publisher.expect_receipt();
    publisher.send(format!("COMMIT\ntransaction:t\nreceipt:{receipt}\n\n\0").as_bytes());
    exchange(&mut broker, &mut publisher);
    exchange(&mut broker, &mut consumer);
    let is_refused = publisher.received_frames().any(|head| head.contains("code:E-DEST-COUNT"));
    assert!(is_refused && consumer.bodies.is_empty(), "{:?}", consumer.bodies);
}
