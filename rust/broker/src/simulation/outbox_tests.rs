//! Full outboxes: what waits for them, and what happens meanwhile.

use std::time::Duration;

use super::SimulatedBroker;
use super::client::Client;
use super::support::{
    broker, connect, exchange, fill_memory, fill_outboxes, messages, names_at_home, receipts, remains,
    send_unread, unsubscribe_most,
};
use crate::config::{Config, SlowConsumer};
use crate::log::Level;
use crate::mail::mailbox::Mail;

#[test]
fn deferred_messages_precede_the_receipt_that_ends_their_subscription() {
    for leaving in ["UNSUBSCRIBE\nid:0", "DISCONNECT"] {
        end_with_deferred_messages(leaving);
    }
}

fn end_with_deferred_messages(leaving: &str) {
    let mut broker = broker(Config { writers: 1, outbox_limit: 4 << 10, ..Config::default() });
    // Two subscriptions each, so that messages are encoded for both at once.
    let [mut reader, mut other] = [0; 2].map(|shard| connect(&mut broker, shard));
    for client in [&mut reader, &mut other] {
        client
            .send(b"SUBSCRIBE\nid:0\ndestination:/topic/a\n\n\0SUBSCRIBE\nid:1\ndestination:/topic/b\n\n\0");
    }
    broker.run_until_idle();
    let mut publisher = connect(&mut broker, 0);
    let owes = |broker: &SimulatedBroker| {
        broker.threads[0].shard.connections.table.iter().any(|(_, it)| it.output.deferred.is_some())
    };
    let mut sent = 0;
    while !owes(&broker) {
        for name in ["a", "b"].repeat(3) {
            publisher.send(format!("SEND\ndestination:/topic/{name}\n\n{}\0", "x".repeat(1000)).as_bytes());
            sent += 1;
        }
        broker.run_until_idle();
        assert!(sent < 200);
    }
    let receipt = reader.expect_receipt();
    reader.send(format!("{leaving}\nreceipt:{receipt}\n\n\0").as_bytes());
    if leaving != "DISCONNECT" {
        reader.send(b"SUBSCRIBE\nid:0\ndestination:/topic/c\n\n\0");
    }
    exchange(&mut broker, &mut reader);
    exchange(&mut broker, &mut other);
    let received: Vec<&str> = reader.received_frames().collect();
    let ended = received.iter().position(|head| head.starts_with("RECEIPT")).expect("it comes");
    let of_first =
        |received: &[&str]| received.iter().filter(|head| head.contains("subscription:0 ")).count();
    assert_eq!((of_first(&received[..ended]), of_first(&received[ended..])), (sent / 2, 0), "{leaving}");
    assert_eq!(received.iter().filter(|head| head.contains("subscription:1 ")).count(), sent / 2);
    assert_eq!((messages(&other), owes(&broker)), (sent, false));
}

#[test]
fn a_replay_that_waits_for_memory_is_listed_once() {
    let config = Config {
        writers: 1,
        ttl_ms: 3_600_000,
        outbox_limit: 256 << 10,
        memory_limit: 64 << 20,
        ..Config::default()
    };
    let mut broker = broker(config);
    let [mut publisher, mut reader] = [0; 2].map(|shard| connect(&mut broker, shard));
    for _ in 0..1000 {
        publisher.send(format!("SEND\ndestination:/topic/a\n\n{}\0", "x".repeat(1000)).as_bytes());
        broker.round();
    }
    exchange(&mut broker, &mut publisher);
    reader.send(b"SUBSCRIBE\nid:0\ndestination:/topic/a\n\n\0");
    broker.run_until_idle();
    fill_outboxes(&broker, true);
    for _ in 0..20 {
        reader.read(2000);
        broker.round();
    }
    assert_eq!(broker.threads[0].shard.short_of_memory(), 1);
    fill_outboxes(&broker, false);
    assert!(broker.threads[0].shard.goes_on());
    exchange(&mut broker, &mut reader);
    assert_eq!((messages(&reader), broker.threads[0].shard.short_of_memory()), (1000, 0));
}

#[test]
fn a_complete_send_that_waits_is_not_refused_as_incomplete() {
    let config = Config {
        writers: 1,
        memory_limit: 1 << 20,
        outbox_limit: 4 << 10,
        slow_consumer: crate::config::SlowConsumer::Block(Duration::from_secs(600)),
        ..Config::default()
    };
    let mut broker = broker(config);
    let mut reader = connect(&mut broker, 0);
    reader.send(b"SUBSCRIBE\nid:0\ndestination:/topic/a\n\n\0");
    let [mut publisher, mut other] = [0; 2].map(|shard| connect(&mut broker, shard));
    let receipt = publisher.expect_receipt();
    let send = format!("SEND\ndestination:/topic/a\nreceipt:{receipt}\n\n{}\0", "x".repeat(20_000));
    publisher.send_partially(send.as_bytes(), 10_000);
    broker.run_until_idle();
    while !broker.threads[0].shard.connections.table.iter().any(|(_, conn)| conn.output.is_full()) {
        other.send(format!("SEND\ndestination:/topic/a\n\n{}\0", "x".repeat(1000)).as_bytes());
        broker.run_until_idle();
    }
    publisher.send(b"");
    broker.run_until_idle();
    let mut many: Vec<Client> = (0..120).map(|_| connect(&mut broker, 0)).collect();
    for client in &mut many {
        let part = format!("SEND\ndestination:/queue/a\ncontent-length:100000\n\n{}", "x".repeat(6000));
        client.send_invalid(part.as_bytes());
        broker.advance_ms(1);
        broker.round();
    }
    broker.advance_ms(1000);
    broker.run_until_idle();
    many.iter_mut().for_each(|client| {
        client.read(usize::MAX);
    });
    assert!(many.iter().any(Client::is_closed), "the limit for incomplete frames is exceeded");
    drop(many);
    exchange(&mut broker, &mut reader);
    exchange(&mut broker, &mut publisher);
    assert_eq!(receipts(&publisher), 1);
}

#[test]
fn deferred_messages_that_have_expired_are_dropped_and_counted() {
    let config = Config { writers: 1, outbox_limit: 4 << 10, memory_limit: 64 << 20, ..Config::default() };
    let mut broker = broker(config);
    // Two subscriptions of one connection, so that each message is encoded for each of them.
    let mut reader = connect(&mut broker, 0);
    reader.send(b"SUBSCRIBE\nid:0\ndestination:/topic/a\n\n\0SUBSCRIBE\nid:1\ndestination:/topic/a\n\n\0");
    broker.run_until_idle();
    // Each publisher waits for the deferred copies of its message, so several are needed to defer more than there is
    // room for.
    let mut publishers = [0; 6].map(|shard| connect(&mut broker, shard));
    let mut sent = 0;
    while broker.threads[0].shard.deliveries.fan_outs.is_empty() {
        let send = format!("SEND\ndestination:/topic/a\nttl:500\n\n{}\0", "x".repeat(1000));
        publishers.iter_mut().for_each(|publisher| publisher.send(send.as_bytes()));
        sent += publishers.len();
        broker.run_until_idle();
        assert!(sent < 200);
    }
    broker.advance_ms(600);
    let conns = broker.threads[0].shard.connections.table.iter();
    let deferred: usize = conns.filter_map(|(_, it)| it.output.deferred.as_ref()).map(|it| it.len()).sum();
    let expired = broker.threads[0].shard.turn.counters.expired;
    exchange(&mut broker, &mut reader);
    assert!(broker.threads[0].shard.deliveries.fan_outs.is_empty());
    assert_eq!(broker.threads[0].shard.turn.counters.expired - expired, deferred as u64);
    assert!(deferred > 0 && messages(&reader) < 2 * sent);
}

#[test]
fn a_frame_that_waits_is_logged_once() {
    let mut broker =
        broker(Config { writers: 2, log_frames: true, memory_limit: 64 << 20, ..Config::default() });
    broker.shared.log.set_level(Level::Debug);
    let [mut publisher, mut other] = [0; 2].map(|shard| connect(&mut broker, shard));
    let far = names_at_home(&broker, "/queue/far", 1).next().expect("one of two");
    fill_memory(&broker, true);
    publisher.send(format!("SEND\ndestination:{far}\n\nwaits\0").as_bytes());
    let mut records = Vec::new();
    for _ in 0..20 {
        broker.advance_ms(200);
        broker.run_until_idle();
        records.extend(broker.shared.log.drain(Duration::ZERO));
    }
    fill_memory(&broker, false);
    broker.run_until_idle();
    records.extend(broker.shared.log.drain(Duration::ZERO));
    other.send(format!("SUBSCRIBE\nid:0\ndestination:{far}\n\n\0").as_bytes());
    exchange(&mut broker, &mut other);
    assert_eq!(messages(&other), 1);
    let logged = records.iter().filter(|record| record.text.contains("frame SEND"));
    assert_eq!(logged.count(), 1);
}

#[test]
fn a_query_has_no_timeout() {
    const QUEUES: usize = 20_000;
    let mut broker = broker(Config { writers: 1, ..Config::default() });
    let mut publisher = connect(&mut broker, 0);
    for at in 0..QUEUES {
        publisher.send(format!("SEND\ndestination:/queue/{at}\n\nx\0").as_bytes());
    }
    exchange(&mut broker, &mut publisher);
    for turns in 0..8 {
        // The second query waits until the first has its answer.
        let mut requesters = [0; 2].map(|shard| connect(&mut broker, shard));
        for (requester, asks) in requesters.iter_mut().zip(["DIAG\n", "SEND\ndestination:DIAG/a\n"]) {
            for asks in [asks, "SEND\ndestination:/topic/next\n"] {
                let receipt = requester.expect_receipt();
                requester.send(format!("{asks}receipt:{receipt}\n\nqueues\0").as_bytes());
            }
        }
        (0..turns).for_each(|_| broker.turn(0));
        broker.advance_ms(31_000);
        broker.turn(0);
        requesters.iter_mut().for_each(|requester| exchange(&mut broker, requester));
        assert_eq!(
            requesters.each_ref().map(|requester| (requester.rows, receipts(requester))),
            [(QUEUES, 2), (0, 2)]
        );
    }
}

#[test]
fn removing_many_consumers_with_unwritten_messages_takes_linear_time() {
    const COUNT: usize = 1000;
    let config = Config {
        writers: 1,
        outbox_limit: 4 << 10,
        slow_consumer: SlowConsumer::Block(Duration::from_secs(3600)),
        ..Config::default()
    };
    let mut broker = broker(config);
    let [mut reader, mut other, mut publisher] = [0; 3].map(|shard| connect(&mut broker, shard));
    let subscribe = |at| format!("SUBSCRIBE\nid:{at}\ndestination:/queue/{at}\n\n\0");
    send_unread(&mut broker, &mut reader, &(0..COUNT).map(subscribe).collect::<String>(), COUNT);
    let body = "x".repeat(1000);
    for at in 0..COUNT {
        publisher.send(format!("SEND\ndestination:/queue/{at}\n\n{body}\0").as_bytes());
        broker.run_until_idle();
    }
    unsubscribe_most(&mut broker, &mut reader, COUNT);
    other.send(b"SUBSCRIBE\nid:all\ndestination:/queue/>\n\n\0");
    exchange(&mut broker, &mut other);
    exchange(&mut broker, &mut reader);
    let received = reader.received_frames().filter_map(|head| head.split("destination:/queue/").nth(1));
    let numbers = received.filter_map(|rest| rest.split(' ').next()?.parse::<usize>().ok()).filter(remains);
    assert!(numbers.eq((0..COUNT).filter(remains)), "the remaining subscriptions get theirs in order");
    assert_eq!(messages(&reader) + messages(&other), COUNT);
}

#[test]
fn a_drain_delivers_deferred_messages_to_clients_that_read() {
    let config = Config { writers: 1, outbox_limit: 4 << 10, heartbeat_ms: (0, 0), ..Config::default() };
    let mut broker = broker(Config { drain: Duration::from_secs(3600), ..config });
    // Two subscriptions each, so that messages are encoded for both at once.
    let mut readers = [0; 2].map(|_| connect(&mut broker, 0));
    for reader in &mut readers {
        reader
            .send(b"SUBSCRIBE\nid:0\ndestination:/topic/a\n\n\0SUBSCRIBE\nid:1\ndestination:/topic/b\n\n\0");
    }
    broker.run_until_idle();
    let mut publisher = connect(&mut broker, 0);
    let has_deferred = |broker: &SimulatedBroker| {
        broker.threads[0].shard.connections.table.iter().any(|(_, conn)| conn.has_deferred())
    };
    let mut sent = 0;
    while !has_deferred(&broker) {
        for name in ["a", "b"].repeat(10) {
            let (receipt, body) = (publisher.expect_receipt(), "x".repeat(1000));
            let send = format!("SEND\ndestination:/topic/{name}\nreceipt:{receipt}\n\n{body}\0");
            publisher.send(send.as_bytes());
            sent += 1;
        }
        broker.run_until_idle();
        assert!(sent < 20_000);
    }
    broker.shared.mailboxes[0].post(&mut vec![Mail::Drain]);
    broker.run_until_idle();
    publisher.read(usize::MAX);
    assert!(has_deferred(&broker), "no client has read");
    let mut rounds = 0;
    while !readers.iter().all(Client::is_closed) && rounds < 10_000 {
        readers.iter_mut().for_each(|reader| _ = reader.read(usize::MAX));
        broker.round();
        rounds += 1;
    }
    let accepted = receipts(&publisher);
    assert!(readers.iter().all(|reader| messages(reader) == accepted), "{accepted}");
}

/// A slow consumer is cut off while its last frames wait for another shard, or (with one shard) for a last value that has no
/// room: it gets one ERROR and no RECEIPT.
fn cut_off_after(last_frame: &[u8], writers: usize) {
    let config = Config { writers, outbox_limit: 32 << 10, ..Config::default() };
    let mut broker = broker(Config { slow_consumer: SlowConsumer::Disconnect, ..config });
    let [mut reader, mut publisher] = [0; 2].map(|shard| connect(&mut broker, shard));
    reader.send(b"SUBSCRIBE\nid:0\ndestination:/topic/a\n\n\0");
    broker.run_until_idle();
    publisher.send(b"SEND\ndestination:/topic/c\nretain:set\n\n\0");
    let large = format!("SEND\ndestination:/topic/a\n\n{}\0", "x".repeat(8 << 10));
    let waiting = |broker: &SimulatedBroker| {
        let connections = broker.threads[0].shard.connections.table.iter();
        connections.map(|(_, conn)| conn.output.outbox.bytes()).max().unwrap_or_default()
    };
    while waiting(&broker) < 16 << 10 {
        publisher.send(large.as_bytes());
        broker.run_until_idle();
    }
    // The first RECEIPT waits in the outbox, and the second one for the other shard.
    let [first, second] = [(); 2].map(|()| reader.expect_receipt());
    reader.send(format!("SEND\ndestination:/topic/b\nreceipt:{first}\n\n\0").as_bytes());
    reader.send(format!("SUBSCRIBE\nid:1\ndestination:/topic/c\nreceipt:{second}\n\n\0").as_bytes());
    reader.send(last_frame);
    broker.turn(0);
    for _ in 0..6 {
        publisher.send(large.as_bytes());
        (0..3).for_each(|_| broker.turn(0));
        publisher.read(usize::MAX);
    }
    exchange(&mut broker, &mut reader);
    let last = reader.received_frames().last().expect("an ERROR").to_owned();
    assert!(last.starts_with("ERROR") && last.contains("E-SLOW-CONSUMER"), "{last}");
    assert_eq!((receipts(&reader), reader.is_closed()), (0, true));
}

#[test]
fn no_receipt_follows_those_that_were_cut_with_the_outbox_of_a_slow_consumer() {
    cut_off_after(b"", 2);
}

#[test]
fn a_slow_consumer_that_was_about_to_end_is_told_that_it_is_cut_off() {
    for last_frame in [&b"WHAT\n\n\0"[..], b"DISCONNECT\nreceipt:bye\n\n\0"] {
        [1, 2].into_iter().for_each(|writers| cut_off_after(last_frame, writers));
    }
}

#[test]
fn a_message_of_a_queue_is_settled_in_the_turn_in_which_it_is_written_to_make_room_for_others() {
    let limit = 64 << 10;
    let slow_consumer = SlowConsumer::DropNewest;
    let mut broker = broker(Config { writers: 1, outbox_limit: limit, slow_consumer, ..Config::default() });
    let [mut reader, mut publisher] = [0; 2].map(|shard| connect(&mut broker, shard));
    reader.send(b"SUBSCRIBE\nid:0\ndestination:/queue/a\n\n\0SUBSCRIBE\nid:1\ndestination:/topic/a\n\n\0");
    exchange(&mut broker, &mut reader);
    publisher.send(format!("SEND\ndestination:/queue/a\n\n{}\0", "x".repeat(200_000)).as_bytes());
    exchange(&mut broker, &mut publisher);
    let topic = format!("SEND\ndestination:/topic/a\n\n{}\0", "x".repeat(1000));
    publisher.send(topic.repeat(100).as_bytes());
    exchange(&mut broker, &mut publisher);
    assert_eq!(broker.snapshot().queued, 1, "the reader has not taken all of it");
    for _ in 0..400 {
        reader.read(1000);
        publisher.send(topic.as_bytes());
        broker.turn(0);
        let conns = &broker.threads[0].shard.connections.table;
        assert!(conns.iter().all(|(_, conn)| !conn.output.outbox.has_passed_mark()));
    }
    assert_eq!(broker.snapshot().queued, 0);
}
