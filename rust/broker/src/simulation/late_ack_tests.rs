//! Late ACKs and NACKs of STOMP 1.1: what they cover, also in transactions.

use super::SimulatedBroker;
use super::client::Client;
use super::support::{broker, connect, exchange};
use crate::config::Config;

pub(super) fn config() -> Config {
    Config { writers: 1, ack_timeout_ms: 1000, heartbeat_ms: (0, 0), ..Config::default() }
}

pub(super) fn client_of(broker: &mut SimulatedBroker, version: &str) -> Client {
    let mut client = Client::new(broker.connect(0).expect("sockets"));
    client.send(format!("CONNECT\naccept-version:{version}\nhost:h\n\n\0").as_bytes());
    exchange(broker, &mut client);
    client
}

pub(super) fn publish(broker: &mut SimulatedBroker, publisher: &mut Client, queue: &str, bodies: &[&str]) {
    for body in bodies {
        publisher.send(format!("SEND\ndestination:/queue/{queue}\n\n{body}\0").as_bytes());
    }
    exchange(broker, publisher);
}

/// How a client names its delivery at this place among all it has received.
pub(super) fn named(client: &Client, at: usize) -> String {
    let head =
        client.received_frames().filter(|head| head.starts_with("MESSAGE")).nth(at).expect("a message");
    let line = |name: &str| head.split(" | ").find_map(|line| line.strip_prefix(name)).map(str::to_owned);
    match line("ack:") {
        Some(ack) => format!("id:{ack}\n"),
        None => format!(
            "subscription:{}\nmessage-id:{}\n",
            line("subscription:").expect("a subscription"),
            line("message-id:").expect("an id")
        ),
    }
}

pub(super) fn wait(broker: &mut SimulatedBroker, client: &mut Client, ms: u64) {
    broker.advance_ms(ms);
    broker.run_until_idle();
    exchange(broker, client);
}

pub(super) fn counts(broker: &SimulatedBroker) -> (u64, u64, u64) {
    let counters = &broker.threads[0].shard.turn.counters;
    (counters.acked, counters.nacked, counters.timed_out)
}

/// A client of this version in client mode that has got x, which has timed out since then, and later y, which has not.
fn with_one_late(broker: &mut SimulatedBroker, version: &str, header: &str) -> Client {
    let mut publisher = connect(broker, 0);
    let mut consumer = client_of(broker, version);
    let subscribe = format!("SUBSCRIBE\nid:0\nack:client\n{header}destination:/queue/a\n\n\0");
    consumer.send(subscribe.as_bytes());
    exchange(broker, &mut consumer);
    publish(broker, &mut publisher, "a", &["x"]);
    exchange(broker, &mut consumer);
    wait(broker, &mut consumer, 600);
    publish(broker, &mut publisher, "a", &["y"]);
    exchange(broker, &mut consumer);
    wait(broker, &mut consumer, 401);
    assert_eq!((counts(broker), consumer.bodies.len()), ((0, 0, 1), 2), "x has timed out");
    consumer
}

#[test]
fn a_late_nack_of_a_delivery_that_no_ack_has_taken_does_nothing() {
    for version in ["1.2", "1.1"] {
        let mut broker = broker(config());
        let mut consumer = with_one_late(&mut broker, version, "max-deliveries:1\n");
        for (verdict, at) in [("NACK", 0), ("ACK", 1)] {
            let receipt = consumer.expect_receipt();
            let frame = format!("{verdict}\n{}receipt:{receipt}\n\n\0", named(&consumer, at));
            consumer.send(frame.as_bytes());
            exchange(&mut broker, &mut consumer);
        }
        consumer.check_receipts();
        let dead = broker.threads[0].shard.queues.home.counts.dead_lettered;
        assert_eq!((counts(&broker), dead), ((1, 0, 1), 1), "{version}: y is acknowledged in time, not dead");
    }
}

/// The same of a message that waits for its redelivery, in a transaction.
#[test]
fn such_a_nack_does_not_void_a_transaction() {
    for version in ["1.2", "1.1"] {
        let mut broker = broker(config());
        let mut consumer = with_one_late(&mut broker, version, "");
        consumer.send(b"BEGIN\ntransaction:t\n\n\0");
        consumer.send(format!("NACK\n{}transaction:t\n\n\0", named(&consumer, 0)).as_bytes());
        consumer.send(b"COMMIT\ntransaction:t\n\n\0");
        exchange(&mut broker, &mut consumer);
        assert!(!consumer.is_closed(), "{version}: the NACK is late, it does nothing");
    }
}

/// A client of 1.1 in client mode that has got x and y twice; and again x.
pub(super) fn with_redeliveries(broker: &mut SimulatedBroker) -> Client {
    let mut publisher = connect(broker, 0);
    let mut consumer = client_of(broker, "1.1");
    consumer.send(b"SUBSCRIBE\nid:0\nack:client\nprefetch-count:0\ndestination:/queue/a\n\n\0");
    exchange(broker, &mut consumer);
    publish(broker, &mut publisher, "a", &["x", "y"]);
    exchange(broker, &mut consumer);
    wait(broker, &mut consumer, 1000);
    wait(broker, &mut consumer, 200);
    assert_eq!(consumer.bodies, ["x", "y", "x", "y"]);
    consumer
}

/// "Of several ACKs and NACKs of one delivery in a transaction the first counts"; a late ACK "covers this message alone".
#[test]
fn a_second_late_ack_in_a_transaction_covers_no_other_message() {
    for times in [1, 2] {
        let mut broker = broker(config());
        let mut consumer = with_redeliveries(&mut broker);
        consumer.send(b"BEGIN\ntransaction:t\n\n\0");
        for _ in 0..times {
            consumer.send(format!("ACK\n{}transaction:t\n\n\0", named(&consumer, 3)).as_bytes());
        }
        consumer.send(b"COMMIT\ntransaction:t\n\n\0");
        exchange(&mut broker, &mut consumer);
        assert!(!consumer.is_closed());
        assert_eq!(counts(&broker).0, 1, "{times} ACKs of y: x is not acknowledged");
        drop(consumer);
        let mut other = client_of(&mut broker, "1.2");
        other.send(b"SUBSCRIBE\nid:0\nack:client\ndestination:/queue/a\n\n\0");
        exchange(&mut broker, &mut other);
        assert_eq!(other.bodies, ["x"], "x was never acknowledged");
    }
}

/// A late ACK "covers this message alone", also if the connection ends while the COMMIT is being applied.
#[test]
fn a_late_ack_of_a_commit_covers_no_other_message_if_the_connection_ends_meanwhile() {
    const MANY: usize = 30_000;
    for ends in [false, true] {
        let mut broker = broker(config());
        let mut consumer = with_redeliveries(&mut broker);
        let mut publisher = connect(&mut broker, 0);
        consumer.send(b"SUBSCRIBE\nid:t\ndestination:/topic/t\n\n\0");
        consumer.send(b"SUBSCRIBE\nid:many\nack:client\nprefetch-count:0\ndestination:/queue/many\n\n\0");
        exchange(&mut broker, &mut consumer);
        for _ in 0..MANY / 1000 {
            publisher.send("SEND\ndestination:/queue/many\n\n\0".repeat(1000).as_bytes());
            exchange(&mut broker, &mut publisher);
            exchange(&mut broker, &mut consumer);
        }
        assert_eq!(consumer.bodies.len(), 4 + MANY);
        consumer.send(b"BEGIN\ntransaction:t\n\n\0");
        for at in [3 + MANY, 3] {
            consumer.send(format!("ACK\n{}transaction:t\n\n\0", named(&consumer, at)).as_bytes());
        }
        exchange(&mut broker, &mut consumer);
        consumer.send(b"COMMIT\ntransaction:t\n\n\0");
        if ends {
            while counts(&broker).0 == 0 {
                broker.turn(0);
            }
            assert!(counts(&broker).0 < MANY as u64, "it is being applied");
        } else {
            exchange(&mut broker, &mut consumer);
        }
        drop(consumer);
        publisher.send(b"SEND\ndestination:/topic/t\n\n\0"); // the broker finds that the client has gone
        broker.run_until_idle();
        assert_eq!(counts(&broker).0, MANY as u64 + 1, "ends: {ends}");
        let mut other = client_of(&mut broker, "1.2");
        other.send(b"SUBSCRIBE\nid:0\nack:client\ndestination:/queue/a\n\n\0");
        exchange(&mut broker, &mut other);
        assert_eq!(other.bodies, ["x"], "x was never acknowledged");
    }
}

/// "So it is [E-TX-LOST] if `ack_timeout` has revoked another one that the ACK covers": a NACK covers all before it even then.
#[test]
fn a_transaction_is_void_if_another_delivery_that_a_late_looking_nack_covers_has_timed_out() {
    let mut broker = broker(config());
    let mut publisher = connect(&mut broker, 0);
    let mut consumer = client_of(&mut broker, "1.1");
    consumer.send(b"SUBSCRIBE\nid:0\nack:client\ndestination:/queue/a\n\n\0");
    exchange(&mut broker, &mut consumer);
    publish(&mut broker, &mut publisher, "a", &["x"]);
    exchange(&mut broker, &mut consumer);
    wait(&mut broker, &mut consumer, 700);
    publish(&mut broker, &mut publisher, "a", &["y"]);
    exchange(&mut broker, &mut consumer);
    wait(&mut broker, &mut consumer, 300);
    wait(&mut broker, &mut consumer, 200);
    assert_eq!(consumer.bodies, ["x", "y", "x"]);
    consumer.send(b"BEGIN\ntransaction:t\n\n\0");
    consumer.send(format!("NACK\n{}transaction:t\n\n\0", named(&consumer, 2)).as_bytes());
    exchange(&mut broker, &mut consumer);
    wait(&mut broker, &mut consumer, 550);
    assert_eq!(counts(&broker).2, 2, "y has timed out");
    consumer.send(b"COMMIT\ntransaction:t\n\n\0");
    exchange(&mut broker, &mut consumer);
    assert!(consumer.received_frames().any(|head| head.contains("E-TX-LOST")), "the NACK covered y, too");
}
