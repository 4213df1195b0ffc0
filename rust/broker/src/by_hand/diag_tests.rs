//! Many who ask for diagnostics at once: what that costs, and whom it holds up.

use super::ByHand;
use super::client::Client;
use super::support::{broker, connect, messages, talk};
use crate::config::Config;

/// Subscriptions with an interval of one connection.
const WATCHES: usize = 1000;
/// Their interval: so long that none is over before the test says so.
const INTERVAL_MS: u64 = 600_000;

/// What all shards have looked at.
fn visited(broker: &ByHand) -> usize {
    broker.visits().iter().sum()
}

/// A client with many subscriptions to one destination that get answers at an interval, the first of which it has read.
fn watcher(broker: &mut ByHand) -> Client {
    let mut watcher = connect(broker, 0);
    for at in 0..WATCHES {
        watcher.say(
            format!("SUBSCRIBE\nid:{at}\ndestination:DIAG/session\ninterval:{INTERVAL_MS}\n\n\0").as_bytes(),
        );
    }
    talk(broker, &mut watcher);
    broker.pass(1);
    talk(broker, &mut watcher);
    assert_eq!(messages(&watcher), WATCHES);
    watcher
}

fn heard(client: &Client, command: &str) -> usize {
    client.heard().filter(|head| head.starts_with(command)).count()
}

#[test]
fn answers_that_are_due_together_are_gathered_together() {
    for writers in [1, 2] {
        let mut broker = broker(Config { writers, ..Config::default() });
        let mut watcher = watcher(&mut broker);
        for round in 2..5 {
            broker.pass(INTERVAL_MS);
            let before = visited(&broker);
            talk(&mut broker, &mut watcher);
            let visits = visited(&broker) - before;
            assert_eq!(messages(&watcher), round * WATCHES);
            assert!(visits < 50 * WATCHES, "{visits} visits for {WATCHES} answers");
        }
    }
}

#[test]
fn a_query_waits_for_no_more_than_the_answer_under_way_however_many_intervals_there_are() {
    for writers in [1, 2] {
        for turns in 0..4 {
            let mut broker = broker(Config { writers, ..Config::default() });
            let mut watcher = watcher(&mut broker);
            let mut requesters = [0; 2].map(|shard| connect(&mut broker, shard));
            broker.pass(INTERVAL_MS);
            (0..turns).for_each(|_| broker.round());
            requesters[0].say(b"DIAG\n\nsession\0");
            requesters[1].say(b"DIAG\n\nmemory\0");
            let (before, mut rounds) = (visited(&broker), 0);
            while requesters.iter().any(|requester| heard(requester, "DIAG") == 0) {
                broker.round();
                rounds += 1;
                assert!(rounds < 20, "no answer after {rounds} turns");
                requesters.iter_mut().for_each(|requester| _ = requester.read(usize::MAX));
            }
            let visits = visited(&broker) - before;
            assert!(visits < 20 * WATCHES, "{visits} visits before the answer");
            talk(&mut broker, &mut watcher);
            assert_eq!(messages(&watcher), 2 * WATCHES);
        }
    }
}

#[test]
fn nothing_is_gathered_for_intervals_whose_client_has_gone() {
    for writers in [1, 2] {
        let mut broker = broker(Config { writers, ..Config::default() });
        let [watcher, other] = [0; 2].map(|_| watcher(&mut broker));
        broker.pass(INTERVAL_MS);
        (0..3).for_each(|_| broker.round());
        let before = visited(&broker);
        drop([watcher, other]);
        broker.run();
        let visits = visited(&broker) - before;
        assert!(visits < 50 * WATCHES, "{visits} visits after everybody has gone");
        let left = broker.left();
        assert_eq!((left.unanswered, left.subscriptions, left.connections), (0, 0, 0));
    }
}

#[test]
fn who_has_not_been_sent_the_last_answer_is_left_out() {
    for headers in ["", "ack:client\n"] {
        let mut broker = broker(Config { writers: 1, ..Config::default() });
        let mut watcher = connect(&mut broker, 0);
        watcher.say(
            format!("SUBSCRIBE\nid:0\ndestination:DIAG/shards\ninterval:{INTERVAL_MS}\n{headers}\n\0")
                .as_bytes(),
        );
        for _ in 0..200 {
            broker.run();
            broker.pass(INTERVAL_MS);
        }
        let waiting: usize =
            broker.seats[0].shard.connections.table.iter().map(|(_, conn)| conn.output.outbox.bytes()).sum();
        assert!(waiting < 1000, "{waiting} bytes wait, more than one answer");
        // Where it reads again, it is told again.
        talk(&mut broker, &mut watcher);
        let before = messages(&watcher);
        broker.pass(INTERVAL_MS);
        talk(&mut broker, &mut watcher);
        assert!(before < 100 && messages(&watcher) == before + 1, "{before}, {}", messages(&watcher));
    }
}

#[test]
fn intervals_that_wait_for_a_receipt_are_seldom_looked_at() {
    let mut broker = broker(Config { writers: 1, outbox_limit: 4 << 10, ..Config::default() });
    let [mut publisher, mut watcher] = [0; 2].map(|shard| connect(&mut broker, shard));
    for at in 0..100 {
        publisher.say(format!("SEND\ndestination:/topic/{at}\nretain:set\n\n{:01000}\0", at).as_bytes());
    }
    talk(&mut broker, &mut publisher);
    let receipt = watcher.ask();
    watcher.say(format!("SUBSCRIBE\nid:r\ndestination:/topic/>\nreceipt:{receipt}\n\n\0").as_bytes());
    for at in 0..WATCHES {
        let head = format!("SUBSCRIBE\nid:{at}\ndestination:DIAG/shards\ninterval:{INTERVAL_MS}\n\n\0");
        watcher.say(head.as_bytes());
        broker.round();
    }
    // It takes nothing, so that the RECEIPT does not come.
    broker.round();
    let before = visited(&broker);
    for _ in 0..500 {
        broker.pass(1);
        broker.round();
    }
    let visits = visited(&broker) - before;
    assert!(visits < 20 * WATCHES, "{visits} visits for {WATCHES} in half a second");
    talk(&mut broker, &mut watcher);
    broker.pass(1000);
    talk(&mut broker, &mut watcher);
    assert!(messages(&watcher) > 100, "they are answered behind it, as far as there is room");
}

#[test]
fn who_asks_while_a_long_answer_is_under_way_shares_the_next_one_and_knows_what_came_before() {
    const QUEUES: usize = 30_000;
    const ASKERS: usize = 8;
    for writers in [1, 2] {
        let mut broker = broker(Config { writers, ..Config::default() });
        let [mut publisher, mut first] = [0; 2].map(|shard| connect(&mut broker, shard));
        let mut requesters: Vec<Client> = (0..ASKERS).map(|_| connect(&mut broker, 0)).collect();
        (0..QUEUES).for_each(|at| publisher.say(format!("SEND\ndestination:/queue/{at}\n\nx\0").as_bytes()));
        talk(&mut broker, &mut publisher);
        first.say(b"DIAG\n\nqueues\0");
        broker.round();
        publisher.say(b"SEND\ndestination:/queue/new\n\nx\0");
        broker.round();
        assert_eq!(broker.left().unanswered, 1, "the first has its answer already");
        let before = visited(&broker);
        requesters.iter_mut().for_each(|requester| requester.say(b"DIAG\n\nqueues\0"));
        requesters.iter_mut().chain([&mut first]).for_each(|requester| talk(&mut broker, requester));
        let visits = visited(&broker) - before;
        assert!(
            requesters.iter().all(|requester| requester.rows == QUEUES + 1),
            "somebody does not know the new queue"
        );
        assert!((QUEUES..=QUEUES + 1).contains(&first.rows), "{}", first.rows);
        // Gathered, sorted and written twice.
        assert!(visits < 12 * QUEUES, "{visits} visits");
    }
}

#[test]
fn the_text_of_the_monitor_and_an_answer_about_queues_keep_their_forms() {
    for queues in [1, 1000] {
        let mut broker = broker(Config { writers: 2, ..Config::default() });
        let [mut publisher, mut requester, mut monitor, mut watcher] =
            [0, 1, 0, 0].map(|shard| connect(&mut broker, shard));
        for at in 0..queues {
            publisher.say(format!("SEND\ndestination:/queue/{at}\n\nx\0").as_bytes());
        }
        talk(&mut broker, &mut publisher);
        monitor.say(b"SUBSCRIBE\nid:m\ndestination:/queue/monitor\n\n\0");
        watcher.say(
            format!("SUBSCRIBE\nid:w\ndestination:DIAG/queues\ninterval:{INTERVAL_MS}\n\n\0").as_bytes(),
        );
        talk(&mut broker, &mut monitor);
        talk(&mut broker, &mut watcher);
        broker.pass(INTERVAL_MS);
        broker.seats[0].shard.ask_for_monitor();
        requester.say(b"DIAG\n\nqueues\0");
        publisher.say(b"DIAG\n\nqueues\0");
        for client in [&mut monitor, &mut watcher, &mut requester, &mut publisher] {
            talk(&mut broker, client);
        }
        assert_eq!((requester.rows, publisher.rows), (queues, queues));
        let told = |client: &Client, kind: &str| {
            client.heard().filter(|head| head.starts_with("MESSAGE") && head.contains(kind)).count()
        };
        assert_eq!(told(&monitor, "text/plain"), 1);
        assert!(told(&watcher, "application/json") == 2 && told(&watcher, "text/plain") == 0);
    }
}
