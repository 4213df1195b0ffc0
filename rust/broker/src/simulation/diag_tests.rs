//! Many diagnostic queries at once: their cost, and who must wait.

use super::SimulatedBroker;
use super::client::Client;
use super::support::{broker, connect, exchange, messages};
use crate::config::Config;

/// Subscriptions with an interval, all of one connection.
const WATCHES: usize = 1000;
/// The interval: so long that it ends only when the test advances the clock.
const INTERVAL_MS: u64 = 600_000;

/// The visits of all shards.
fn visited(broker: &SimulatedBroker) -> usize {
    broker.visits().iter().sum()
}

/// A client with many subscriptions to one destination with an interval; it has read the first answers.
fn watcher(broker: &mut SimulatedBroker) -> Client {
    let mut watcher = connect(broker, 0);
    for at in 0..WATCHES {
        watcher.send(
            format!("SUBSCRIBE\nid:{at}\ndestination:DIAG/session\ninterval:{INTERVAL_MS}\n\n\0").as_bytes(),
        );
    }
    exchange(broker, &mut watcher);
    broker.advance_ms(1);
    exchange(broker, &mut watcher);
    assert_eq!(messages(&watcher), WATCHES);
    watcher
}

fn received(client: &Client, command: &str) -> usize {
    client.received_frames().filter(|head| head.starts_with(command)).count()
}

#[test]
fn answers_that_are_due_together_are_collected_once() {
    for writers in [1, 2] {
        let mut broker = broker(Config { writers, ..Config::default() });
        let mut watcher = watcher(&mut broker);
        for round in 2..5 {
            broker.advance_ms(INTERVAL_MS);
            let before = visited(&broker);
            exchange(&mut broker, &mut watcher);
            let visits = visited(&broker) - before;
            assert_eq!(messages(&watcher), round * WATCHES);
            assert!(visits < 50 * WATCHES, "{visits} visits for {WATCHES} answers");
        }
    }
}

#[test]
fn a_query_waits_only_for_the_current_answer_regardless_of_the_number_of_intervals() {
    for writers in [1, 2] {
        for turns in 0..4 {
            let mut broker = broker(Config { writers, ..Config::default() });
            let mut watcher = watcher(&mut broker);
            let mut requesters = [0; 2].map(|shard| connect(&mut broker, shard));
            broker.advance_ms(INTERVAL_MS);
            (0..turns).for_each(|_| broker.round());
            requesters[0].send(b"DIAG\n\nsession\0");
            requesters[1].send(b"DIAG\n\nmemory\0");
            let (before, mut rounds) = (visited(&broker), 0);
            while requesters.iter().any(|requester| received(requester, "DIAG") == 0) {
                broker.round();
                rounds += 1;
                assert!(rounds < 20, "no answer after {rounds} turns");
                requesters.iter_mut().for_each(|requester| _ = requester.read(usize::MAX));
            }
            let visits = visited(&broker) - before;
            assert!(visits < 20 * WATCHES, "{visits} visits before the answer");
            exchange(&mut broker, &mut watcher);
            assert_eq!(messages(&watcher), 2 * WATCHES);
        }
    }
}

#[test]
fn no_answers_are_collected_for_disconnected_clients() {
    for writers in [1, 2] {
        let mut broker = broker(Config { writers, ..Config::default() });
        let [watcher, other] = [0; 2].map(|_| watcher(&mut broker));
        broker.advance_ms(INTERVAL_MS);
        (0..3).for_each(|_| broker.round());
        let before = visited(&broker);
        drop([watcher, other]);
        broker.run_until_idle();
        let visits = visited(&broker) - before;
        assert!(visits < 50 * WATCHES, "{visits} visits after all have disconnected");
        let left = broker.snapshot();
        assert_eq!((left.unanswered, left.subscriptions, left.connections), (0, 0, 0));
    }
}

#[test]
fn a_subscription_whose_last_answer_is_unsent_gets_no_further_one() {
    for headers in ["", "ack:client\n"] {
        let mut broker = broker(Config { writers: 1, ..Config::default() });
        let mut watcher = connect(&mut broker, 0);
        watcher.send(
            format!("SUBSCRIBE\nid:0\ndestination:DIAG/shards\ninterval:{INTERVAL_MS}\n{headers}\n\0")
                .as_bytes(),
        );
        for _ in 0..200 {
            broker.run_until_idle();
            broker.advance_ms(INTERVAL_MS);
        }
        let waiting: usize = broker.threads[0]
            .shard
            .connections
            .table
            .iter()
            .map(|(_, conn)| conn.output.outbox.bytes())
            .sum();
        assert!(waiting < 1000, "{waiting} bytes wait, more than one answer");
        // When it reads again, it gets answers again.
        exchange(&mut broker, &mut watcher);
        let before = messages(&watcher);
        broker.advance_ms(INTERVAL_MS);
        exchange(&mut broker, &mut watcher);
        assert!(before < 100 && messages(&watcher) == before + 1, "{before}, {}", messages(&watcher));
    }
}

#[test]
fn answers_that_are_due_together_leave_room_for_each_other() {
    let queries = ["shards", "network", "session-size", "memory", "shards", "store"];
    for (writers, interval_ms) in [(1, 100), (2, 100), (1, 60_000)] {
        let mut broker = broker(Config { writers, outbox_limit: 100, ..Config::default() });
        let mut watcher = connect(&mut broker, 0);
        let subscribe = |(id, query): (usize, &&str)| {
            format!("SUBSCRIBE\nid:{id}\ndestination:DIAG/{query}\ninterval:{interval_ms}\n\n\0")
        };
        let subscribes: String = queries.iter().enumerate().map(subscribe).collect();
        watcher.send(subscribes.as_bytes());
        for _ in 0..20 * 100 {
            broker.advance_ms(interval_ms / 100);
            exchange(&mut broker, &mut watcher);
        }
        for (id, query) in queries.iter().enumerate() {
            let header = format!("| subscription:{id} |");
            let count = watcher.received_frames().filter(|head| head.contains(&header)).count();
            assert!((15..=21).contains(&count), "{count} answers to {query} at {interval_ms} ms");
        }
    }
}

#[test]
fn intervals_that_wait_for_a_receipt_are_rarely_visited() {
    let mut broker = broker(Config { writers: 1, outbox_limit: 4 << 10, ..Config::default() });
    let [mut publisher, mut watcher] = [0; 2].map(|shard| connect(&mut broker, shard));
    for at in 0..100 {
        publisher.send(format!("SEND\ndestination:/topic/{at}\nretain:set\n\n{:01000}\0", at).as_bytes());
    }
    exchange(&mut broker, &mut publisher);
    let receipt = watcher.expect_receipt();
    watcher.send(format!("SUBSCRIBE\nid:r\ndestination:/topic/>\nreceipt:{receipt}\n\n\0").as_bytes());
    for at in 0..WATCHES {
        let head = format!("SUBSCRIBE\nid:{at}\ndestination:DIAG/shards\ninterval:{INTERVAL_MS}\n\n\0");
        watcher.send(head.as_bytes());
        broker.round();
    }
    // The client does not read, so that the RECEIPT is not sent.
    broker.round();
    let before = visited(&broker);
    for _ in 0..500 {
        broker.advance_ms(1);
        broker.round();
    }
    let visits = visited(&broker) - before;
    assert!(visits < 20 * WATCHES, "{visits} visits for {WATCHES} in half a second");
    exchange(&mut broker, &mut watcher);
    broker.advance_ms(1000);
    exchange(&mut broker, &mut watcher);
    assert!(messages(&watcher) > 100, "they are answered after it, as far as there is room");
}

#[test]
fn queries_during_a_long_answer_share_the_next_one_which_is_up_to_date() {
    const QUEUES: usize = 30_000;
    const REQUESTERS: usize = 8;
    for writers in [1, 2] {
        let mut broker = broker(Config { writers, ..Config::default() });
        let [mut publisher, mut first] = [0; 2].map(|shard| connect(&mut broker, shard));
        let mut requesters: Vec<Client> = (0..REQUESTERS).map(|_| connect(&mut broker, 0)).collect();
        (0..QUEUES).for_each(|at| publisher.send(format!("SEND\ndestination:/queue/{at}\n\nx\0").as_bytes()));
        exchange(&mut broker, &mut publisher);
        first.send(b"DIAG\n\nqueues\0");
        broker.round();
        publisher.send(b"SEND\ndestination:/queue/new\n\nx\0");
        broker.round();
        assert_eq!(broker.snapshot().unanswered, 1, "the first has its answer already");
        let before = visited(&broker);
        requesters.iter_mut().for_each(|requester| requester.send(b"DIAG\n\nqueues\0"));
        requesters.iter_mut().chain([&mut first]).for_each(|requester| exchange(&mut broker, requester));
        let visits = visited(&broker) - before;
        assert!(
            requesters.iter().all(|requester| requester.rows == QUEUES + 1),
            "an answer lacks the new queue"
        );
        assert!((QUEUES..=QUEUES + 1).contains(&first.rows), "{}", first.rows);
        // Collected, sorted and written twice.
        assert!(visits < 12 * QUEUES, "{visits} visits");
    }
}

#[test]
fn the_monitor_s_text_and_the_answer_about_queues_keep_their_formats() {
    for queues in [1, 1000] {
        let mut broker = broker(Config { writers: 2, ..Config::default() });
        let [mut publisher, mut requester, mut monitor, mut watcher] =
            [0, 1, 0, 0].map(|shard| connect(&mut broker, shard));
        for at in 0..queues {
            publisher.send(format!("SEND\ndestination:/queue/{at}\n\nx\0").as_bytes());
        }
        exchange(&mut broker, &mut publisher);
        monitor.send(b"SUBSCRIBE\nid:m\ndestination:/queue/monitor\n\n\0");
        watcher.send(
            format!("SUBSCRIBE\nid:w\ndestination:DIAG/queues\ninterval:{INTERVAL_MS}\n\n\0").as_bytes(),
        );
        exchange(&mut broker, &mut monitor);
        exchange(&mut broker, &mut watcher);
        broker.advance_ms(INTERVAL_MS);
        broker.threads[0].shard.diag().ask_for_monitor();
        broker.threads[0].shard.settle();
        requester.send(b"DIAG\n\nqueues\0");
        publisher.send(b"DIAG\n\nqueues\0");
        for client in [&mut monitor, &mut watcher, &mut requester, &mut publisher] {
            exchange(&mut broker, client);
        }
        assert_eq!((requester.rows, publisher.rows), (queues, queues));
        let count_of = |client: &Client, kind: &str| {
            client.received_frames().filter(|head| head.starts_with("MESSAGE") && head.contains(kind)).count()
        };
        assert_eq!(count_of(&monitor, "text/plain"), 1);
        assert!(count_of(&watcher, "application/json") == 2 && count_of(&watcher, "text/plain") == 0);
    }
}

#[test]
fn an_outbox_of_few_large_frames_is_counted_with_few_visits() {
    let mut broker = broker(Config { writers: 1, ..Config::default() });
    let (mut reader, mut publisher, mut watcher) =
        (connect(&mut broker, 0), connect(&mut broker, 0), connect(&mut broker, 0));
    reader.send(b"SUBSCRIBE\nid:0\ndestination:/topic/a\n\n\0");
    broker.run_until_idle();
    for _ in 0..100 {
        publisher.send(format!("SEND\ndestination:/topic/a\n\n{}\0", "x".repeat(100_000)).as_bytes());
        broker.run_until_idle();
    }
    let before = visited(&broker);
    watcher.send(b"DIAG\n\nstale\0");
    exchange(&mut broker, &mut watcher);
    let visits = visited(&broker) - before;
    assert!(broker.snapshot().held_bytes > 1 << 20, "the reader's outbox is full");
    assert!(visits < 1000, "{visits} visits");
}

#[test]
fn a_client_that_reads_no_answers_is_not_read_until_it_is_cut_off() {
    const LIMIT: usize = 64 << 10;
    for writers in [1, 2] {
        let mut broker = broker(Config { writers, outbox_limit: LIMIT, ..Config::default() });
        let mut client = connect(&mut broker, 0);
        client.send("DIAG\n\nshards\0".repeat(10_000).as_bytes());
        broker.run_until_idle();
        let connections = broker.threads[0].shard.connections.table.iter();
        let waiting: usize = connections.map(|(_, conn)| conn.output.outbox.bytes()).sum();
        // A turn answers what it has read, as far as its budget allows.
        assert!((LIMIT..2 * LIMIT).contains(&waiting), "{waiting} bytes of answers wait");
        for _ in 0..6 {
            broker.advance_ms(1000);
            broker.run_until_idle();
        }
        exchange(&mut broker, &mut client);
        let last = client.received_frames().last().unwrap_or_default();
        assert!(last.starts_with("ERROR") && last.contains("E-SLOW-CONSUMER"), "{last}");
        assert!(client.is_closed());
    }
}

#[test]
fn a_client_that_reads_gets_answers_behind_messages_that_fill_its_outbox() {
    for writers in [1, 2] {
        let mut broker = broker(Config { writers, outbox_limit: 1000, ..Config::default() });
        let (mut reader, mut publisher) = (connect(&mut broker, 0), connect(&mut broker, 0));
        reader.send(b"SUBSCRIBE\nid:0\ndestination:/topic/a\n\n\0");
        broker.run_until_idle();
        publisher.send(format!("SEND\ndestination:/topic/a\n\n{}\0", "x".repeat(2000)).as_bytes());
        reader.send(b"DIAG\n\nsession-size\0");
        exchange(&mut broker, &mut reader);
        assert_eq!((messages(&reader), received(&reader, "DIAG"), reader.is_closed()), (1, 1, false));
    }
}
