//! Events that arrive while a shard or a connection waits for something else.

use std::io::{Read as _, Write as _};
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::SimulatedBroker;
use super::client::Client;
use super::support::{broker, connect, exchange, messages, names_at_home, receipts};
use crate::config::{Config, SlowConsumer};
use crate::connection::transaction::Committing;
use crate::mail::mailbox::Mail;

#[test]
fn a_reservation_made_after_another_home_refused_is_released() {
    let mut broker = broker(Config { writers: 2, max_queue_length: 1, ..Config::default() });
    let mut client = connect(&mut broker, 0);
    let far = names_at_home(&broker, "/queue/far", 1).next().expect("one of two");
    // More queues than one turn can make reservations in.
    let near: Vec<String> = names_at_home(&broker, "/queue/near", 0).take(6000).collect();
    client.send(format!("SEND\ndestination:{far}\n\nfull\0BEGIN\ntransaction:1\n\n\0").as_bytes());
    for name in near.iter().chain([&far]) {
        client.send(format!("SEND\ntransaction:1\ndestination:{name}\n\nx\0").as_bytes());
    }
    client.send(b"COMMIT\ntransaction:1\n\n\0");
    exchange(&mut broker, &mut client);
    assert!(client.received_frames().any(|head| head.contains("E-QUEUE-FULL")), "the transaction is refused");
    assert_eq!(broker.snapshot().queues.len(), 1, "queues created for it are removed");
    let mut other = connect(&mut broker, 0);
    other.send(format!("SUBSCRIBE\nid:0\ndestination:{}\n\n\0", near[0]).as_bytes());
    other.send(format!("SEND\ndestination:{}\n\nx\0", near[0]).as_bytes());
    exchange(&mut broker, &mut other);
    assert_eq!(messages(&other), 1, "no place before it is reserved");
}

#[test]
fn deferred_messages_are_delivered_if_answers_fill_the_outbox_before_them() {
    let mut broker = broker(Config { writers: 2, outbox_limit: 4 << 10, ..Config::default() });
    let mut reader = connect(&mut broker, 0);
    let near = names_at_home(&broker, "/queue/near", 0).next().expect("one of two");
    let far = names_at_home(&broker, "/queue/far", 1).next().expect("one of two");
    reader.send(
        format!("SUBSCRIBE\nid:0\ndestination:/topic/a\n\n\0SUBSCRIBE\nid:1\ndestination:{near}\n\n\0")
            .as_bytes(),
    );
    broker.run_until_idle();
    let mut publishers = [connect(&mut broker, 0), connect(&mut broker, 0)];
    let body = "x".repeat(1000);
    let (send, mut sent) = (format!("SEND\ndestination:/topic/a\n\n{body}\0"), 0);
    while broker.threads[0].shard.deliveries.fan_outs.is_empty() && sent < 200 {
        publishers[0].send(send.repeat(5).as_bytes());
        sent += 5;
        broker.run_until_idle();
    }
    assert!(!broker.threads[0].shard.deliveries.fan_outs.is_empty());
    publishers[1].send(format!("SEND\ndestination:{near}\n\n{body}\0").as_bytes());
    broker.run_until_idle();
    // A topic's and a queue's message wait for room in the reader's outbox. The reader requests RECEIPTs that come from
    // the other shard, and reads; they arrive before the shard writes the deferred messages.
    for _ in 0..12 {
        let receipt = reader.expect_receipt();
        reader.send(format!("SEND\ndestination:{far}\nreceipt:{receipt:0500}\n\nx\0").as_bytes());
    }
    broker.turn(0);
    reader.read(usize::MAX);
    broker.turn(0);
    broker.turn(1);
    broker.turn(0);
    exchange(&mut broker, &mut reader);
    assert_eq!(receipts(&reader), 12);
    assert_eq!(messages(&reader), sent + 1);
    assert!(broker.threads[0].shard.deliveries.fan_outs.is_empty());
}

#[test]
fn a_connection_is_read_again_after_answers_without_a_frame() {
    let mut broker = broker(Config { writers: 2, outbox_limit: 4 << 10, ..Config::default() });
    let mut client = connect(&mut broker, 0);
    let far = names_at_home(&broker, "#far", 1).next().expect("one of two");
    for _ in 0..60 {
        client.send(format!("BEGIN\ntransaction:1\n\n\0SEND\ntransaction:1\ndestination:{far}\n\nx\0COMMIT\ntransaction:1\n\n\0").as_bytes());
    }
    for _ in 0..3 {
        broker.turn(0);
        client.read(usize::MAX);
    }
    let receipt = client.expect_receipt();
    client.send(format!("SEND\ndestination:/topic/a\nreceipt:{receipt}\n\nx\0").as_bytes());
    broker.turn(0);
    exchange(&mut broker, &mut client);
    assert_eq!(receipts(&client), 1);
    assert!(!client.is_closed());
}

#[test]
fn nothing_follows_an_error_that_arrives_while_a_commit_takes_effect() {
    let mut broker = broker(Config { writers: 2, max_queue_length: 1, ..Config::default() });
    let mut client = connect(&mut broker, 0);
    let far = names_at_home(&broker, "/queue/far", 1).next().expect("one of two");
    let near = names_at_home(&broker, "#near", 0).next().expect("one of two");
    client.send(b"SUBSCRIBE\nid:0\ndestination:/topic/a\n\n\0");
    client.send(format!("SEND\ndestination:{far}\n\nfull\0BEGIN\ntransaction:1\n\n\0").as_bytes());
    for _ in 0..15_000 {
        client.send(format!("SEND\ntransaction:1\ndestination:{near}\n\nx\0").as_bytes());
    }
    exchange(&mut broker, &mut client);
    // It reads slowly, so that frames after the ERROR could be seen.
    let mut publisher = connect(&mut broker, 0);
    for _ in 0..60 {
        publisher.send(format!("SEND\ndestination:/topic/a\n\n{}\0", "x".repeat(1000)).as_bytes());
        broker.run_until_idle();
    }
    let receipt = client.expect_receipt();
    client.send(
        format!("SEND\ndestination:{far}\n\nrefused\0COMMIT\ntransaction:1\nreceipt:{receipt}\n\n\0")
            .as_bytes(),
    );
    let applies = |broker: &SimulatedBroker| {
        broker.threads[0]
            .shard
            .connections
            .table
            .iter()
            .any(|(_, conn)| matches!(conn.committing, Some(Committing::Applying { .. })))
    };
    while !applies(&broker) {
        broker.turn(0);
    }
    broker.turn(1);
    while applies(&broker) {
        broker.turn(0);
    }
    exchange(&mut broker, &mut client);
    assert!(client.received_frames().any(|head| head.contains("E-QUEUE-FULL")));
}

#[test]
fn a_consumer_that_reads_everything_is_not_cut_off_when_memory_is_short() {
    let memory_limit = 16 << 20;
    let mut broker = broker(Config { writers: 1, outbox_limit: 4 << 10, memory_limit, ..Config::default() });
    let mut reader = connect(&mut broker, 0);
    reader.send(b"SUBSCRIBE\nid:0\ndestination:/topic/a\n\n\0");
    broker.run_until_idle();
    let mut publisher = connect(&mut broker, 0);
    let body = "x".repeat(4000);
    for at in 0..5000 {
        if broker.snapshot().held_bytes >= memory_limit as i64 / 10 * 8 {
            break;
        }
        publisher.send(format!("SEND\ndestination:/queue/kept\n\n{body}\0").as_bytes());
        broker.round();
        assert!(at < 4999, "{:?}", broker.snapshot().held_bytes);
    }
    let mut publisher = connect(&mut broker, 0);
    publisher.send(format!("SEND\ndestination:/topic/a\n\n{body}{}\0", &body[..100]).as_bytes());
    (0..2).for_each(|_| broker.turn(0));
    let is_empty = |broker: &SimulatedBroker| {
        broker.threads[0].shard.connections.table.iter().all(|(_, conn)| conn.output.outbox.is_empty())
    };
    assert!(is_empty(&broker), "the socket has accepted it");
    let receipt = publisher.expect_receipt();
    publisher.send(format!("SEND\ndestination:/topic/a\nreceipt:{receipt}\n\nx\0").as_bytes());
    broker.run_until_idle();
    assert!(publisher.read(usize::MAX));
    assert_eq!(receipts(&publisher), 1, "no consumer's outbox is full");
}

#[test]
fn changing_to_a_policy_that_does_not_block_resumes_waiting_publishers() {
    let config = Config {
        writers: 2,
        outbox_limit: 4 << 10,
        slow_consumer: SlowConsumer::Block(Duration::from_secs(60)),
        ..Config::default()
    };
    let mut broker = broker(config.clone());
    let mut reader = connect(&mut broker, 0);
    reader.send(b"SUBSCRIBE\nid:0\ndestination:/topic/a\n\n\0");
    broker.run_until_idle();
    let mut publisher = connect(&mut broker, 1);
    for _ in 0..60 {
        publisher.send(format!("SEND\ndestination:/topic/a\n\n{}\0", "x".repeat(1000)).as_bytes());
        broker.round();
    }
    let reloaded = std::sync::Arc::new(Config { slow_consumer: SlowConsumer::DropNewest, ..config });
    for mailbox in broker.shared.mailboxes.iter() {
        mailbox.post(&mut vec![Mail::Reload(std::sync::Arc::clone(&reloaded))]);
    }
    broker.run_until_idle();
    let receipt = publisher.expect_receipt();
    publisher.send(format!("SEND\ndestination:/topic/a\nreceipt:{receipt}\n\nx\0").as_bytes());
    exchange(&mut broker, &mut publisher);
    assert_eq!(receipts(&publisher), 1);
}

#[test]
fn a_drain_does_not_wait_for_incomplete_frames() {
    let mut broker = broker(Config { writers: 1, memory_limit: 1 << 20, ..Config::default() });
    let mut clients: Vec<Client> = (0..8).map(|_| connect(&mut broker, 0)).collect();
    for client in &mut clients {
        let part = format!("SEND\ndestination:/queue/a\ncontent-length:100000\n\n{}", "x".repeat(6_000));
        client.send_invalid(part.as_bytes());
        broker.round();
        client.send(b"y");
        broker.round();
    }
    assert!(broker.threads[0].shard.connections.has_arriving());
    broker.shared.mailboxes[0].post(&mut vec![Mail::Drain]);
    (0..3).for_each(|_| broker.round());
    for client in &mut clients {
        client.read(usize::MAX);
    }
    assert!(clients.iter().all(Client::is_closed));
}

#[test]
fn a_committed_message_follows_earlier_messages_of_its_worker_topic() {
    const COUNT: usize = 40_000;
    let mut broker = broker(Config { writers: 1, ttl_ms: 3_600_000, ..Config::default() });
    let [mut publisher, mut consumer] = [0; 2].map(|shard| connect(&mut broker, shard));
    for at in 0..COUNT {
        publisher.send(format!("SEND\ndestination:#w\n\n{at}\0").as_bytes());
    }
    publisher.send(b"BEGIN\ntransaction:1\n\n\0SEND\ntransaction:1\ndestination:#w\n\nnew\0");
    exchange(&mut broker, &mut publisher);
    let waiting = |broker: &SimulatedBroker| broker.shared.stale.count.load(Ordering::Relaxed);
    assert_eq!(waiting(&broker), COUNT);
    consumer.send(b"SUBSCRIBE\nid:0\ndestination:#w\n\n\0");
    let receipt = publisher.expect_receipt();
    publisher.send(format!("COMMIT\ntransaction:1\nreceipt:{receipt}\n\n\0").as_bytes());
    while publisher.received_frames().all(|head| !head.starts_with("RECEIPT")) {
        broker.turn(0);
        publisher.read(usize::MAX);
    }
    assert!(waiting(&broker) > 1, "it was committed while they were being delivered");
    exchange(&mut broker, &mut consumer);
    assert_eq!((consumer.bodies.len(), waiting(&broker)), (COUNT + 1, 0));
    assert_eq!(consumer.bodies.last().map(String::as_str), Some("new"));
}

#[test]
fn subscriptions_get_their_receipts_if_others_took_the_stale_messages() {
    const PATTERNS: usize = 20;
    let mut broker = broker(Config { writers: 3, ttl_ms: 3_600_000, ..Config::default() });
    let [mut publisher, mut first, mut second] = [0; 3].map(|shard| connect(&mut broker, shard));
    for home in [1, 2] {
        let name = names_at_home(&broker, "/topic/stale/", home).next().expect("one of three");
        publisher.send(format!("SEND\ndestination:{name}\n\n{home}\0").as_bytes());
    }
    broker.run_until_idle();
    let subscribe = |client: &mut Client, id| {
        let receipt = client.expect_receipt();
        let head = format!("SUBSCRIBE\nid:{id}\ndestination:/topic/stale/*\nreceipt:{receipt}\n\n\0");
        client.send(head.as_bytes());
    };
    subscribe(&mut first, 0);
    broker.turn(0);
    (0..PATTERNS).for_each(|id| subscribe(&mut second, id));
    (0..5).for_each(|_| broker.turn(0));
    // Both homes announce messages before anyone requests them; the first client does so before the second.
    [1, 2, 1, 2].into_iter().for_each(|shard| broker.turn(shard));
    exchange(&mut broker, &mut first);
    exchange(&mut broker, &mut second);
    assert_eq!((messages(&first), receipts(&first)), (2, 1));
    assert_eq!((messages(&second), receipts(&second)), (0, PATTERNS));
}

#[test]
fn short_answers_after_a_long_one_are_sent_over_several_turns() {
    const QUEUES: usize = 5000;
    const SUBSCRIPTIONS: usize = 400;
    const REQUESTERS: usize = 60;
    let mut broker = broker(Config { writers: 1, ..Config::default() });
    let [mut publisher, mut first, mut consumer] = [0; 3].map(|shard| connect(&mut broker, shard));
    (0..QUEUES).for_each(|at| publisher.send(format!("SEND\ndestination:/queue/{at}\n\nx\0").as_bytes()));
    exchange(&mut broker, &mut publisher);
    for at in 0..SUBSCRIPTIONS {
        consumer.send(format!("SUBSCRIBE\nid:{at}\ndestination:/topic/{at}\nack:client\n\n\0").as_bytes());
    }
    exchange(&mut broker, &mut consumer);
    let mut requesters: Vec<Client> = (0..REQUESTERS).map(|_| connect(&mut broker, 0)).collect();
    first.send(b"DIAG\n\nqueues\0");
    broker.turn(0);
    requesters.iter_mut().for_each(|requester| requester.send(b"DIAG\n\nack\0"));
    let (mut most, mut answered) = (0, 0);
    for _ in 0..300 {
        let before = broker.visits()[0];
        broker.turn(0);
        most = most.max(broker.visits()[0] - before);
        first.read(usize::MAX);
        requesters.iter_mut().for_each(|requester| _ = requester.read(usize::MAX));
    }
    broker.run_until_idle();
    requesters.iter_mut().for_each(|requester| {
        exchange(&mut broker, requester);
        answered += requester.rows;
    });
    assert_eq!(answered, REQUESTERS * SUBSCRIPTIONS);
    assert!(most < 21_500, "{most} visits in one turn");
}

#[test]
fn destinations_are_counted_if_there_is_no_room_for_their_names() {
    const EACH: usize = 1500;
    const COMMON: usize = 500;
    let config = Config { writers: 2, outbox_limit: 64 << 10, max_subscriptions: EACH, ..Config::default() };
    let mut broker = broker(config);
    let mut readers = [0, 1].map(|shard| connect(&mut broker, shard));
    for (shard, reader) in readers.iter_mut().enumerate() {
        for at in (0..EACH).map(|at| at + shard * (EACH - COMMON)) {
            reader.send(format!("SUBSCRIBE\nid:{at}\ndestination:/topic/{at}\n\n\0").as_bytes());
        }
        exchange(&mut broker, reader);
        let mut requester = connect(&mut broker, 0);
        requester.send(b"DIAG\n\npubsub-size\0");
        exchange(&mut broker, &mut requester);
        let counted = format!("| pubsub-size:{} |", EACH + shard * (EACH - COMMON));
        assert!(requester.received_frames().any(|head| head.contains(&counted)), "no {counted}");
    }
}

#[test]
fn an_error_that_waits_is_sent_although_the_websocket_is_violated_behind_its_frame() {
    let mut broker = broker(Config { writers: 2, ..Config::default() });
    let mut client = broker.connect(0).expect("sockets");
    let upgrade = "GET / HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
        Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    let message = |text: &str| [&[0x82, 0x80 | text.len() as u8, 0, 0, 0, 0][..], text.as_bytes()].concat();
    let sent = [
        upgrade.as_bytes(),
        &message("CONNECT\naccept-version:1.2\nhost:h\n\n\0"),
        &message("SUBSCRIBE\nid:0\ndestination:/topic/a\nreceipt:r\n\n\0"), // it waits for the other shard
        &message("WHAT\n\n\0"),
        &[0x82, 1, b'x'], // without a mask
    ];
    client.write_all(&sent.concat()).expect("the socket has room");
    broker.run_until_idle();
    let mut received = Vec::new();
    _ = client.read_to_end(&mut received); // the broker lingers: it ends with WouldBlock
    let text = String::from_utf8_lossy(&received);
    let at = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part} in {text}"));
    assert!(at("RECEIPT") < at("E-COMMAND"));
    assert_eq!(received.windows(4).filter(|four| four[0] == 0x88 && four[2..] == [3, 0xEA]).count(), 1);
}
