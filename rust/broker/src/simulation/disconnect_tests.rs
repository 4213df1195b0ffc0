//! Connections that end with many subscriptions or many undelivered messages: over several turns, and without loss for
//! others.

use std::collections::HashSet;
use std::time::Duration;

use super::SimulatedBroker;
use super::client::Client;
use super::support::{broker, connect, exchange, messages, names_at_home};
use crate::config::{Config, SlowConsumer};

const SUBSCRIPTIONS: usize = 6000;
/// Maximum number of topic subscriptions that one turn removes: half of the changes allowed in a part of a turn, plus
/// the last batch.
const REMOVED_MAX: usize = 4256;

fn config() -> Config {
    let slow_consumer = SlowConsumer::Block(Duration::from_secs(3600));
    Config { writers: 1, heartbeat_ms: (0, 0), slow_consumer, ..Config::default() }
}

/// A client with [`SUBSCRIPTIONS`] subscriptions.
fn subscriber(broker: &mut SimulatedBroker, headers: &str, name: impl Fn(usize) -> String) -> Client {
    let mut client = connect(broker, 0);
    let subscribe = |at| format!("SUBSCRIBE\nid:{at}\ndestination:{}\n{headers}\n\0", name(at));
    let before = broker.snapshot().subscriptions;
    client.send((0..SUBSCRIPTIONS).map(subscribe).collect::<String>().as_bytes());
    exchange(broker, &mut client);
    assert!(broker.snapshot().subscriptions >= before + SUBSCRIPTIONS);
    client
}

/// Runs turns until there is no more work; returns the maximum of removed subscriptions and of visits in one turn.
fn heaviest(broker: &mut SimulatedBroker) -> (usize, usize) {
    let (mut subscriptions, mut visits) = (0, 0);
    loop {
        let (left, visited) = (broker.snapshot().subscriptions, broker.visits()[0]);
        broker.turn(0);
        subscriptions = subscriptions.max(left - broker.snapshot().subscriptions);
        visits = visits.max(broker.visits()[0] - visited);
        if !broker.threads[0].shard.has_work() {
            return (subscriptions, visits);
        }
    }
}

/// Checks that a new consumer gets so many messages, except those that were in the last consumer's socket.
fn check_requeued(broker: &mut SimulatedBroker, name: &str, count: usize) {
    let mut consumer = connect(broker, 0);
    consumer.send(format!("SUBSCRIBE\nid:0\ndestination:{name}\n\n\0").as_bytes());
    exchange(broker, &mut consumer);
    let received = messages(&consumer);
    assert!((count - 1000..=count).contains(&received), "{received} of {count}");
}

#[test]
fn the_subscriptions_of_one_connection_are_removed_over_several_turns() {
    for (headers, most) in [("", REMOVED_MAX), ("ack:client\n", REMOVED_MAX / 3 + 256)] {
        let mut broker = broker(config());
        drop(subscriber(&mut broker, headers, |at| format!("/topic/{at}")));
        let (subscriptions, _) = heaviest(&mut broker);
        assert!((1..=most).contains(&subscriptions), "{subscriptions} with {headers:?}");
        assert_eq!((broker.snapshot().subscriptions, broker.snapshot().connections), (0, 0));
    }
}

#[test]
fn disconnect_gets_its_receipt_when_all_subscriptions_are_removed() {
    let mut broker = broker(config());
    let mut client = subscriber(&mut broker, "", |at| format!("/topic/{at}"));
    let receipt = client.expect_receipt();
    client.send(format!("DISCONNECT\nreceipt:{receipt}\n\n\0").as_bytes());
    let mut turns = 0;
    while !client.received_frames().any(|head| head.starts_with("RECEIPT")) {
        broker.turn(0);
        turns += 1;
        client.read(usize::MAX);
        assert!(turns < 1000);
    }
    assert!(turns > 1, "all were removed in one turn: this shows nothing");
    assert_eq!(broker.snapshot().subscriptions, 0);
    exchange(&mut broker, &mut client);
    assert!(client.is_closed());
    drop(client);
    broker.run_until_idle();
    assert_eq!(broker.snapshot().connections, 0);
}

#[test]
fn a_disconnecting_client_gets_no_further_messages_and_withholds_none_from_others() {
    let mut broker = broker(config());
    let mut publisher = connect(&mut broker, 0);
    let (mut of_topic, mut of_queue) = (connect(&mut broker, 0), connect(&mut broker, 0));
    let mut client = subscriber(&mut broker, "", |at| match at % 3 {
        0 => "/topic/a".to_owned(),
        1 => "/queue/a".to_owned(),
        _ => format!("/topic/{at}"),
    });
    of_topic.send(b"SUBSCRIBE\nid:0\ndestination:/topic/a\n\n\0");
    exchange(&mut broker, &mut of_topic);
    let receipt = client.expect_receipt();
    client.send(format!("DISCONNECT\nreceipt:{receipt}\n\n\0").as_bytes());
    let mut sent = 0;
    while broker.snapshot().subscriptions > 1 || sent == 0 {
        publisher.send(b"SEND\ndestination:/topic/a\n\nt\0");
        publisher.send(format!("SEND\ndestination:/queue/a\n\n{sent}\0").as_bytes());
        sent += 1;
        broker.turn(0);
        client.read(usize::MAX);
    }
    assert!(sent > 1, "all were removed in one turn: this shows nothing");
    of_queue.send(b"SUBSCRIBE\nid:0\ndestination:/queue/a\n\n\0");
    exchange(&mut broker, &mut of_queue);
    exchange(&mut broker, &mut publisher);
    exchange(&mut broker, &mut client);
    exchange(&mut broker, &mut of_topic);
    assert_eq!(messages(&of_topic), sent);
    // Messages delivered before DISCONNECT was read are consumed; each of the others is delivered once, in order.
    let of_client = client.bodies.iter().filter(|body| *body != "t").count();
    let bodies: Vec<usize> = of_queue.bodies.iter().filter_map(|body| body.parse().ok()).collect();
    assert_eq!(bodies.len() + of_client, sent);
    assert!(bodies.is_sorted() && bodies.iter().collect::<HashSet<_>>().len() == bodies.len());
    assert!(!bodies.is_empty());
}

#[test]
fn undelivered_messages_of_many_subscriptions_are_requeued_over_several_turns() {
    const MESSAGES: usize = 60_000;
    let mut broker = broker(Config { outbox_limit: 64 << 10, ..config() });
    let name = names_at_home(&broker, "/queue/", 0).next().expect("the only one");
    let mut client = subscriber(&mut broker, "", |_| name.clone());
    let mut publisher = connect(&mut broker, 0);
    for _ in 0..MESSAGES / 1000 {
        publisher.send(format!("SEND\ndestination:{name}\n\nx\0").repeat(1000).as_bytes());
        exchange(&mut broker, &mut publisher);
    }
    client.read(1);
    let before = broker.visits()[0];
    drop(client);
    let (_, visits) = heaviest(&mut broker);
    assert!(visits <= 30_000, "{visits} visits in one turn");
    let visits = broker.visits()[0] - before;
    assert!(visits >= MESSAGES / 2, "{visits} visits: the messages are visited one by one");
    assert_eq!((broker.snapshot().subscriptions, broker.snapshot().connections), (0, 1));
    check_requeued(&mut broker, &name, MESSAGES);
}

#[test]
fn unwritten_messages_are_requeued_over_several_turns() {
    const MESSAGES: usize = 50_000;
    let mut broker = broker(config());
    let mut stalled = connect(&mut broker, 0);
    stalled.send(b"SUBSCRIBE\nid:0\ndestination:/queue/a\n\n\0");
    broker.run_until_idle();
    let mut publisher = connect(&mut broker, 0);
    for _ in 0..MESSAGES / 1000 {
        publisher.send("SEND\ndestination:/queue/a\n\nx\0".repeat(1000).as_bytes());
        exchange(&mut broker, &mut publisher);
    }
    let before = broker.visits()[0];
    drop(stalled);
    let (_, visits) = heaviest(&mut broker);
    assert!(visits <= 30_000, "{visits} visits in one turn");
    let visits = broker.visits()[0] - before;
    assert!(visits >= 10_000, "{visits} visits: the messages are visited one by one");
    check_requeued(&mut broker, "/queue/a", MESSAGES);
}

#[test]
fn a_broker_that_stops_during_a_disconnection_leaves_nothing_behind() {
    let mut broker = broker(config());
    drop(subscriber(&mut broker, "ack:client\n", |at| format!("/topic/{at}")));
    broker.turn(0);
    assert!(broker.snapshot().subscriptions > 0, "some remain");
    broker.threads[0].shard.end();
    assert_eq!((broker.snapshot().subscriptions, broker.snapshot().connections), (0, 0));
}
