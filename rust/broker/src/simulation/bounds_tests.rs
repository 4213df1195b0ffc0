//! Bounds of the work of one turn, and of the memory held for clients that do not read.

use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering;

use super::SimulatedBroker;
use super::client::Client;
use super::support::{fill_memory, remains, send_unread, unsubscribe_most};
use crate::config::{Config, SlowConsumer};
use crate::mail::mailbox::Mail;
use crate::shard::Shared;
use crate::stats::Counters;

const LOGIN: &[u8] = b"CONNECT\naccept-version:1.2\nhost:h\nheart-beat:0,0\n\n\0";
const UPGRADE: &[u8] = b"GET / HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
    Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
/// An empty Ping with a mask of zeros, and its answer.
const PING: &[u8] = &[0x89, 0x80, 0, 0, 0, 0];
const PONG: &[u8] = &[0x8a, 0];
/// Maximum visits of a turn, including work that it had begun when they were used up.
const VISITS_MAX: usize = 20_000 + 1500;

fn broker(config: Config) -> SimulatedBroker {
    SimulatedBroker::new(Config { writers: 1, heartbeat_ms: (0, 0), ..config }).expect("a poll")
}

fn counters(broker: &SimulatedBroker) -> &Counters {
    &broker.threads[0].shard.turn.counters
}

/// Clients that have sent this and read the answers.
fn connect_many(broker: &mut SimulatedBroker, count: usize, greeting: &[u8]) -> Vec<UnixStream> {
    let clients: Vec<UnixStream> = (0..count).map(|_| broker.connect(0).expect("sockets")).collect();
    for mut client in &clients {
        client.write_all(greeting).expect("there is room");
    }
    broker.run_until_idle();
    clients.iter().for_each(|client| drop(read_available(client)));
    clients
}

/// The bytes that are available for a client.
fn read_available(mut client: &UnixStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    _ = client.read_to_end(&mut bytes); // ends with WouldBlock
    bytes
}

/// Sends a piece repeatedly until the socket accepts no more; `sent` bytes of it were sent before.
fn repeat(mut client: &UnixStream, piece: &[u8], sent: &mut usize) {
    let bytes = piece.repeat(8000 / piece.len());
    loop {
        match client.write(&bytes[*sent % bytes.len()..]) {
            Ok(taken) => *sent += taken,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return,
            Err(error) => panic!("the broker has closed: {error}"),
        }
    }
}

/// The same for all clients, from the start of the piece; returns how often it was sent in total.
fn send_all(clients: &[UnixStream], piece: &[u8]) -> usize {
    let times = clients.iter().map(|client| {
        let mut sent = 0;
        repeat(client, piece, &mut sent);
        sent / piece.len()
    });
    times.sum()
}

#[test]
fn every_websocket_frame_counts_as_a_visit() {
    let mut broker = broker(Config::default());
    let clients = connect_many(&mut broker, 60, UPGRADE);
    let sent = send_all(&clients, PING);
    assert!(sent > 2 * VISITS_MAX, "{sent} pings are too few to show anything");
    let pongs = |clients: &[UnixStream]| {
        clients.iter().map(|client| read_available(client).len() / PONG.len()).sum::<usize>()
    };
    broker.turn(0);
    let in_one_turn = pongs(&clients);
    assert!(in_one_turn < VISITS_MAX, "{in_one_turn} frames in one turn");
    broker.run_until_idle();
    assert_eq!(in_one_turn + pongs(&clients), sent);
}

#[test]
fn frames_with_little_effect_count_as_visits() {
    let mut broker = broker(Config::default());
    let clients = connect_many(&mut broker, 150, LOGIN);
    let before = counters(&broker).frames_in;
    let sent = send_all(&clients, b"BEGIN\ntransaction:t\n\n\0ABORT\ntransaction:t\n\n\0");
    assert!(2 * sent > 2 * VISITS_MAX, "{sent} transactions are too few to show anything");
    broker.turn(0);
    let in_one_turn = counters(&broker).frames_in - before;
    assert!(in_one_turn < VISITS_MAX as u64, "{in_one_turn} frames in one turn");
    broker.run_until_idle();
    assert!(counters(&broker).frames_in - before >= 2 * sent as u64);
    assert_eq!(counters(&broker).errors, 0);
}

#[test]
fn timed_out_connections_are_closed_over_several_turns() {
    let mut broker = broker(Config::default());
    let _clients = connect_many(&mut broker, 200, b"CONNECT\n");
    broker.advance_ms(3_600_000);
    broker.turn(0);
    let in_one_turn = counters(&broker).errors;
    assert!((1..100).contains(&in_one_turn), "{in_one_turn} connections were timed out in one turn");
    broker.run_until_idle();
    assert_eq!(counters(&broker).errors, 200);
}

#[test]
fn a_drain_closes_connections_without_subscriptions_over_several_turns() {
    const COUNT: usize = 300;
    let open = |broker: &SimulatedBroker| {
        broker.threads[0].shard.connections.table.iter().filter(|(_, it)| it.life.is_open()).count()
    };
    for waits in [false, true] {
        let mut broker = broker(Config::default());
        let clients = connect_many(&mut broker, COUNT, LOGIN);
        if waits {
            fill_memory(&broker, true);
            let send = b"SEND\ndestination:/queue/a\n\nx\0";
            clients.iter().for_each(|mut client| client.write_all(send).expect("there is room"));
            broker.run_until_idle();
        }
        broker.shared.mailboxes[0].post(&mut vec![Mail::Drain]);
        if waits {
            broker.run_until_idle();
            assert_eq!(open(&broker), COUNT);
            broker.advance_ms(broker.threads[0].shard.turn.config.drain.as_millis() as u64 / 2);
        }
        for _ in 0..100 {
            let before = open(&broker);
            broker.turn(0);
            let closed = before - open(&broker);
            assert!(closed < 200, "{closed} connections closed in one turn");
            assert!(open(&broker) == 0 || broker.threads[0].shard.goes_on());
        }
        assert_eq!(open(&broker), 0);
    }
}

#[test]
fn slow_consumers_are_cut_off_over_several_turns() {
    const COUNT: usize = 300;
    let config =
        Config { outbox_limit: 4 << 10, slow_consumer: SlowConsumer::Disconnect, ..Config::default() };
    let mut broker = broker(config);
    let clients = connect_many(&mut broker, COUNT, LOGIN);
    for (at, mut client) in clients.iter().enumerate() {
        let sent = format!("SUBSCRIBE\nid:{at}\ndestination:/topic/a\n\n\0"); // each is a separate group
        client.write_all(sent.as_bytes()).expect("there is room");
    }
    broker.run_until_idle();
    let publisher = connect_many(&mut broker, 1, LOGIN).pop().expect("one");
    for _ in 0..1000 {
        let sent = format!("SEND\ndestination:/topic/a\n\n{}\0", "x".repeat(1000));
        (&publisher).write_all(sent.as_bytes()).expect("the last turn made room");
        let before = counters(&broker).slow_consumers;
        broker.turn(0);
        let cut_off = counters(&broker).slow_consumers - before;
        assert!(cut_off < 200, "{cut_off} were cut off in one turn");
        if counters(&broker).slow_consumers == COUNT as u64 {
            return;
        }
    }
    panic!("only {} were cut off", counters(&broker).slow_consumers);
}

#[test]
fn unread_answers_leave_half_of_the_memory_to_others() {
    let limit = 4 << 20;
    for websocket in [false, true] {
        let mut broker = broker(Config { memory_limit: limit, ..Config::default() });
        let mut other = Client::new(broker.connect(0).expect("sockets"));
        other.send(LOGIN);
        other.send(b"SUBSCRIBE\nid:0\ndestination:/topic/a\n\n\0");
        let clients = connect_many(&mut broker, 8, if websocket { UPGRADE } else { LOGIN });
        let receipt = format!("SEND\ndestination:/topic/b\nreceipt:{}\n\n\0", "r".repeat(3900));
        let ping = [&[0x89, 0x80 | 125, 0, 0, 0, 0][..], &[b'p'; 125]].concat();
        let mut sent = [0; 8];
        for _ in 0..2000 {
            for (client, sent) in clients.iter().zip(&mut sent) {
                repeat(client, if websocket { &ping } else { receipt.as_bytes() }, sent);
            }
            broker.turn(0);
        }
        let held = broker.snapshot().held_bytes;
        assert!(held < limit as i64 / 8 * 5, "{held} of {limit} bytes are held");
        other.send(b"SEND\ndestination:/topic/a\n\nhello\0");
        broker.run_until_idle();
        assert!(other.read(usize::MAX));
        assert_eq!(other.deliveries.len(), 1);
    }
}

#[test]
fn a_disconnecting_client_that_reads_slowly_gets_all_its_answers() {
    let hour = std::time::Duration::from_secs(3600);
    let config =
        Config { outbox_limit: 32 << 10, slow_consumer: SlowConsumer::Block(hour), ..Config::default() };
    let mut broker = broker(config);
    let publisher = connect_many(&mut broker, 1, LOGIN).pop().expect("one");
    for at in 0..100 {
        let body = "x".repeat(6 << 10);
        let sent = format!("SEND\ndestination:/topic/{at}\nretain:set\n\n{body}\0");
        (&publisher).write_all(sent.as_bytes()).expect("there is room");
        broker.run_until_idle();
    }
    let reader = connect_many(&mut broker, 1, LOGIN).pop().expect("one");
    let sent = b"SUBSCRIBE\nid:0\ndestination:/topic/*\nreceipt:s\n\n\0DISCONNECT\nreceipt:bye\n\n\0";
    (&reader).write_all(sent).expect("there is room");
    let mut last = Vec::new();
    // 600 KiB of retained messages, 2 KiB each time: a minute and a half.
    for _ in 0..500 {
        broker.run_until_idle();
        broker.advance_ms(300);
        let mut piece = [0; 2 << 10];
        match (&reader).read(&mut piece) {
            Ok(0) => break,
            Ok(len) => last.extend_from_slice(&piece[..len]),
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
    }
    let text = String::from_utf8_lossy(&last);
    assert_eq!(text.matches("retained:true").count(), 100);
    assert!(text.contains("receipt-id:s\n") && text.contains("receipt-id:bye\n"));
    assert_eq!(counters(&broker).lost_answers, 0);
}

#[test]
fn stale_and_retained_messages_that_expire_together_are_removed_over_several_turns() {
    const COUNT: usize = 10_000;
    for headers in ["", "retain:set\nttl:60000\n"] {
        let mut broker = broker(Config { ttl_ms: 60_000, ..Config::default() });
        let [mut publisher, mut late] =
            [0; 2].map(|shard| Client::new(broker.connect(shard).expect("sockets")));
        publisher.send(LOGIN);
        late.send(LOGIN);
        for at in 0..COUNT {
            publisher.send(format!("SEND\ndestination:/topic/{at}\n{headers}\nx\0").as_bytes());
        }
        broker.run_until_idle();
        while publisher.read(usize::MAX) {
            broker.run_until_idle();
        }
        let held = |broker: &SimulatedBroker| {
            let Shared { stale, retained, .. } = &*broker.shared;
            stale.count.load(Ordering::Relaxed) + retained.get()
        };
        assert_eq!(held(&broker), COUNT);
        broker.advance_ms(120_000);
        let receipt = late.expect_receipt();
        late.send(format!("SUBSCRIBE\nid:0\ndestination:/topic/>\nreceipt:{receipt}\n\n\0").as_bytes());
        let mut turns = 0;
        while held(&broker) > 0 {
            let (before, visits) = (held(&broker), broker.visits()[0]);
            broker.turn(0);
            turns += 1;
            let (gone, visits) = (before - held(&broker), broker.visits()[0] - visits);
            assert!(
                (1..=2500).contains(&gone) && visits >= gone,
                "{gone} were removed with {visits} visits in turn {turns}"
            );
            assert!(held(&broker) == 0 || broker.threads[0].shard.goes_on());
        }
        broker.run_until_idle();
        late.read(usize::MAX);
        late.check_receipts();
        assert_eq!((late.bodies.len(), counters(&broker).expired), (0, COUNT as u64), "{turns} turns");
    }
}

#[test]
fn messages_that_expire_in_one_queue_are_removed_over_several_turns() {
    const COUNT: u64 = 40_000;
    let mut broker = broker(Config::default());
    let mut publisher = Client::new(broker.connect(0).expect("sockets"));
    publisher.send(LOGIN);
    for at in 0..COUNT {
        publisher.send(format!("SEND\ndestination:/queue/a\nttl:60000\n\n{at}\0").as_bytes());
        if at % 100 == 0 {
            broker.turn(0);
        }
    }
    for _ in 0..COUNT {
        broker.run_until_idle();
        if !publisher.read(usize::MAX) {
            break;
        }
    }
    broker.advance_ms(120_000);
    let mut gone = 0;
    for turn in 1..=1000 {
        let before = counters(&broker).queue_expired;
        broker.turn(0);
        let now = counters(&broker).queue_expired - before;
        assert!(now < 25_000, "{now} were removed in turn {turn}");
        gone += now;
    }
    assert_eq!(gone, COUNT);
}

#[test]
fn a_message_is_delivered_to_many_acknowledging_subscriptions_over_several_turns() {
    const SUBSCRIPTIONS: usize = 9000;
    let mut broker = broker(Config { max_subscriptions: SUBSCRIPTIONS, ..Config::default() });
    let clients = connect_many(&mut broker, 2, LOGIN);
    let subscribe = |at| format!("SUBSCRIBE\nid:{at}\ndestination:/topic/a\nack:client\n\n\0");
    let mut subscribes: Vec<u8> = (0..SUBSCRIPTIONS).flat_map(|at| subscribe(at).into_bytes()).collect();
    while !subscribes.is_empty() {
        let taken = (&clients[0]).write(&subscribes).expect("the last turn made room");
        subscribes.drain(..taken);
        broker.run_until_idle();
    }
    assert_eq!(broker.snapshot().subscriptions, SUBSCRIPTIONS);
    (&clients[1]).write_all(b"SEND\ndestination:/topic/a\n\nx\0").expect("there is room");
    let (mut most, mut delivered) = (0, counters(&broker).deliveries);
    for _ in 0..20 {
        broker.turn(0);
        most = most.max(counters(&broker).deliveries - delivered);
        delivered = counters(&broker).deliveries;
    }
    broker.run_until_idle();
    assert_eq!(counters(&broker).deliveries, SUBSCRIPTIONS as u64);
    assert!(most < 7000, "{most} deliveries in one turn");
}

#[test]
fn removing_many_subscriptions_during_their_initial_replay_takes_linear_time() {
    const COUNT: usize = 2000;
    let hour = std::time::Duration::from_secs(3600);
    let config =
        Config { outbox_limit: 64 << 10, slow_consumer: SlowConsumer::Block(hour), ..Config::default() };
    let mut broker = broker(config);
    let [mut publisher, mut reader] =
        [0; 2].map(|shard| Client::new(broker.connect(shard).expect("sockets")));
    publisher.send(LOGIN);
    reader.send(LOGIN);
    let body = "x".repeat(1000);
    for at in 0..COUNT {
        publisher.send(format!("SEND\ndestination:/topic/{at}\nretain:set\n\n{body}\0").as_bytes());
    }
    broker.run_until_idle();
    while publisher.read(usize::MAX) {
        broker.run_until_idle();
    }
    let subscribe = |at| format!("SUBSCRIBE\nid:{at}\ndestination:/topic/{at}\n\n\0");
    send_unread(&mut broker, &mut reader, &(0..COUNT).map(subscribe).collect::<String>(), COUNT);
    broker.run_until_idle();
    unsubscribe_most(&mut broker, &mut reader, COUNT);
    broker.run_until_idle();
    for _ in 0..10_000 {
        if !reader.read(usize::MAX) {
            break;
        }
        broker.run_until_idle();
    }
    let received = reader.received_frames().filter(|line| line.contains("retained:true"));
    let received: Vec<&str> = received.filter_map(|line| line.split("destination:/topic/").nth(1)).collect();
    let numbers = received.iter().filter_map(|rest| rest.split(' ').next()?.parse::<usize>().ok());
    let mut numbers: Vec<usize> = numbers.filter(remains).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..COUNT).filter(remains).collect::<Vec<_>>());
    assert!(received.len() < COUNT / 10, "{} retained messages were delivered before", received.len());
}
