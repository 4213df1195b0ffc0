//! Attacks on the rule of late ACKs and NACKs of STOMP 1.1.

use super::SimulatedBroker;
use super::client::Client;
use super::support::{broker, connect, exchange};
use crate::config::Config;

fn config() -> Config {
    Config { writers: 1, ack_timeout_ms: 1000, heartbeat_ms: (0, 0), ..Config::default() }
}

fn client_of(broker: &mut SimulatedBroker, version: &str) -> Client {
    let mut client = Client::new(broker.connect(0).expect("sockets"));
    client.send(format!("CONNECT\naccept-version:{version}\nhost:h\n\n\0").as_bytes());
    exchange(broker, &mut client);
    client
}

fn publish(broker: &mut SimulatedBroker, publisher: &mut Client, queue: &str, bodies: &[&str]) {
    for body in bodies {
        publisher.send(format!("SEND\ndestination:/queue/{queue}\n\n{body}\0").as_bytes());
    }
    exchange(broker, publisher);
}

/// How a client names its delivery at this place among all it has received.
fn named(client: &Client, at: usize) -> String {
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

fn wait(broker: &mut SimulatedBroker, client: &mut Client, ms: u64) {
    broker.advance_ms(ms);
    broker.run_until_idle();
    exchange(broker, client);
}

fn counts(broker: &SimulatedBroker) -> (u64, u64, u64) {
    let counters = &broker.threads[0].shard.turn.counters;
    (counters.acked, counters.nacked, counters.timed_out)
}

/// "An id that was issued and taken back is a counted no-op" (PRODUCT, 3).
#[test]
fn a_late_nack_of_a_delivery_that_no_ack_has_taken_does_nothing() {
    for version in ["1.2", "1.1"] {
        let mut broker = broker(config());
        let mut publisher = connect(&mut broker, 0);
        let mut consumer = client_of(&mut broker, version);
        consumer.send(b"SUBSCRIBE\nid:0\nack:client\nmax-deliveries:1\ndestination:/queue/a\n\n\0");
        exchange(&mut broker, &mut consumer);
        publish(&mut broker, &mut publisher, "a", &["x"]);
        exchange(&mut broker, &mut consumer);
        wait(&mut broker, &mut consumer, 600);
        publish(&mut broker, &mut publisher, "a", &["y"]);
        exchange(&mut broker, &mut consumer);
        wait(&mut broker, &mut consumer, 600);
        assert_eq!(counts(&broker), (0, 0, 1), "x has timed out");
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

/// 1b. The same with a message that waits for its redelivery, and in a transaction.
#[test]
fn such_a_nack_does_not_void_a_transaction() {
    for version in ["1.2", "1.1"] {
        let mut broker = broker(config());
        let mut publisher = connect(&mut broker, 0);
        let mut consumer = client_of(&mut broker, version);
        consumer.send(b"SUBSCRIBE\nid:0\nack:client\ndestination:/queue/a\n\n\0");
        exchange(&mut broker, &mut consumer);
        publish(&mut broker, &mut publisher, "a", &["x"]);
        exchange(&mut broker, &mut consumer);
        wait(&mut broker, &mut consumer, 600);
        publish(&mut broker, &mut publisher, "a", &["y"]);
        exchange(&mut broker, &mut consumer);
        wait(&mut broker, &mut consumer, 401);
        assert_eq!((counts(&broker), consumer.bodies.len()), ((0, 0, 1), 2), "x has timed out");
        consumer.send(b"BEGIN\ntransaction:t\n\n\0");
        consumer.send(format!("NACK\n{}transaction:t\n\n\0", named(&consumer, 0)).as_bytes());
        consumer.send(b"COMMIT\ntransaction:t\n\n\0");
        exchange(&mut broker, &mut consumer);
        assert!(!consumer.is_closed(), "{version}: the NACK is late, it does nothing");
    }
}

/// A client of 1.1 in client mode that has got x and y twice; and again x.
fn with_redeliveries(broker: &mut SimulatedBroker) -> Client {
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

/// Sends this many messages to the queue, which the consumer gets as far as its credit allows.
fn fill(broker: &mut SimulatedBroker, consumer: &mut Client, thousands: usize) {
    let mut publisher = connect(broker, 0);
    for _ in 0..thousands {
        publisher.send("SEND\ndestination:/queue/a\n\nz\0".repeat(1000).as_bytes());
        exchange(broker, &mut publisher);
        exchange(broker, consumer);
    }
}

/// A NACK that was begun is refused in the middle: what it takes back displaces the id that it names.
#[test]
fn a_nack_that_takes_back_very_many_deliveries_is_not_refused() {
    let mut broker = broker(config());
    let mut consumer = with_redeliveries(&mut broker);
    let y = named(&consumer, 3);
    consumer.send(format!("ACK\n{y}\n\0").as_bytes());
    exchange(&mut broker, &mut consumer);
    fill(&mut broker, &mut consumer, 80);
    let receipt = consumer.expect_receipt();
    consumer.send(format!("NACK\n{y}receipt:{receipt}\n\n\0").as_bytes());
    exchange(&mut broker, &mut consumer);
    assert!(
        !consumer.received_frames().any(|head| head.starts_with("ERROR")),
        "{:?}",
        consumer.received_frames().last()
    );
    assert!(consumer.has_all_receipts());
}

/// Ends a subscription that holds this many deliveries.
fn revoke_others(broker: &mut SimulatedBroker, consumer: &mut Client, id: &str, count: usize) {
    let mut publisher = connect(broker, 0);
    consumer.send(
        format!("SUBSCRIBE\nid:{id}\nack:client\nprefetch-count:0\ndestination:/queue/{id}\n\n\0").as_bytes(),
    );
    exchange(broker, consumer);
    let mut left = count;
    while left > 0 {
        let part = left.min(1000);
        publisher.send(format!("SEND\ndestination:/queue/{id}\n\n\0").repeat(part).as_bytes());
        exchange(broker, &mut publisher);
        exchange(broker, consumer);
        left -= part;
    }
    consumer.send(format!("UNSUBSCRIBE\nid:{id}\n\n\0").as_bytes());
    exchange(broker, consumer);
}

/// "The broker remembers the last 65,536 of them for each connection."
#[test]
fn a_delivery_that_was_revoked_again_is_among_the_last_ones() {
    let mut broker = broker(config());
    let mut consumer = with_redeliveries(&mut broker);
    revoke_others(&mut broker, &mut consumer, "many", 65_534);
    wait(&mut broker, &mut consumer, 1000);
    assert_eq!(counts(&broker).2, 4, "x and y have timed out again");
    revoke_others(&mut broker, &mut consumer, "few", 2);
    let receipt = consumer.expect_receipt();
    let y = named(&consumer, 3);
    consumer.send(format!("ACK\n{y}receipt:{receipt}\n\n\0").as_bytes());
    exchange(&mut broker, &mut consumer);
    assert!(!consumer.received_frames().any(|head| head.starts_with("ERROR")), "two were revoked after it");
}

/// What an ACK covers is decided when it is accepted: its RECEIPT has been sent.
#[test]
fn what_a_late_ack_in_a_transaction_covers_does_not_change_until_its_commit() {
    let mut broker = broker(config());
    let mut consumer = with_redeliveries(&mut broker);
    consumer.send(b"BEGIN\ntransaction:t\n\n\0");
    let y = named(&consumer, 3);
    consumer.send(format!("ACK\n{y}transaction:t\n\n\0").as_bytes());
    exchange(&mut broker, &mut consumer);
    revoke_others(&mut broker, &mut consumer, "many", 65_600);
    consumer.send(b"COMMIT\ntransaction:t\n\n\0");
    exchange(&mut broker, &mut consumer);
    assert!(!consumer.is_closed());
    assert_eq!(counts(&broker).0, 1, "the ACK was late when it was accepted: it covers y alone");
}

/// Forgotten: "an ACK of it does nothing"; what was forgotten is older than all that is held.
#[test]
fn a_nack_of_a_forgotten_redelivery_takes_nothing_back() {
    use super::near_limit::{fill_up_to, publish, small_memory, wait as pass};
    for times_out in [false, true] {
        let mut broker = broker(Config { ack_timeout_ms: 60_000, ..small_memory() });
        let mut publisher = connect(&mut broker, 0);
        let mut consumer = client_of(&mut broker, "1.1");
        consumer.send(b"SUBSCRIBE\nid:0\nack:client\nslow-consumer:drop-oldest\ndestination:/topic/b\n\n\0");
        exchange(&mut broker, &mut consumer);
        for _ in 0..60 {
            publish(&mut broker, &mut publisher, "b", 10_000);
            exchange(&mut broker, &mut consumer);
        }
        let first = named(&consumer, 0);
        if times_out {
            wait(&mut broker, &mut consumer, 60_000);
            wait(&mut broker, &mut consumer, 200);
        }
        let unacked = |broker: &SimulatedBroker| -> usize {
            let table = &broker.threads[0].shard.connections.table;
            table.iter().filter_map(|(_, conn)| Some(conn.pending_writes.as_ref()?.unacked)).sum()
        };
        assert_eq!(unacked(&broker), 60);
        let before = broker.threads[0].shard.turn.held_bytes();
        fill_up_to(&broker, 97);
        let added = broker.threads[0].shard.turn.held_bytes() - before;
        for _ in 0..20 {
            pass(&mut broker, 100);
            if unacked(&broker) < 60 {
                break;
            }
        }
        broker.shared.totals.memory.fetch_sub(added, std::sync::atomic::Ordering::Relaxed);
        pass(&mut broker, 200);
        exchange(&mut broker, &mut consumer);
        let left = unacked(&broker);
        assert!(left < 60 && left > 0, "{left}: the older half is forgotten");
        let timed_out = counts(&broker).2;
        consumer.send(format!("NACK\n{first}\n\0").as_bytes());
        exchange(&mut broker, &mut consumer);
        assert!(!consumer.is_closed());
        assert_eq!((unacked(&broker), counts(&broker).2), (left, timed_out), "times out: {times_out}");
    }
}

/// Two dead letters of one message in one subscription.
#[test]
fn a_nack_covers_all_deliveries_up_to_the_named_one_if_a_message_is_there_twice() {
    let mut broker = broker(config());
    let mut publisher = connect(&mut broker, 0);
    let mut refusing = client_of(&mut broker, "1.2");
    for id in 0..2 {
        refusing.send(format!("SUBSCRIBE\nid:{id}\nack:client\ndestination:/topic/t\n\n\0").as_bytes());
    }
    exchange(&mut broker, &mut refusing);
    publisher.send(b"SEND\ndestination:/topic/t\n\na\0");
    exchange(&mut broker, &mut publisher);
    exchange(&mut broker, &mut refusing);
    for at in 0..2 {
        refusing.send(format!("NACK\n{}requeue:false\n\n\0", named(&refusing, at)).as_bytes());
        exchange(&mut broker, &mut refusing);
    }
    let mut consumer = client_of(&mut broker, "1.1");
    consumer.send(b"SUBSCRIBE\nid:0\nack:client\ndestination:/queue/dlq/topic/t\n\n\0");
    exchange(&mut broker, &mut consumer);
    publish(&mut broker, &mut publisher, "dlq/topic/t", &["b"]);
    exchange(&mut broker, &mut consumer);
    assert_eq!(consumer.bodies, ["a", "a", "b"]);
    eprintln!("10: {} and {}", named(&consumer, 0), named(&consumer, 1));
    let before = counts(&broker);
    for (verdict, at) in [("NACK", 1), ("ACK", 2)] {
        consumer.send(format!("{verdict}\n{}\n\0", named(&consumer, at)).as_bytes());
        exchange(&mut broker, &mut consumer);
    }
    let after = counts(&broker);
    assert_eq!(
        (after.0 - before.0, after.1 - before.1),
        (1, 2),
        "the second a was refused, and acknowledged"
    );
}

/// A client of 1.1 in client mode, while memory is short, whose subscription with 600 deliveries has ended.
fn with_an_ended_subscription() -> (SimulatedBroker, Client, Client) {
    use super::near_limit::{fill_up_to, small_memory};
    let mut broker = broker(small_memory());
    let mut consumer = client_of(&mut broker, "1.1");
    let mut publisher = connect(&mut broker, 0);
    consumer.send(b"SUBSCRIBE\nid:0\nack:client\nprefetch-count:0\ndestination:/queue/a\n\n\0");
    exchange(&mut broker, &mut consumer);
    publisher.send("SEND\ndestination:/queue/a\n\n\0".repeat(600).as_bytes());
    publisher.send("SEND\ndestination:/queue/b\n\nb\0".as_bytes());
    exchange(&mut broker, &mut publisher);
    exchange(&mut broker, &mut consumer);
    assert_eq!(consumer.bodies.len(), 600);
    fill_up_to(&broker, 85);
    wait(&mut broker, &mut consumer, 100);
    assert!(broker.threads[0].shard.turn.memory.is_short);
    consumer.send(b"UNSUBSCRIBE\nid:0\n\n\0");
    exchange(&mut broker, &mut consumer);
    (broker, consumer, publisher)
}

/// "A subscription that begins again with the same id after UNSUBSCRIBE is a new one: what it gets for the first time has
/// no late ACK."
///
/// There is no `ack_timeout` here.
#[test]
fn an_ack_of_a_renewed_subscription_covers_all_before_it_also_while_memory_is_short() {
    let (mut broker, mut consumer, _publisher) = with_an_ended_subscription();
    consumer.send(b"SUBSCRIBE\nid:0\nack:client\nprefetch-count:0\ndestination:/queue/a\n\n\0");
    exchange(&mut broker, &mut consumer);
    assert_eq!(consumer.bodies.len(), 1200);
    consumer.send(format!("ACK\n{}\n\0", named(&consumer, 600 + 99)).as_bytes());
    exchange(&mut broker, &mut consumer);
    assert_eq!(counts(&broker).0, 100);
}

/// A NACK of a delivery that UNSUBSCRIBE has revoked takes back what the next subscription has got from another queue.
#[test]
fn a_nack_of_an_ended_subscription_takes_nothing_back_from_the_next_one_also_while_memory_is_short() {
    for at in [599, 99] {
        let (mut broker, mut consumer, _publisher) = with_an_ended_subscription();
        consumer.send(b"SUBSCRIBE\nid:0\nack:client\nmax-deliveries:1\ndestination:/queue/b\n\n\0");
        exchange(&mut broker, &mut consumer);
        assert_eq!(consumer.bodies.len(), 601);
        consumer.send(format!("NACK\n{}\n\0", named(&consumer, at)).as_bytes());
        exchange(&mut broker, &mut consumer);
        let dead = broker.threads[0].shard.queues.home.counts.dead_lettered;
        assert_eq!((counts(&broker).2, dead), (0, 0), "NACK of delivery {at} of the ended subscription");
    }
}

/// Examined: a pattern with two queues on two shards, prefetch, all settled in the end, nothing left in memory.
#[test]
fn what_a_nack_takes_back_comes_again_and_is_settled_in_the_end() {
    for (shard, prefetch) in [(0, 2), (1, 2), (0, 0), (1, 3)] {
        let mut config = config();
        config.writers = 2;
        let mut broker = broker(config);
        let mut publisher = connect(&mut broker, 0);
        let mut helds = Vec::new();
        for _ in 0..3 {
            let mut consumer = Client::new(broker.connect(shard).expect("sockets"));
            consumer.send(b"CONNECT\naccept-version:1.1\nhost:h\n\n\0");
            consumer.send(
                format!(
                    "SUBSCRIBE\nid:0\nack:client\nprefetch-count:{prefetch}\ndestination:/queue/p.*\n\n\0"
                )
                .as_bytes(),
            );
            exchange(&mut broker, &mut consumer);
            for name in ["p.a", "p.b", "p.c", "p.d", "p.e"] {
                publish(&mut broker, &mut publisher, name, &["x", "y", "z"]);
            }
            exchange(&mut broker, &mut consumer);
            wait(&mut broker, &mut consumer, 1000);
            wait(&mut broker, &mut consumer, 200);
            let mut done = 0;
            for round in 0..400 {
                let all = super::support::messages(&consumer);
                let verdict = if round % 7 < 3 && round < 60 { "NACK" } else { "ACK" };
                if done < all {
                    let at = if round % 2 == 0 { all - 1 } else { done };
                    let frame = format!("{verdict}\n{}\n\0", named(&consumer, at));
                    done += 1;
                    // an id that is settled is an error, which ends it
                    consumer.send(frame.as_bytes());
                    exchange(&mut broker, &mut consumer);
                }
                if consumer.is_closed() {
                    break;
                }
                wait(&mut broker, &mut consumer, 130);
            }
            consumer.send(b"DISCONNECT\nreceipt:bye\n\n\0");
            exchange(&mut broker, &mut consumer);
            drop(consumer);
            broker.run_until_idle();
            // what is left is consumed by another
            let mut other = client_of(&mut broker, "1.2");
            other.send(b"SUBSCRIBE\nid:0\ndestination:/queue/p.*\n\n\0");
            for _ in 0..20 {
                wait(&mut broker, &mut other, 1000);
            }
            other.send(b"DISCONNECT\nreceipt:bye\n\n\0");
            exchange(&mut broker, &mut other);
            drop(other);
            broker.advance_ms(1000);
            broker.run_until_idle();
            let table = |at: usize| -> usize {
                let table = &broker.threads[at].shard.connections.table;
                table.iter().filter_map(|(_, conn)| Some(conn.pending_writes.as_ref()?.unacked)).sum()
            };
            assert_eq!((table(0), table(1)), (0, 0));
            let dead: Vec<_> =
                broker.threads.iter().map(|it| it.shard.queues.home.counts.dead_lettered).collect();
            eprintln!("13b: dead letters {dead:?}");
            let dead_bytes = 201 * dead.iter().sum::<u64>() as i64;
            helds.push(held_of(&broker) - dead_bytes);
        }
        eprintln!("13b: {shard} {prefetch} {helds:?}");
        assert!(helds[2] <= helds[1] + 64, "{helds:?}");
    }
}

fn held_of(broker: &SimulatedBroker) -> i64 {
    super::near_limit::held(broker)
}
