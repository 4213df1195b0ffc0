//! COMMITs of more messages to topics than one turn publishes: no turn becomes longer, others do not wait, and at most
//! one of the messages is being fanned out.

use std::time::Duration;

use super::SimulatedBroker;
use super::client::Client;
use super::support::{broker, connect, exchange, messages, names_at_home, receipts};
use crate::config::{Config, SlowConsumer};

/// Maximum visits of a turn, including work that it had begun when they were used up.
const VISITS_MAX: usize = 25_000;

/// The same settings with publishers that wait an hour for slow consumers, and no heart-beats.
fn blocking(config: Config) -> Config {
    Config { slow_consumer: SlowConsumer::Block(Duration::from_secs(3600)), heartbeat_ms: (0, 0), ..config }
}

/// Sends a transaction of this many messages to a topic, and its COMMIT.
fn commit(broker: &mut SimulatedBroker, client: &mut Client, count: usize, bytes: usize) {
    client.send(b"BEGIN\ntransaction:t\n\n\0");
    let rest = "x".repeat(bytes);
    for at in 0..count {
        client.send(format!("SEND\ndestination:/topic/a\ntransaction:t\n\n{at} {rest}\0").as_bytes());
        if at % 200 == 0 {
            exchange(broker, client);
        }
    }
    exchange(broker, client);
    let receipt = client.expect_receipt();
    client.send(format!("COMMIT\ntransaction:t\nreceipt:{receipt}\n\n\0").as_bytes());
}

/// Commits a large transaction while a client on each shard sends to the same topic in every other turn. Returns the
/// maximum number of visits of a turn.
fn send_beside_a_transaction(shards: usize, subscriber: usize, count: usize) -> usize {
    const ROUNDS: usize = 60;
    let mut broker = broker(Config { writers: shards, heartbeat_ms: (0, 0), ..Config::default() });
    let mut subscriber = connect(&mut broker, subscriber);
    subscriber.send(b"SUBSCRIBE\nid:0\ndestination:/topic/a\n\n\0");
    exchange(&mut broker, &mut subscriber);
    let mut publisher = connect(&mut broker, 0);
    let mut others: Vec<Client> = (0..shards).map(|shard| connect(&mut broker, shard)).collect();
    commit(&mut broker, &mut publisher, count, 0);
    let mut most = 0;
    for _ in 0..ROUNDS {
        for other in &mut others {
            let receipt = other.expect_receipt();
            other.send(format!("SEND\ndestination:/topic/a\nreceipt:{receipt}\n\nother\0").as_bytes());
        }
        // Work that one turn had no time for is done in the next.
        for shard in (0..shards).chain(0..shards) {
            let before = broker.visits()[shard];
            broker.turn(shard);
            most = most.max(broker.visits()[shard] - before);
        }
        subscriber.read(usize::MAX);
        for other in &mut others {
            other.read(usize::MAX);
            other.check_receipts();
        }
    }
    exchange(&mut broker, &mut publisher);
    exchange(&mut broker, &mut subscriber);
    publisher.check_receipts();
    let (theirs, numbers): (Vec<&String>, Vec<&String>) =
        subscriber.bodies.iter().partition(|body| *body == "other");
    assert_eq!(theirs.len(), ROUNDS * shards);
    assert!(numbers.iter().map(|body| body.trim().parse()).eq((0..count).map(Ok)), "lost, or not in order");
    most
}

/// Opens a transaction of very many messages and ends it without effect. Returns the number of turns until they are
/// dropped, and the maximum number dropped in one turn.
fn drop_a_transaction(end: impl FnOnce(Client) -> Option<Client>) -> (usize, i64) {
    const COUNT: usize = 60_000;
    let mut broker = broker(Config { writers: 1, heartbeat_ms: (0, 0), ..Config::default() });
    let mut publisher = connect(&mut broker, 0);
    let before = broker.snapshot().message_bytes;
    publisher.send(b"BEGIN\ntransaction:t\n\n\0");
    for _ in 0..COUNT / 100 {
        publisher.send("SEND\ndestination:/queue/a\ntransaction:t\n\n\0".repeat(100).as_bytes());
        exchange(&mut broker, &mut publisher);
    }
    let held = broker.snapshot().message_bytes - before;
    assert!(held > 100 * COUNT as i64);
    let publisher = end(publisher);
    let (mut turns, mut most) = (0, 0);
    while broker.snapshot().message_bytes - before > held / 100 && turns < 1000 {
        let at_first = broker.snapshot().message_bytes;
        broker.turn(0);
        turns += 1;
        most = most.max(at_first - broker.snapshot().message_bytes);
    }
    drop(publisher);
    (turns, most * COUNT as i64 / held)
}

#[test]
fn a_large_transaction_that_is_aborted_is_dropped_over_several_turns() {
    let (turns, most) = drop_a_transaction(|mut client| {
        client.send(b"ABORT\ntransaction:t\n\n\0");
        Some(client)
    });
    assert!((3..100).contains(&turns) && most <= 25_000, "{most} in one of {turns} turns");
}

#[test]
fn a_large_transaction_whose_connection_ends_is_dropped_over_several_turns() {
    let (turns, most) = drop_a_transaction(|client| {
        drop(client);
        None
    });
    assert!((3..100).contains(&turns) && most <= 25_000, "{most} in one of {turns} turns");
}

#[test]
fn a_transaction_to_one_topic_takes_effect_over_several_turns_without_delaying_others() {
    let most = send_beside_a_transaction(1, 0, 45_000);
    assert!(most < VISITS_MAX, "{most} visits in one turn");
}

#[test]
fn a_transaction_delivered_by_another_shard_does_not_delay_others() {
    let most = send_beside_a_transaction(2, 1, 45_000);
    assert!(most < VISITS_MAX, "{most} visits in one turn");
}

#[test]
fn a_transaction_fans_out_one_message_at_a_time_to_slow_readers() {
    const SUBSCRIPTIONS: usize = 2500;
    const COUNT: usize = 40;
    let mut broker = broker(blocking(Config { writers: 1, outbox_limit: 256 << 10, ..Config::default() }));
    let [mut reader, mut publisher] = [0; 2].map(|shard| connect(&mut broker, shard));
    for at in 0..SUBSCRIPTIONS {
        reader.send(format!("SUBSCRIBE\nid:{at}\ndestination:/topic/a\n\n\0").as_bytes());
        exchange(&mut broker, &mut reader);
    }
    commit(&mut broker, &mut publisher, COUNT, 0);
    let mut most = 0;
    while messages(&reader) < SUBSCRIPTIONS * COUNT {
        broker.round();
        reader.read(100_000);
        assert!(!reader.is_closed(), "it was cut off");
        most = most.max(broker.threads[0].shard.deliveries.fan_outs.held_bytes());
    }
    // A list of groups, and a deferred copy for each subscription.
    assert!(most <= SUBSCRIPTIONS * 64, "{most} bytes for fan-outs");
    exchange(&mut broker, &mut publisher);
    assert_eq!(receipts(&publisher), 1);
}

#[test]
fn a_transaction_that_nearly_fills_memory_is_delivered_on_all_shards() {
    const BODY: usize = 50_000;
    const COUNT: usize = 50;
    let mut broker = broker(blocking(Config { writers: 2, memory_limit: 4 << 20, ..Config::default() }));
    let mut publisher = connect(&mut broker, 0);
    let mut readers: Vec<Client> = (0..4).map(|at| connect(&mut broker, at % 2)).collect();
    for reader in &mut readers {
        for id in 0..6 {
            reader.send(format!("SUBSCRIBE\nid:{id}\ndestination:/topic/a\n\n\0").as_bytes());
        }
        exchange(&mut broker, reader);
    }
    commit(&mut broker, &mut publisher, COUNT, BODY);
    for _ in 0..20_000 {
        broker.round();
        let moved: Vec<bool> = readers.iter_mut().map(|reader| reader.read(usize::MAX)).collect();
        if !moved.contains(&true) && receipts(&publisher) == 1 {
            break;
        }
        publisher.read(usize::MAX);
    }
    publisher.check_receipts();
    assert!(readers.iter().all(|reader| messages(reader) == 6 * COUNT), "some of it is missing");
}

#[test]
fn a_transaction_waits_for_slow_receivers_like_a_send() {
    const COUNT: usize = 2000;
    let config = Config { writers: 1, heartbeat_ms: (0, 0), outbox_limit: 16 << 10, ..Config::default() };
    let mut broker = broker(config);
    // Two members of a group, so that frames are encoded for both at once.
    let mut readers = [0; 2].map(|_| connect(&mut broker, 0));
    for reader in &mut readers {
        reader.send(b"SUBSCRIBE\nid:0\ndestination:/topic/a\n\n\0");
    }
    broker.run_until_idle();
    let mut publisher = connect(&mut broker, 0);
    commit(&mut broker, &mut publisher, COUNT, 4000);
    for _ in 0..100 {
        publisher.send(b"");
        broker.round();
    }
    publisher.read(usize::MAX);
    assert_eq!(receipts(&publisher), 0);
    assert!(!broker.threads[0].shard.goes_on(), "it is idle until a client reads");
    while receipts(&publisher) == 0 {
        readers.iter_mut().for_each(|reader| exchange(&mut broker, reader));
        exchange(&mut broker, &mut publisher);
    }
    readers.iter_mut().for_each(|reader| exchange(&mut broker, reader));
    assert!(readers.iter().all(|reader| messages(reader) == COUNT));
}

#[test]
fn a_transaction_and_a_later_send_reach_a_temporary_queue_in_order() {
    let mut broker = broker(Config { writers: 2, heartbeat_ms: (0, 0), ..Config::default() });
    let (mut owner, mut service) = (connect(&mut broker, 1), connect(&mut broker, 0));
    service.send(b"SUBSCRIBE\nid:0\ndestination:/topic/requests\n\n\0");
    exchange(&mut broker, &mut service);
    owner.send(b"SEND\ndestination:/topic/requests\nreply-to:/temp-queue/x\n\nplease\0");
    exchange(&mut broker, &mut owner);
    exchange(&mut broker, &mut service);
    let address = service.received_frames().find_map(|frame| {
        let (_, rest) = frame.split_once("reply-to:")?;
        rest.split(" | ").next().map(str::to_owned)
    });
    let address = address.expect("a request with an address");
    let send = |headers: &str, body: &str| format!("SEND\ndestination:{address}\n{headers}\n{body}\0");
    let (inside, behind) = (send("transaction:t\n", "first"), send("", "second"));
    let (begin, commit) = ("BEGIN\ntransaction:t\n\n\0", "COMMIT\ntransaction:t\n\n\0");
    service.send(format!("{begin}{inside}{commit}{behind}").as_bytes());
    exchange(&mut broker, &mut service);
    exchange(&mut broker, &mut owner);
    assert_eq!(owner.bodies, ["first", "second"]);
}

#[test]
fn a_message_of_a_transaction_expires_as_many_milliseconds_after_its_send_as_it_says() {
    for (writers, subscriber) in [(1, 0), (2, 0), (2, 1)] {
        let mut broker = broker(Config { writers, heartbeat_ms: (0, 0), ..Config::default() });
        let [mut publisher, mut subscriber] = [0, subscriber].map(|shard| connect(&mut broker, shard));
        subscriber.send(b"SUBSCRIBE\nid:0\ndestination:/topic/a\nack:client\nprefetch-count:1\n\n\0");
        exchange(&mut broker, &mut subscriber);
        publisher.send(b"BEGIN\ntransaction:t\n\n\0SEND\ndestination:/topic/a\ntransaction:t\n\nheld\0");
        publisher.send(b"SEND\ndestination:/topic/a\ntransaction:t\nttl:10000\n\nbrief\0");
        exchange(&mut broker, &mut publisher);
        broker.advance_ms(6_000);
        publisher.send(b"COMMIT\ntransaction:t\n\n\0");
        exchange(&mut broker, &mut publisher);
        exchange(&mut broker, &mut subscriber);
        assert_eq!(subscriber.bodies, ["held"]);
        broker.advance_ms(6_000);
        let ack = format!("ACK\nid:{}\n\n\0", subscriber.deliveries[0].0);
        subscriber.send(ack.as_bytes());
        exchange(&mut broker, &mut subscriber);
        assert_eq!(subscriber.bodies, ["held"], "its time began again at COMMIT");
    }
}

/// Sends a transaction of this many messages, its COMMIT, and one more message to the same name, all at once. Returns
/// the bodies that a consumer gets who subscribes before or behind them.
fn send_behind_a_commit(
    name: &str,
    home: usize,
    (headers, count): (&str, usize),
    early: bool,
) -> Vec<String> {
    let mut broker = broker(Config { writers: 2, heartbeat_ms: (0, 0), ..Config::default() });
    let name = names_at_home(&broker, name, home).next().expect("a name");
    let [mut publisher, mut consumer] = [0, 1].map(|shard| connect(&mut broker, shard));
    let subscribe = format!("SUBSCRIBE\nid:0\ndestination:{name}\n\n\0");
    if early {
        consumer.send(subscribe.as_bytes());
        exchange(&mut broker, &mut consumer);
    }
    let send = |headers: &str, body: usize| format!("SEND\ndestination:{name}\n{headers}\n{body}\0");
    let inside: String = (0..count).map(|body| send(&format!("{headers}transaction:t\n"), body)).collect();
    publisher.send(format!("BEGIN\ntransaction:t\n\n\0{inside}").as_bytes());
    exchange(&mut broker, &mut publisher);
    let behind = send(headers, count);
    publisher.send(format!("COMMIT\ntransaction:t\n\n\0{behind}").as_bytes());
    exchange(&mut broker, &mut publisher);
    if !early {
        consumer.send(subscribe.as_bytes());
    }
    exchange(&mut broker, &mut consumer);
    assert_eq!(broker.audit(), Vec::<String>::new());
    std::mem::take(&mut consumer.bodies)
}

#[test]
fn a_value_sent_behind_a_commit_replaces_the_value_of_the_transaction() {
    for (home, count) in [(0, 1), (1, 1), (0, 20_000), (1, 20_000)] {
        let retained = send_behind_a_commit("/topic/a", home, ("retain:set\n", count), false);
        assert_eq!(retained, [count.to_string()], "home {home}, {count} in the transaction");
    }
}

#[test]
fn a_message_sent_behind_a_commit_follows_it_in_a_worker_topic() {
    for (home, count) in [(0, 1), (1, 1), (0, 20_000), (1, 20_000)] {
        let bodies = send_behind_a_commit("#a", home, ("", count), true);
        let in_order = (0..=count).map(|body| body.to_string());
        assert!(bodies.into_iter().eq(in_order), "home {home}, {count} in the transaction");
    }
}

#[test]
fn a_client_that_ends_behind_a_commit_to_a_worker_topic_gets_its_answers() {
    for (count, end) in
        [(1, "eof"), (20_000, "eof"), (1, "disconnect"), (20_000, "disconnect"), (20_000, "drop")]
    {
        let mut broker = broker(Config { writers: 2, heartbeat_ms: (0, 0), ..Config::default() });
        let name = names_at_home(&broker, "#a", 1).next().expect("a name");
        let [mut publisher, mut consumer] = [0, 1].map(|shard| connect(&mut broker, shard));
        consumer.send(format!("SUBSCRIBE\nid:0\ndestination:{name}\n\n\0").as_bytes());
        exchange(&mut broker, &mut consumer);
        let inside = format!("SEND\ndestination:{name}\ntransaction:t\n\nx\0").repeat(count);
        publisher.send(format!("BEGIN\ntransaction:t\n\n\0{inside}").as_bytes());
        exchange(&mut broker, &mut publisher);
        let receipt = publisher.expect_receipt();
        publisher.send(format!("COMMIT\ntransaction:t\nreceipt:{receipt}\n\n\0").as_bytes());
        match end {
            "eof" => publisher.half_close(),
            "disconnect" => {
                let receipt = publisher.expect_receipt();
                publisher.send(format!("DISCONNECT\nreceipt:{receipt}\n\n\0").as_bytes());
            }
            _ => {
                (0..6).for_each(|_| broker.round());
                drop(publisher);
                exchange(&mut broker, &mut consumer);
                assert!(matches!(consumer.bodies.len(), 0 | 20_000));
                broker.run_until_idle();
                assert_eq!(broker.audit(), Vec::<String>::new());
                continue;
            }
        }
        exchange(&mut broker, &mut publisher);
        exchange(&mut broker, &mut consumer);
        exchange(&mut broker, &mut publisher);
        assert_eq!(
            (receipts(&publisher), publisher.is_closed()),
            (1 + usize::from(end == "disconnect"), true),
            "{end}"
        );
        assert_eq!(consumer.bodies.len(), count);
        assert_eq!(broker.audit(), Vec::<String>::new());
    }
}

#[test]
fn a_subscription_that_begins_while_a_commit_is_applied_gets_its_value() {
    for rounds in 0..12 {
        let mut broker = broker(Config { writers: 3, heartbeat_ms: (0, 0), ..Config::default() });
        let [mut publisher, mut subscriber] = [0, 2].map(|shard| connect(&mut broker, shard));
        let names: Vec<String> = names_at_home(&broker, "/topic/", 1).take(2).collect();
        let [first, name] = &names[..] else { panic!("two names") };
        publisher.send(format!("SEND\ndestination:{first}\nretain:set\n\nfirst\0").as_bytes());
        exchange(&mut broker, &mut publisher);
        let value = format!("SEND\ndestination:{name}\ntransaction:t\nretain:set\n\nvalue\0");
        let rest = "SEND\ndestination:/topic/a\ntransaction:t\n\nx\0".repeat(20_000);
        publisher.send(format!("BEGIN\ntransaction:t\n\n\0{value}{rest}").as_bytes());
        exchange(&mut broker, &mut publisher);
        publisher.send(b"COMMIT\ntransaction:t\n\n\0");
        (0..rounds).for_each(|_| broker.round());
        subscriber.send(format!("SUBSCRIBE\nid:0\ndestination:{name}\n\n\0").as_bytes());
        exchange(&mut broker, &mut subscriber);
        let has_it = !subscriber.bodies.is_empty() && subscriber.bodies.iter().all(|body| body == "value");
        assert!(has_it, "after {rounds} rounds: {:?}", subscriber.bodies);
    }
}

#[test]
fn an_expired_value_of_a_commit_is_counted_once_and_removes_the_old_one() {
    let mut broker = broker(Config { writers: 1, heartbeat_ms: (0, 0), ..Config::default() });
    let mut publisher = connect(&mut broker, 0);
    publisher.send(b"SEND\ndestination:/topic/a\nretain:set\n\nold\0BEGIN\ntransaction:t\n\n\0");
    publisher.send(b"SEND\ndestination:/topic/a\nretain:set\ntransaction:t\nttl:100\n\nnew\0");
    exchange(&mut broker, &mut publisher);
    broker.advance_ms(200);
    publisher.send(b"COMMIT\ntransaction:t\n\n\0");
    exchange(&mut broker, &mut publisher);
    broker.advance_ms(200);
    broker.run_until_idle();
    let expired = broker.threads[0].shard.turn.counters.expired;
    assert_eq!((expired, broker.shared.retained.get()), (1, 0));
}

#[test]
fn the_names_of_open_transactions_are_held_until_these_end() {
    let mut broker = broker(Config { writers: 1, ..Config::default() });
    let [mut client, mut leaving] = [0; 2].map(|shard| connect(&mut broker, shard));
    let before = broker.snapshot().held_bytes;
    let name = |at: usize| format!("{at}{}", "n".repeat(9000));
    for at in 0..20 {
        for client in [&mut client, &mut leaving] {
            client.send(format!("BEGIN\ntransaction:{}\n\n\0", name(at)).as_bytes());
            exchange(&mut broker, client);
        }
    }
    let held = broker.snapshot().held_bytes - before;
    assert!((40 * 9000..40 * 9500).contains(&held), "{held}");
    for at in 0..20 {
        let end = if at % 2 == 0 { "COMMIT" } else { "ABORT" };
        client.send(format!("{end}\ntransaction:{}\n\n\0", name(at)).as_bytes());
        exchange(&mut broker, &mut client);
    }
    leaving.send(b"DISCONNECT\n\n\0");
    exchange(&mut broker, &mut leaving);
    let held = broker.snapshot().held_bytes - before;
    assert!(held < 10_000, "{held}");
}
