//! Who is acted on first while memory is short, what excuses a client, and what does not.

use super::SimulatedBroker;
use super::client::Client;
use super::near_limit::{fill_up_to, near_the_limit, publish, small_memory, wait, worker};
use super::support::{broker, connect, exchange, messages};
use crate::config::{Config, SlowConsumer};

fn ack_ids(client: &Client) -> Vec<String> {
    let heads = client.received_frames().filter(|head| head.starts_with("MESSAGE"));
    let ids = heads.filter_map(|head| head.split(" | ").find_map(|line| line.strip_prefix("ack:")));
    ids.map(str::to_owned).collect()
}

/// A client with so many unacknowledged deliveries of 10 KB from `/topic/jobs`.
fn holder(broker: &mut SimulatedBroker, prefetch: u32, count: usize) -> (Client, Client) {
    let (mut holder, mut publisher) = (worker(broker, 0, "jobs", prefetch), connect(broker, 0));
    for _ in 0..count {
        publish(broker, &mut publisher, "jobs", 10_000);
        exchange(broker, &mut holder);
    }
    (holder, publisher)
}

/// How many clients were cut off.
fn cut_off(broker: &SimulatedBroker) -> u64 {
    broker.threads.iter().map(|thread| thread.shard.turn.counters.slow_consumers).sum()
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
