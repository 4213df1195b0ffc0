//! Helpers that the tests of simulated brokers share.

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

/// A client whose CONNECT is read in the shard's next turn.
pub(super) fn connecting(broker: &mut SimulatedBroker, shard: usize) -> Client {
    let mut client = Client::new(broker.connect(shard).expect("sockets"));
    client.send(b"CONNECT\naccept-version:1.2\nhost:h\n\n\0");
    client
}

/// A client with a STOMP session.
pub(super) fn connect(broker: &mut SimulatedBroker, shard: usize) -> Client {
    let mut client = connecting(broker, shard);
    broker.run_until_idle();
    assert!(client.read(usize::MAX));
    client
}

/// Names with this prefix whose home is this shard.
pub(super) fn names_at_home(
    broker: &SimulatedBroker,
    prefix: &str,
    home: usize,
) -> impl Iterator<Item = String> {
    let (hasher, shards, prefix) = (broker.shared.hasher.clone(), broker.shards(), prefix.to_owned());
    let names = (0..).map(move |at| format!("{prefix}{at}"));
    names.filter(move |name| home_of(hasher.hash_one(name.as_bytes()), shards) == ShardId(home as u8))
}

/// Sends and receives until the client and the broker have nothing more to send.
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

/// The number of turns of the first shard until its listener receives a message that is sent to `/topic/c` on the second
/// shard. The others read after each turn.
pub(super) fn turns_until_received(
    broker: &mut SimulatedBroker,
    publisher: &mut Client,
    listener: &mut Client,
    others: &mut [&mut Client],
) -> usize {
    publisher.send(b"SEND\ndestination:/topic/c\n\nhello\0");
    broker.turn(1);
    let mut turns = 0;
    while listener.bodies.is_empty() {
        broker.turn(0);
        turns += 1;
        listener.read(usize::MAX);
        others.iter_mut().for_each(|other| _ = other.read(usize::MAX));
    }
    turns
}

/// Adds so much to the held memory, as if another shard held it, that 95 % of a large `memory_limit` is exceeded; or
/// subtracts it again.
pub(super) fn fill_memory(broker: &SimulatedBroker, full: bool) {
    let limit = broker.threads[0].shard.turn.config.memory_limit as i64;
    broker.shared.totals.memory.fetch_add(if full { limit } else { -limit }, Ordering::Relaxed);
}

/// Does the same, as if another shard held it in outboxes.
pub(super) fn fill_outboxes(broker: &SimulatedBroker, full: bool) {
    let limit = broker.threads[0].shard.turn.config.memory_limit as i64;
    broker.shared.totals.output.fetch_add(if full { limit } else { -limit }, Ordering::Relaxed);
    fill_memory(broker, full);
}

/// Sends frames of a client that reads nothing and lets the broker handle them; then it has this many subscriptions.
pub(super) fn send_unread(
    broker: &mut SimulatedBroker,
    client: &mut Client,
    frames: &str,
    subscriptions: usize,
) {
    client.send(frames.as_bytes());
    for _ in 0..1000 {
        broker.turn(0);
        client.read(0);
    }
    assert_eq!(broker.snapshot().subscriptions, subscriptions);
}

/// Whether the subscription with this number remains after [`unsubscribe_most`].
pub(super) fn remains(number: &usize) -> bool {
    number.is_multiple_of(20)
}

/// Ends all but each twentieth of a client's subscriptions, whose ids are numbers; the visits must grow linearly.
pub(super) fn unsubscribe_most(broker: &mut SimulatedBroker, client: &mut Client, count: usize) {
    let before = broker.visits()[0];
    let numbers = (0..count).filter(|number| !remains(number));
    let frames: String = numbers.map(|number| format!("UNSUBSCRIBE\nid:{number}\n\n\0")).collect();
    send_unread(broker, client, &frames, count / 20);
    let visits = broker.visits()[0] - before;
    assert!(visits < 100 * count, "{visits} visits");
}
