//! Subscriptions that end, by a frame or by a drain, while messages that were confirmed wait in private queues.

use std::time::Duration;

use super::SimulatedBroker;
use super::client::Client;
use super::support::{broker, connect, exchange, messages, names_at_home, receipts};
use crate::config::{Config, SlowConsumer};
use crate::log::Level;
use crate::mail::mailbox::Mail;

/// Frames that end a subscription.
const ENDS: [&str; 2] = ["UNSUBSCRIBE\nid:0\nreceipt:1\n\n\0", "DISCONNECT\nreceipt:1\n\n\0"];

fn config(writers: usize) -> Config {
    let slow_consumer = SlowConsumer::Block(Duration::from_secs(5));
    Config { writers, heartbeat_ms: (0, 0), outbox_limit: 64 << 10, slow_consumer, ..Config::default() }
}

/// Ends the reader's subscription while it reads and a publisher sends more than that. Returns whether the RECEIPT comes.
fn ends_beside_a_flood(
    broker: &mut SimulatedBroker,
    (reader, publisher): (&mut Client, &mut Client),
    send: &str,
    end: &str,
) -> bool {
    assert_eq!(reader.expect_receipt(), 1);
    reader.send(end.as_bytes());
    (0..300).any(|_| {
        publisher.send(send.repeat(5).as_bytes());
        broker.round();
        broker.advance_ms(10);
        publisher.read(usize::MAX);
        reader.read(usize::MAX);
        receipts(reader) > 0
    })
}

#[test]
fn a_subscription_with_its_own_policy_ends_although_messages_keep_coming() {
    let policies = ["", "slow-consumer:drop-oldest\n", "slow-consumer:drop-newest\n"];
    for (policy, end) in policies.into_iter().flat_map(|policy| ENDS.map(|end| (policy, end))) {
        for writers in [1, 2] {
            let mut broker = broker(config(writers));
            let [mut reader, mut publisher] = [0, writers - 1].map(|shard| connect(&mut broker, shard));
            reader.send(format!("SUBSCRIBE\nid:0\ndestination:/topic/a\n{policy}\n\0").as_bytes());
            exchange(&mut broker, &mut reader);
            let send = format!("SEND\ndestination:/topic/a\n\n{}\0", "x".repeat(4000));
            for _ in 0..100 {
                publisher.send(send.repeat(5).as_bytes());
                broker.round();
                publisher.read(usize::MAX);
            }
            let ends = ends_beside_a_flood(&mut broker, (&mut reader, &mut publisher), &send, end);
            assert!(ends, "{writers} threads, {policy:?}, {end:?}: {} messages", messages(&reader));
        }
    }
}

#[test]
fn a_drain_sends_the_first_message_of_a_private_queue_behind_a_full_outbox() {
    let slow_consumer = SlowConsumer::DropNewest;
    let mut broker = broker(Config { slow_consumer, drain: Duration::from_secs(3600), ..config(1) });
    let [mut reader, mut publisher] = [0; 2].map(|shard| connect(&mut broker, shard));
    reader.send(b"SUBSCRIBE\nid:0\ndestination:/topic/a\n\n\0");
    reader.send(b"SUBSCRIBE\nid:1\ndestination:/topic/b\nslow-consumer:drop-oldest\n\n\0");
    exchange(&mut broker, &mut reader);
    let body = "x".repeat(4000);
    for _ in 0..100 {
        publisher.send(format!("SEND\ndestination:/topic/a\n\n{body}\0").as_bytes());
        broker.run_until_idle();
    }
    publisher.send(b"SEND\ndestination:/topic/b\n\nlive\0");
    exchange(&mut broker, &mut publisher);
    broker.shared.mailboxes[0].post(&mut vec![Mail::Drain]);
    for _ in 0..100 {
        broker.round();
        reader.read(usize::MAX);
    }
    assert!(reader.is_closed() && reader.bodies.iter().any(|body| body == "live"));
}

#[test]
fn a_drain_does_not_stop_the_home_of_an_initial_replay() {
    for rounds in 0..8 {
        let mut broker = broker(Config { drain: Duration::from_secs(8), ..config(2) });
        let [mut reader, mut publisher] = [0, 1].map(|shard| connect(&mut broker, shard));
        let names: Vec<String> = names_at_home(&broker, "/topic/r/", 1).take(300).collect();
        for name in &names {
            publisher.send(format!("SEND\ndestination:{name}\nretain:set\n\nvalue\0").as_bytes());
        }
        publisher.send(b"DISCONNECT\n\n\0");
        exchange(&mut broker, &mut publisher);
        drop(publisher);
        broker.run_until_idle();
        let receipt = reader.expect_receipt();
        let live = format!("SEND\ndestination:{}\nreceipt:{receipt}\n\nlive\0", names[0]);
        reader.send(format!("SUBSCRIBE\nid:0\ndestination:/topic/r/>\n\n\0{live}").as_bytes());
        while receipts(&reader) == 0 {
            broker.turn(0);
            reader.read(usize::MAX);
        }
        for _ in 0..rounds {
            broker.round();
            reader.read(usize::MAX);
        }
        broker.shared.mailboxes.iter().for_each(|mailbox| mailbox.post(&mut vec![Mail::Drain]));
        for _ in 0..100 {
            for shard in 0..2 {
                if !broker.threads[shard].shard.is_stopped() {
                    broker.turn(shard);
                }
            }
            reader.read(usize::MAX);
            broker.advance_ms(10);
        }
        let has_it = reader.bodies.iter().any(|body| body == "live");
        assert!(reader.is_closed() && has_it, "after {rounds} rounds: {} messages", reader.bodies.len());
    }
}

/// Its ACKs are not read any more, so no time would empty its queue.
#[test]
fn a_drain_does_not_cut_off_a_subscription_for_its_missing_acks() {
    let mut broker = broker(Config { drain: Duration::from_secs(3600), ..config(1) });
    let [mut reader, mut publisher] = [0; 2].map(|shard| connect(&mut broker, shard));
    reader.send(b"SUBSCRIBE\nid:0\ndestination:/topic/a\nack:client-individual\nprefetch-count:1\n\n\0");
    exchange(&mut broker, &mut reader);
    let send = format!("SEND\ndestination:/topic/a\ntransaction:t\n\n{}\0", "x".repeat(4000));
    for count in [100, 1] {
        publisher.send(format!("BEGIN\ntransaction:t\n\n\0{}", send.repeat(count)).as_bytes());
        let receipt = publisher.expect_receipt();
        publisher.send(format!("COMMIT\ntransaction:t\nreceipt:{receipt}\n\n\0").as_bytes());
        exchange(&mut broker, &mut publisher);
    }
    assert_eq!(receipts(&publisher), 1, "the second COMMIT waits for the subscription");
    broker.shared.mailboxes[0].post(&mut vec![Mail::Drain]);
    for _ in 0..100 {
        broker.round();
        reader.read(usize::MAX);
        publisher.read(usize::MAX);
    }
    assert!(receipts(&publisher) == 2 && publisher.is_closed());
    let is_blamed = reader.received_frames().any(|head| head.contains("E-SLOW-CONSUMER"));
    assert!(reader.is_closed() && !is_blamed);
}

#[test]
fn a_drain_waits_for_a_client_that_pauses_and_counts_one_that_never_reads() {
    for reads in [true, false] {
        let mut broker =
            broker(Config { drain: Duration::from_secs(30), outbox_limit: 4 << 20, ..config(1) });
        broker.shared.log.set_level(Level::Warn);
        let [mut reader, mut publisher] = [0; 2].map(|shard| connect(&mut broker, shard));
        reader.send(b"SUBSCRIBE\nid:0\ndestination:/topic/a\n\n\0");
        exchange(&mut broker, &mut reader);
        for _ in 0..500 {
            publisher.send(format!("SEND\ndestination:/topic/a\n\n{}\0", "x".repeat(4000)).as_bytes());
            exchange(&mut broker, &mut publisher);
        }
        broker.shared.mailboxes[0].post(&mut vec![Mail::Drain]);
        let pass = |broker: &mut SimulatedBroker| {
            for _ in 0..16 {
                if !broker.threads[0].shard.is_stopped() {
                    broker.run_until_idle();
                    broker.advance_ms(1000);
                }
            }
        };
        pass(&mut broker);
        assert!(!broker.threads[0].shard.is_stopped(), "it has ended after half of the time");
        if reads {
            exchange(&mut broker, &mut reader);
            assert_eq!(messages(&reader), 500);
        }
        pass(&mut broker);
        let logged = broker.shared.log.drain(Duration::ZERO);
        let logged: Vec<&str> = logged.iter().map(|record| &*record.text).collect();
        let is_counted = logged.iter().any(|text| text.contains("1 connections cut off"));
        assert!(broker.threads[0].shard.is_stopped() && is_counted != reads, "{logged:?}");
    }
}
