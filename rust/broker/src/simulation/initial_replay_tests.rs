//! The initial replay of new subscriptions whose client acknowledges.

use std::sync::atomic::Ordering;

use stompica_proto::encode::Message;

use super::client::Client;
use super::near_limit::{LIMIT, fill_up_to, small_memory};
use super::support::{broker, connect, exchange, messages, names_at_home, receipts};
use super::{SimulatedBroker, Snapshot};
use crate::config::Config;
use crate::ids::ShardId;
use crate::mail::mailbox::Mail;
use crate::message::OwnedMessage;
use crate::queue::mail::HomeNote;

/// More retained messages than one window has.
const VALUES: usize = 70;

/// Sends messages of this size to topics at all homes: retained ones, or stale ones if `header` is empty.
fn publish(broker: &mut SimulatedBroker, count: usize, size: usize, header: &str) {
    let mut publisher = connect(broker, 0);
    let body = "x".repeat(size);
    for at in 0..count {
        let head = format!("SEND\ndestination:/topic/r/{at}\n{header}content-length:{size}\n\n");
        publisher.send(format!("{head}{body}\0").as_bytes());
    }
    exchange(broker, &mut publisher);
}

/// Subscribes to all of them, and receives what is delivered without an ACK.
fn subscribe(broker: &mut SimulatedBroker, headers: &str) -> Client {
    let mut client = connect(broker, 0);
    let receipt = client.expect_receipt();
    let frame = format!("SUBSCRIBE\nid:0\ndestination:/topic/r/>\nreceipt:{receipt}\n{headers}\n\0");
    client.send(frame.as_bytes());
    exchange(broker, &mut client);
    client
}

/// Acknowledges one delivery after the other, until no more arrive.
fn acknowledge_all(broker: &mut SimulatedBroker, client: &mut Client) {
    while let Some((id, _)) = client.deliveries.pop_front() {
        client.send(format!("ACK\nid:{id}\n\n\0").as_bytes());
        exchange(broker, client);
    }
}

/// Brokers with one to three shards, each with these retained messages.
fn brokers(count: usize, size: usize) -> impl Iterator<Item = SimulatedBroker> {
    (1..=3).map(move |writers| {
        let mut broker = broker(Config { writers, ..Config::default() });
        publish(&mut broker, count, size, "retain:set\n");
        broker
    })
}

#[test]
fn the_receipt_of_a_subscribe_does_not_wait_for_its_own_acks() {
    for (count, size) in [(VALUES, 1), (6, 70_000)] {
        for headers in [
            "ack:client\nprefetch-count:1\n",
            "ack:client-individual\nprefetch-count:1\n",
            "ack:client-individual\nprefetch-count:0\nconsumer-window-size:1\n",
        ] {
            for mut broker in brokers(count, size) {
                let mut client = subscribe(&mut broker, headers);
                client.check_receipts();
                assert_eq!((messages(&client), receipts(&client)), (1, 1), "{headers:?} {size}");
                let disconnect = format!("DISCONNECT\nreceipt:{}\n\n\0", client.expect_receipt());
                client.send(disconnect.as_bytes());
                exchange(&mut broker, &mut client);
                assert!(client.is_closed() && receipts(&client) == 2, "{headers:?} {size}");
            }
        }
    }
}

#[test]
fn the_whole_replay_precedes_the_receipt_if_no_limit_is_reached() {
    for (count, size) in [(VALUES, 1), (3, 70_000)] {
        for headers in ["ack:client\nprefetch-count:0\n", "ack:client-individual\nprefetch-count:70\n", ""] {
            for mut broker in brokers(count, size) {
                let client = subscribe(&mut broker, headers);
                let last = client.received_frames().last().expect("an answer");
                assert!(
                    last.starts_with("RECEIPT") && messages(&client) == count,
                    "{headers:?} {size}: {last}"
                );
            }
        }
    }
}

#[test]
fn acknowledgements_continue_the_replay_and_live_messages_follow_it() {
    for mut broker in brokers(VALUES, 1) {
        let mut client = subscribe(&mut broker, "ack:client-individual\nprefetch-count:3\n");
        client.send(b"SEND\ndestination:/topic/r/0\n\nlive\0");
        exchange(&mut broker, &mut client);
        assert_eq!((messages(&client), receipts(&client)), (3, 1));
        acknowledge_all(&mut broker, &mut client);
        assert_eq!(messages(&client), VALUES + 1);
        assert_eq!(client.bodies.iter().position(|body| body == "live"), Some(VALUES));
    }
}

#[test]
fn a_client_that_disconnects_during_the_replay_leaves_nothing_behind() {
    for mut broker in brokers(VALUES, 1) {
        for ends_first in [true, false] {
            let mut client = connect(&mut broker, 0);
            let receipt = client.expect_receipt();
            let head = "SUBSCRIBE\nid:0\ndestination:/topic/r/>\nack:client\nprefetch-count:1\n";
            client.send(format!("{head}receipt:{receipt}\n\n\0").as_bytes());
            if ends_first {
                client.half_close();
                exchange(&mut broker, &mut client);
                assert!(
                    client.is_closed() && receipts(&client) == 1,
                    "a half-closed client gets its answer and is disconnected"
                );
            }
            drop(client);
            broker.run_until_idle();
            let Snapshot { connections, subscriptions, queues, unanswered, .. } = broker.snapshot();
            assert_eq!((connections, subscriptions, queues.len(), unanswered), (0, 0, 0, 0));
        }
    }
}

#[test]
fn the_replay_continues_with_new_credit_if_the_pending_messages_have_expired() {
    let mut broker =
        broker(Config { writers: 1, ack_timeout_ms: 500, max_deliveries: 1, ..Config::default() });
    let mut publisher = connect(&mut broker, 0);
    for at in 100..200 {
        let life = if (101..164).contains(&at) { "ttl:100\n" } else { "" };
        publisher.send(format!("SEND\ndestination:/topic/r/{at}\nretain:set\n{life}\n{at}\0").as_bytes());
    }
    exchange(&mut broker, &mut publisher);
    let mut client = subscribe(&mut broker, "ack:client-individual\nprefetch-count:1\n");
    assert_eq!(client.bodies, ["100"]);
    for _ in 0..3 {
        broker.advance_ms(400); // the client sends nothing that would trigger the time-out
        exchange(&mut broker, &mut client);
    }
    assert_eq!(client.bodies[1], "164");
}

#[test]
fn a_subscription_gets_its_replay_if_earlier_ones_were_removed_with_their_windows() {
    let mut broker = broker(Config { writers: 2, ..Config::default() });
    let mut publisher = connect(&mut broker, 0);
    let far = names_at_home(&broker, "/topic/r/", 1).next().expect("one of two");
    publisher.send(format!("SEND\ndestination:{far}\nretain:set\n\nx\0").as_bytes());
    exchange(&mut broker, &mut publisher);
    let mut client = connect(&mut broker, 0);
    for id in 0..9 {
        client.send(format!("SUBSCRIBE\nid:{id}\ndestination:{far}\n\n\0").as_bytes());
    }
    // The other shard is asked for as many windows as one connection may have, and gets no further turn.
    for shard in [0, 1, 0, 1, 0] {
        broker.turn(shard);
    }
    assert_eq!(messages(&client), 0);
    for id in 0..8 {
        client.send(format!("UNSUBSCRIBE\nid:{id}\n\n\0").as_bytes());
    }
    broker.turn(0);
    exchange(&mut broker, &mut client);
    let own = client.received_frames().filter(|head| head.contains("subscription:8")).count();
    assert_eq!((own, messages(&client)), (1, 1));
}

#[test]
fn stale_messages_without_credit_are_delivered_to_the_next_subscription() {
    for writers in 1..=3 {
        let mut broker = broker(Config { writers, ttl_ms: 600_000, ..Config::default() });
        publish(&mut broker, 6, 70_000, "");
        let mut client = subscribe(&mut broker, "ack:client\nprefetch-count:1\n");
        assert_eq!((messages(&client), receipts(&client)), (1, 1));
        let disconnect = format!("DISCONNECT\nreceipt:{}\n\n\0", client.expect_receipt());
        client.send(disconnect.as_bytes());
        exchange(&mut broker, &mut client);
        assert!(client.is_closed() && receipts(&client) == 2);
        // At most one window of each home had been sent.
        let next = subscribe(&mut broker, "");
        assert!((5 - writers..=5).contains(&messages(&next)), "{} of 6", messages(&next));
    }
}

/// Publishes 100 kB to `/topic/a`, each message with these headers, and disconnects.
fn fill_outbox(broker: &mut SimulatedBroker, mut publisher: Client, headers: &str) {
    let send = format!("SEND\ndestination:/topic/a\n{headers}\n{}\0", "x".repeat(1000));
    for _ in 0..20 {
        publisher.send(send.repeat(5).as_bytes());
        broker.run_until_idle();
    }
    drop(publisher);
    broker.run_until_idle();
}

#[test]
fn a_subscription_gets_its_replay_if_deferred_messages_of_its_connection_are_dropped() {
    for has_left in [true, false] {
        let mut broker = broker(Config { writers: 1, outbox_limit: 4 << 10, ..Config::default() });
        publish(&mut broker, 1, 1, "retain:set\n");
        let [mut reader, publisher] = [0; 2].map(|shard| connect(&mut broker, shard));
        reader.send(b"SUBSCRIBE\nid:0\ndestination:/topic/a\n\n\0");
        broker.run_until_idle();
        fill_outbox(&mut broker, publisher, "ttl:100\n");
        assert!(
            !broker.threads[0].shard.deliveries.fan_outs.is_empty(),
            "its outbox is full, and a copy is deferred"
        );
        let receipt = reader.expect_receipt();
        reader.send(format!("SUBSCRIBE\nid:1\ndestination:/topic/r/>\nreceipt:{receipt}\n\n\0").as_bytes());
        if has_left {
            let receipt = reader.expect_receipt();
            reader.send(format!("UNSUBSCRIBE\nid:0\nreceipt:{receipt}\n\n\0").as_bytes());
        } else {
            broker.advance_ms(200);
        }
        broker.run_until_idle();
        reader.read(usize::MAX);
        broker.run_until_idle();
        // The socket does not become ready again: the client reads only when everything was written.
        reader.read(usize::MAX);
        reader.check_receipts();
    }
}

#[test]
fn an_unsubscribing_client_first_gets_a_stale_message_that_another_one_returned() {
    let config = Config { writers: 2, ttl_ms: 600_000, outbox_limit: 4 << 10, ..Config::default() };
    let mut broker = broker(config);
    let name = names_at_home(&broker, "/topic/s/", 0).next().expect("one of two");
    let [mut reader, publisher] = [0; 2].map(|shard| connect(&mut broker, shard));
    for (id, name) in ["/topic/a", &name].iter().enumerate() {
        reader.send(format!("SUBSCRIBE\nid:{id}\ndestination:{name}\n\n\0").as_bytes());
    }
    exchange(&mut broker, &mut reader);
    fill_outbox(&mut broker, publisher, "");
    // A stale message whose publisher has its RECEIPT, returned by another subscription of that shard.
    let destination = name.as_bytes();
    let stale = Message {
        destination,
        id: b"1",
        sender: 0,
        headers: b"",
        plain: true,
        expires_ms: 0,
        body: b"stale",
    };
    let mail = Mail::Queue(ShardId(1), vec![HomeNote::Stale(OwnedMessage::new(&stale)).into()]);
    broker.shared.mailboxes[0].add_frames(1);
    broker.shared.mailboxes[0].post(&mut vec![mail]);
    broker.run_until_idle();
    let receipt = reader.expect_receipt();
    reader.send(format!("UNSUBSCRIBE\nid:1\nreceipt:{receipt}\n\n\0").as_bytes());
    broker.run_until_idle();
    exchange(&mut broker, &mut reader);
    reader.check_receipts();
    assert_eq!(reader.bodies, ["stale"]);
}

#[test]
fn a_subscription_may_end_while_its_replay_waits_for_memory() {
    for (writers, turns_before) in [(1, 0), (1, 1), (2, 1), (3, 1), (3, 2), (3, 3)] {
        let mut broker = broker(Config { writers, ..small_memory() });
        publish(&mut broker, 50, 10_000, "retain:set\n");
        let mut client = connect(&mut broker, 0);
        client.send(b"SUBSCRIBE\nid:0\nreceipt:s\ndestination:/topic/r/>\n\n\0");
        (0..turns_before).for_each(|_| broker.round());
        fill_up_to(&broker, 97);
        broker.shared.totals.output.fetch_add(LIMIT / 4, Ordering::Relaxed);
        client.send(b"UNSUBSCRIBE\nid:0\nreceipt:u\n\n\0");
        exchange(&mut broker, &mut client);
        assert_eq!((receipts(&client), client.is_closed()), (2, false), "{writers}, {turns_before}");
        assert_eq!((broker.snapshot().subscriptions, broker.snapshot().unanswered), (0, 0));
    }
}
