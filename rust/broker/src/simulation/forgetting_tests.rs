//! What is forgotten while memory is short, and what clients acknowledge meanwhile or later.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::SimulatedBroker;
use super::client::Client;
use super::near_limit::{LIMIT, fill_up_to, held, publish, small_memory, wait};
use super::support::{broker, connect, exchange, messages, names_at_home, receipts};
use crate::config::Config;
use crate::connection::conn::Conn;
use crate::ids::ShardId;

/// More ids of requeued deliveries than are remembered while memory is short.
const MANY_IDS: usize = 1100;
const COMMIT: &[u8] = b"COMMIT\ntransaction:t\nreceipt:r\n\n\0";

/// The values of a header of the messages that a client has got.
fn values(client: &Client, header: &str) -> Vec<String> {
    let heads = client.received_frames().filter(|head| head.starts_with("MESSAGE"));
    let lines = heads.filter_map(|head| head.split(" | ").find_map(|line| line.strip_prefix(header)));
    lines.map(str::to_owned).collect()
}

fn conns(broker: &SimulatedBroker) -> impl Iterator<Item = &Conn> {
    broker.threads[0].shard.connections.table.iter().map(|(_, conn)| conn)
}

/// The number of deliveries that clients of the first shard have not acknowledged.
fn unacked(broker: &SimulatedBroker) -> usize {
    conns(broker).filter_map(|conn| Some(conn.pending_writes.as_ref()?.unacked)).sum()
}

/// Fills memory; returns what is to be freed.
fn fill(broker: &SimulatedBroker, percent: i64) -> i64 {
    let before = held(broker);
    fill_up_to(broker, percent);
    held(broker) - before
}

fn free(broker: &SimulatedBroker, bytes: i64) {
    broker.shared.totals.memory.fetch_sub(bytes, Ordering::Relaxed);
}

/// A client with two subscriptions whose messages may be dropped: `deliveries` messages of topic `b` are in flight, and
/// more wait in the queue for the topic `a`. It refuses the first one in a transaction with a message to `destination`.
fn refuse_in_transaction(broker: &mut SimulatedBroker, deliveries: usize, destination: &str) -> Client {
    let [mut client, mut publisher] = [0; 2].map(|shard| connect(broker, shard));
    for (topic, prefetch) in [("a", 1), ("b", 1000)] {
        let headers = format!("id:{topic}\nack:client-individual\nprefetch-count:{prefetch}");
        let subscribe =
            format!("SUBSCRIBE\n{headers}\nslow-consumer:drop-oldest\ndestination:/topic/{topic}");
        client.send(format!("{subscribe}\n\n\0").as_bytes());
    }
    exchange(broker, &mut client);
    for topic in std::iter::repeat_n("b", deliveries).chain(std::iter::repeat_n("a", 20)) {
        publish(broker, &mut publisher, topic, 10_000);
        exchange(broker, &mut client);
    }
    let id = &values(&client, "ack:")[0];
    let send = format!("SEND\ndestination:{destination}\ntransaction:t\n\nlast\0");
    client.send(format!("BEGIN\ntransaction:t\n\n\0NACK\nid:{id}\ntransaction:t\n\n\0{send}").as_bytes());
    exchange(broker, &mut client);
    client
}

/// The COMMIT of this client took effect as a whole.
fn assert_committed(client: &Client, receiver: &Client) {
    assert_eq!((receipts(client), client.is_closed()), (1, false));
    assert_eq!(receiver.bodies.iter().filter(|body| *body == "last").count(), 1);
    assert_eq!(values(client, "redelivered:"), ["true"], "what it has refused comes again");
}

#[test]
fn a_commit_takes_effect_as_a_whole_if_memory_is_short_while_it_asks_other_homes() {
    let config = Config { writers: 2, redelivery_delay: Duration::ZERO, ..small_memory() };
    let mut broker = broker(config);
    let queue = names_at_home(&broker, "/queue/", 1).next().expect("endless");
    let mut reader = connect(&mut broker, 0);
    reader.send(format!("SUBSCRIBE\nid:0\ndestination:{queue}\n\n\0").as_bytes());
    exchange(&mut broker, &mut reader);
    let mut client = refuse_in_transaction(&mut broker, 30, &queue);
    client.send(COMMIT);
    broker.turn(0);
    assert!(conns(&broker).any(Conn::is_acknowledging), "it is checked, and asks shard 1");
    let added = fill(&broker, 97);
    for _ in 0..4 {
        broker.shared.totals.largest.note_free(ShardId(1)); // that has no turn
        broker.turn(0);
        broker.advance_ms(100);
    }
    free(&broker, added);
    wait(&mut broker, 500);
    [&mut client, &mut reader].into_iter().for_each(|client| exchange(&mut broker, client));
    assert_committed(&client, &reader);
}

#[test]
fn a_commit_takes_effect_as_a_whole_if_memory_is_short_while_it_waits_for_room() {
    let config = Config { outbox_limit: 100_000, redelivery_delay: Duration::ZERO, ..small_memory() };
    let mut broker = broker(config);
    let [mut slow, mut publisher] = [0; 2].map(|shard| connect(&mut broker, shard));
    slow.send(b"SUBSCRIBE\nid:0\ndestination:/topic/slow\n\n\0");
    broker.run_until_idle();
    let mut client = refuse_in_transaction(&mut broker, 120, "/topic/slow");
    (0..14).for_each(|_| publish(&mut broker, &mut publisher, "slow", 10_000));
    client.send(COMMIT);
    exchange(&mut broker, &mut client);
    assert_eq!(receipts(&client), 0, "it waits for the slow consumer");
    let added = fill(&broker, 90);
    wait(&mut broker, 300);
    free(&broker, added);
    for _ in 0..10 {
        broker.advance_ms(100);
        [&mut slow, &mut client].into_iter().for_each(|client| exchange(&mut broker, client));
    }
    assert_committed(&client, &slow);
}

/// A client with 16,000 deliveries of a topic, after the first turn of its ACK of all up to one of them.
fn acknowledge_up_to(at: usize) -> (SimulatedBroker, Client) {
    let mut broker = broker(Config { memory_limit: 4 * LIMIT as u64, ..small_memory() });
    let [mut client, mut publisher] = [0; 2].map(|shard| connect(&mut broker, shard));
    let headers = "id:0\nack:client\nprefetch-count:0\nslow-consumer:drop-oldest";
    client.send(format!("SUBSCRIBE\n{headers}\ndestination:/topic/a\n\n\0").as_bytes());
    exchange(&mut broker, &mut client);
    let send = format!("SEND\ndestination:/topic/a\n\n{}\0", "x".repeat(200));
    for _ in 0..160 {
        publisher.send(send.repeat(100).as_bytes());
        exchange(&mut broker, &mut publisher);
        exchange(&mut broker, &mut client);
    }
    assert_eq!(unacked(&broker), 16_000);
    let id = &values(&client, "ack:")[at];
    client.send(format!("ACK\nid:{id}\nreceipt:r\n\n\0").as_bytes());
    broker.turn(0);
    assert!(conns(&broker).any(Conn::is_acknowledging), "it takes several turns");
    (broker, client)
}

#[test]
fn an_ack_of_several_turns_ends_if_memory_is_short_meanwhile() {
    let covered = 16_000 - unacked(&acknowledge_up_to(15_000).0);
    let (mut broker, mut client) = acknowledge_up_to(covered + 100);
    let added = 4 * LIMIT / 100 * 97 - held(&broker);
    free(&broker, -added);
    broker.turn(0);
    free(&broker, added);
    exchange(&mut broker, &mut client);
    assert_eq!((receipts(&client), unacked(&broker)), (1, 16_000 - covered - 101));
    assert!(!conns(&broker).any(Conn::is_acknowledging), "ack_timeout would wait for ever");
}

/// A client of STOMP 1.1 that has got so many messages of the queue `old`.
fn old_client(broker: &mut SimulatedBroker, publisher: &mut Client) -> Client {
    let mut client = Client::new(broker.connect(0).expect("sockets"));
    client.send(b"CONNECT\naccept-version:1.1\nhost:h\n\n\0");
    client.send(b"SUBSCRIBE\nid:old\nack:client\nprefetch-count:5000\ndestination:/queue/old\n\n\0");
    for _ in 0..MANY_IDS / 100 {
        publisher.send(b"SEND\ndestination:/queue/old\n\nx\0".repeat(100).as_slice());
        exchange(broker, publisher);
        exchange(broker, &mut client);
    }
    assert_eq!(unacked(broker), MANY_IDS);
    client
}

fn ack_in_1_1(broker: &mut SimulatedBroker, client: &mut Client, subscription: &str, id: &str) {
    client.send(format!("ACK\nsubscription:{subscription}\nmessage-id:{id}\nreceipt:r\n\n\0").as_bytes());
    exchange(broker, client);
    assert_eq!(receipts(client), 1);
}

#[test]
fn an_ack_in_1_1_covers_what_others_had_before_although_ids_of_another_subscription_are_forgotten() {
    let mut broker = broker(small_memory());
    let [mut first, mut publisher] = [0; 2].map(|shard| connect(&mut broker, shard));
    let mut client = old_client(&mut broker, &mut publisher);
    let added = fill(&broker, 85);
    broker.run_until_idle();
    client.send(b"UNSUBSCRIBE\nid:old\n\n\0");
    exchange(&mut broker, &mut client);
    free(&broker, added);
    first.send(b"SUBSCRIBE\nid:0\nack:client\ndestination:/queue/q\n\n\0");
    exchange(&mut broker, &mut first);
    publisher.send(b"SEND\ndestination:/queue/q\n\njob\0".repeat(10).as_slice());
    exchange(&mut broker, &mut publisher);
    exchange(&mut broker, &mut first);
    assert_eq!(messages(&first), 10);
    client.send(b"SUBSCRIBE\nid:new\nack:client\ndestination:/queue/q\n\n\0");
    exchange(&mut broker, &mut client);
    first.send(b"DISCONNECT\n\n\0");
    exchange(&mut broker, &mut first);
    exchange(&mut broker, &mut client);
    assert_eq!(unacked(&broker), 10);
    let last = values(&client, "message-id:").pop().expect("it has some");
    ack_in_1_1(&mut broker, &mut client, "new", &last);
    assert_eq!(unacked(&broker), 0);
}

#[test]
fn a_late_ack_in_1_1_covers_only_its_message_although_its_id_is_forgotten() {
    let mut broker =
        broker(Config { ack_timeout_ms: 1000, redelivery_delay: Duration::ZERO, ..small_memory() });
    let mut publisher = connect(&mut broker, 0);
    let mut client = old_client(&mut broker, &mut publisher);
    fill_up_to(&broker, 85);
    broker.advance_ms(1500);
    exchange(&mut broker, &mut client);
    assert_eq!((messages(&client), unacked(&broker)), (2 * MANY_IDS, MANY_IDS), "all of them come again");
    let id = values(&client, "message-id:").swap_remove(MANY_IDS + 10);
    ack_in_1_1(&mut broker, &mut client, "old", &id);
    assert_eq!(unacked(&broker), MANY_IDS - 1);
}
