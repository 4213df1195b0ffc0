//! What counts as progress of a client while memory is short, and what does not.

use std::time::Duration;

use super::SimulatedBroker;
use super::client::Client;
use super::near_limit::{ack_ids, cut_off, fill_up_to, publish, small_memory, wait, worker};
use super::support::{broker, connect, exchange, messages, receipts};
use crate::config::Config;

/// A client that holds 3 MB of `/topic/jobs` and does no more with them than `act`, while memory is short. Asserts that it
/// is cut off soon, and its publisher is not.
fn assert_is_cut_off(config: Config, act: impl Fn(&mut SimulatedBroker, &mut Client)) {
    let mut broker = broker(config);
    let (mut holder, mut publisher) = (worker(&mut broker, 0, "jobs", 100_000), connect(&mut broker, 0));
    for _ in 0..300 {
        publish(&mut broker, &mut publisher, "jobs", 10_000);
        exchange(&mut broker, &mut holder);
    }
    for step in 0..80 {
        fill_up_to(&broker, 85);
        wait(&mut broker, 100);
        if step == 5 {
            publish(&mut broker, &mut publisher, "jobs", 100);
        }
        if cut_off(&broker) == 0 {
            act(&mut broker, &mut holder);
        }
        exchange(&mut broker, &mut holder);
        exchange(&mut broker, &mut publisher);
    }
    assert!(cut_off(&broker) == 1 && !publisher.is_closed());
}

#[test]
fn ack_timeout_is_no_progress() {
    let short = Config { ack_timeout_ms: 2000, ..small_memory() };
    let endless = Config { redelivery_delay: Duration::ZERO, max_deliveries: 1000, ..short.clone() };
    for config in [small_memory(), short, endless] {
        assert_is_cut_off(config, |_, _| {});
    }
}

#[test]
fn refusing_messages_that_come_again_is_no_progress() {
    let endless = Config { redelivery_delay: Duration::ZERO, max_deliveries: 1000, ..small_memory() };
    assert_is_cut_off(endless, |_, holder| {
        let ids = ack_ids(holder);
        for id in &ids[ids.len() - 100..] {
            holder.send(format!("NACK\nid:{id}\n\n\0").as_bytes());
        }
    });
}

#[test]
fn what_a_subscription_with_its_own_policy_acknowledges_or_loses_is_no_progress_of_the_others() {
    for acknowledges in [true, false] {
        assert_is_cut_off(small_memory(), |broker, holder| {
            if messages(holder) == 300 {
                let headers = "id:own\nack:client-individual\nprefetch-count:0\nslow-consumer:drop-oldest";
                holder.send(format!("SUBSCRIBE\n{headers}\ndestination:/topic/own\n\n\0").as_bytes());
                broker.run_until_idle();
            }
            let mut other = connect(broker, 0);
            for _ in 0..20 {
                publish(broker, &mut other, "own", 10_000);
            }
            exchange(broker, holder);
            if acknowledges {
                let id = ack_ids(holder).pop().expect("a message");
                holder.send(format!("ACK\nid:{id}\n\n\0").as_bytes());
            }
        });
    }
}

#[test]
fn a_client_that_acknowledges_small_messages_steadily_stays() {
    let mut broker = broker(Config { ttl_ms: 3_600_000, max_stale_queue_size: 100_000, ..small_memory() });
    let mut publisher = connect(&mut broker, 0);
    let mut holder = worker(&mut broker, 0, "a", 0);
    for topic in ["b", "a"] {
        for _ in 0..70 {
            publisher.send(format!("SEND\ndestination:/topic/{topic}\n\nx\0").repeat(100).as_bytes());
            exchange(&mut broker, &mut publisher);
            exchange(&mut broker, &mut holder);
        }
    }
    fill_up_to(&broker, 85);
    wait(&mut broker, 200);
    let headers = "id:b\nack:client-individual\nprefetch-count:0\nreceipt:s\ndestination:/topic/b";
    holder.send(format!("SUBSCRIBE\n{headers}\n\n\0").as_bytes());
    exchange(&mut broker, &mut holder);
    assert_eq!((messages(&holder), receipts(&holder)), (14_000, 1));
    for ids in ack_ids(&holder).chunks(160).take(70) {
        ids.iter().for_each(|id| holder.send(format!("ACK\nid:{id}\n\n\0").as_bytes()));
        exchange(&mut broker, &mut holder);
        fill_up_to(&broker, 85);
        wait(&mut broker, 100);
        exchange(&mut broker, &mut holder);
        assert!(!holder.is_closed());
    }
}
