//! What new subscriptions start from, where their client has to acknowledge it.

use stompica_proto::encode::Message;

use super::client::Client;
use super::support::{broker, connect, exchange, messages, names_at_home, receipts};
use super::{SimulatedBroker, Snapshot};
use crate::config::Config;
use crate::ids::ShardId;
use crate::mail::mailbox::Mail;
use crate::message::OwnedMessage;
use crate::queue::mail::HomeNote;

/// More last values than one window has messages.
const VALUES: usize = 70;

/// Sends messages of so many bytes to topics at all homes: last values, or with `""` what waits for a subscriber.
fn keep(broker: &mut SimulatedBroker, count: usize, size: usize, header: &str) {
    let mut publisher = connect(broker, 0);
    let body = "x".repeat(size);
    for at in 0..count {
        let head = format!("SEND\ndestination:/topic/r/{at}\n{header}content-length:{size}\n\n");
        publisher.send(format!("{head}{body}\0").as_bytes());
    }
    exchange(broker, &mut publisher);
}

/// Subscribes to all of them, and hears what comes without an ACK.
fn subscribe(broker: &mut SimulatedBroker, headers: &str) -> Client {
    let mut client = connect(broker, 0);
    let receipt = client.expect_receipt();
    let frame = format!("SUBSCRIBE\nid:0\ndestination:/topic/r/>\nreceipt:{receipt}\n{headers}\n\0");
    client.send(frame.as_bytes());
    exchange(broker, &mut client);
    client
}

/// Acknowledges one delivery after the other, until none comes any more.
fn acknowledge_all(broker: &mut SimulatedBroker, client: &mut Client) {
    while let Some((id, _)) = client.deliveries.pop_front() {
        client.send(format!("ACK\nid:{id}\n\n\0").as_bytes());
        exchange(broker, client);
    }
}

/// Brokers with one to three shards, each with this past.
fn brokers(count: usize, size: usize) -> impl Iterator<Item = SimulatedBroker> {
    (1..=3).map(move |writers| {
        let mut broker = broker(Config { writers, ..Config::default() });
        keep(&mut broker, count, size, "retain:set\n");
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
fn without_a_bound_that_is_reached_all_of_the_past_comes_before_the_receipt() {
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
fn the_rest_of_the_past_follows_as_it_is_acknowledged_and_live_messages_come_behind_it() {
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
fn whoever_leaves_in_front_of_the_rest_leaves_nothing() {
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
                    "who sends no more is told, and let go"
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
fn the_rest_follows_when_credit_comes_back_though_what_waited_for_it_has_expired() {
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
        broker.advance_ms(400); // it is silent, and takes nothing back itself
        exchange(&mut broker, &mut client);
    }
    assert_eq!(client.bodies[1], "164");
}

#[test]
fn a_subscription_gets_its_past_though_those_before_it_have_gone_with_their_windows() {
    let mut broker = broker(Config { writers: 2, ..Config::default() });
    let mut publisher = connect(&mut broker, 0);
    let far = names_at_home(&broker, "/topic/r/", 1).next().expect("one of two");
    publisher.send(format!("SEND\ndestination:{far}\nretain:set\n\nx\0").as_bytes());
    exchange(&mut broker, &mut publisher);
    let mut client = connect(&mut broker, 0);
    for id in 0..9 {
        client.send(format!("SUBSCRIBE\nid:{id}\ndestination:{far}\n\n\0").as_bytes());
    }
    // The other shard is asked for windows, as many as may be on their way to one connection, and sleeps.
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
fn what_a_subscription_had_no_credit_for_waits_for_the_next_one() {
    for writers in 1..=3 {
        let mut broker = broker(Config { writers, ttl_ms: 600_000, ..Config::default() });
        keep(&mut broker, 6, 70_000, "");
        let mut client = subscribe(&mut broker, "ack:client\nprefetch-count:1\n");
        assert_eq!((messages(&client), receipts(&client)), (1, 1));
        let disconnect = format!("DISCONNECT\nreceipt:{}\n\n\0", client.expect_receipt());
        client.send(disconnect.as_bytes());
        exchange(&mut broker, &mut client);
        assert!(client.is_closed() && receipts(&client) == 2);
        // No more than a window of each home was on its way.
        let next = subscribe(&mut broker, "");
        assert!((5 - writers..=5).contains(&messages(&next)), "{} of 6", messages(&next));
    }
}

#[test]
fn a_subscription_gets_its_past_though_what_its_connection_was_owed_is_not_wanted_any_more() {
    for has_left in [true, false] {
        let mut broker = broker(Config { writers: 1, outbox_limit: 4 << 10, ..Config::default() });
        keep(&mut broker, 1, 1, "retain:set\n");
        let [mut reader, mut publisher] = [0; 2].map(|shard| connect(&mut broker, shard));
        reader.send(b"SUBSCRIBE\nid:0\ndestination:/topic/a\n\n\0");
        broker.run_until_idle();
        let send = format!("SEND\ndestination:/topic/a\nttl:100\n\n{}\0", "x".repeat(1000));
        for _ in 0..20 {
            publisher.send(send.repeat(5).as_bytes());
            broker.run_until_idle();
        }
        drop(publisher);
        broker.run_until_idle();
        assert!(
            !broker.threads[0].shard.deliveries.fan_outs.is_empty(),
            "its outbox is full, and it is owed a copy"
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
        // Nothing makes the socket ready again: what was written is not read before all is there.
        reader.read(usize::MAX);
        reader.check_receipts();
    }
}

#[test]
fn who_leaves_gets_the_stale_message_first_that_somebody_who_had_gone_has_given_back() {
    let config = Config { writers: 2, ttl_ms: 600_000, outbox_limit: 4 << 10, ..Config::default() };
    let mut broker = broker(config);
    let name = names_at_home(&broker, "/topic/s/", 0).next().expect("one of two");
    let [mut reader, mut publisher] = [0; 2].map(|shard| connect(&mut broker, shard));
    for (id, name) in ["/topic/a", &name].iter().enumerate() {
        reader.send(format!("SUBSCRIBE\nid:{id}\ndestination:{name}\n\n\0").as_bytes());
    }
    exchange(&mut broker, &mut reader);
    let send = format!("SEND\ndestination:/topic/a\n\n{}\0", "x".repeat(1000));
    for _ in 0..20 {
        publisher.send(send.repeat(5).as_bytes());
        broker.run_until_idle();
    }
    drop(publisher);
    broker.run_until_idle();
    // Its publisher has its RECEIPT; it was on its way to another subscription of that shard.
    let destination = name.as_bytes();
    let stale = Message { destination, id: b"1", sender: 0, headers: b"", plain: true, body: b"stale" };
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
