//! Which requests are refused and which continue near `memory_limit`.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::SimulatedBroker;
use super::client::Client;
use super::support::{broker, connect, exchange, fill_outboxes, messages, names_at_home, receipts};
use crate::config::{Config, SlowConsumer};
use crate::connection::pausing::Pause;

#[test]
fn new_names_are_refused_before_messages_that_are_not_kept() {
    let mut broker = broker(Config { writers: 1, memory_limit: 64 << 20, ..Config::default() });
    let [mut reader, mut greedy, mut requester] = [0; 3].map(|shard| connect(&mut broker, shard));
    reader.send(b"SUBSCRIBE\nid:0\ndestination:/topic/a\n\n\0");
    broker.run_until_idle();
    // As if other shards held this much.
    broker.shared.totals.memory.fetch_add((64 << 20) / 100 * 91, Ordering::Relaxed);
    let long = "n".repeat(8000);
    greedy.send(format!("SUBSCRIBE\nid:0\ndestination:/topic/{long}\n\n\0").as_bytes());
    requester
        .send(format!("SEND\ndestination:/topic/a\nreply-to:/temp-queue/{long}\n\nrefused\0").as_bytes());
    broker.run_until_idle();
    for client in [&mut greedy, &mut requester] {
        client.read(usize::MAX);
        let refused =
            client.received_frames().any(|head| head.starts_with("ERROR") && head.contains("code:E-MEMORY"));
        assert!(refused, "a name was accepted where only messages may pass");
    }
    for _ in 0..10 {
        let receipt = reader.expect_receipt();
        reader.send(format!("SEND\ndestination:/topic/a\nreceipt:{receipt}\n\npasses\0").as_bytes());
        exchange(&mut broker, &mut reader);
    }
    assert_eq!((messages(&reader), receipts(&reader)), (10, 10));
}

#[test]
fn a_client_that_hangs_up_within_a_frame_is_read_again_after_a_full_turn() {
    let mut broker = broker(Config { writers: 1, memory_limit: 64 << 20, ..Config::default() });
    // As if others held many bytes of incomplete frames, so that this one must wait.
    broker.shared.totals.unfinished.fetch_add(16 << 20, Ordering::Relaxed);
    broker.shared.totals.connections.fetch_add(1000, Ordering::Relaxed);
    let mut clients = [0; 2].map(|shard| connect(&mut broker, shard));
    for client in &mut clients {
        client.send(format!("SEND\n{}", format!("h:{}\n", "n".repeat(2000)).repeat(3)).as_bytes());
    }
    broker.run_until_idle();
    let shard = &mut broker.threads[0].shard;
    let waiting = shard.connections.table.iter().find(|(_, conn)| conn.wait.pause() == Some(Pause::Arriving));
    let key = waiting.expect("one waits for the other").0;
    shard.connections.table.get_mut(key).expect("it is there").socket.hang_up();
    shard.serve_last(key);
    assert!(shard.has_work(), "it is never read again");
}

/// Clients that have received some of `count` retained messages, and wait for memory for the others.
fn waiting_for_replay<const N: usize>(count: usize) -> (SimulatedBroker, [Client; N]) {
    let config = Config {
        writers: 1,
        outbox_limit: 64 << 10,
        memory_limit: 64 << 20,
        slow_consumer: SlowConsumer::Block(Duration::from_secs(3600)),
        ..Config::default()
    };
    let mut broker = broker(config);
    let mut publisher = connect(&mut broker, 0);
    for at in 0..count {
        let body = "x".repeat(1000);
        publisher.send(format!("SEND\ndestination:/topic/{at}\nretain:set\n\n{body}\0").as_bytes());
        broker.round();
    }
    exchange(&mut broker, &mut publisher);
    let mut readers = [0; N].map(|shard| connect(&mut broker, shard));
    for reader in &mut readers {
        let receipt = reader.expect_receipt();
        reader.send(format!("SUBSCRIBE\nid:0\ndestination:/topic/*\nreceipt:{receipt}\n\n\0").as_bytes());
    }
    broker.run_until_idle();
    fill_outboxes(&broker, true);
    while readers.iter_mut().any(|reader| reader.read(2000)) {
        broker.round();
    }
    assert_eq!(broker.threads[0].shard.short_of_memory(), N);
    (broker, readers)
}

#[test]
fn replays_that_waited_for_memory_continue_as_far_as_a_turn_allows() {
    let (mut broker, mut readers) = waiting_for_replay::<3>(400);
    fill_outboxes(&broker, false);
    let shard = &mut broker.threads[0].shard;
    assert_eq!(shard.pull_last(), 1, "replays requested more at the end of a turn");
    assert!(shard.goes_on());
    readers.iter_mut().for_each(|reader| exchange(&mut broker, reader));
    assert_eq!(readers.each_ref().map(|reader| (messages(reader), receipts(reader))), [(400, 1); 3]);
}

/// Seed 33011176: it waited for the memory that only its own messages took.
#[test]
fn a_subscription_gets_the_messages_that_fill_memory() {
    let ttl_ms = 3_600_000;
    let mut broker = broker(Config { writers: 1, memory_limit: 1 << 20, ttl_ms, ..Config::default() });
    let [mut reader, mut publisher] = [0; 2].map(|shard| connect(&mut broker, shard));
    for _ in 0..7 {
        publisher.send(format!("SEND\ndestination:/topic/a\n\n{}\0", "x".repeat(100_000)).as_bytes());
        exchange(&mut broker, &mut publisher);
    }
    let others = (1 << 20) / 100 * 96 - broker.threads[0].shard.turn.held_bytes();
    broker.shared.totals.memory.fetch_add(others, Ordering::Relaxed);
    let receipt = reader.expect_receipt();
    reader.send(format!("SUBSCRIBE\nid:0\ndestination:/topic/a\nreceipt:{receipt}\n\n\0").as_bytes());
    exchange(&mut broker, &mut reader);
    assert_eq!((messages(&reader), receipts(&reader)), (7, 1));
}

#[test]
fn a_disconnecting_client_has_time_to_read_a_replay_that_waited_for_memory() {
    for takes in [true, false] {
        let (mut broker, [mut reader]) = waiting_for_replay(400);
        let receipt = reader.expect_receipt();
        reader.send(format!("DISCONNECT\nreceipt:{receipt}\n\n\0").as_bytes());
        for _ in 0..5 {
            broker.run_until_idle();
            broker.advance_ms(59_000);
        }
        broker.run_until_idle();
        assert!(!reader.read(usize::MAX), "nothing arrives, and the connection stays open");
        fill_outboxes(&broker, false);
        broker.run_until_idle();
        broker.advance_ms(59_000);
        broker.run_until_idle();
        if !takes {
            assert_eq!(broker.snapshot().subscriptions, 1);
            broker.advance_ms(61_000);
            broker.run_until_idle();
            assert_eq!(broker.snapshot().subscriptions, 0);
        }
        exchange(&mut broker, &mut reader);
        assert!(reader.is_closed());
        let all = (messages(&reader), receipts(&reader)) == (400, 2);
        assert_eq!(all, takes, "{} and {} came", messages(&reader), receipts(&reader));
    }
}

#[test]
fn a_slow_consumer_that_fills_memory_is_cut_off_and_others_continue() {
    let config = Config { writers: 2, outbox_limit: 64 << 10, memory_limit: 16 << 20, ..Config::default() };
    let mut broker = broker(config);
    let [mut slow, mut publisher, mut other] = [1, 0, 0].map(|shard| connect(&mut broker, shard));
    // Many patterns with few subscriptions each: a single name with very many would be limited by its fan_out_size.
    let pattern =
        |at: usize| (0..8).map(|bit| if at >> bit & 1 == 0 { "/a" } else { "/*" }).collect::<String>();
    for at in 0..2000 {
        slow.send(format!("SUBSCRIBE\nid:{at}\ndestination:/topic{}\n\n\0", pattern(at)).as_bytes());
        exchange(&mut broker, &mut slow);
    }
    publisher.send(b"BEGIN\ntransaction:t\n\n\0");
    let send = format!("SEND\ndestination:/topic{}\ntransaction:t\n\n\0", pattern(0));
    publisher.send(send.repeat(1000).as_bytes());
    exchange(&mut broker, &mut publisher);
    publisher.send(b"COMMIT\ntransaction:t\n\n\0");
    exchange(&mut broker, &mut publisher);
    let mut most = 0;
    // It reads a little every 100 ms, so that it never counts as stuck.
    for _ in 0..200 {
        slow.read(20_000);
        for shard in [0, 1].repeat(20) {
            let before = broker.visits()[shard];
            broker.turn(shard);
            most = most.max(broker.visits()[shard] - before);
        }
        broker.advance_ms(100);
    }
    assert!(most < 50_000, "{most} visits in one turn");
    assert!(
        slow.received_frames().any(|head| head.contains("E-SLOW-CONSUMER")) || slow.is_closed(),
        "it is still connected"
    );
    let receipt = other.expect_receipt();
    other.send(format!("SEND\ndestination:/topic/b\nreceipt:{receipt}\n\n\0").as_bytes());
    exchange(&mut broker, &mut other);
    other.check_receipts();
}

#[test]
fn incomplete_frames_on_other_shards_do_not_get_a_frame_refused() {
    let mut broker = broker(Config { writers: 1, memory_limit: 64 << 20, ..Config::default() });
    broker.shared.totals.connections.fetch_add(1000, Ordering::Relaxed);
    let mut clients = [0; 2].map(|shard| connect(&mut broker, shard));
    broker.shared.totals.unfinished.fetch_add(26 << 20, Ordering::Relaxed);
    for client in &mut clients {
        client.send(
            format!("SEND\ndestination:/topic/a\ncontent-length:6000\n\n{}", "x".repeat(5500)).as_bytes(),
        );
    }
    for _ in 0..10 {
        broker.run_until_idle();
        broker.advance_ms(150);
    }
    broker.shared.totals.unfinished.fetch_sub(26 << 20, Ordering::Relaxed);
    for client in &mut clients {
        let receipt = client.expect_receipt();
        client.send("x".repeat(500).as_bytes());
        client.send(format!("\0SEND\ndestination:/topic/a\nreceipt:{receipt}\n\n\0").as_bytes());
        exchange(&mut broker, client);
        assert_eq!(receipts(client), 1, "it was refused");
    }
}

/// Clients with an incomplete frame of 60 KB, of which `missing` bytes are missing; from time to time they send a byte
/// more.
fn trickling_clients(broker: &mut SimulatedBroker, count: usize, missing: usize) -> Vec<Client> {
    let mut clients: Vec<Client> = (0..count).map(|_| connect(broker, 0)).collect();
    for client in &mut clients {
        client.send(b"SEND\ndestination:/topic/slow\ncontent-length:60000\n\n");
        client.send(&b"x".repeat(60_000 - missing));
    }
    exchange_all(broker, &mut clients);
    assert!(broker.threads[0].shard.connections.has_arriving(), "no frame waits to arrive");
    clients
}

fn exchange_all(broker: &mut SimulatedBroker, clients: &mut [Client]) {
    for _ in 0..20 {
        clients.iter_mut().for_each(|client| _ = client.read(usize::MAX));
        broker.run_until_idle();
    }
}

/// The number of bytes that each trickling client sends, one every 8 ms, until `client` has its answer; at most `most`.
fn bytes_until_answered(
    broker: &mut SimulatedBroker,
    slow: &mut [Client],
    client: &mut Client,
    most: usize,
) -> usize {
    for sent in 0..most {
        exchange(broker, client);
        if receipts(client) > 0 {
            return sent;
        }
        slow.iter_mut().for_each(|trickler| trickler.send(b"x"));
        broker.advance_ms(8);
    }
    most
}

#[test]
fn a_frame_sent_at_once_does_not_wait_a_second_for_each_trickling_client() {
    // The trickling frames lack more bytes than this one, or fewer.
    for (missing, body) in [(50_000, 40_000), (20_000, 50_000)] {
        let config = Config { writers: 1, memory_limit: 4 << 20, heartbeat_ms: (0, 0), ..Config::default() };
        let mut broker = broker(config);
        let mut client = connect(&mut broker, 0);
        broker.shared.totals.unfinished.fetch_add(350 << 10, Ordering::Relaxed);
        let mut slow = trickling_clients(&mut broker, 20, missing);
        let receipt = client.expect_receipt();
        client.send(
            format!("SEND\ndestination:/topic/a\ncontent-length:{body}\nreceipt:{receipt}\n\n").as_bytes(),
        );
        client.send(&b"x".repeat(body));
        client.send(b"\0");
        let sent = bytes_until_answered(&mut broker, &mut slow, &mut client, 3000);
        assert!(sent < 250, "{sent} bytes of each that lacks {missing}, until {body} had come");
    }
}

#[test]
fn a_large_frame_arrives_beside_an_endless_stream_of_smaller_ones() {
    let config = Config { writers: 1, memory_limit: 4 << 20, heartbeat_ms: (0, 0), ..Config::default() };
    let mut broker = broker(config);
    broker.shared.totals.unfinished.fetch_add(350 << 10, Ordering::Relaxed);
    let mut others: Vec<Client> = (0..20).map(|_| connect(&mut broker, 0)).collect();
    let mut client = connect(&mut broker, 0);
    let frame = format!("SEND\ndestination:/topic/short\ncontent-length:8000\n\n{}\0", "x".repeat(8000));
    let receipt = client.expect_receipt();
    let head = format!("SEND\ndestination:/topic/a\ncontent-length:60000\nreceipt:{receipt}\n\n");
    for other in &mut others {
        other.send(frame.repeat(100).as_bytes());
    }
    client.send(format!("{head}{}\0", "x".repeat(60_000)).as_bytes());
    let mut turns = 0;
    while receipts(&client) == 0 && turns < 4000 {
        others.iter_mut().for_each(|other| _ = other.read(usize::MAX));
        client.read(usize::MAX);
        broker.turn(0);
        turns += 1;
    }
    assert!(turns < 500, "it was still waiting after {turns} turns");
}

#[test]
fn deliveries_that_are_not_written_count_before_their_consumer_sends_another_frame() {
    let mut broker = broker(Config { writers: 1, outbox_limit: 8 << 20, ..Config::default() });
    let [mut consumer, mut publisher] = [0; 2].map(|shard| connect(&mut broker, shard));
    consumer.send(b"SUBSCRIBE\nid:0\ndestination:/queue/a\nprefetch-count:0\n\n\0");
    exchange(&mut broker, &mut consumer);
    publisher.send("SEND\ndestination:/queue/a\n\n\0".repeat(1000).as_bytes());
    exchange(&mut broker, &mut publisher);
    let connections = &broker.threads[0].shard.connections;
    let held: usize = connections.table.iter().map(|(_, conn)| conn.input_bytes()).sum();
    assert!(held > 20_000, "each delivery is in a list: {held}");
    assert_eq!(connections.input_bytes, held);
}

#[test]
fn large_messages_without_room_do_not_keep_shards_busy() {
    let limit = 64 << 20;
    let mut broker = broker(Config { writers: 2, memory_limit: limit, ..Config::default() });
    let mut publishers = [0, 1].map(|shard| connect(&mut broker, shard));
    let body = "x".repeat(limit as usize / 100 * 12);
    // As if other shards held so many percent besides what the two messages take as input, about 34.
    let others_hold = |broker: &SimulatedBroker, percent: i64| {
        broker.shared.totals.memory.fetch_add(percent * (limit as i64 / 100), Ordering::Relaxed);
    };
    others_hold(&broker, 43);
    for (publisher, home) in publishers.iter_mut().zip([1, 0]) {
        let name = names_at_home(&broker, "/queue/", home).next().expect("names have no end");
        let receipt = publisher.expect_receipt();
        publisher.send(format!("SEND\ndestination:{name}\nreceipt:{receipt}\n\n{body}\0").as_bytes());
        exchange(&mut broker, publisher);
    }
    // Memory is no longer short, but there is no room for copies.
    others_hold(&broker, -10);
    broker.advance_ms(20);
    publishers.iter_mut().for_each(|publisher| exchange(&mut broker, publisher));
    assert_eq!(publishers.each_ref().map(receipts), [0, 0]);
    others_hold(&broker, -33);
    for publisher in &mut publishers {
        broker.advance_ms(20);
        exchange(&mut broker, publisher);
        assert_eq!(receipts(publisher), 1, "it is tried again");
    }
}

#[test]
fn a_consumer_that_gets_deliveries_while_its_send_waits_for_memory_goes_on() {
    let limit = 64 << 20;
    let mut broker = broker(Config { writers: 1, memory_limit: limit, ..Config::default() });
    let [mut consumer, mut publisher] = [0; 2].map(|shard| connect(&mut broker, shard));
    consumer.send(b"SUBSCRIBE\nid:0\ndestination:/queue/a\nack:client\n\n\0");
    exchange(&mut broker, &mut consumer);
    broker.shared.totals.memory.fetch_add(limit as i64 / 100 * 85, Ordering::Relaxed);
    let receipt = consumer.expect_receipt();
    consumer.send(format!("SEND\ndestination:/queue/unread\nreceipt:{receipt}\n\nkept\0").as_bytes());
    exchange(&mut broker, &mut consumer);
    broker.advance_ms(200);
    exchange(&mut broker, &mut consumer);
    assert_eq!(receipts(&consumer), 0, "its message would be kept");
    publisher.send(b"SEND\ndestination:/queue/a\n\nhello\0");
    exchange(&mut broker, &mut publisher);
    exchange(&mut broker, &mut consumer);
    assert_eq!(messages(&consumer), 1);
    broker.advance_ms(200);
    exchange(&mut broker, &mut consumer);
    assert_eq!(receipts(&consumer), 1, "an ACK may follow its SEND");
}

#[test]
fn the_queues_of_subscriptions_to_a_topic_share_the_bytes_of_a_message() {
    const BYTES: usize = 50_000; // so little that the message is delivered at once
    let mut broker = broker(Config { writers: 1, heartbeat_ms: (0, 0), ..Config::default() });
    let [mut reader, mut publisher] = [0; 2].map(|shard| connect(&mut broker, shard));
    for id in 0..10 {
        let subscribe =
            format!("SUBSCRIBE\nid:{id}\ndestination:/topic/a\nack:client\nprefetch-count:1\n\n\0");
        reader.send(subscribe.as_bytes());
    }
    exchange(&mut broker, &mut reader);
    publisher.send(b"BEGIN\ntransaction:t\n\n\0SEND\ndestination:/topic/a\n\nfirst\0");
    exchange(&mut broker, &mut publisher);
    let before = broker.snapshot().held_bytes;
    let body = "x".repeat(BYTES);
    for headers in ["", "transaction:t\n"] {
        publisher.send(format!("SEND\ndestination:/topic/a\n{headers}\n{body}\0").as_bytes());
        exchange(&mut broker, &mut publisher);
    }
    publisher.send(b"COMMIT\ntransaction:t\n\n\0");
    exchange(&mut broker, &mut publisher);
    let bytes = usize::try_from(broker.snapshot().held_bytes - before).expect("more than before");
    assert!((2 * BYTES..3 * BYTES).contains(&bytes), "{bytes} bytes are held for 20 copies of 2 messages");
}
