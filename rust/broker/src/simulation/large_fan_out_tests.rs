//! Messages with a large fan-out on another shard: only a limited amount of that work precedes other mail to the shard.

use super::SimulatedBroker;
use super::client::Client;
use super::support::{broker, connect, exchange, messages};
use crate::config::Config;

const RECEIVERS: usize = 3000;
const MESSAGES: usize = 40;
/// Maximum number of deliveries that may be mailed ahead, including the message that exceeds the limit; the number of
/// receivers is rounded up to a power of two.
const AHEAD_MAX: u64 = 20_000 + 4096;

const LARGE: &str = "SEND\ndestination:/topic/large\n\nx\0";

/// A publisher on the first shard, a client with very many subscriptions on the second, and a bystander on each.
fn two_shards() -> (SimulatedBroker, [Client; 4]) {
    let mut broker = broker(Config { writers: 2, ..Config::default() });
    let [publisher, mut many, sender, mut receiver] = [0, 1, 0, 1].map(|shard| connect(&mut broker, shard));
    for at in 0..RECEIVERS {
        many.send(format!("SUBSCRIBE\nid:{at}\ndestination:/topic/large\n\n\0").as_bytes());
    }
    exchange(&mut broker, &mut many);
    receiver.send(b"SUBSCRIBE\nid:0\ndestination:/topic/b\n\n\0");
    broker.run_until_idle();
    (broker, [publisher, many, sender, receiver])
}

/// Sends one frame and requests its RECEIPT.
fn send_with_receipt(client: &mut Client, frame: &str) {
    let receipt = client.expect_receipt();
    client.send(frame.replacen("\n\n", &format!("\nreceipt:{receipt}\n\n"), 1).as_bytes());
}

/// The number of deliveries that the second shard makes before that of a bystander's message.
fn deliveries_before(broker: &mut SimulatedBroker, clients: &mut [Client; 4]) -> u64 {
    let [publisher, many, sender, receiver] = clients;
    for _ in 0..20 {
        publisher.read(usize::MAX);
        broker.turn(0);
    }
    sender.send(b"SEND\ndestination:/topic/b\n\n\0");
    broker.turn(0);
    let deliveries = |broker: &SimulatedBroker| broker.threads[1].shard.turn.counters.deliveries;
    let before = deliveries(broker);
    while messages(receiver) == 0 {
        broker.turn(1);
        many.read(usize::MAX);
        receiver.read(usize::MAX);
    }
    deliveries(broker) - before
}

fn everything_arrives(broker: &mut SimulatedBroker, [publisher, many, ..]: &mut [Client; 4]) {
    for _ in 0..10_000 {
        publisher.read(usize::MAX);
        many.read(usize::MAX);
        broker.round();
        if many.bodies.len() == MESSAGES * RECEIVERS {
            break;
        }
    }
    exchange(broker, many);
    assert_eq!(many.bodies.len(), MESSAGES * RECEIVERS);
    exchange(broker, publisher);
    publisher.check_receipts();
    assert_eq!(broker.snapshot().fan_out_work, 0);
    assert!(broker.threads.iter().all(|thread| thread.shard.peers.busy.saturated == 0));
}

/// Checks that a bystander's message is delivered soon, and that all large fan-outs arrive.
fn check_order_and_arrival(broker: &mut SimulatedBroker, clients: &mut [Client; 4]) {
    let deliveries = deliveries_before(broker, clients);
    assert!(deliveries <= AHEAD_MAX, "{deliveries} deliveries");
    everything_arrives(broker, clients);
}

#[test]
fn large_fan_outs_do_not_delay_other_messages() {
    let (mut broker, mut clients) = two_shards();
    clients[0].send(LARGE.repeat(MESSAGES).as_bytes());
    send_with_receipt(&mut clients[0], "SEND\ndestination:/topic/a\n\n\0");
    check_order_and_arrival(&mut broker, &mut clients);
}

#[test]
fn large_fan_outs_of_a_transaction_do_not_delay_other_messages() {
    let (mut broker, mut clients) = two_shards();
    clients[0].send(b"BEGIN\ntransaction:1\n\n\0");
    clients[0].send(LARGE.replace("\n\n", "\ntransaction:1\n\n").repeat(MESSAGES).as_bytes());
    send_with_receipt(&mut clients[0], "COMMIT\ntransaction:1\n\n\0");
    check_order_and_arrival(&mut broker, &mut clients);
}

#[test]
fn subscriptions_to_patterns_count_towards_the_width() {
    let (mut broker, mut clients) = two_shards();
    for (name, count) in [("/topic/*", 400), ("/topic/>", 10)] {
        for at in 0..count {
            clients[3].send(format!("SUBSCRIBE\nid:{name}{at}\ndestination:{name}\n\n\0").as_bytes());
        }
    }
    exchange(&mut broker, &mut clients[3]);
    let shard = &mut broker.threads[0].shard;
    let destination = shard.router.destination(b"/topic/large").expect("a name");
    assert_eq!(
        shard.router.reach(destination).fan_out_size,
        4096 + 512,
        "filters with small fan-outs do not count"
    );
}

#[test]
fn a_publisher_continues_when_the_wide_subscriptions_end() {
    let (mut broker, [mut publisher, many, _sender, _receiver]) = two_shards();
    publisher.send(LARGE.repeat(MESSAGES).as_bytes());
    send_with_receipt(&mut publisher, "SEND\ndestination:/topic/a\n\n\0");
    for _ in 0..20 {
        broker.turn(0);
        publisher.read(usize::MAX);
    }
    assert!(
        broker.threads[0].shard.peers.busy.saturated != 0 && broker.snapshot().fan_out_work > 0,
        "it waits"
    );
    broker.turn(1);
    drop(many);
    exchange(&mut broker, &mut publisher);
    publisher.check_receipts();
    assert_eq!((broker.snapshot().fan_out_work, broker.threads[0].shard.peers.busy.saturated), (0, 0));
    let shard = &mut broker.threads[0].shard;
    let destination = shard.router.destination(b"/topic/large").expect("a name");
    assert_eq!(shard.router.reach(destination).fan_out_size, 0);
}

/// All send and receive what they can; clients in `eager` publish again whenever they have their RECEIPT.
fn step(broker: &mut SimulatedBroker, eager: &mut [Client], others: &mut [&mut Client]) {
    broker.turn(0);
    broker.turn(0); // the other shard has had no turn in between
    for client in eager {
        client.read(usize::MAX);
        if client.has_all_receipts() {
            send_with_receipt(client, LARGE);
        }
    }
    broker.turn(1);
    others.iter_mut().for_each(|client| _ = client.read(usize::MAX));
}

/// Checks that a client that sends this gets its RECEIPT while others publish again and again.
fn is_served_in_turn(before: &str, asked: &str) {
    let (mut broker, [mut patient, mut many, _sender, mut receiver]) = two_shards();
    let mut eager: Vec<Client> = (0..20).map(|_| connect(&mut broker, 0)).collect();
    for _ in 0..20 {
        step(&mut broker, &mut eager, &mut [&mut many, &mut receiver]);
    }
    patient.send(before.as_bytes());
    send_with_receipt(&mut patient, asked);
    let before = broker.threads[0].shard.turn.counters.parked;
    for _ in 0..100 {
        step(&mut broker, &mut eager, &mut [&mut many, &mut receiver, &mut patient]);
    }
    let parked = broker.threads[0].shard.turn.counters.parked - before;
    assert!(parked > 100, "there is too much room: {parked} had to wait");
    assert!(patient.has_all_receipts(), "it still waits while others publish");
}

#[test]
fn a_waiting_publisher_is_served_while_others_publish_again_and_again() {
    is_served_in_turn("", LARGE);
}

#[test]
fn a_waiting_transaction_is_served_while_others_publish_again_and_again() {
    let sends = LARGE.replace("\n\n", "\ntransaction:1\n\n").repeat(3);
    is_served_in_turn(&format!("BEGIN\ntransaction:1\n\n\0{sends}"), "COMMIT\ntransaction:1\n\n\0");
}

#[test]
fn a_large_transaction_leaves_room_for_others() {
    let (mut broker, [mut publisher, mut many, mut patient, _receiver]) = two_shards();
    publisher.send(b"BEGIN\ntransaction:1\n\n\0");
    publisher.send(LARGE.replace("\n\n", "\ntransaction:1\n\n").repeat(200).as_bytes());
    exchange(&mut broker, &mut publisher);
    let receipt = publisher.expect_receipt();
    publisher.send(format!("COMMIT\ntransaction:1\nreceipt:{receipt}\n\n\0").as_bytes());
    broker.turn(0);
    send_with_receipt(&mut patient, LARGE);
    for _ in 0..50 {
        step(&mut broker, &mut [], &mut [&mut many, &mut patient, &mut publisher]);
    }
    assert!(patient.has_all_receipts() && !publisher.has_all_receipts(), "the transaction took all room");
    for _ in 0..10_000 {
        if publisher.has_all_receipts() {
            break;
        }
        step(&mut broker, &mut [], &mut [&mut many, &mut publisher]);
    }
    assert!(publisher.has_all_receipts());
    exchange(&mut broker, &mut many);
    assert_eq!((many.bodies.len(), broker.snapshot().fan_out_work), (201 * RECEIVERS, 0));
}

#[test]
fn subscriptions_after_their_replay_count_like_others() {
    let mut broker = broker(Config { writers: 2, ..Config::default() });
    let mut sender = connect(&mut broker, 0);
    sender.send(b"SEND\ndestination:/topic/else\nretain:set\n\nx\0");
    exchange(&mut broker, &mut sender);
    let mut readers: Vec<Client> = (0..60).map(|_| connect(&mut broker, 1)).collect();
    for reader in &mut readers {
        reader.send(b"SUBSCRIBE\nid:0\ndestination:/topic/large\n\n\0");
    }
    broker.run_until_idle();
    let shard = &mut broker.threads[0].shard;
    let destination = shard.router.destination(b"/topic/large").expect("a name");
    assert_eq!(
        shard.router.reach(destination).fan_out_size,
        0,
        "they are one group, which gets the same bytes"
    );
}
