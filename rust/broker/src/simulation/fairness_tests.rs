//! Fairness: long work of one client leaves others their share of each turn, and gets its own.

use super::client::Client;
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

/// Acknowledges all messages that a client has received since the last time; returns their number.
fn acknowledge(client: &mut Client, acknowledged: &mut usize) {
    client.read(usize::MAX);
    let ids = client.received_frames().flat_map(|head| head.split(" | "));
    let ids = ids.filter_map(|line| line.strip_prefix("ack:")).skip(*acknowledged);
    let acks: Vec<String> = ids.map(|id| format!("ACK\nid:{id}\n\n\0")).collect();
    *acknowledged += acks.len();
    client.send(acks.concat().as_bytes());
}

/// The number of messages that two consumers of a queue acknowledge, one at its home and one on another shard, while
/// the home runs this many turns for each turn of the other shard.
fn shares(home_turns: usize) -> [usize; 2] {
    let mut broker = broker(config(2));
    let name = names_at_home(&broker, "/queue/", 0).next().expect("one of two");
    let mut publisher = connect(&mut broker, 0);
    publisher.send(format!("SEND\ndestination:{name}\n\n\0").repeat(5000).as_bytes());
    exchange(&mut broker, &mut publisher);
    let mut consumers = [connect(&mut broker, 0), connect(&mut broker, 1)];
    let subscribe =
        format!("SUBSCRIBE\nid:0\ndestination:{name}\nack:client-individual\nprefetch-count:10\n\n\0");
    consumers.iter_mut().for_each(|consumer| consumer.send(subscribe.as_bytes()));
    let mut acknowledged = [0, 0];
    for _ in 0..100 {
        for _ in 0..home_turns {
            broker.turn(0);
            acknowledge(&mut consumers[0], &mut acknowledged[0]);
        }
        broker.turn(1);
        acknowledge(&mut consumers[1], &mut acknowledged[1]);
    }
    acknowledged
}

#[test]
fn a_consumer_on_another_shard_gets_as_much_of_a_full_queue_as_one_at_its_home() {
    for (home_turns, tenths) in [(1, 8), (2, 6)] {
        let [at_home, elsewhere] = shares(home_turns);
        assert!(elsewhere >= 400, "{home_turns}: {elsewhere}");
        assert!(10 * elsewhere >= tenths * at_home, "{home_turns}: {at_home}, {elsewhere}");
        assert!(10 * at_home >= 9 * elsewhere, "{home_turns}: {at_home}, {elsewhere}");
    }
}
