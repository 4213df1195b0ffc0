//! That one client's input neither makes a turn long nor keeps the queues of others waiting.

use super::SimulatedBroker;
use super::client::Client;
use super::support::{connect, exchange, messages, names_at_home};
use crate::config::Config;

const LOGIN: &[u8] = b"CONNECT\naccept-version:1.2\nhost:h\nheart-beat:0,0\n\n\0";
/// What a turn may look at: what its parts share, a quarter more for the last of them, and what was begun by then.
const VISITS_MAX: usize = 32_000;
/// Segments that are `*` or a name in the patterns of [`patterns`].
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

/// Says all that and lets the broker do it.
fn send_all(broker: &mut SimulatedBroker, client: &mut Client, frames: impl Iterator<Item = String>) {
    client.send(frames.collect::<String>().as_bytes());
    broker.run_until_idle();
    while client.read(usize::MAX) {
        broker.run_until_idle();
    }
}

/// Subscriptions to so many patterns that a name under them takes a walk through twice as many nodes to look up.
fn patterns(prefix: &str) -> impl Iterator<Item = String> {
    (0..1 << SEGMENTS).map(move |at| {
        let segment = |bit| if at >> bit & 1 == 1 { "/*" } else { "/a" };
        let name: String = (0..SEGMENTS).map(segment).collect();
        format!("SUBSCRIBE\nid:{at}\ndestination:{prefix}{name}/b\n\n\0")
    })
}

/// SENDs to new names that the patterns lead to, but match no further than their last segment.
fn sends_beside(prefix: &'static str, count: usize) -> impl Iterator<Item = String> {
    let name = "/a".repeat(SEGMENTS);
    (0..count).map(move |at| format!("SEND\ndestination:{prefix}{name}/c{at}\n\n\0"))
}

/// Lets somebody send to a queue of its own while an attacker says this, and has it read what comes. Returns the turns
/// until the message is there, and those until the attacker's work is done; none of them may look at too much.
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

#[test]
fn a_queue_has_its_share_of_each_turn_while_the_input_of_another_client_fills_them() {
    let mut broker = broker();
    let mut attacker = client(&mut broker);
    send_all(&mut broker, &mut attacker, patterns("/topic"));
    let (until_received, turns) = turns_of(&mut broker, &mut attacker, sends_beside("/topic", 300));
    assert!(turns > 40, "{turns} turns are too few to show anything");
    assert!(until_received <= 4, "{until_received} of {turns} turns");
}

#[test]
fn new_queues_count_what_it_takes_to_find_their_patterns() {
    let mut broker = broker();
    let mut attacker = client(&mut broker);
    send_all(&mut broker, &mut attacker, patterns("/queue"));
    let (until_received, turns) = turns_of(&mut broker, &mut attacker, sends_beside("/queue", 300));
    assert!(turns > 40, "{turns} turns are too few to show anything");
    assert!(until_received <= 4, "{until_received} of {turns} turns");
}

#[test]
fn messages_that_many_subscriptions_cannot_take_yet_keep_no_other_queue_waiting() {
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
    // Two for each message, and the list of a queue got twice the room five times.
    assert!((2 * MESSAGES + 50..3 * MESSAGES).contains(&visits), "{visits} visits for each queue");
    // With the connection goes all that waits for it.
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
fn deliveries_of_queues_keep_no_other_mail_between_two_shards_waiting() {
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
    // The shard of these consumers is slower than the home.
    for _ in 0..4 {
        broker.turn(0);
        attacker.read(usize::MAX);
        (0..20).for_each(|_| broker.turn(1));
    }
    assert!(messages(&attacker) > 0, "the home has begun to deliver");
    publishers[1].send(b"SEND\ndestination:/topic/c\n\nhello\0");
    broker.turn(1);
    let mut turns = 0;
    while bystander.bodies.is_empty() {
        broker.turn(0);
        turns += 1;
        bystander.read(usize::MAX);
        attacker.read(usize::MAX);
    }
    assert!(turns <= 5, "{turns} turns");
    exchange(&mut broker, &mut attacker);
    assert_eq!(messages(&attacker), MESSAGES, "nothing is left");
}
