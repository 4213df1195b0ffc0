//! Frames that wait are counted as held with their headers, and retained messages that would be too many are not delivered.

use super::near_limit::{fill_up_to, held, small_memory};
use super::support::{broker, connect, exchange, messages, names_at_home};
use crate::config::Config;

fn config(writers: usize) -> Config {
    Config { writers, heartbeat_ms: (0, 0), ..Config::default() }
}

/// Headers of half a megabyte.
fn headers() -> String {
    (0..60).map(|at| format!("h{at}:{}\n", "y".repeat(9000))).collect()
}

#[test]
fn a_retained_message_that_is_one_too_many_is_not_delivered() {
    let mut broker = broker(Config { max_retained: 1, ..config(2) });
    let names: Vec<String> = names_at_home(&broker, "/topic/r", 1).take(2).collect();
    let (mut listener, mut publisher) = (connect(&mut broker, 0), connect(&mut broker, 0));
    let receipt = listener.expect_receipt();
    listener.send(format!("SUBSCRIBE\nid:0\ndestination:/topic/>\nreceipt:{receipt}\n\n\0").as_bytes());
    exchange(&mut broker, &mut listener);
    for name in &names {
        publisher.send(format!("SEND\ndestination:{name}\nretain:set\n\nx\0").as_bytes());
    }
    exchange(&mut broker, &mut publisher);
    exchange(&mut broker, &mut listener);
    assert!(publisher.received_frames().any(|head| head.contains("E-RETAINED-COUNT")));
    assert_eq!(messages(&listener), 1);
    assert_eq!(broker.audit(), Vec::<String>::new());
}

#[test]
fn a_commit_that_waits_counts_its_headers() {
    let mut broker = broker(small_memory());
    let mut client = connect(&mut broker, 0);
    client.send(b"BEGIN\ntransaction:t\n\n\0SEND\ntransaction:t\ndestination:/queue/a\n\nx\0");
    exchange(&mut broker, &mut client);
    fill_up_to(&broker, 85);
    broker.run_until_idle();
    let before = held(&broker);
    client.send(format!("COMMIT\ntransaction:t\n{}\n\0", headers()).as_bytes());
    exchange(&mut broker, &mut client);
    assert!(!client.is_closed());
    assert!(held(&broker) - before > 500_000, "{} bytes more", held(&broker) - before);
}

#[test]
fn a_query_that_waits_counts_its_headers() {
    let mut broker = broker(config(2));
    let mut client = connect(&mut broker, 0);
    let before = broker.snapshot().held_bytes;
    client.send(format!("SEND\ndestination:DIAG/x\n{}\nsession\0", headers()).as_bytes());
    for _ in 0..200 {
        client.read(0);
        broker.turn(0); // the other shard does not answer
    }
    let more = broker.snapshot().held_bytes - before;
    assert!(more > 500_000, "{more} bytes more");
    assert_eq!(broker.audit(), Vec::<String>::new());
}

#[test]
fn a_subscription_to_diagnostics_with_an_interval_counts_its_name() {
    let held_with = |interval: &str| {
        let mut broker = broker(config(1));
        let mut client = connect(&mut broker, 0);
        let before = held(&broker);
        for at in 0..100 {
            let name = format!("DIAG/{at}{}", "y".repeat(9000));
            client.send(format!("SUBSCRIBE\nid:{at}\n{interval}destination:{name}\n\n\0").as_bytes());
            exchange(&mut broker, &mut client);
        }
        assert_eq!((client.is_closed(), broker.audit()), (false, Vec::new()));
        held(&broker) - before
    };
    let (without, with) = (held_with(""), held_with("interval:3600000\nquery:stale\n"));
    assert!(with - without > 100 * 8000, "{without} bytes without, {with} with");
}

#[test]
fn a_durable_subscription_counts_each_copy_of_its_names() {
    let held_with = |length: usize| {
        let (mut broker, long) = (broker(config(2)), "y".repeat(length));
        let mut client = connect(&mut broker, 0);
        let before = broker.snapshot().held_bytes;
        for at in 0..100 {
            let topic = format!("/topic/{at}{long}");
            client.send(
                format!("SUBSCRIBE\nid:{at}{long}\ndurable:true\ndestination:{topic}\n\n\0").as_bytes(),
            );
            exchange(&mut broker, &mut client);
        }
        assert_eq!((client.is_closed(), broker.audit()), (false, Vec::new()));
        broker.snapshot().held_bytes - before
    };
    let (short, long) = (held_with(0), held_with(9000));
    // The name: the queue, the consumer, the subscription, its prefix. The topic: the filter here and there, the binding, the
    // destination of the consumer.
    assert!(long - short >= 8 * 100 * 9000, "{short} bytes with short names, {long} with long ones");
}
