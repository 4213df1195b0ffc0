//! The amount that one turn reads from sockets and writes to them.

use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering;

use super::SimulatedBroker;
use super::client::Client;
use super::support::{broker, connect, connecting, exchange, fill_memory, messages};
use crate::config::Config;

/// Maximum visits of a turn, including work that it had begun when they were used up.
const VISITS_MAX: usize = 20_000 + 1500;

fn writes(broker: &SimulatedBroker) -> u64 {
    broker.threads[0].shard.turn.counters.writes
}

#[test]
fn one_turn_writes_to_a_limited_number_of_sockets_and_the_next_to_the_others() {
    const READERS: usize = 1100;
    crate::config::raise_descriptor_limit(); // both ends of each connection are in this process
    let mut broker = broker(Config { writers: 1, ..Config::default() });
    let mut publisher = connect(&mut broker, 0);
    // Each has its own id, so that none is a member of a wide group.
    let mut readers: Vec<Client> = (0..READERS).map(|_| connecting(&mut broker, 0)).collect();
    for (at, reader) in readers.iter_mut().enumerate() {
        reader.send(format!("SUBSCRIBE\nid:{at}\ndestination:/topic/a\n\n\0").as_bytes());
    }
    broker.run_until_idle();
    assert_eq!(broker.snapshot().subscriptions, READERS);
    publisher.send(b"SEND\ndestination:/topic/a\n\nx\0");
    let before = writes(&broker);
    broker.turn(0);
    let in_one_turn = writes(&broker) - before;
    assert!((1000..=1024).contains(&in_one_turn), "{in_one_turn} sockets were written to in one turn");
    assert!(broker.threads[0].shard.goes_on());
    broker.turn(0);
    assert_eq!(writes(&broker) - before, READERS as u64);
    for reader in &mut readers {
        reader.read(usize::MAX);
        assert_eq!(reader.bodies, ["x"]);
    }
}

/// Sends as much as the socket accepts.
fn send(mut client: &UnixStream, bytes: &[u8]) -> usize {
    let mut sent = 0;
    while sent < bytes.len()
        && let Ok(taken) = client.write(&bytes[sent..])
    {
        sent += taken;
    }
    sent
}

#[test]
fn the_last_frames_of_several_clients_that_hung_up_are_read_over_several_turns() {
    const PAIR: &str = "BEGIN\ntransaction:t\n\n\0ABORT\ntransaction:t\n\n\0";
    const CLIENTS: usize = 24;
    // So little memory that incomplete frames are read in turns, a part of each.
    let mut broker =
        broker(Config { writers: 1, memory_limit: 1 << 20, heartbeat_ms: (0, 0), ..Config::default() });
    let clients: Vec<UnixStream> = (0..CLIENTS).map(|_| broker.connect(0).expect("sockets")).collect();
    let mut sent = 0;
    for client in &clients {
        _ = socket2::SockRef::from(client).set_send_buffer_size(1 << 20); // or as much as the system allows
        send(
            client,
            b"CONNECT\naccept-version:1.2\nhost:h\n\n\0SEND\ndestination:/topic/a\ncontent-length:6000\n\n",
        );
        send(client, &[b'x'; 5000]);
    }
    broker.run_until_idle();
    let pairs = PAIR.repeat(10_000);
    for client in &clients {
        _ = (&mut &*client).read(&mut [0; 1000]);
        send(client, &[b'x'; 1000]);
        sent += send(client, format!("\0{pairs}").as_bytes()) / PAIR.len();
        client.shutdown(Shutdown::Write).expect("it is open");
    }
    assert!(2 * sent > 2 * VISITS_MAX, "{sent} transactions are too few to show anything");
    let frames_before = broker.threads[0].shard.turn.counters.frames_in;
    let mut most_kept = 0;
    for turn in 1..=1000 {
        let before = broker.visits()[0];
        broker.turn(0);
        let visits = broker.visits()[0] - before;
        assert!(visits < VISITS_MAX, "{visits} visits in turn {turn}");
        let kept =
            broker.threads[0].shard.connections.table.iter().map(|(_, conn)| conn.input.bytes.len()).max();
        most_kept = most_kept.max(kept.unwrap_or_default());
    }
    let frames = broker.threads[0].shard.turn.counters.frames_in - frames_before;
    assert!(frames as usize >= 2 * sent, "{frames} frames of {sent} transactions");
    // At most one read or one frame: the rest stays in the kernel until it can be read.
    assert!(most_kept < 80 << 10, "{most_kept} bytes of one were kept");
    assert_eq!(broker.threads[0].shard.turn.counters.errors, 0);
}

#[test]
fn frames_of_clients_that_hung_up_stay_in_the_kernel_if_too_much_input_is_kept() {
    const CLIENTS: usize = 60;
    const LIMIT: u64 = 4 << 20;
    let config = Config { writers: 1, memory_limit: LIMIT, heartbeat_ms: (0, 0), ..Config::default() };
    let mut broker = broker(config);
    let mut reader = connect(&mut broker, 0);
    reader.send(b"SUBSCRIBE\nid:0\ndestination:/topic/a\n\n\0");
    exchange(&mut broker, &mut reader);
    let frame =
        [&b"SEND\ndestination:/topic/a\ncontent-length:60000\n\n"[..], &[b'x'; 60_000], b"\0"].concat();
    let clients: Vec<UnixStream> = (0..CLIENTS).map(|_| broker.connect(0).expect("sockets")).collect();
    for client in &clients {
        _ = socket2::SockRef::from(client).set_send_buffer_size(1 << 20); // or as much as the system allows
        send(client, b"CONNECT\naccept-version:1.2\nhost:h\n\n\0");
    }
    broker.run_until_idle();
    fill_memory(&broker, true);
    for client in &clients {
        _ = (&mut &*client).read(&mut [0; 1000]);
        assert_eq!(send(client, &frame), frame.len(), "the buffer of the socket is too small");
        client.shutdown(Shutdown::Write).expect("it is open");
    }
    let mut most = 0;
    for _ in 0..1000 {
        broker.turn(0); // at the same time, so that nothing is refused
        most = most.max(broker.shared.totals.unfinished.load(Ordering::Relaxed));
    }
    assert!(most < LIMIT as i64 / 2, "{most} bytes are kept of clients that hung up");
    fill_memory(&broker, false);
    for _ in 0..100 {
        exchange(&mut broker, &mut reader);
        broker.advance_ms(10);
    }
    assert_eq!(messages(&reader), CLIENTS, "frames were lost");
}

#[test]
fn a_request_that_arrives_byte_by_byte_counts_in_full_each_time() {
    let mut broker = broker(Config { writers: 1, ..Config::default() });
    let client = broker.connect(0).expect("sockets");
    send(&client, format!("GET / HTTP/1.1\r\nHost: h\r\nX: {}", "x".repeat(6000)).as_bytes());
    broker.run_until_idle();
    for _ in 0..3 {
        let before = broker.visits()[0];
        send(&client, b"x");
        broker.turn(0);
        let visits = broker.visits()[0] - before;
        assert!(visits >= 8 + 6000 / 512, "{visits} visits for a read, and a head of 6000 bytes");
    }
    drop(client);
    broker.run_until_idle();
    assert_eq!(broker.snapshot().connections, 0);
}

#[test]
fn a_connect_whose_check_is_answered_later_holds_the_frames_behind_it() {
    let mut broker = broker(Config { writers: 1, ..Config::default() });
    broker.threads[0].shard.connections.check_logins_later();
    let mut client = connecting(&mut broker, 0);
    let subscribed = client.expect_receipt();
    client.send(format!("SUBSCRIBE\nid:1\ndestination:/queue/a\nreceipt:{subscribed}\n\n\0").as_bytes());
    client.send(b"SEND\ndestination:/queue/a\n\nx\0");
    broker.run_until_idle();
    client.read(usize::MAX);
    assert_eq!((client.received_frames().count(), broker.snapshot().subscriptions), (0, 0));
    let shard = &mut broker.threads[0].shard;
    let [(key, token)] = shard.connections.unchecked_logins()[..] else { panic!("one waits") };
    shard.connections.login_checked(&mut shard.turn, key, token, Ok(()));
    broker.run_until_idle();
    client.read(usize::MAX);
    assert!(client.received_frames().next().is_some_and(|frame| frame.starts_with("CONNECTED")));
    assert!(client.has_all_receipts() && client.bodies == ["x"]);
}
