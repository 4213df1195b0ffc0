//! Transactions to topics that are larger than a turn: each is in one piece wherever it comes, and no turn is longer.

use super::ByHand;
use super::client::Client;
use super::crossing::{broker, connect, talk};
use crate::config::Config;

/// What a turn may look at, and what it had begun by then.
const VISITS_MAX: usize = 25_000;

/// Says frames as the broker takes them.
fn say_all(broker: &mut ByHand, client: &mut Client, frames: &str) {
    client.say(frames.as_bytes());
    talk(broker, client);
}

/// A transaction of so many messages to a topic, without its COMMIT.
fn transaction(count: usize, topic: &str) -> String {
    let send = |at| format!("SEND\ndestination:{topic}\ntransaction:t\n\n{at}\0");
    "BEGIN\ntransaction:t\n\n\0".to_owned() + &(0..count).map(send).collect::<String>()
}

/// Whether the numbers of a transaction stand together, in their order.
fn are_in_one_piece(bodies: &[String], count: usize) -> bool {
    let first = bodies.iter().position(|body| body == "0");
    first.is_some_and(|first| {
        (0..count).all(|at| bodies.get(first + at).is_some_and(|body| *body == at.to_string()))
    })
}

/// A subscriber on one shard, a large transaction from another one, and somebody on each who sends to the same topic in
/// every turn. Returns the most visits of a turn.
fn send_beside_a_transaction(shards: usize, publisher: usize, subscriber: usize, count: usize) -> usize {
    let mut broker = broker(Config { writers: shards, ..Config::default() });
    let mut subscriber = connect(&mut broker, subscriber);
    subscriber.say(b"SUBSCRIBE\nid:0\ndestination:/topic/a\n\n\0");
    talk(&mut broker, &mut subscriber);
    let mut publisher = connect(&mut broker, publisher);
    let mut others: Vec<Client> = (0..shards).map(|shard| connect(&mut broker, shard)).collect();
    say_all(&mut broker, &mut publisher, &transaction(count, "/topic/a"));
    let receipt = publisher.ask();
    publisher.say(format!("COMMIT\ntransaction:t\nreceipt:{receipt}\n\n\0").as_bytes());
    let mut most = 0;
    for _ in 0..60 {
        for other in &mut others {
            other.say(b"SEND\ndestination:/topic/a\n\nother\0");
        }
        for shard in 0..shards {
            let before = broker.visits()[shard];
            broker.turn(shard);
            most = most.max(broker.visits()[shard] - before);
        }
        subscriber.read(usize::MAX);
    }
    talk(&mut broker, &mut publisher);
    talk(&mut broker, &mut subscriber);
    publisher.check_answers();
    assert_eq!(subscriber.bodies.len(), count + 60 * shards);
    assert!(are_in_one_piece(&subscriber.bodies, count), "somebody else's are between them");
    most
}

#[test]
fn a_transaction_that_another_shard_routes_over_several_turns_is_in_one_piece() {
    send_beside_a_transaction(2, 0, 1, 15_000);
}

#[test]
fn a_transaction_that_is_published_over_several_turns_comes_to_other_shards_in_one_piece() {
    let most = send_beside_a_transaction(3, 0, 1, 45_000);
    assert!(most < VISITS_MAX, "{most} visits in one turn");
}

#[test]
fn a_transaction_to_one_topic_takes_effect_over_several_turns() {
    let most = send_beside_a_transaction(1, 0, 0, 45_000);
    assert!(most < VISITS_MAX, "{most} visits in one turn");
}

#[test]
fn nothing_comes_between_large_messages_of_a_transaction_that_are_on_their_way() {
    const SUBSCRIPTIONS: usize = 40;
    let mut broker = broker(Config { writers: 1, ..Config::default() });
    let mut subscribers: Vec<Client> = (0..SUBSCRIPTIONS).map(|_| connect(&mut broker, 0)).collect();
    for (at, subscriber) in subscribers.iter_mut().enumerate() {
        subscriber.say(format!("SUBSCRIBE\nid:{at}\ndestination:/topic/a\n\n\0").as_bytes());
        talk(&mut broker, subscriber);
    }
    let [mut publisher, mut other] = [0; 2].map(|shard| connect(&mut broker, shard));
    let body = "x".repeat(60 << 10);
    let send = format!("SEND\ndestination:/topic/a\ntransaction:t\n\n{body}\0");
    say_all(&mut broker, &mut publisher, &format!("BEGIN\ntransaction:t\n\n\0{send}{send}"));
    publisher.say(b"COMMIT\ntransaction:t\n\n\0");
    for _ in 0..20 {
        other.say(b"SEND\ndestination:/topic/a\n\nother\0");
        broker.turn(0);
        subscribers.iter_mut().for_each(|subscriber| _ = subscriber.read(usize::MAX));
    }
    for subscriber in &mut subscribers {
        talk(&mut broker, subscriber);
        let is_large =
            |head: &str| head.contains("content-length:61440") || !head.contains("content-length:5");
        let large: Vec<bool> =
            subscriber.heard().filter(|head| head.starts_with("MESSAGE")).map(is_large).collect();
        let first = large.iter().position(|is_large| *is_large).expect("it came");
        assert_eq!((large.len(), large[first + 1]), (22, true), "{large:?}");
    }
}
