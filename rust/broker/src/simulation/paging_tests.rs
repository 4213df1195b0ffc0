//! A whole broker whose queues are larger than its memory, with a store that loads messages late and in any order.

use std::collections::BTreeMap;

use super::SimulatedBroker;
use super::client::Client;
use super::support::{broker, connect, exchange, names_at_home, receipts};
use crate::config::Config;
use crate::store::paging_double::PagingStore;

const MEMORY_LIMIT: u64 = 2 << 20;
/// The length of a header of each message, which makes it large. Clients record short bodies only.
const PADDING: usize = 1000;

fn paging_broker(config: Config, store: &PagingStore) -> SimulatedBroker {
    let mut broker = broker(Config { memory_limit: MEMORY_LIMIT as _, ..config });
    broker.threads.iter_mut().for_each(|thread| thread.shard.queues.home.use_store(store.handle()));
    broker
}

/// Publishes numbers to a destination; each third message is persistent.
fn publish(
    broker: &mut SimulatedBroker,
    client: &mut Client,
    destination: &str,
    numbers: std::ops::Range<usize>,
) {
    let padding = "x".repeat(PADDING);
    for number in numbers {
        let persistent = number.is_multiple_of(3);
        client.send(
            format!("SEND\ndestination:{destination}\npersistent:{persistent}\npad:{padding}\n\n{number}\0")
                .as_bytes(),
        );
        if number % 50 == 0 {
            exchange(broker, client);
        }
    }
    let before = receipts(client);
    let receipt = client.expect_receipt();
    client.send(format!("SEND\ndestination:/topic/end\nreceipt:{receipt}\n\n\0").as_bytes());
    exchange(broker, client);
    assert_eq!(receipts(client), before + 1, "the publisher is paused");
}

/// Lets the broker and clients go on until one of them has received this many messages.
fn receive(broker: &mut SimulatedBroker, client: &mut Client, count: usize) -> Vec<usize> {
    for _ in 0..100_000 {
        if client.bodies.len() >= count {
            break;
        }
        broker.round();
        client.read(usize::MAX);
    }
    client.bodies.iter().filter_map(|body| body.parse().ok()).collect()
}

fn stubs(broker: &SimulatedBroker) -> usize {
    broker.threads.iter().map(|thread| thread.shard.queues.home.stubs()).sum()
}

#[test]
fn queues_larger_than_memory_are_delivered_completely_and_in_order() {
    for seed in 0..3 {
        let store = PagingStore::new(seed, 100);
        let mut broker = paging_broker(Config { writers: 2, ..Config::default() }, &store);
        let names: Vec<String> = (0..2)
            .flat_map(|home| names_at_home(&broker, "/queue/q", home).take(1).collect::<Vec<_>>())
            .collect();
        let mut publisher = connect(&mut broker, 0);
        for name in &names {
            publish(&mut broker, &mut publisher, name, 0..3000);
        }
        let held = broker.snapshot().held_bytes;
        assert!(held < MEMORY_LIMIT as i64 / 10 * 8, "{held} bytes are held");
        assert!(stubs(&broker) > 4000, "{} messages are paged out", stubs(&broker));
        store.set_readiness(50);
        for (shard, name) in names.iter().enumerate() {
            let mut consumer = connect(&mut broker, shard);
            consumer.send(format!("SUBSCRIBE\nid:0\nack:auto\ndestination:{name}\n\n\0").as_bytes());
            assert!(receive(&mut broker, &mut consumer, 3000).into_iter().eq(0..3000), "{name}, seed {seed}");
            exchange(&mut broker, &mut consumer);
        }
        assert_eq!((stubs(&broker), store.bodies().len()), (0, 0));
        let window = (256 << 10) / PADDING + 1;
        assert!(store.requested_max() <= 2 * window, "{} requests at a time", store.requested_max());
    }
}

#[test]
fn a_consumer_that_waits_for_the_store_does_not_stop_other_queues_of_the_shard() {
    let store = PagingStore::new(1, 100);
    let mut broker = paging_broker(Config { writers: 1, ..Config::default() }, &store);
    let [mut publisher, mut slow, mut fast] = [0; 3].map(|shard| connect(&mut broker, shard));
    publish(&mut broker, &mut publisher, "/queue/slow", 0..3000);
    store.set_readiness(0);
    slow.send(b"SUBSCRIBE\nid:0\nack:auto\ndestination:/queue/slow\n\n\0");
    fast.send(b"SUBSCRIBE\nid:0\nack:auto\ndestination:/queue/fast\n\n\0");
    exchange(&mut broker, &mut slow);
    let loaded = slow.bodies.len();
    assert!(loaded < 3000);
    for number in (0..500).step_by(20) {
        publish(&mut broker, &mut publisher, "/queue/fast", number..number + 20);
        assert!(receive(&mut broker, &mut fast, number + 20).into_iter().eq(0..number + 20));
    }
    exchange(&mut broker, &mut slow);
    assert_eq!(slow.bodies.len(), loaded, "nothing was loaded");
    store.set_readiness(30);
    assert!(receive(&mut broker, &mut slow, 3000).into_iter().eq(0..3000));
}

#[test]
fn each_message_is_consumed_once_although_some_are_refused_and_consumers_leave() {
    let store = PagingStore::new(5, 100);
    let config =
        Config { writers: 2, redelivery_delay: std::time::Duration::from_millis(20), ..Config::default() };
    let mut broker = paging_broker(config, &store);
    let mut publisher = connect(&mut broker, 0);
    publish(&mut broker, &mut publisher, "/queue/a", 0..2500);
    assert!(stubs(&broker) > 500);
    store.set_readiness(40);
    let mut counts = BTreeMap::<usize, usize>::new();
    for round in 0..500 {
        let mut consumer = connect(&mut broker, round % 2);
        consumer
            .send(b"SUBSCRIBE\nid:0\nack:client-individual\nprefetch-count:20\ndestination:/queue/a\n\n\0");
        let consumed_before = counts.len();
        let mut seen = 0;
        for _ in 0..60 {
            broker.round();
            consumer.read(usize::MAX);
            let new: Vec<usize> =
                consumer.bodies[seen..].iter().filter_map(|body| body.parse().ok()).collect();
            seen += new.len();
            for number in new {
                let (ack, _) = consumer.deliveries.pop_front().expect("an id");
                // One in seven is refused by every second consumer.
                let is_refused = number % 7 == 3 && round % 2 == 0;
                let command = if is_refused { "NACK" } else { "ACK" };
                if !is_refused {
                    *counts.entry(number).or_default() += 1;
                }
                consumer.send(format!("{command}\nid:{ack}\n\n\0").as_bytes());
            }
        }
        // Its ACKs are read before it leaves with what it has not acknowledged.
        consumer.send(b"DISCONNECT\n\n\0");
        broker.run_until_idle();
        broker.advance_ms(100);
        broker.run_until_idle();
        if counts.len() == 2500 && counts.len() == consumed_before {
            break;
        }
    }
    assert!(counts.keys().copied().eq(0..2500), "{} of 2500", counts.len());
    assert!(counts.values().all(|count| *count == 1));
    assert_eq!((stubs(&broker), store.bodies().len()), (0, 0));
}

#[test]
fn large_messages_of_many_queues_are_not_loaded_all_at_once() {
    const QUEUES: usize = 60;
    let store = PagingStore::new(1, 100);
    let mut broker = paging_broker(Config { writers: 1, ..Config::default() }, &store);
    let [mut publisher, mut consumer] = [0; 2].map(|shard| connect(&mut broker, shard));
    let large = "x".repeat(60_000);
    for at in 0..QUEUES {
        let send = |body: &str| format!("SEND\ndestination:/queue/{at}\n\n{body}\0");
        publisher.send((send("small").repeat(70) + &send(&large)).as_bytes());
        exchange(&mut broker, &mut publisher);
    }
    assert_eq!(stubs(&broker) / QUEUES, 6, "of each queue at least");
    for at in 0..QUEUES {
        let subscribe = "SUBSCRIBE\nack:client-individual\nprefetch-count:70\n";
        consumer.send(format!("{subscribe}id:{at}\ndestination:/queue/{at}\n\n\0").as_bytes());
    }
    let (mut most, mut acks) = (0, Vec::new());
    for round in 0..5000 {
        broker.round();
        consumer.read(usize::MAX);
        acks.extend(consumer.deliveries.drain(..));
        if round < 1000 {
            most = most.max(broker.snapshot().held_bytes); // until here it acknowledges nothing
        } else {
            let acks: String = acks.drain(..).map(|(ack, _)| format!("ACK\nid:{ack}\n\n\0")).collect();
            consumer.send(acks.as_bytes());
        }
    }
    assert_eq!((consumer.bodies.len(), stubs(&broker)), (QUEUES * 70, 0));
    assert!(most < MEMORY_LIMIT as i64 * 3 / 2, "{most} bytes were held");
}

#[test]
fn a_durable_subscription_that_ends_drops_what_it_has_in_the_store() {
    let store = PagingStore::new(1, 100);
    let mut broker = paging_broker(Config { writers: 2, ..Config::default() }, &store);
    let mut consumer = connect(&mut broker, 1);
    let subscribe =
        "SUBSCRIBE\nid:d\ndurable:true\nack:client-individual\nprefetch-count:1\ndestination:/topic/a\n\n\0";
    consumer.send(subscribe.as_bytes());
    exchange(&mut broker, &mut consumer);
    let mut publisher = connect(&mut broker, 0);
    publish(&mut broker, &mut publisher, "/topic/a", 0..3000);
    assert!(stubs(&broker) > 1000, "{} messages are paged out", stubs(&broker));
    consumer.send(b"UNSUBSCRIBE\nid:d\ndurable:true\ndestination:/topic/a\n\n\0");
    exchange(&mut broker, &mut consumer);
    drop(consumer);
    broker.run_until_idle();
    assert_eq!((stubs(&broker), store.bodies().len()), (0, 0));
}
