//! What the tests of simulated brokers share.

use std::hash::BuildHasher as _;
use std::sync::atomic::Ordering;

use super::SimulatedBroker;
use super::client::Client;
use crate::config::Config;
use crate::destination::home_of;
use crate::ids::ShardId;

pub(super) fn broker(config: Config) -> SimulatedBroker {
    SimulatedBroker::new(config).expect("polls")
}

/// A client that has connected.
pub(super) fn connect(broker: &mut SimulatedBroker, shard: usize) -> Client {
    let mut client = Client::new(broker.connect(shard).expect("sockets"));
    client.send(b"CONNECT\naccept-version:1.2\nhost:h\n\n\0");
    broker.run_until_idle();
    assert!(client.read(usize::MAX));
    client
}

/// Names with this beginning whose home is this shard.
pub(super) fn names_at_home(
    broker: &SimulatedBroker,
    prefix: &str,
    home: usize,
) -> impl Iterator<Item = String> {
    let (hasher, shards, prefix) = (broker.shared.hasher.clone(), broker.shards(), prefix.to_owned());
    let names = (0..).map(move |at| format!("{prefix}{at}"));
    names.filter(move |name| home_of(hasher.hash_one(name.as_bytes()), shards) == ShardId(home as u8))
}

/// Lets a client say all it has to say, and hear what there is.
pub(super) fn exchange(broker: &mut SimulatedBroker, client: &mut Client) {
    loop {
        let moved = client.read(usize::MAX);
        broker.run_until_idle();
        if !moved && !client.read(usize::MAX) {
            return;
        }
    }
}

pub(super) fn messages(client: &Client) -> usize {
    client.received_frames().filter(|head| head.starts_with("MESSAGE")).count()
}

pub(super) fn receipts(client: &Client) -> usize {
    client.received_frames().filter(|head| head.starts_with("RECEIPT")).count()
}

/// Adds to what is held, as if another shard held it, so that 95 % of a large `memory_limit` is exceeded, or takes it
/// back.
pub(super) fn fill_memory(broker: &SimulatedBroker, full: bool) {
    let limit = broker.threads[0].shard.turn.config.memory_limit as i64;
    broker.shared.totals.memory.fetch_add(if full { limit } else { -limit }, Ordering::Relaxed);
}
