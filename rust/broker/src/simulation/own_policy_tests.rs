//! Subscriptions with a policy of their own for slow consumers (`slow-consumer`), and what their publishers notice.

use std::time::Duration;

use super::SimulatedBroker;
use super::client::Client;
use super::support::{broker, connect, exchange, messages};
use crate::config::{Config, SlowConsumer};

/// The limit of all outboxes here.
const LIMIT: usize = 64 << 10;

fn config() -> Config {
    let slow_consumer = SlowConsumer::Block(Duration::from_secs(5));
    Config { writers: 1, heartbeat_ms: (0, 0), outbox_limit: LIMIT, slow_consumer, ..Config::default() }
}

fn subscribe(client: &mut Client, topic: &str, policy: &str) {
    client.send(
        format!("SUBSCRIBE\nid:{topic}\ndestination:/topic/{topic}\nslow-consumer:{policy}\n\n\0").as_bytes(),
    );
}

/// Sends messages of this size to a topic whose subscriber does not read. Returns whether all were accepted at once.
fn is_accepted(broker: &mut SimulatedBroker, topic: &str, (count, bytes): (usize, usize)) -> bool {
    let mut publisher = connect(broker, 0);
    let body = "x".repeat(bytes);
    for _ in 0..count {
        publisher.send(format!("SEND\ndestination:/topic/{topic}\n\n{body}\0").as_bytes());
        broker.run_until_idle();
    }
    let receipt = publisher.expect_receipt();
    publisher.send(format!("SEND\ndestination:/topic/{topic}\nreceipt:{receipt}\n\nlast\0").as_bytes());
    exchange(broker, &mut publisher);
    publisher.has_all_receipts()
}

#[test]
fn a_policy_of_its_own_outlives_the_initial_replay() {
    let mut broker = broker(config());
    let [mut reader, mut publisher] = [0; 2].map(|shard| connect(&mut broker, shard));
    publisher.send(b"SEND\ndestination:/topic/other\nretain:set\n\nvalue\0");
    exchange(&mut broker, &mut publisher);
    subscribe(&mut reader, "a", "drop-oldest");
    exchange(&mut broker, &mut reader);
    assert!(is_accepted(&mut broker, "a", (1000, 4000)), "its publisher waits");
    exchange(&mut broker, &mut reader);
    assert!(!reader.is_closed() && reader.bodies.last().is_some_and(|body| body == "last"));
}

#[test]
fn a_full_outbox_is_not_in_the_way_of_a_subscription_with_its_own_policy() {
    let mut broker = broker(config());
    let mut reader = connect(&mut broker, 0);
    reader.send(b"SUBSCRIBE\nid:0\ndestination:/topic/a\n\n\0");
    subscribe(&mut reader, "before", "drop-newest");
    exchange(&mut broker, &mut reader);
    assert!(!is_accepted(&mut broker, "a", (100, 4000)), "the outbox is full");
    subscribe(&mut reader, "behind", "drop-newest");
    broker.run_until_idle();
    assert!(is_accepted(&mut broker, "before", (1, 10)) && is_accepted(&mut broker, "behind", (1, 10)));
    reader.send(b"UNSUBSCRIBE\nid:before\n\n\0");
    broker.run_until_idle();
    exchange(&mut broker, &mut reader);
    assert_eq!(broker.audit(), Vec::<String>::new());
}

#[test]
fn a_large_message_drops_as_many_small_ones_as_it_takes() {
    let mut broker = broker(config());
    let mut reader = connect(&mut broker, 0);
    subscribe(&mut reader, "a", "drop-oldest");
    exchange(&mut broker, &mut reader);
    assert!(is_accepted(&mut broker, "a", (10_000, 100)));
    let before = broker.snapshot().held_bytes;
    assert!(is_accepted(&mut broker, "a", (50, 50_000)));
    let grown = broker.snapshot().held_bytes - before;
    assert!(grown < 3 * LIMIT as i64, "{grown} bytes more are held");
    exchange(&mut broker, &mut reader);
    let received = messages(&reader);
    let count = |head: &str| head.split_once("dropped:")?.1.split(' ').next()?.parse::<usize>().ok();
    let dropped: usize = reader.received_frames().filter_map(count).sum();
    assert_eq!(received + dropped, 10_052, "each message has come or was counted");
}

#[test]
fn queues_that_drop_messages_shrink_while_memory_is_short() {
    let mut broker = broker(Config { memory_limit: 16 << 20, outbox_limit: 32 << 20, ..config() });
    let mut readers: Vec<Client> = ["a", "b", "c"]
        .map(|topic| {
            let mut reader = connect(&mut broker, 0);
            subscribe(&mut reader, topic, "drop-oldest");
            exchange(&mut broker, &mut reader);
            reader
        })
        .into();
    for topic in ["a", "b", "c", "a"] {
        assert!(is_accepted(&mut broker, topic, (250, 50_000)), "the publisher to {topic} waits");
    }
    readers.iter_mut().for_each(|reader| exchange(&mut broker, reader));
    assert!(readers.iter().all(|reader| reader.bodies.last().is_some_and(|body| body == "last")));
}

/// Seed 20008753: the deadline of an outbox that was full already stayed where it was.
#[test]
fn a_shorter_time_counts_for_an_outbox_that_is_full_already() {
    let mut broker = broker(config());
    let mut reader = connect(&mut broker, 0);
    reader.send(b"SUBSCRIBE\nid:0\ndestination:/topic/a\n\n\0");
    exchange(&mut broker, &mut reader);
    assert!(!is_accepted(&mut broker, "a", (100, 4000)), "the outbox is full");
    subscribe(&mut reader, "b", "block:300ms");
    broker.run_until_idle();
    broker.advance_ms(400);
    broker.run_until_idle();
    exchange(&mut broker, &mut reader);
    assert!(reader.is_closed(), "it is cut off after its own time");
}
