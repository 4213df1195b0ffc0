//! Runs of messages that are copied for each subscriber, between subscribers that come, leave and read slowly.

use super::SimulatedBroker;
use super::client::Client;
use super::support::{broker, connect, exchange, receipts};
use crate::config::{Config, SlowConsumer};

const SUBSCRIBERS: usize = 12;
const MESSAGES: usize = 3000;

/// Subscribes a client under an id of its own to the topic of runs, and under a common id to that in between.
fn subscribe(client: &mut Client, at: usize) {
    let receipt = client.expect_receipt();
    client.send(
        format!(
            "SUBSCRIBE\nid:own-{at}\ndestination:/topic/run\n\n\0SUBSCRIBE\nid:common\n\
             destination:/topic/between\nreceipt:{receipt}\n\n\0"
        )
        .as_bytes(),
    );
}

/// Publishes runs of messages with numbers from `next` on, some to the other topic, one with a receipt.
fn publish(publisher: &mut Client, next: &mut usize, count: usize) {
    let mut frames = String::new();
    for _ in 0..count {
        let topic = if *next % 17 < 1 || *next % 41 < 2 { "between" } else { "run" };
        frames += &format!("SEND\ndestination:/topic/{topic}\n\n{next}\0");
        *next += 1;
    }
    let receipt = publisher.expect_receipt();
    frames += &format!("SEND\ndestination:/topic/run\nreceipt:{receipt}\n\n{next}\0");
    *next += 1;
    publisher.send(frames.as_bytes());
}

/// The numbers that a client has received, which are a range without gaps.
fn received_range(client: &Client) -> std::ops::Range<usize> {
    let numbers: Vec<usize> = client.bodies.iter().map(|body| body.parse().expect("a number")).collect();
    let (first, last) = (numbers.first().copied().unwrap_or(0), numbers.last().map_or(0, |last| last + 1));
    assert!(numbers.iter().copied().eq(first..last), "lost, doubled or reordered: {numbers:?}");
    first..last
}

fn read_all(broker: &mut SimulatedBroker, clients: &mut [Client]) {
    for _ in 0..2 {
        clients.iter_mut().for_each(|client| exchange(broker, client));
    }
}

#[test]
fn every_subscriber_gets_each_message_once_and_in_order() {
    for writers in [1, 2] {
        let slow_consumer = SlowConsumer::Block(std::time::Duration::from_secs(60));
        let config = Config { writers, outbox_limit: 20_000, slow_consumer, ..Config::default() };
        let mut broker = broker(config);
        let mut publisher = connect(&mut broker, 0);
        let mut clients: Vec<Client> =
            (0..SUBSCRIBERS).map(|at| connect(&mut broker, at % writers)).collect();
        for (at, client) in clients.iter_mut().enumerate() {
            subscribe(client, at);
        }
        read_all(&mut broker, &mut clients);
        let (mut next, mut late) = (0, Vec::new());
        while next < MESSAGES {
            publish(&mut publisher, &mut next, 70);
            broker.round();
            // Each reads at a pace of its own.
            for (at, client) in clients.iter_mut().enumerate() {
                client.read(500 * (at + 1));
            }
            publisher.read(usize::MAX);
            if late.len() < 5 {
                let mut client = connect(&mut broker, late.len() % writers);
                subscribe(&mut client, 100 + late.len());
                late.push(client);
            }
        }
        for _ in 0..100 {
            read_all(&mut broker, &mut clients);
            read_all(&mut broker, &mut late);
            exchange(&mut broker, &mut publisher);
        }
        assert!(publisher.has_all_receipts(), "{} receipts", receipts(&publisher));
        for client in &clients {
            assert_eq!(received_range(client), 0..next, "with {writers} shards");
        }
        for client in &late {
            let range = received_range(client);
            assert!(range.start > 0 && range.end == next, "{range:?} of {next} with {writers} shards");
        }
    }
}
