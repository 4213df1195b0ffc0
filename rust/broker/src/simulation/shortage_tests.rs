//! Who is cut off while memory is short, what waits meanwhile, and what the broker forgets.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::SimulatedBroker;
use super::client::Client;
use super::near_limit::{
    LIMIT, fill_up_to, held, last_ack_id, near_the_limit, publish, small_memory, subscriber, wait, worker,
};
use super::support::{broker, connect, exchange, messages, names_at_home, receipts};
use crate::config::{Config, SlowConsumer};
use crate::mail::mailbox::Mail;

/// What acknowledges each message of a client.
fn acks(client: &Client, headers: &str) -> Vec<u8> {
    let heads = client.received_frames().filter(|head| head.starts_with("MESSAGE"));
    let ids = heads.filter_map(|head| head.split(" | ").find_map(|line| line.strip_prefix("ack:")));
    ids.flat_map(|id| format!("ACK\nid:{id}\n{headers}\n\0").into_bytes()).collect()
}

fn subscribe_with_beats(broker: &mut SimulatedBroker, topic: &str) -> Client {
    let mut client = Client::new(broker.connect(0).expect("sockets"));
    client.send(b"CONNECT\naccept-version:1.2\nhost:h\nheart-beat:0,2000\n\n\0");
    client.send(b"SUBSCRIBE\nid:0\nack:client-individual\nprefetch-count:1\n");
    client.send(format!("destination:/topic/{topic}\n\n\0").as_bytes());
    exchange(broker, &mut client);
    client
}

#[test]
fn heart_beats_and_answers_are_no_progress_of_a_client_that_acknowledges_nothing() {
    let mut broker = broker(Config { heartbeat_ms: (2000, 0), ..small_memory() });
    let names: Vec<String> = (0..12).map(|at| at.to_string()).collect();
    let mut silent: Vec<Client> =
        names.iter().map(|topic| subscribe_with_beats(&mut broker, topic)).collect();
    let mut publisher = connect(&mut broker, 0);
    for at in 0..1000 {
        publish(&mut broker, &mut publisher, &names[at % 12], 10_000);
    }
    assert!(!publisher.has_all_receipts(), "memory is short");
    for _ in 0..100 {
        wait(&mut broker, 100);
        for client in silent.iter_mut().filter(|client| !client.is_closed()) {
            client.send(b"BEGIN\ntransaction:t\nreceipt:r\n\n\0ABORT\ntransaction:t\n\n\0");
            exchange(&mut broker, client);
        }
    }
    assert!(silent.iter().any(Client::is_closed), "all of them are still connected");
    wait(&mut broker, 20_000);
    exchange(&mut broker, &mut publisher);
    assert!(publisher.has_all_receipts() && !publisher.is_closed());
}

#[test]
fn what_a_durable_subscription_keeps_is_owed_to_nobody() {
    let mut broker = broker(Config { ttl_ms: 3_600_000, ..small_memory() });
    let [mut publisher, mut holder] = [0; 2].map(|shard| connect(&mut broker, shard));
    (0..100).for_each(|_| publish(&mut broker, &mut publisher, "news", 20_000));
    let headers = "id:0\nack:client-individual\nprefetch-count:1\ndurable:true";
    holder.send(format!("SUBSCRIBE\n{headers}\ndestination:/topic/news\n\n\0").as_bytes());
    exchange(&mut broker, &mut holder);
    assert_eq!(messages(&holder), 1);
    drop(holder);
    wait(&mut broker, 500);
    assert!(held(&broker) > 2_000_000, "it keeps them");
    assert!(broker.shared.totals.output.load(Ordering::Relaxed) < 100_000);
}

/// A worker with `bytes` in flight, and a client of shard 0 that holds more and acknowledges little of it. Returns whether
/// they are cut off.
fn beside_a_larger_one(policy: SlowConsumer, shard: usize, bytes: usize, percent: i64) -> [bool; 2] {
    let mut broker = broker(Config { writers: 2, slow_consumer: policy, ..small_memory() });
    let mut innocent = worker(&mut broker, shard, "jobs", 10);
    let mut larger = worker(&mut broker, 0, "larger", 100_000);
    let mut publisher = connect(&mut broker, 0);
    publish(&mut broker, &mut publisher, "jobs", bytes);
    for _ in 0..100 {
        publish(&mut broker, &mut publisher, "larger", 10_000);
        exchange(&mut broker, &mut larger);
    }
    exchange(&mut broker, &mut innocent);
    fill_up_to(&broker, percent);
    for _ in 0..80 {
        broker.advance_ms(100);
        [1, 0].into_iter().for_each(|shard| broker.turn(shard));
        broker.run_until_idle();
        [&mut innocent, &mut larger].into_iter().for_each(|client| _ = client.read(usize::MAX));
    }
    [innocent.is_closed(), larger.is_closed()]
}

#[test]
fn the_largest_of_all_shards_is_acted_on() {
    for shard in [0, 1] {
        let block = SlowConsumer::Block(Duration::from_secs(5));
        for (policy, bytes, percent) in
            [(block, 100, 97), (block, 80_000, 85), (SlowConsumer::Disconnect, 100, 97)]
        {
            let cut_off = beside_a_larger_one(policy, shard, bytes, percent);
            assert_eq!(cut_off, [false, true], "{policy:?}, shard {shard}, {bytes} bytes, {percent} %");
        }
    }
}

#[test]
fn a_shard_that_sleeps_is_woken_when_memory_becomes_short() {
    let mut broker = broker(Config { writers: 2, ..small_memory() });
    broker.run_until_idle();
    assert_eq!([0, 1].map(|shard| broker.threads[shard].shard.is_woken()), [false; 2]);
    fill_up_to(&broker, 85);
    broker.turn(0);
    assert!(broker.threads[1].shard.is_woken());
}

#[test]
fn late_acks_are_accepted_while_memory_is_short_however_many_there_are() {
    let mut broker = broker(Config { ack_timeout_ms: 1000, ..small_memory() });
    let [mut worker, mut publisher] = [0; 2].map(|shard| connect(&mut broker, shard));
    worker.send(b"SUBSCRIBE\nid:0\nack:client-individual\nprefetch-count:5000\ndestination:/queue/a\n\n\0");
    for _ in 0..3000 {
        publisher.send(b"SEND\ndestination:/queue/a\n\nx\0");
        exchange(&mut broker, &mut publisher);
    }
    exchange(&mut broker, &mut worker);
    let all = acks(&worker, "");
    fill_up_to(&broker, 85);
    wait(&mut broker, 1500);
    for part in all.chunks(10_000) {
        worker.send(part);
        exchange(&mut broker, &mut worker);
    }
    assert!(!worker.is_closed(), "{:?}", worker.received_frames().last());
}

#[test]
fn a_client_is_not_cut_off_for_what_has_expired() {
    let mut broker = near_the_limit();
    let mut client = subscriber(&mut broker, "a");
    let mut publisher = connect(&mut broker, 0);
    publish(&mut broker, &mut publisher, "a", 100);
    exchange(&mut broker, &mut client);
    let body = "x".repeat(10_000);
    for _ in 0..150 {
        publisher.send(format!("SEND\ndestination:/topic/a\nttl:2000\n\n{body}\0").as_bytes());
        exchange(&mut broker, &mut publisher);
    }
    fill_up_to(&broker, 94);
    wait(&mut broker, 8000);
    exchange(&mut broker, &mut client);
    assert!(!client.is_closed(), "it holds one small message: {:?}", client.received_frames().last());
}

#[test]
fn a_client_is_not_cut_off_for_acks_that_wait_behind_its_own_frame() {
    // With the smaller prefetch, most messages wait in its queue, and with the smaller limit, that makes it full before.
    for (is_commit, prefetch, outbox_limit) in
        [(false, 1000, 8 << 20), (true, 1000, 8 << 20), (false, 10, 8 << 20), (false, 10, 300 << 10)]
    {
        let mut broker = broker(Config { outbox_limit, ..small_memory() });
        let mut worker = worker(&mut broker, 0, "jobs", prefetch);
        let mut publisher = connect(&mut broker, 0);
        for _ in 0..40 {
            publish(&mut broker, &mut publisher, "jobs", 10_000);
            exchange(&mut broker, &mut worker);
        }
        if is_commit {
            worker.send(b"BEGIN\ntransaction:t\n\n\0SEND\ndestination:/topic/b\ntransaction:t\n\ndone\0");
            exchange(&mut broker, &mut worker);
        }
        fill_up_to(&broker, 96);
        broker.run_until_idle();
        let (first, headers, last) = match is_commit {
            true => (&b""[..], "transaction:t\n", &b"COMMIT\ntransaction:t\n\n\0"[..]),
            false => (&b"SEND\ndestination:/topic/b\n\ndone\0"[..], "", &b""[..]),
        };
        worker.send(&[first, &acks(&worker, headers), last].concat());
        for _ in 0..90 {
            broker.advance_ms(100);
            exchange(&mut broker, &mut worker);
        }
        assert!(!worker.is_closed(), "{:?}", worker.received_frames().last());
    }
}

/// Seed 38021036: two connections whose COMMITs waited for memory that only their own deliveries took waited for ever, even
/// after their clients had left.
#[test]
fn a_commit_that_is_applied_does_not_wait_for_deliveries_of_its_own_connection() {
    for (acknowledges, leaves) in [(true, false), (false, false), (false, true)] {
        let mut broker = near_the_limit();
        let mut worker = worker(&mut broker, 0, "jobs", 1000);
        let [mut publisher, mut reader] = [0; 2].map(|shard| connect(&mut broker, shard));
        reader.send(b"SUBSCRIBE\nid:0\ndestination:/topic/b\n\n\0");
        for _ in 0..40 {
            publish(&mut broker, &mut publisher, "jobs", 10_000);
            exchange(&mut broker, &mut worker);
        }
        worker.send(b"BEGIN\ntransaction:t\n\n\0");
        if acknowledges {
            worker.send(&acks(&worker, "transaction:t\n"));
        }
        let body = "x".repeat(10_000);
        for _ in 0..60 {
            worker.send(format!("SEND\ndestination:/topic/b\ntransaction:t\n\n{body}\0").as_bytes());
            exchange(&mut broker, &mut worker);
        }
        worker.send(b"COMMIT\ntransaction:t\nreceipt:r\n\n\0");
        broker.turn(0);
        assert_eq!(broker.snapshot().unanswered, 1, "it takes several turns");
        if leaves {
            worker.half_close();
        }
        for _ in 0..600 {
            fill_up_to(&broker, 97); // others use all that is freed
            wait(&mut broker, 100);
            [&mut worker, &mut reader].into_iter().for_each(|client| _ = client.read(usize::MAX));
        }
        assert_eq!(messages(&reader), 60, "acknowledges: {acknowledges}, leaves: {leaves}");
        assert_eq!(worker.is_closed(), !acknowledges, "it is cut off if it holds its deliveries");
    }
}

#[test]
fn replays_of_many_new_subscriptions_stop_when_memory_is_out() {
    let mut broker = near_the_limit();
    let mut publisher = connect(&mut broker, 0);
    let body = "x".repeat(10_000);
    for at in 0..50 {
        publisher.send(format!("SEND\ndestination:/topic/{at}\nretain:set\n\n{body}\0").as_bytes());
        exchange(&mut broker, &mut publisher);
    }
    let mut clients: Vec<Client> = (0..300).map(|_| connect(&mut broker, 0)).collect();
    fill_up_to(&broker, 90);
    let mut most = 0;
    for client in &mut clients {
        client.send(b"SUBSCRIBE\nid:0\nreceipt:r\ndestination:/topic/*\n\n\0");
    }
    for at in 0..2000 {
        broker.turn(0);
        most = most.max(held(&broker));
        if at % 4 == 0 {
            clients.iter_mut().for_each(|client| _ = client.read(usize::MAX));
        }
    }
    assert!(most < LIMIT + LIMIT / 8, "{most} bytes are held");
    let served = clients.iter().filter(|client| messages(client) == 50 && receipts(client) == 1).count();
    let refused = clients.iter().filter(|client| client.is_closed()).count();
    assert!(served > 0 && served + refused == clients.len(), "{served} are served, {refused} are refused");
}

#[test]
fn a_client_that_takes_no_deliveries_of_queues_is_cut_off_where_messages_are_dropped() {
    let mut broker = broker(Config { slow_consumer: SlowConsumer::DropOldest, ..small_memory() });
    let [mut stuck, mut reader, mut publisher] = [0; 3].map(|shard| connect(&mut broker, shard));
    stuck.send(b"SUBSCRIBE\nid:0\ndestination:/queue/a\n\n\0");
    broker.run_until_idle();
    let body = "x".repeat(10_000);
    for _ in 0..300 {
        publisher.send(format!("SEND\ndestination:/queue/a\n\n{body}\0").as_bytes());
        exchange(&mut broker, &mut publisher);
    }
    fill_up_to(&broker, 97);
    wait(&mut broker, 4000);
    assert_eq!(broker.snapshot().connections, 3, "it may be slow");
    wait(&mut broker, 7000);
    assert_eq!(broker.threads[0].shard.turn.counters.slow_consumers, 1);
    reader.send(b"SUBSCRIBE\nid:0\ndestination:/queue/a\n\n\0");
    for _ in 0..300 {
        exchange(&mut broker, &mut reader);
    }
    assert!(messages(&reader) > 250, "others get what it did not take: {}", messages(&reader));
}

/// With these policies nobody waits for a client that acknowledges nothing, and its connection stays.
#[test]
fn what_is_in_flight_is_forgotten_where_messages_are_dropped() {
    for own in [false, true] {
        let policy = if own { SlowConsumer::Block(Duration::from_secs(5)) } else { SlowConsumer::DropNewest };
        let mut broker = broker(Config { slow_consumer: policy, ..small_memory() });
        let [mut greedy, mut publisher] = [0; 2].map(|shard| connect(&mut broker, shard));
        let header = if own { "slow-consumer:drop-oldest\n" } else { "" };
        let headers = format!("id:0\nack:client\nprefetch-count:0\n{header}");
        greedy.send(format!("SUBSCRIBE\n{headers}destination:/topic/a\n\n\0").as_bytes());
        broker.run_until_idle();
        for _ in 0..600 {
            publish(&mut broker, &mut publisher, "a", 10_000);
            exchange(&mut broker, &mut greedy);
        }
        assert_eq!(messages(&greedy), 600);
        let before = held(&broker);
        fill_up_to(&broker, 97);
        let others = held(&broker) - before;
        wait(&mut broker, 2000);
        assert!(held(&broker) - others < before * 3 / 4, "{before} bytes, then {}", held(&broker) - others);
        let first = acks(&greedy, "receipt:r\n");
        let end = first.iter().position(|byte| *byte == 0).expect("an ACK");
        greedy.send(&first[..=end]);
        exchange(&mut broker, &mut greedy);
        assert_eq!(receipts(&greedy), 1, "its ACK is late");
        greedy.send(format!("ACK\nid:{}\nreceipt:r\n\n\0", last_ack_id(&greedy)).as_bytes());
        exchange(&mut broker, &mut greedy);
        assert_eq!((receipts(&greedy), greedy.is_closed()), (2, false));
    }
}

#[test]
fn after_a_reload_to_less_memory_a_consumer_empties_the_queue_that_fills_it() {
    for (home, is_durable) in [(0, false), (1, false), (0, true)] {
        let config = Config { writers: 2, memory_limit: 8 << 20, ..Config::default() };
        let mut broker = broker(config.clone());
        let start = if is_durable { "/topic/" } else { "/queue/" };
        let queue = names_at_home(&broker, start, home).next().expect("any number of names");
        let headers = if is_durable { "durable:true\n" } else { "" };
        let [mut publisher, mut consumer] = [0; 2].map(|shard| connect(&mut broker, shard));
        if is_durable {
            let mut first = connect(&mut broker, 1);
            first.send(format!("SUBSCRIBE\nid:0\n{headers}destination:{queue}\n\n\0").as_bytes());
            exchange(&mut broker, &mut first);
        }
        for _ in 0..50 {
            publisher.send(format!("SEND\ndestination:{queue}\n\n{}\0", "x".repeat(100_000)).as_bytes());
            exchange(&mut broker, &mut publisher);
        }
        let less = std::sync::Arc::new(Config { memory_limit: 4 << 20, ..config });
        for mailbox in broker.shared.mailboxes.iter() {
            mailbox.post(&mut vec![Mail::Reload(std::sync::Arc::clone(&less))]);
        }
        broker.run_until_idle();
        assert!(broker.snapshot().held_bytes > 4 << 20);
        let receipt = consumer.expect_receipt();
        let subscribe = format!("SUBSCRIBE\nid:0\n{headers}destination:{queue}\nreceipt:{receipt}\n\n\0");
        consumer.send(subscribe.as_bytes());
        exchange(&mut broker, &mut consumer);
        assert_eq!((messages(&consumer), receipts(&consumer)), (50, 1), "home {home}, {is_durable}");
        assert!(broker.snapshot().held_bytes < 1 << 20);
    }
}
