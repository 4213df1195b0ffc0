//! Sessions on several shards, and work that takes several turns.

use std::hash::BuildHasher as _;

use stompica_proto::encode::Message;

use super::client::Client;
use super::support::{broker, connecting};
use super::*;
use crate::destination::home_of;
use crate::message::OwnedMessage;
use crate::queue::mail::HomeNote;

#[test]
fn a_session_across_two_shards_leaves_nothing_behind() {
    let mut broker = broker(Config { writers: 2, ..Config::default() });
    let mut clients = [0, 1].map(|shard| connecting(&mut broker, shard));
    let receipt = clients[0].expect_receipt();
    clients[0].send(format!("SUBSCRIBE\nid:0\ndestination:/topic/a\nreceipt:{receipt}\n\n\0").as_bytes());
    broker.run_until_idle();
    assert!(clients[0].read(usize::MAX));
    clients[1].send(b"SEND\ndestination:/topic/a\n\nhello\0");
    broker.run_until_idle();
    assert!(clients[0].read(usize::MAX));
    clients[0].check_receipts();
    assert_eq!(clients[0].deliveries.len(), 1);
    drop(clients);
    broker.run_until_idle();
    let left = broker.snapshot();
    let Snapshot { message_bytes, held_bytes, timers, .. } = left; // the name stays resolved
    assert_eq!(left, Snapshot { message_bytes, held_bytes, timers, ..Snapshot::default() });
}

#[test]
fn login_timeout_counts_from_accept_although_the_shard_was_busy() {
    let mut broker = broker(Config { writers: 2, ..Config::default() });
    let timeout_ms = broker.threads[0].shard.turn.config.login_timeout.as_millis() as u64;
    let mut silent = Client::new(broker.connect(1).expect("sockets"));
    let mut in_time = connecting(&mut broker, 1);
    broker.advance_ms(timeout_ms);
    broker.run_until_idle();
    for client in [&mut silent, &mut in_time] {
        client.read(usize::MAX);
    }
    let told = |client: &Client| client.received_frames().map(str::to_owned).collect::<Vec<_>>();
    assert!(told(&silent)[0].contains("E-LOGIN-TIMEOUT"), "{:?}", told(&silent));
    assert!(told(&in_time)[0].starts_with("CONNECTED"), "{:?}", told(&in_time));
}

#[test]
fn what_came_in_time_counts_although_the_poll_reports_it_late() {
    let mut broker = broker(Config { writers: 1, ..Config::default() });
    let mut clients: Vec<Client> =
        (0..300).map(|_| Client::new(broker.connect(0).expect("sockets"))).collect();
    broker.run_until_idle();
    for client in &mut clients {
        client.send(b"CONNECT\naccept-version:1.2\nhost:h\nheart-beat:10000,0\n\n\0");
    }
    broker.advance_ms(10_000); // login_timeout
    broker.run_until_idle();
    for (at, client) in clients.iter_mut().enumerate().skip(1) {
        assert!(client.read(usize::MAX));
        client.send(if at % 2 == 0 { b"\n" } else { b"SEND\ndestination:/topic/a\n" });
    }
    broker.advance_ms(20_000); // two intervals
    broker.run_until_idle();
    for (at, client) in clients.iter_mut().enumerate().skip(1) {
        client.send(if at % 2 == 0 { b"\n" } else { b"\n\0" });
    }
    broker.advance_ms(10_000); // frame_timeout
    broker.run_until_idle();
    for client in &mut clients {
        client.read(usize::MAX);
    }
    let last = |client: &Client| client.received_frames().last().unwrap_or_default().to_owned();
    assert!(last(&clients[0]).contains("E-HEART-BEAT-TIMEOUT"), "{}", last(&clients[0]));
    let first_ended = clients.iter().skip(1).find(|client| !last(client).starts_with("CONNECTED"));
    assert_eq!(first_ended.map(last), None);
}

/// A client with `count` subscriptions to topics that no other client has.
fn subscriber(broker: &mut SimulatedBroker, number: usize, count: usize, ack: &str) -> Client {
    let mut client = connecting(broker, 0);
    let before = broker.snapshot().subscriptions;
    for at in 0..count {
        client.send(
            format!("SUBSCRIBE\nid:{at}\ndestination:/topic/{number}-{at}\nack:{ack}\n\n\0").as_bytes(),
        );
        broker.turn(0);
    }
    for _ in 0..100 {
        client.send(b""); // bytes that the socket had no room for
        broker.run_until_idle();
    }
    assert_eq!(broker.snapshot().subscriptions, before + count);
    client
}

/// Runs turns until all subscriptions are removed; returns the maximum number removed in one turn.
fn most_removed_at_once(broker: &mut SimulatedBroker) -> usize {
    let mut most = 0;
    for _ in 0..100 {
        let before = broker.snapshot().subscriptions;
        broker.turn(0);
        most = most.max(before - broker.snapshot().subscriptions);
    }
    assert_eq!(broker.snapshot().subscriptions, 0);
    most
}

#[test]
fn connections_that_end_together_are_removed_over_several_turns() {
    for (ack, most_in_one) in [("auto", 9000), ("client", 4000)] {
        let mut broker = broker(Config { writers: 1, ..Config::default() });
        let clients: Vec<_> = (0..12).map(|number| subscriber(&mut broker, number, 1000, ack)).collect();
        drop(clients);
        let most = most_removed_at_once(&mut broker);
        assert!((1000..=most_in_one).contains(&most), "{most} with ack:{ack}");
        assert_eq!(broker.snapshot().connections, 0);
    }
}

#[test]
fn a_drain_closes_connections_over_several_turns() {
    let mut broker = broker(Config { writers: 1, ..Config::default() });
    let clients: Vec<_> = (0..12).map(|number| subscriber(&mut broker, number, 1000, "auto")).collect();
    broker.shared.mailboxes[0].post(&mut vec![Mail::Drain]);
    assert!((1000..=9000).contains(&most_removed_at_once(&mut broker)));
    drop(clients);
}

#[test]
fn a_durable_subscription_gets_no_message_sent_before_it() {
    // Each broker has its own hash seed: in about half of them the clients' shard is not the home.
    for shard in [0, 1].repeat(8) {
        let mut broker = broker(Config { writers: 2, ..Config::default() });
        let [mut publisher, mut subscriber] = [shard; 2].map(|shard| connecting(&mut broker, shard));
        let subscribe =
            |id| format!("SUBSCRIBE\nid:{id}\ndestination:/topic/a\ndurable-subscriber-name:d\n\n\0");
        subscriber.send(subscribe("old").as_bytes());
        broker.run_until_idle();
        // The home of the durable subscription gets no turn meanwhile: it reads the message with the mail about both.
        publisher.send(b"SEND\ndestination:/topic/a\n\ngone\0");
        subscriber.send(b"UNSUBSCRIBE\ndurable-subscriber-name:d\n\n\0");
        subscriber.send(subscribe("new").as_bytes());
        (0..5).for_each(|_| broker.turn(shard));
        broker.run_until_idle();
        publisher.send(b"SEND\ndestination:/topic/a\n\nhere\0");
        broker.run_until_idle();
        assert!(subscriber.read(usize::MAX));
        let new = subscriber.deliveries.iter().filter(|(_, subscription)| subscription == "new").count();
        assert_eq!(new, 1, "on shard {shard}");
    }
}

/// Clients with a session on the first shard.
fn clients<const N: usize>(broker: &mut SimulatedBroker) -> [Client; N] {
    let clients = std::array::from_fn(|_| connecting(broker, 0));
    broker.run_until_idle();
    clients
}

/// Sends many frames, as the broker reads them.
fn send_all(broker: &mut SimulatedBroker, client: &mut Client, frames: impl Iterator<Item = String>) {
    for frame in frames {
        client.send(frame.as_bytes());
    }
    while client.read(usize::MAX) {
        broker.run_until_idle();
    }
    broker.run_until_idle();
}

/// Ends a hundred subscriptions of one connection, by a number of frames, after the RECEIPTs of all SENDs. Returns how many
/// messages they received.
fn bodies_before(leaving_frames: u64, leaving: impl Fn(&mut Client)) -> usize {
    const SUBSCRIPTIONS: usize = 100;
    // Ten topics in turn: less is mailed ahead of a topic with very many subscriptions.
    const TOPICS: usize = 10;
    const MESSAGES: usize = 6000;
    let mut broker = broker(Config { writers: 2, ..Config::default() });
    let mut publisher = connecting(&mut broker, 0);
    let mut subscriber = connecting(&mut broker, 1);
    let subscribe = |at| format!("SUBSCRIBE\nid:{at}\ndestination:/topic/{}\n\n\0", at % TOPICS);
    let subscribes: String = (0..SUBSCRIPTIONS).map(subscribe).collect();
    broker.run_until_idle();
    subscriber.send(subscribes.as_bytes());
    broker.run_until_idle();
    assert_eq!(broker.snapshot().subscriptions, SUBSCRIPTIONS);
    // The subscriber's shard gets no turn meanwhile: then it has more to deliver than one turn can.
    let send = |at| format!("SEND\ndestination:/topic/{}\n\nx\0", at % TOPICS);
    let sends: String = (0..MESSAGES).map(send).collect();
    publisher.send(sends.as_bytes());
    let receipt = publisher.expect_receipt();
    publisher.send(format!("SEND\ndestination:/topic/b\nreceipt:{receipt}\n\n\0").as_bytes());
    while publisher.read(usize::MAX) {
        (0..3).for_each(|_| broker.turn(0));
    }
    publisher.check_receipts();
    leaving(&mut subscriber);
    while broker.snapshot().subscriptions > 0 {
        broker.turn(1);
        subscriber.read(usize::MAX);
    }
    broker.run_until_idle();
    while subscriber.read(usize::MAX) {
        broker.run_until_idle();
    }
    assert_eq!(SUBSCRIPTIONS / TOPICS * MESSAGES, 60_000);
    // A frame that waits is handled several times, but counted once.
    let frames: u64 = broker.threads.iter().map(|thread| thread.shard.turn.counters.frames_in).sum();
    assert_eq!(frames, (2 + SUBSCRIPTIONS + MESSAGES + 1) as u64 + leaving_frames);
    subscriber.bodies.len()
}

#[test]
fn messages_sent_before_an_unsubscribe_reach_the_subscription() {
    let unsubscribe = |at| format!("UNSUBSCRIBE\nid:{at}\n\n\0");
    let leaving = |client: &mut Client| (0..100).for_each(|at| client.send(unsubscribe(at).as_bytes()));
    assert_eq!(bodies_before(100, leaving), 60_000);
}

#[test]
fn messages_sent_before_a_disconnect_reach_the_subscription() {
    assert_eq!(bodies_before(1, |client| client.send(b"DISCONNECT\nreceipt:bye\n\n\0")), 60_000);
}

#[test]
fn stale_messages_of_worker_topics_are_delivered_over_many_turns_in_order() {
    const NAMES: usize = 20_000;
    let config = Config { writers: 1, ttl_ms: 3_600_000, ..Config::default() };
    let mut broker = broker(config);
    let [mut publisher, mut consumer] = clients(&mut broker);
    send_all(
        &mut broker,
        &mut publisher,
        (0..NAMES).map(|at| format!("SEND\ndestination:#w/{at:05}\n\n{at}\0")),
    );
    let waiting = |broker: &SimulatedBroker| broker.shared.stale.count.load(Ordering::Relaxed);
    assert_eq!(waiting(&broker), NAMES);
    let receipt = consumer.expect_receipt();
    consumer.send(format!("SUBSCRIBE\nid:0\ndestination:#w/>\nreceipt:{receipt}\n\n\0").as_bytes());
    publisher.send(format!("SEND\ndestination:#w/{}\n\nnew\0", NAMES - 1).as_bytes());
    let mut turns = 0;
    while waiting(&broker) > 0 {
        let before = waiting(&broker);
        broker.turn(0);
        turns += 1;
        assert!(before.saturating_sub(waiting(&broker)) <= 15_000, "in turn {turns}");
        consumer.read(usize::MAX);
    }
    broker.run_until_idle();
    while consumer.read(usize::MAX) {
        broker.run_until_idle();
    }
    consumer.check_receipts();
    assert!(turns > 2 && consumer.bodies.len() == NAMES + 1, "{turns} turns, {}", consumer.bodies.len());
    let place = |body: &str| consumer.bodies.iter().position(|received| received == body);
    assert!(place(&format!("{}", NAMES - 1)) < place("new"));
}

#[test]
fn the_temporary_queues_of_a_connection_are_removed_over_many_turns() {
    const NAMES: usize = 30_000;
    let mut broker = broker(Config { writers: 1, max_subscriptions: NAMES, ..Config::default() });
    let [mut owner, _] = clients(&mut broker);
    let sends = (0..NAMES).map(|at| format!("SEND\ndestination:/topic/a\nreply-to:/temp-queue/{at}\n\n\0"));
    send_all(&mut broker, &mut owner, sends);
    assert_eq!(broker.snapshot().queues.len(), NAMES);
    drop(owner);
    let mut turns = 0;
    while !broker.snapshot().queues.is_empty() {
        let before = broker.snapshot().queues.len();
        broker.turn(0);
        turns += 1;
        let gone = before - broker.snapshot().queues.len();
        assert!(gone <= 15_000 && turns < 100, "{gone} were removed in turn {turns}");
    }
}

#[test]
fn an_answer_about_many_queues_takes_many_turns_and_ends_with_its_requester() {
    const QUEUES: usize = 30_000;
    for writers in [1, 2] {
        let mut broker = broker(Config { writers, ..Config::default() });
        let [mut publisher, mut requester, mut disconnecting, mut other] = clients(&mut broker);
        let sends = (0..QUEUES).map(|at| format!("SEND\ndestination:/queue/{at}\n\nx\0"));
        send_all(&mut broker, &mut publisher, sends);
        for client in [&mut disconnecting, &mut requester, &mut other] {
            client.send(b"DIAG\n\nqueues\0");
        }
        let receipt = requester.expect_receipt();
        requester.send(format!("SEND\ndestination:/topic/a\nreceipt:{receipt}\n\n\0").as_bytes());
        broker.round();
        assert_eq!(broker.snapshot().unanswered, 3);
        drop(disconnecting);
        let mut turns = 0;
        while broker.snapshot().unanswered > 0 {
            let visits = broker.visits();
            broker.round();
            turns += 1;
            let most = (0..writers).map(|at| broker.visits()[at] - visits[at]).max();
            assert!(most <= Some(25_000) && turns < 200, "{most:?} in turn {turns}");
            requester.read(usize::MAX);
            other.read(usize::MAX);
        }
        assert!(turns >= 2 * QUEUES / 20_000 * 3 / writers, "{turns} turns");
        broker.run_until_idle();
        while requester.read(usize::MAX) | other.read(usize::MAX) {
            broker.run_until_idle();
        }
        requester.check_receipts();
        assert_eq!((requester.rows, other.rows), (QUEUES, QUEUES));
    }
}

#[test]
fn a_stale_message_precedes_the_next_message_of_its_publisher() {
    let (publishers, home, subscribers) = (0, 1, 2);
    let mut broker = broker(Config { writers: 3, ttl_ms: 3_600_000, ..Config::default() });
    let is_at_home =
        |name: &String| home_of(broker.shared.hasher.hash_one(name.as_bytes()), 3) == ShardId(home as u8);
    let name = (0..).map(|at| format!("/topic/{at}")).find(is_at_home).expect("one of three");
    let mut publisher = connecting(&mut broker, publishers);
    let mut subscriber = connecting(&mut broker, subscribers);
    broker.run_until_idle();
    subscriber.send(format!("SUBSCRIBE\nid:0\ndestination:{name}\n\n\0").as_bytes());
    (0..3).for_each(|_| broker.turn(subscribers));
    broker.turn(home);
    // As if the publisher's shard had routed it just before it learned of the subscription.
    let message = Message {
        destination: name.as_bytes(),
        id: b"first",
        headers: b"",
        plain: true,
        expires_ms: 0,
        body: b"",
        sender: 0,
    };
    let stale = HomeNote::Stale(OwnedMessage::new(&message));
    broker.shared.mailboxes[home].add_frames(1);
    broker.shared.mailboxes[home].post(&mut vec![Mail::Queue(ShardId(publishers as u8), vec![stale.into()])]);
    publisher.send(format!("SEND\ndestination:{name}\n\nsecond\0").as_bytes());
    broker.turn(publishers);
    broker.turn(subscribers);
    broker.run_until_idle();
    assert!(subscriber.read(usize::MAX));
    assert_eq!((subscriber.deliveries.len(), subscriber.deliveries[0].0.as_str()), (2, "first"));
}
