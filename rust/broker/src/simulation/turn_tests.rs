//! One client's input neither makes a turn long nor delays the queues of others.

use super::SimulatedBroker;
use super::client::Client;
use super::support::{connect, exchange, messages, names_at_home, turns_until_received};
use crate::config::Config;
use crate::ids::ShardId;
use crate::mail::mailbox::Mail;
use crate::queue::mail::{HomeNote, Note};

const LOGIN: &[u8] = b"CONNECT\naccept-version:1.2\nhost:h\nheart-beat:0,0\n\n\0";
/// Maximum visits of a turn: those that its parts share, a quarter more for the last part, and work begun by then.
const VISITS_MAX: usize = 32_000;
/// Segments of the patterns of [`patterns`]: each is `*` or a name.
const SEGMENTS: usize = 11;

fn broker() -> SimulatedBroker {
    SimulatedBroker::new(Config { writers: 1, heartbeat_ms: (0, 0), ..Config::default() }).expect("a poll")
}

fn client(broker: &mut SimulatedBroker) -> Client {
    let mut client = Client::new(broker.connect(0).expect("sockets"));
    client.send(LOGIN);
    broker.run_until_idle();
    client
}

/// Sends frames and lets the broker handle them.
fn send_all(broker: &mut SimulatedBroker, client: &mut Client, frames: impl Iterator<Item = String>) {
    client.send(frames.collect::<String>().as_bytes());
    broker.run_until_idle();
    while client.read(usize::MAX) {
        broker.run_until_idle();
    }
}

/// Subscriptions to so many patterns that resolving a name under them visits twice as many nodes.
fn patterns(prefix: &str) -> impl Iterator<Item = String> {
    (0..1 << SEGMENTS).map(move |at| {
        let segment = |bit| if at >> bit & 1 == 1 { "/*" } else { "/a" };
        let name: String = (0..SEGMENTS).map(segment).collect();
        format!("SUBSCRIBE\nid:{at}\ndestination:{prefix}{name}/b\n\n\0")
    })
}

/// SENDs to new names that match the patterns except for the last segment.
fn sends_beside(prefix: &'static str, count: usize) -> impl Iterator<Item = String> {
    let name = "/a".repeat(SEGMENTS);
    (0..count).map(move |at| format!("SEND\ndestination:{prefix}{name}/c{at}\n\n\0"))
}

/// Sends a message to a bystander's queue while an attacker's frames are handled. Returns the number of turns until the
/// message arrives, and until the attacker's work is done; none of them may exceed the visits.
fn turns_of(
    broker: &mut SimulatedBroker,
    attacker: &mut Client,
    frames: impl Iterator<Item = String>,
) -> (usize, usize) {
    let mut bystander = client(broker);
    let subscribe = "SUBSCRIBE\nid:0\ndestination:/queue/c\nack:client\n\n\0".to_owned();
    send_all(broker, &mut bystander, std::iter::once(subscribe));
    attacker.send(frames.collect::<String>().as_bytes());
    broker.turn(0);
    attacker.read(usize::MAX);
    bystander.send(b"SEND\ndestination:/queue/c\n\nhello\0");
    let (mut until_received, mut turns) = (0, 0);
    while attacker.read(usize::MAX) | broker.threads[0].shard.goes_on() {
        let before = broker.visits()[0];
        broker.turn(0);
        turns += 1;
        let visits = broker.visits()[0] - before;
        assert!(visits <= VISITS_MAX, "{visits} visits in turn {turns}");
        bystander.read(usize::MAX);
        if until_received == 0 && !bystander.bodies.is_empty() {
            until_received = turns;
        }
    }
    assert_eq!(bystander.bodies, ["hello"]);
    (until_received, turns)
}

/// Checks that a queue delivers soon while an attacker sends to names that many patterns nearly match.
fn check_share_of_turns(prefix: &'static str) {
    let mut broker = broker();
    let mut attacker = client(&mut broker);
    send_all(&mut broker, &mut attacker, patterns(prefix));
    let (until_received, turns) = turns_of(&mut broker, &mut attacker, sends_beside(prefix, 300));
    assert!(turns > 40, "{turns} turns are too few to show anything");
    assert!(until_received <= 4, "{until_received} of {turns} turns");
}

#[test]
fn a_queue_gets_its_share_of_turns_that_another_client_s_input_fills() {
    check_share_of_turns("/topic");
}

#[test]
fn creating_a_queue_counts_the_steps_of_matching_its_patterns() {
    check_share_of_turns("/queue");
}

#[test]
fn messages_for_many_subscriptions_without_credit_do_not_delay_other_queues() {
    const SUBSCRIPTIONS: usize = 3000;
    const MESSAGES: usize = 300;
    let mut broker = broker();
    let mut attacker = client(&mut broker);
    let headers = "ack:client\nprefetch-count:1\n";
    let subscribe = |at| format!("SUBSCRIBE\nid:{at}\ndestination:/topic/u\n{headers}\n\0");
    send_all(&mut broker, &mut attacker, (0..SUBSCRIPTIONS).map(subscribe));
    let before = broker.visits()[0];
    let sends = (0..MESSAGES).map(|_| "SEND\ndestination:/topic/u\n\n\0".to_owned());
    let (until_received, turns) = turns_of(&mut broker, &mut attacker, sends);
    assert!(turns > 40, "{turns} turns are too few to show anything");
    assert!(until_received <= 4, "{until_received} of {turns} turns");
    let visits = (broker.visits()[0] - before) / SUBSCRIPTIONS;
    // Two for each message, and each queue's list doubled its capacity five times.
    assert!((2 * MESSAGES + 50..3 * MESSAGES).contains(&visits), "{visits} visits for each queue");
    // When the connection ends, all messages that wait for it are dropped.
    drop(attacker);
    let mut most = 0;
    while broker.snapshot().message_bytes > 100_000 {
        let before = broker.visits()[0];
        broker.turn(0);
        most = most.max(broker.visits()[0] - before);
    }
    assert!(most <= VISITS_MAX, "{most} visits in one turn");
}

#[test]
fn deliveries_of_queues_do_not_delay_other_mail_between_two_shards() {
    const SUBSCRIPTIONS: usize = 300;
    const MESSAGES: usize = 100_000;
    let config = Config { writers: 2, heartbeat_ms: (0, 0), ..Config::default() };
    let mut broker = SimulatedBroker::new(config).expect("polls");
    let name = names_at_home(&broker, "/queue/", 1).next().expect("one of two");
    let (mut attacker, mut bystander) = (connect(&mut broker, 0), connect(&mut broker, 0));
    bystander.send(b"SUBSCRIBE\nid:0\ndestination:/topic/c\n\n\0");
    exchange(&mut broker, &mut bystander);
    let mut publishers = [connect(&mut broker, 1), connect(&mut broker, 1)];
    publishers[0].send(format!("SEND\ndestination:{name}\n\n\0").repeat(MESSAGES).as_bytes());
    exchange(&mut broker, &mut publishers[0]);
    let subscribe = |at| format!("SUBSCRIBE\nid:{at}\ndestination:{name}\n\n\0");
    attacker.send((0..SUBSCRIPTIONS).map(subscribe).collect::<String>().as_bytes());
    // The consumers' shard is slower than the home.
    for _ in 0..4 {
        broker.turn(0);
        attacker.read(usize::MAX);
        (0..20).for_each(|_| broker.turn(1));
    }
    assert!(messages(&attacker) > 0, "the home has started to deliver");
    let turns = turns_until_received(&mut broker, &mut publishers[1], &mut bystander, &mut [&mut attacker]);
    assert!(turns <= 5, "{turns} turns");
    exchange(&mut broker, &mut attacker);
    assert_eq!(messages(&attacker), MESSAGES, "all are delivered");
}

#[test]
fn many_notes_of_another_shard_are_read_over_several_turns() {
    const NOTES: usize = 30_000;
    let mut broker = SimulatedBroker::new(Config { writers: 2, ..Config::default() }).expect("polls");
    let notes = (0..NOTES).map(|_| Note::from(HomeNote::DropStale)).collect();
    broker.shared.mailboxes[0].post(&mut vec![Mail::Queue(ShardId(1), notes)]);
    let (mut turns, before) = (0, broker.visits()[0]);
    while turns == 0 || broker.threads[0].shard.peers.incoming.has_work() {
        let visits = broker.visits()[0];
        broker.turn(0);
        turns += 1;
        assert!(broker.visits()[0] - visits <= VISITS_MAX, "{} visits", broker.visits()[0] - visits);
    }
    assert!(broker.visits()[0] - before >= NOTES && turns > 4, "{turns} turns");
}

#[test]
fn a_sender_continues_as_soon_as_the_shard_of_its_queue_has_read_what_it_sent() {
    let config = Config { writers: 2, max_input_queue_size: 10, ..Config::default() };
    let mut broker = SimulatedBroker::new(config).expect("polls");
    let name = names_at_home(&broker, "/queue/", 1).next().expect("one of two");
    let mut sender = connect(&mut broker, 0);
    for parked in 0..3 {
        sender.send(format!("SEND\ndestination:{name}\n\n\0").repeat(6).as_bytes());
        broker.turn(0);
        let receipt = sender.expect_receipt();
        sender.send(format!("SEND\ndestination:{name}\nreceipt:{receipt}\n\n\0").as_bytes());
        broker.turn(0);
        assert_eq!(broker.threads[0].shard.turn.counters.parked, parked + 1, "too much is unread");
        exchange(&mut broker, &mut sender);
        assert!(sender.has_all_receipts(), "it waits forever");
    }
}
