//! Fairness: long work of one client leaves others their share of each turn, and gets its own.

use super::support::{broker, connect, exchange, names_at_home, turns_until_received};
use crate::config::Config;

fn config(writers: usize) -> Config {
    Config { writers, heartbeat_ms: (0, 0), ..Config::default() }
}

#[test]
fn a_long_transaction_does_not_delay_messages_from_other_shards() {
    const OPERATIONS: usize = 100_000;
    let mut broker = broker(config(2));
    let name = names_at_home(&broker, "/queue/", 0).next().expect("one of two");
    let (mut client, mut listener) = (connect(&mut broker, 0), connect(&mut broker, 0));
    let mut publisher = connect(&mut broker, 1);
    listener.send(b"SUBSCRIBE\nid:0\ndestination:/topic/c\n\n\0");
    exchange(&mut broker, &mut listener);
    client.send(b"BEGIN\ntransaction:1\n\n\0");
    let send = format!("SEND\ntransaction:1\ndestination:{name}\n\n\0");
    client.send(send.repeat(OPERATIONS).as_bytes());
    exchange(&mut broker, &mut client);
    client.send(b"COMMIT\ntransaction:1\n\n\0");
    broker.turn(0);
    let received = turns_until_received(&mut broker, &mut publisher, &mut listener, &mut []);
    let mut turns = received;
    while broker.threads[0].shard.has_work() {
        broker.turn(0);
        turns += 1;
    }
    assert!(turns > 20, "{turns} turns are too few to show anything");
    assert!(received <= 3, "{received} of {turns} turns");
}

#[test]
fn connections_end_while_other_shards_send_much_mail() {
    const SUBSCRIPTIONS: usize = 3000;
    let mut broker = broker(config(2));
    let name = names_at_home(&broker, "/queue/", 0).next().expect("one of two");
    let mut publishers: Vec<_> = (0..8).map(|_| connect(&mut broker, 1)).collect();
    let clients: Vec<_> = (0..4)
        .map(|number| {
            let mut client = connect(&mut broker, 0);
            let subscribe = |at| format!("SUBSCRIBE\nid:{at}\ndestination:/topic/{number}-{at}\n\n\0");
            client.send((0..SUBSCRIPTIONS).map(subscribe).collect::<String>().as_bytes());
            exchange(&mut broker, &mut client);
            client
        })
        .collect();
    let sends = format!("SEND\ndestination:{name}\n\n\0").repeat(20_000);
    publishers.iter_mut().for_each(|publisher| publisher.send(sends.as_bytes()));
    drop(clients);
    let mut turns = 0;
    while broker.snapshot().subscriptions > 0 {
        // The shard whose connections end is slower.
        for _ in 0..8 {
            publishers.iter_mut().for_each(|publisher| _ = publisher.read(usize::MAX));
            broker.turn(1);
        }
        broker.turn(0);
        turns += 1;
    }
    assert!(turns <= 12, "{turns} turns");
}

#[test]
fn queues_deliver_while_many_messages_are_requeued_and_dropped() {
    const MESSAGES: usize = 20_000;
    let mut broker = broker(config(1));
    let (mut listener, mut publisher) = (connect(&mut broker, 0), connect(&mut broker, 0));
    let (mut owner, mut stalled) = (connect(&mut broker, 0), connect(&mut broker, 0));
    listener.send(b"SUBSCRIBE\nid:0\ndestination:/queue/c\n\n\0");
    stalled.send(b"SUBSCRIBE\nid:0\ndestination:/queue/a\nack:client\nprefetch-count:0\n\n\0");
    exchange(&mut broker, &mut listener);
    owner.send("SEND\ndestination:/temp-queue/t\n\nx\0".repeat(MESSAGES).as_bytes());
    exchange(&mut broker, &mut owner);
    publisher.send("SEND\ndestination:/queue/a\n\nx\0".repeat(MESSAGES).as_bytes());
    exchange(&mut broker, &mut publisher);
    exchange(&mut broker, &mut stalled);
    drop((owner, stalled));
    broker.turn(0);
    let shard = &mut broker.threads[0].shard;
    for _ in 0..2 {
        assert!(shard.has_work(), "both jobs continue");
        shard.enqueue_now(b"/queue/c");
        assert_eq!(shard.dispatch_last(), 1);
    }
}
