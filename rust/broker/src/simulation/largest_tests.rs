//! Who is acted on first while memory is short, what excuses a client, and what does not.

use super::SimulatedBroker;
use super::client::Client;
use super::near_limit::{ack_ids, cut_off, fill_up_to, near_the_limit, publish, small_memory, wait, worker};
use super::support::{broker, connect, exchange, messages, receipts};
use crate::config::{Config, SlowConsumer};

/// A client with so many unacknowledged deliveries of 10 KB from `/topic/jobs`.
fn holder(broker: &mut SimulatedBroker, prefetch: u32, count: usize) -> (Client, Client) {
    let (mut holder, mut publisher) = (worker(broker, 0, "jobs", prefetch), connect(broker, 0));
    for _ in 0..count {
        publish(broker, &mut publisher, "jobs", 10_000);
        exchange(broker, &mut holder);
    }
    (holder, publisher)
}

#[test]
fn a_client_that_became_full_during_its_own_wait_stays_while_it_acknowledges() {
    for waits in [false, true] {
        let mut broker = near_the_limit();
        let (mut holder, mut publisher) = holder(&mut broker, 40, 40);
        publish(&mut broker, &mut publisher, "jobs", 5_000);
        exchange(&mut broker, &mut holder);
        fill_up_to(&broker, 97);
        if waits {
            holder.send(b"SEND\ndestination:/topic/b\n\ndone\0");
        }
        wait(&mut broker, 500);
        fill_up_to(&broker, 90);
        wait(&mut broker, 500);
        for id in ack_ids(&holder).iter().take(30) {
            holder.send(format!("ACK\nid:{id}\n\n\0").as_bytes());
            exchange(&mut broker, &mut holder);
            wait(&mut broker, 300);
            exchange(&mut broker, &mut holder);
        }
        assert!(!holder.is_closed(), "waits {waits}");
    }
}

#[test]
fn endless_waits_of_its_own_excuse_no_client_that_never_acknowledges() {
    for frame in ["", "SEND\ndestination:/topic/jobs\n\nx\0"] {
        let mut broker = near_the_limit();
        let (mut holder, mut publisher) = holder(&mut broker, 100_000, 300);
        fill_up_to(&broker, 85);
        publisher.send(b"SEND\ndestination:/queue/kept\n\nx\0");
        for _ in 0..25 {
            holder.send(frame.as_bytes());
            wait(&mut broker, 1000);
            exchange(&mut broker, &mut holder);
        }
        exchange(&mut broker, &mut publisher);
        assert!(holder.is_closed() && !publisher.is_closed(), "{frame}");
    }
}

#[test]
fn all_shards_agree_on_a_shortage() {
    for (first, then) in [(85, 85), (82, 76)] {
        let policy = SlowConsumer::Disconnect;
        let mut broker = broker(Config { writers: 2, slow_consumer: policy, ..small_memory() });
        let mut innocent = worker(&mut broker, 0, "jobs", 10);
        let mut larger = worker(&mut broker, 1, "larger", 100_000);
        let mut publisher = connect(&mut broker, 0);
        publish(&mut broker, &mut publisher, "jobs", 80_000);
        for _ in 0..200 {
            publish(&mut broker, &mut publisher, "larger", 10_000);
            exchange(&mut broker, &mut larger);
        }
        exchange(&mut broker, &mut innocent);
        fill_up_to(&broker, first);
        broker.turn(0);
        fill_up_to(&broker, then);
        wait(&mut broker, 2000);
        [&mut innocent, &mut larger].into_iter().for_each(|client| _ = client.read(usize::MAX));
        assert!(!innocent.is_closed() && larger.is_closed(), "{first} {then}");
    }
}

#[test]
fn a_client_that_is_closing_or_reads_a_little_protects_no_others() {
    for closes in [false, true] {
        let mut broker = broker(Config { writers: 2, ..small_memory() });
        let (mut slow, mut stuck) = (connect(&mut broker, 1), connect(&mut broker, 0));
        slow.send(b"SUBSCRIBE\nid:0\ndestination:/topic/a\n\n\0");
        stuck.send(b"SUBSCRIBE\nid:0\ndestination:/topic/b\n\n\0");
        broker.run_until_idle();
        let mut publisher = connect(&mut broker, 0);
        for at in 0..300 {
            publish(&mut broker, &mut publisher, "a", 3_000);
            if at % 3 == 0 {
                publish(&mut broker, &mut publisher, "b", 3_000);
            }
        }
        if closes {
            slow.send(b"DISCONNECT\nreceipt:bye\n\n\0");
        }
        broker.run_until_idle();
        fill_up_to(&broker, 97);
        for _ in 0..40 {
            wait(&mut broker, 500);
            slow.read(8192);
            fill_up_to(&broker, 97);
        }
        let subscriptions = broker.threads[0].shard.router.subscriptions.iter().count();
        assert!(
            cut_off(&broker) > 0 && subscriptions == 0,
            "closes {closes}: the stuck client is still there"
        );
    }
}

#[test]
fn a_consumer_of_a_queue_that_reads_steadily_is_not_cut_off_though_more_is_delivered() {
    for ack in ["auto", "client-individual"] {
        let mut broker = near_the_limit();
        let (mut publisher, body) = (connect(&mut broker, 0), "x".repeat(10_000));
        for _ in 0..550 {
            publisher.send(format!("SEND\ndestination:/queue/a\n\n{body}\0").as_bytes());
            exchange(&mut broker, &mut publisher);
        }
        let mut client = connect(&mut broker, 0);
        fill_up_to(&broker, 97);
        client.send(format!("SUBSCRIBE\nid:0\nack:{ack}\ndestination:/queue/a\n\n\0").as_bytes());
        let mut acknowledged = 0;
        for _ in 0..300 {
            broker.advance_ms(100);
            broker.run_until_idle();
            client.read(8192);
            fill_up_to(&broker, 97);
            if ack != "auto" {
                for id in ack_ids(&client).into_iter().skip(acknowledged) {
                    acknowledged += 1;
                    client.send(format!("ACK\nid:{id}\n\n\0").as_bytes());
                }
            }
        }
        assert!(
            !client.is_closed() && cut_off(&broker) == 0,
            "{ack}: cut off after {} messages",
            messages(&client)
        );
    }
}

/// A client that has sent DISCONNECT, with so many messages of 5 KB that it has not read.
fn closing(broker: &mut SimulatedBroker, count: usize) -> Client {
    let (mut reader, mut publisher) = (connect(broker, 0), connect(broker, 0));
    reader.send(b"SUBSCRIBE\nid:0\ndestination:/topic/a\n\n\0");
    broker.run_until_idle();
    (0..count).for_each(|_| publish(broker, &mut publisher, "a", 5_000));
    reader.send(b"DISCONNECT\nreceipt:bye\n\n\0");
    broker.run_until_idle();
    reader
}

#[test]
fn a_client_that_is_closing_gets_its_receipt_after_a_short_shortage() {
    let mut broker = broker(Config { outbox_limit: 2 << 20, ..small_memory() });
    let mut reader = closing(&mut broker, 300);
    fill_up_to(&broker, 90);
    wait(&mut broker, 300);
    fill_up_to(&broker, 30);
    for _ in 0..400 {
        wait(&mut broker, 100);
        reader.read(8192);
    }
    assert_eq!((receipts(&reader), cut_off(&broker)), (1, 0));
}

#[test]
fn a_client_that_is_closing_may_pause_while_memory_is_short() {
    let block = SlowConsumer::Block(std::time::Duration::from_secs(5));
    for slow_consumer in [block, SlowConsumer::Disconnect, SlowConsumer::DropOldest] {
        let mut broker = broker(Config { slow_consumer, ..small_memory() });
        let mut reader = closing(&mut broker, 100);
        fill_up_to(&broker, 97);
        wait(&mut broker, 4000);
        for _ in 0..50 {
            reader.read(usize::MAX);
            wait(&mut broker, 100);
        }
        assert_eq!(receipts(&reader), 1, "{slow_consumer:?}");
    }
}

/// Messages and bytes in flight of all subscriptions of the first shard.
fn in_flight(broker: &SimulatedBroker) -> Vec<(u64, u64)> {
    let queues = &broker.threads[0].shard.queues;
    let all = queues.consumers.iter().filter_map(|consumer| queues.home.queue(consumer.own_queue?));
    all.map(|queue| queue.in_flight()).collect()
}

#[test]
fn nobody_loses_messages_while_another_has_many_more_to_lose() {
    let mut broker = broker(Config { slow_consumer: SlowConsumer::DropOldest, ..small_memory() });
    let mut hog = worker(&mut broker, 0, "hog", 100_000);
    let mut small = worker(&mut broker, 0, "small", 10);
    let mut publisher = connect(&mut broker, 0);
    for _ in 0..500 {
        publish(&mut broker, &mut publisher, "hog", 10_000);
        exchange(&mut broker, &mut hog);
    }
    for _ in 0..2 {
        publish(&mut broker, &mut publisher, "small", 100);
        exchange(&mut broker, &mut small);
    }
    for _ in 0..10 {
        fill_up_to(&broker, 97);
        broker.advance_ms(100);
        broker.run_until_idle();
        let [hog, small] = in_flight(&broker)[..] else { panic!("two subscriptions") };
        assert!(small.0 == 2 || hog.1 < 100_000, "{hog:?} {small:?}");
    }
}

#[test]
fn nobody_is_protected_by_larger_ones_that_take_turns() {
    let mut broker = near_the_limit();
    let mut publisher = connect(&mut broker, 0);
    let mut small = worker(&mut broker, 0, "small", 1000);
    for _ in 0..10 {
        publish(&mut broker, &mut publisher, "small", 10_000);
        exchange(&mut broker, &mut small);
    }
    let mut larger = Vec::new();
    for at in 0..8 {
        let topic = at.to_string();
        let mut next = worker(&mut broker, 0, &topic, 1000);
        fill_up_to(&broker, 85);
        for _ in 0..(30 + 3 * at) {
            publish(&mut broker, &mut publisher, &topic, 10_000);
            exchange(&mut broker, &mut next);
        }
        larger.push(next);
        fill_up_to(&broker, 85);
        wait(&mut broker, 3000);
    }
    exchange(&mut broker, &mut small);
    assert!(small.is_closed());
}

#[test]
fn deliveries_of_small_messages_count_with_what_they_take_themselves() {
    let mut broker = near_the_limit();
    let mut hogs: Vec<Client> = (0..100).map(|_| worker(&mut broker, 0, "a", 0)).collect();
    let mut publisher = connect(&mut broker, 0);
    for _ in 0..100 {
        publish(&mut broker, &mut publisher, "a", 10);
        hogs.iter_mut().for_each(|hog| _ = hog.read(usize::MAX));
    }
    fill_up_to(&broker, 97);
    wait(&mut broker, 20_000);
    assert_eq!(cut_off(&broker), 100);
}
