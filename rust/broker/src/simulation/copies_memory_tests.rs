//! Messages that wait in private queues of subscriptions to topics, near `memory_limit`.

use std::time::Duration;

use super::SimulatedBroker;
use super::client::Client;
use super::support::{broker, connect, exchange, messages, receipts};
use crate::config::{Config, SlowConsumer};

const LIMIT: i64 = 8 << 20;

fn near_the_limit() -> SimulatedBroker {
    broker(Config {
        writers: 1,
        memory_limit: LIMIT as u64,
        heartbeat_ms: (0, 0),
        slow_consumer: SlowConsumer::Block(Duration::from_secs(5)),
        ..Config::default()
    })
}

/// A client with a subscription that acknowledges one message at a time; it has the first one.
fn subscriber(broker: &mut SimulatedBroker, topic: &str) -> Client {
    let mut client = connect(broker, 0);
    let headers = "id:0\nack:client-individual\nprefetch-count:1";
    client.send(format!("SUBSCRIBE\n{headers}\ndestination:/topic/{topic}\n\n\0").as_bytes());
    broker.run_until_idle();
    client
}

fn publish(broker: &mut SimulatedBroker, publisher: &mut Client, topic: &str, bytes: usize) {
    let (receipt, body) = (publisher.expect_receipt(), "x".repeat(bytes));
    publisher.send(format!("SEND\ndestination:/topic/{topic}\nreceipt:{receipt}\n\n{body}\0").as_bytes());
    exchange(broker, publisher);
}

fn held(broker: &SimulatedBroker) -> i64 {
    broker.threads[0].shard.turn.held_bytes()
}

#[test]
fn subscribers_that_never_acknowledge_are_cut_off_when_memory_is_short() {
    let mut broker = near_the_limit();
    let mut silent = ["a", "b", "c"].map(|topic| subscriber(&mut broker, topic));
    let mut publisher = connect(&mut broker, 0);
    for at in 0..1000 {
        publish(&mut broker, &mut publisher, ["a", "b", "c"][at % 3], 10_000);
    }
    assert!(!publisher.has_all_receipts(), "nothing waits");
    for _ in 0..60 {
        broker.advance_ms(100);
        broker.run_until_idle();
    }
    exchange(&mut broker, &mut publisher);
    let cut_off = silent.iter_mut().filter_map(|client| {
        exchange(&mut broker, client);
        client.is_closed().then_some(())
    });
    assert!(cut_off.count() > 0, "all of them are still connected");
    assert!(publisher.has_all_receipts() && !publisher.is_closed());
}

#[test]
fn a_message_that_waits_once_for_many_subscribers_is_not_copied_for_all_of_them_at_once() {
    const COUNT: usize = 100;
    let mut broker = near_the_limit();
    let mut subscribers: Vec<Client> = (0..COUNT).map(|_| subscriber(&mut broker, "a")).collect();
    let mut publisher = connect(&mut broker, 0);
    publish(&mut broker, &mut publisher, "a", 1);
    publish(&mut broker, &mut publisher, "a", 500_000);
    subscribers.iter_mut().for_each(|subscriber| exchange(&mut broker, subscriber));
    assert!(held(&broker) < LIMIT / 4, "it waits once: {} bytes", held(&broker));
    for subscriber in &mut subscribers {
        let ack = last_ack_id(subscriber);
        let receipt = subscriber.expect_receipt();
        subscriber.send(format!("ACK\nid:{ack}\nreceipt:{receipt}\n\n\0").as_bytes());
    }
    for _ in 0..5 * COUNT {
        broker.run_until_idle();
        assert!(held(&broker) < LIMIT + LIMIT / 8, "{} bytes are held", held(&broker));
        for subscriber in &mut subscribers {
            subscriber.read(usize::MAX);
        }
        broker.advance_ms(1);
    }
    let counts = subscribers.iter().map(|it| (messages(it), receipts(it))).collect::<Vec<_>>();
    assert!(counts.iter().all(|counts| *counts == (2, 1)), "{counts:?}");
}

/// The id that acknowledges the last message of a client.
fn last_ack_id(client: &Client) -> String {
    let heads = client.received_frames().filter(|head| head.starts_with("MESSAGE"));
    let head = heads.last().expect("it has one");
    let line = head.split(" | ").find_map(|line| line.strip_prefix("ack:"));
    line.expect("it has to be acknowledged").to_owned()
}

#[test]
fn a_subscriber_that_acknowledges_slowly_is_not_cut_off_when_memory_is_short() {
    let mut broker = near_the_limit();
    let mut slow = subscriber(&mut broker, "a");
    let mut publisher = connect(&mut broker, 0);
    for _ in 0..1000 {
        publish(&mut broker, &mut publisher, "a", 10_000);
    }
    assert!(!publisher.has_all_receipts(), "nothing waits");
    for _ in 0..10 {
        for _ in 0..30 {
            broker.advance_ms(100); // longer than a consumer may stall that has something to take
            broker.run_until_idle();
        }
        exchange(&mut broker, &mut slow);
        let ack = last_ack_id(&slow);
        slow.send(format!("ACK\nid:{ack}\n\n\0").as_bytes());
    }
    exchange(&mut broker, &mut slow);
    assert!(!slow.is_closed() && messages(&slow) == 11, "it got {} messages", messages(&slow));
}
