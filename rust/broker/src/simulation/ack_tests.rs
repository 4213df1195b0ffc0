//! ACKs and NACKs of more deliveries than one turn can handle.

use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use super::SimulatedBroker;
use crate::config::Config;
use crate::connection::transaction::Committing;

/// Deliveries in flight: more than two turns can handle.
const COUNT: usize = 45_000;
const ACK_TIMEOUT_MS: u64 = 60_000;

/// A broker, a client with deliveries in flight, and a bystander.
struct Fixture {
    broker: SimulatedBroker,
    holder: UnixStream,
    bystander: UnixStream,
    /// The id of the last delivery.
    last: String,
}

fn read(stream: &mut UnixStream) -> String {
    let (mut text, mut buffer) = (Vec::new(), [0; 1 << 16]);
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(len) => text.extend_from_slice(&buffer[..len]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => panic!("{error}"),
        }
    }
    String::from_utf8(text).expect("text")
}

impl Fixture {
    /// Sends all messages to a queue and has them delivered to a subscription with cumulative acknowledgements.
    fn new() -> Self {
        let (redelivery_delay, ack_timeout_ms) = (Duration::ZERO, ACK_TIMEOUT_MS);
        let config = Config { writers: 1, redelivery_delay, ack_timeout_ms, ..Config::default() };
        let mut broker = SimulatedBroker::new(config).expect("polls");
        let [holder, bystander] = [0, 0].map(|shard| broker.connect(shard).expect("sockets"));
        let mut fixture = Fixture { broker, holder, bystander, last: String::new() };
        for client in [&mut fixture.holder, &mut fixture.bystander] {
            client.write_all(CONNECT).expect("room");
        }
        for start in (0..COUNT).step_by(100) {
            let sends = (start..start + 100).map(|at| format!("SEND\ndestination:/queue/a\n\n{at}\0"));
            fixture.bystander.write_all(sends.collect::<String>().as_bytes()).expect("room");
            fixture.broker.round();
        }
        fixture.holder.write_all(SUBSCRIBE).expect("room");
        let text = fixture.receive_all();
        fixture.last =
            text.lines().filter_map(|line| line.strip_prefix("ack:")).next_back().expect("it").into();
        assert_eq!(numbers(&text), (0..COUNT).collect::<Vec<_>>());
        fixture
    }

    /// Everything that the holder receives until the broker is idle.
    fn receive_all(&mut self) -> String {
        let mut text = String::new();
        loop {
            self.broker.run_until_idle();
            match read(&mut self.holder) {
                more if more.is_empty() => return text,
                more => text += &more,
            }
        }
    }

    /// Runs one turn, in which the bystander must get an answer.
    fn turn(&mut self) {
        self.bystander.write_all(b"SEND\ndestination:/topic/none\nreceipt:b\n\n\0").expect("room");
        self.broker.turn(0);
        assert!(read(&mut self.bystander).contains("receipt-id:b"));
    }

    /// Sends a frame and runs turns until its RECEIPT arrives. Returns the number of turns, and everything received.
    fn turns_until_receipt(&mut self, sent: &str) -> (usize, String) {
        self.holder.write_all(sent.as_bytes()).expect("room");
        let mut received = String::new();
        for turns in 1..1000 {
            self.turn();
            received += &read(&mut self.holder);
            if received.contains("receipt-id:r") {
                return (turns, received);
            }
        }
        panic!("no RECEIPT");
    }

    /// Replaces the holder with a new consumer; returns what it receives.
    fn next_consumer(&mut self) -> Vec<usize> {
        self.holder = self.broker.connect(0).expect("sockets");
        self.holder.write_all(&[CONNECT, SUBSCRIBE].concat()).expect("room");
        numbers(&self.receive_all())
    }
}

const CONNECT: &[u8] = b"CONNECT\naccept-version:1.2\nhost:h\n\n\0";
const SUBSCRIBE: &[u8] = b"SUBSCRIBE\nid:0\ndestination:/queue/a\nack:client\nprefetch-count:0\n\n\0";

/// The bodies of the messages in received text.
fn numbers(text: &str) -> Vec<usize> {
    let frames = text.split('\0').filter_map(|frame| frame.trim_start().split_once("\n\n"));
    let messages = frames.filter(|(head, _)| head.starts_with("MESSAGE\n"));
    messages.map(|(_, body)| body.parse().expect("a number")).collect()
}

#[test]
fn an_ack_of_very_many_deliveries_takes_several_turns_and_then_gets_its_receipt() {
    let mut fixture = Fixture::new();
    let (turns, _) = fixture.turns_until_receipt(&format!("ACK\nid:{}\nreceipt:r\n\n\0", fixture.last));
    assert!(turns > 2, "in {turns}");
    assert_eq!(fixture.next_consumer(), [0; 0]);
}

#[test]
fn a_nack_of_very_many_deliveries_takes_several_turns_and_they_are_redelivered_in_order() {
    let mut fixture = Fixture::new();
    let (turns, received) =
        fixture.turns_until_receipt(&format!("NACK\nid:{}\nreceipt:r\n\n\0", fixture.last));
    assert!(turns > 2, "in {turns}");
    let again = received + &fixture.receive_all();
    assert_eq!(numbers(&again), (0..COUNT).collect::<Vec<_>>());
    assert_eq!(again.matches("\ndelivery-count:2\n").count(), COUNT);
}

#[test]
fn deliveries_that_an_unfinished_ack_has_not_reached_are_requeued_when_the_client_disconnects() {
    let mut fixture = Fixture::new();
    fixture.holder.write_all(format!("ACK\nid:{}\nreceipt:r\n\n\0", fixture.last).as_bytes()).expect("room");
    fixture.turn();
    // The broker notices the disconnection when it writes to the connection.
    fixture.holder = fixture.broker.connect(0).expect("sockets");
    fixture.bystander.write_all(format!("SEND\ndestination:/queue/a\n\n{COUNT}\0").as_bytes()).expect("room");
    let left = fixture.next_consumer();
    assert!(left.len() > 1 && left.len() < COUNT, "{} are left", left.len());
    assert!(left.iter().copied().eq(COUNT + 1 - left.len()..=COUNT), "the newest, in order");
}

#[test]
fn deliveries_of_an_unfinished_ack_do_not_time_out() {
    let mut fixture = Fixture::new();
    fixture.holder.write_all(format!("ACK\nid:{}\nreceipt:r\n\n\0", fixture.last).as_bytes()).expect("room");
    fixture.turn();
    fixture.broker.advance_ms(2 * ACK_TIMEOUT_MS);
    let received = fixture.receive_all();
    assert!(received.contains("receipt-id:r") && numbers(&received).is_empty(), "none is delivered again");
    assert_eq!(fixture.next_consumer(), [0; 0]);
}

/// A client of STOMP 1.1 that has got the message 1, then 2, then 1 again, and the `message-id`s of both.
fn message_that_came_again() -> (SimulatedBroker, UnixStream, [String; 2]) {
    let config =
        Config { writers: 1, redelivery_delay: Duration::ZERO, ack_timeout_ms: 1000, ..Config::default() };
    let mut broker = SimulatedBroker::new(config).expect("polls");
    let mut holder = broker.connect(0).expect("sockets");
    holder.write_all(b"CONNECT\naccept-version:1.1\nhost:h\n\n\0").expect("room");
    holder.write_all(SUBSCRIBE).expect("room");
    let send = |broker: &mut SimulatedBroker, holder: &mut UnixStream, body: u32| {
        holder.write_all(format!("SEND\ndestination:/queue/a\n\n{body}\0").as_bytes()).expect("room");
        broker.run_until_idle();
        let text = read(holder);
        (text.lines().find_map(|line| line.strip_prefix("message-id:")).expect("it").to_owned(), text)
    };
    let (first, _) = send(&mut broker, &mut holder, 1);
    broker.advance_ms(600);
    let (second, received) = send(&mut broker, &mut holder, 2);
    broker.advance_ms(500); // the first message is delivered again, behind the second one
    broker.run_until_idle();
    assert_eq!(numbers(&(received + &read(&mut holder))), [2, 1]);
    (broker, holder, [first, second])
}

/// STOMP 1.1 acknowledges by message-id, which a redelivered message keeps: an ACK that comes too late must not cover
/// what was delivered between the two deliveries.
#[test]
fn a_late_ack_of_a_redelivered_message_covers_only_that_message_in_1_1() {
    let (mut broker, mut holder, [first, _]) = message_that_came_again();
    let ack = format!("ACK\nmessage-id:{first}\nsubscription:0\nreceipt:r\n\n\0");
    send_all(&mut broker, &mut holder, &ack);
    assert!(read(&mut holder).contains("receipt-id:r"));
    let mut next = broker.connect(0).expect("sockets");
    drop(holder);
    next.write_all(&[CONNECT, SUBSCRIBE].concat()).expect("room");
    broker.run_until_idle();
    assert!(numbers(&read(&mut next)).contains(&2), "nobody has acknowledged it");
}

/// Seed 37010063: a late NACK refuses what was delivered between the two deliveries, too. The client does not know, and
/// acknowledges that; its ACK must not cover what it has refused, and what came again before.
#[test]
fn an_ack_covers_nothing_else_after_a_late_nack_has_refused_its_message_in_1_1() {
    let (mut broker, mut holder, [first, second]) = message_that_came_again();
    let nack = format!("NACK\nmessage-id:{first}\nsubscription:0\n\n\0");
    send_all(&mut broker, &mut holder, &nack);
    broker.advance_ms(1);
    broker.run_until_idle();
    assert_eq!(numbers(&read(&mut holder)), [1, 2]);
    let ack = format!("ACK\nmessage-id:{second}\nsubscription:0\n\n\0");
    send_all(&mut broker, &mut holder, &ack);
    let mut next = broker.connect(0).expect("sockets");
    drop(holder);
    next.write_all(&[CONNECT, SUBSCRIBE].concat()).expect("room");
    broker.run_until_idle();
    assert_eq!(numbers(&read(&mut next)), [1]);
}

#[test]
fn a_commit_of_an_ack_of_very_many_deliveries_takes_several_turns() {
    let mut fixture = Fixture::new();
    let send = "SEND\ndestination:/topic/none\ntransaction:t\n\n\0";
    let ack = format!("ACK\nid:{}\ntransaction:t\n\n\0", fixture.last);
    let commit = format!("BEGIN\ntransaction:t\n\n\0{send}{ack}{send}COMMIT\ntransaction:t\nreceipt:r\n\n\0");
    let (turns, _) = fixture.turns_until_receipt(&commit);
    assert!(turns > 2, "in {turns}");
    assert_eq!(fixture.next_consumer(), [0; 0]);
}

#[test]
fn deliveries_of_many_subscriptions_are_dropped_over_several_turns() {
    let mut broker = SimulatedBroker::new(Config { writers: 1, ..Config::default() }).expect("polls");
    let [mut holder, mut publisher] = [0, 0].map(|shard| broker.connect(shard).expect("sockets"));
    holder.write_all(CONNECT).expect("room");
    publisher.write_all(CONNECT).expect("room");
    for id in 0..200 {
        let subscribe = format!("SUBSCRIBE\nid:{id}\ndestination:/topic/a\nack:client-individual\n\n\0");
        holder.write_all(subscribe.as_bytes()).expect("room");
        broker.round();
    }
    broker.run_until_idle();
    let before = broker.snapshot().message_bytes;
    let mut delivered = 0;
    for _ in 0..250 {
        publisher.write_all(b"SEND\ndestination:/topic/a\n\nx\0").expect("room");
        broker.run_until_idle();
        while let text = read(&mut holder)
            && !text.is_empty()
        {
            delivered += text.matches("\0").count();
            broker.run_until_idle();
        }
    }
    assert!(delivered >= 50_000, "{delivered}");
    drop(holder);
    let mut held = vec![broker.snapshot().message_bytes];
    while *held.last().expect("one") > before && held.len() < 100 {
        broker.turn(0);
        held.push(broker.snapshot().message_bytes);
    }
    let most = held.windows(2).map(|pair| pair[0] - pair[1]).max().expect("two");
    assert!(most < held[0] / 2, "{held:?}");
}

/// Sends frames as the socket accepts them, with turns in between.
fn send_all(broker: &mut SimulatedBroker, client: &mut UnixStream, frames: &str) {
    let mut left = frames.as_bytes();
    while !left.is_empty() {
        match client.write(left) {
            Ok(taken) => left = &left[taken..],
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
        broker.turn(0);
    }
}

/// A connection rejects in a transaction all but every tenth of its deliveries from a destination, and is lost while
/// the COMMIT takes effect. Returns the numbers of requeued messages and of dead letters.
fn lose_while_a_commit_takes_effect(destination: &str, dead_letters: &str) -> [usize; 2] {
    let config = Config { writers: 1, redelivery_delay: Duration::ZERO, ..Config::default() };
    let mut broker = SimulatedBroker::new(config).expect("polls");
    let [mut holder, mut bystander] = [0, 0].map(|shard| broker.connect(shard).expect("sockets"));
    holder.write_all(CONNECT).expect("room");
    bystander.write_all(CONNECT).expect("room");
    let subscribe = format!(
        "SUBSCRIBE\nid:t\ndestination:/topic/t\n\n\0SUBSCRIBE\nid:0\ndestination:{destination}\n\
        ack:client-individual\nprefetch-count:0\n\n\0"
    );
    send_all(&mut broker, &mut holder, &subscribe);
    let mut received = String::new();
    for start in (0..COUNT).step_by(100) {
        let sends = (start..start + 100).map(|at| format!("SEND\ndestination:{destination}\n\n{at}\0"));
        send_all(&mut broker, &mut bystander, &sends.collect::<String>());
        broker.run_until_idle();
        received += &read(&mut holder);
    }
    let ids: Vec<&str> = received.lines().filter_map(|line| line.strip_prefix("ack:")).collect();
    assert_eq!(ids.len(), COUNT);
    let nacked = ids.iter().enumerate().filter(|(at, _)| at % 10 > 0);
    let nacks = nacked.map(|(_, id)| format!("NACK\nid:{id}\ntransaction:t\nrequeue:false\n\n\0"));
    let begin = "BEGIN\ntransaction:t\n\n\0".to_owned();
    send_all(&mut broker, &mut holder, &(begin + &nacks.collect::<String>()));
    broker.run_until_idle();
    holder.write_all(b"COMMIT\ntransaction:t\n\n\0").expect("room");
    let takes_effect = |broker: &SimulatedBroker| {
        let mut conns = broker.threads[0].shard.connections.table.iter();
        conns.any(|(_, conn)| matches!(conn.committing, Some(Committing::Applying { .. })))
    };
    while !takes_effect(&broker) {
        broker.turn(0);
    }
    // The broker notices the disconnection when it writes to the connection.
    drop(holder);
    bystander.write_all(b"SEND\ndestination:/topic/t\n\nx\0").expect("room");
    for turn in 0..100 {
        let before = broker.visits()[0];
        broker.turn(0);
        let visits = broker.visits()[0] - before;
        assert!(visits < 25_000, "{visits} in turn {turn}");
    }
    assert_eq!((broker.snapshot().connections, broker.snapshot().subscriptions), (1, 0));
    let private = broker.snapshot().queues.iter().filter(|name| name.is_empty()).count();
    assert_eq!(private, 0, "its private queue is removed");
    [destination, dead_letters].map(|name| {
        let mut consumer = broker.connect(0).expect("sockets");
        consumer.write_all(CONNECT).expect("room");
        send_all(&mut broker, &mut consumer, &format!("SUBSCRIBE\nid:0\ndestination:{name}\n\n\0"));
        let mut received = String::new();
        loop {
            broker.run_until_idle();
            match read(&mut consumer) {
                more if more.is_empty() => return received.matches("MESSAGE\n").count(),
                more => received += &more,
            }
        }
    })
}

#[test]
fn the_commit_of_a_lost_connection_takes_effect_over_several_turns() {
    let counts = lose_while_a_commit_takes_effect("/queue/a", "/queue/dlq/a");
    assert_eq!(counts, [COUNT / 10, COUNT - COUNT / 10]);
    let counts = lose_while_a_commit_takes_effect("/topic/a", "/queue/dlq/topic/a");
    assert_eq!(counts, [0, COUNT - COUNT / 10], "a subscription's private queue is removed with it");
}
