//! Brokers whose `memory_limit` is nearly reached, and their clients.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::SimulatedBroker;
use super::client::Client;
use super::support::{broker, connect, exchange};
use crate::config::{Config, SlowConsumer};

pub(super) const LIMIT: i64 = 8 << 20;

pub(super) fn near_the_limit() -> SimulatedBroker {
    broker(small_memory())
}

/// The settings of one shard with little memory.
pub(super) fn small_memory() -> Config {
    Config {
        writers: 1,
        memory_limit: LIMIT as u64,
        heartbeat_ms: (0, 0),
        slow_consumer: SlowConsumer::Block(Duration::from_secs(5)),
        ..Config::default()
    }
}

/// A client with a subscription that acknowledges one message at a time; it has the first one.
pub(super) fn subscriber(broker: &mut SimulatedBroker, topic: &str) -> Client {
    let mut client = connect(broker, 0);
    let headers = "id:0\nack:client-individual\nprefetch-count:1";
    client.send(format!("SUBSCRIBE\n{headers}\ndestination:/topic/{topic}\n\n\0").as_bytes());
    broker.run_until_idle();
    client
}

/// A client of a shard with a subscription to a topic, which acknowledges, and this prefetch.
pub(super) fn worker(broker: &mut SimulatedBroker, shard: usize, topic: &str, prefetch: u32) -> Client {
    let mut client = connect(broker, shard);
    let headers = format!("id:0\nack:client-individual\nprefetch-count:{prefetch}");
    client.send(format!("SUBSCRIBE\n{headers}\ndestination:/topic/{topic}\n\n\0").as_bytes());
    broker.run_until_idle();
    client
}

pub(super) fn publish(broker: &mut SimulatedBroker, publisher: &mut Client, topic: &str, bytes: usize) {
    let (receipt, body) = (publisher.expect_receipt(), "x".repeat(bytes));
    publisher.send(format!("SEND\ndestination:/topic/{topic}\nreceipt:{receipt}\n\n{body}\0").as_bytes());
    exchange(broker, publisher);
}

pub(super) fn held(broker: &SimulatedBroker) -> i64 {
    broker.threads[0].shard.turn.held_bytes()
}

/// The ids that acknowledge the messages of a client.
pub(super) fn ack_ids(client: &Client) -> Vec<String> {
    let heads = client.received_frames().filter(|head| head.starts_with("MESSAGE"));
    let ids = heads.filter_map(|head| head.split(" | ").find_map(|line| line.strip_prefix("ack:")));
    ids.map(str::to_owned).collect()
}

/// The id that acknowledges the last message of a client.
pub(super) fn last_ack_id(client: &Client) -> String {
    ack_ids(client).pop().expect("it has a message to acknowledge")
}

/// Fills memory so that this share of the limit, in percent, is held.
pub(super) fn fill_up_to(broker: &SimulatedBroker, percent: i64) {
    let missing = LIMIT / 100 * percent - held(broker);
    broker.shared.totals.memory.fetch_add(missing, Ordering::Relaxed);
}

/// Lets time pass in small steps.
pub(super) fn wait(broker: &mut SimulatedBroker, ms: u64) {
    for _ in 0..ms / 100 {
        broker.advance_ms(100);
        broker.run_until_idle();
    }
}

/// How many clients were cut off.
pub(super) fn cut_off(broker: &SimulatedBroker) -> u64 {
    broker.threads.iter().map(|thread| thread.shard.turn.counters.slow_consumers).sum()
}
