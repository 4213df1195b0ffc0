//! Ids of deliveries that were revoked or forgotten: for how long they are remembered, and what an ACK or NACK of them covers.

use super::SimulatedBroker;
use super::client::Client;
use super::late_ack_tests::{client_of, config, counts, named, publish, wait, with_redeliveries};
use super::near_limit::{self, fill_up_to, held, small_memory};
use super::support::{broker, connect, exchange, messages};
use crate::config::Config;

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
    for times_out in [false, true] {
        let mut broker = broker(Config { ack_timeout_ms: 60_000, ..small_memory() });
        let mut publisher = connect(&mut broker, 0);
        let mut consumer = client_of(&mut broker, "1.1");
        consumer.send(b"SUBSCRIBE\nid:0\nack:client\nslow-consumer:drop-oldest\ndestination:/topic/b\n\n\0");
        exchange(&mut broker, &mut consumer);
        for _ in 0..60 {
            near_limit::publish(&mut broker, &mut publisher, "b", 10_000);
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
            near_limit::wait(&mut broker, 100);
            if unacked(&broker) < 60 {
                break;
            }
        }
        broker.shared.totals.memory.fetch_sub(added, std::sync::atomic::Ordering::Relaxed);
        near_limit::wait(&mut broker, 200);
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

/// Five queues of a pattern on two shards, with and without a bound on deliveries: in the end all is settled, and nothing is left
/// in memory.
#[test]
fn what_a_nack_takes_back_comes_again_and_is_settled_in_the_end() {
    for (shard, prefetch) in [(0, 2), (1, 2), (0, 0), (1, 3)] {
        let mut broker = broker(Config { writers: 2, ..config() });
        let mut publisher = connect(&mut broker, 0);
        let mut held_each_time = Vec::new();
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
                let all = messages(&consumer);
                let verdict = if round % 7 < 3 && round < 60 { "NACK" } else { "ACK" };
                if done < all {
                    let at = if round % 2 == 0 { all - 1 } else { done };
                    let frame = format!("{verdict}\n{}\n\0", named(&consumer, at));
                    done += 1;
                    // The ACK of a delivery that is settled is an error, which ends the connection.
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
            // Another client consumes what is left.
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
            let dead_bytes = 201 * dead.iter().sum::<u64>() as i64;
            held_each_time.push(held(&broker) - dead_bytes);
        }
        assert!(held_each_time[2] <= held_each_time[1] + 64, "{held_each_time:?}");
    }
}
