//! Tests of the broker as a whole.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use super::*;

#[test]
fn a_panic_in_one_shard_ends_the_broker_and_is_reported() {
    let config = Config { port: 0, writers: 3, ..Config::default() };
    let log = LogQueue::new(100, Level::Info);
    let broker = Broker::start(config, Arc::clone(&log), || ()).expect("a free port");
    broker.shared.mailboxes[1].post(&mut vec![Mail::Panic]);
    let ended = broker.wait(Some(Duration::from_secs(10))).expect("all shards end");
    let failure = ended.expect_err("it did not end in order");
    assert_eq!(failure, "shard 1 panicked (a bug in stompica): a test requested this panic");
    assert!(log.drain(Duration::ZERO).iter().any(|record| record.text == failure));
    assert!(broker.connections().is_empty() && !broker.settle(Duration::from_secs(1)));
}

#[test]
fn every_query_is_answered_in_json_until_the_broker_ends() {
    let config = Config { port: 0, writers: 3, ..Config::default() };
    let broker = Broker::start(config, LogQueue::new(100, Level::Info), || ()).expect("a free port");
    for query in Query::ALL {
        let text = broker.diag(query.name()).expect("an answer");
        serde_json::from_str::<serde_json::Value>(&text).expect("JSON");
    }
    let shards = broker.diag("shards").expect("an answer");
    assert_eq!(shards.matches("\"shard\":").count(), 3);
    assert!(matches!(broker.diag("sessions"), Err(DiagError::Unknown(text)) if text.contains("'sessions'")));
    broker.stop();
    assert_eq!(broker.wait(Some(Duration::from_secs(10))), Some(Ok(())));
    assert_eq!(broker.diag("session"), Err(DiagError::Silent(PATIENCE)));
}

/// A WebSocket frame of a client, with a mask of zeros.
fn masked(opcode: u8, payload: &[u8]) -> Vec<u8> {
    let len = u8::try_from(payload.len()).expect("short");
    [&[0x80 | opcode, 0x80 | len, 0, 0, 0, 0], payload].concat()
}

fn read_until(stream: &mut TcpStream, end: &[u8]) -> Vec<u8> {
    let mut read = Vec::new();
    let mut byte = [0];
    while !read.ends_with(end) && stream.read(&mut byte).expect("bytes in time, and no reset") == 1 {
        read.push(byte[0]);
    }
    read
}

/// A WebSocket session whose client promised a heart-beat every 10 s.
fn open_websocket(broker: &Broker) -> TcpStream {
    let mut stream = TcpStream::connect(broker.address()).expect("a listening broker");
    stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a socket");
    let request = "GET /ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                   Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    stream.write_all(request.as_bytes()).expect("a broker that reads");
    read_until(&mut stream, b"\r\n\r\n");
    let connect = b"CONNECT\naccept-version:1.2\nheart-beat:10000,0\n\n\0";
    stream.write_all(&masked(1, connect)).expect("a broker that reads");
    assert!(read_until(&mut stream, b"\0").windows(9).any(|at| at == b"CONNECTED"));
    stream
}

/// Sends frames and a ping, and returns what is read up to the pong or the end.
fn exchange(stream: &mut TcpStream, frames: &[u8]) -> Vec<u8> {
    stream.write_all(&[frames, &masked(9, b"?")].concat()).expect("a broker that reads");
    read_until(stream, b"\x8a\x01?")
}

#[test]
fn a_clock_that_is_advanced_lets_messages_expire_and_wakes_sleeping_shards() {
    let config = Config { port: 0, writers: 2, ..Config::default() };
    let broker = Broker::start(config, LogQueue::new(100, Level::Info), || ()).expect("a free port");
    let mut stream = TcpStream::connect(broker.address()).expect("a listening broker");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a socket");
    let mut ask = |frames: &str| {
        stream.write_all(frames.as_bytes()).expect("a broker that reads");
        String::from_utf8_lossy(&read_until(&mut stream, b"receipt-id:r\n\n\0")).into_owned()
    };
    let hour_ms = 3_600_000;
    let in_an_hour = crate::door::wall_clock_ms() + hour_ms;
    ask(&format!(
        "CONNECT\naccept-version:1.2\nhost:h\n\n\0\
         SEND\ndestination:/queue/a\nttl:{hour_ms}\n\nttl\0\
         SEND\ndestination:/queue/a\nexpires:{in_an_hour}\n\nexpires\0\
         SEND\ndestination:/queue/a\nreceipt:r\n\nstays\0"
    ));
    let expired = |broker: &Broker| {
        broker.stats().iter().find(|(name, _)| *name == "queue_expired").map_or(0, |(_, count)| *count)
    };
    assert_eq!(expired(&broker), 0);
    broker.advance_clock(Duration::from_secs(3601));
    // No client does anything: the shards have to wake up by themselves.
    let deadline = Instant::now() + Duration::from_secs(20);
    while expired(&broker) < 2 && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(expired(&broker), 2);
    let read = ask(&format!(
        "SEND\ndestination:/queue/a\nexpires:{in_an_hour}\n\nlate\0\
         SUBSCRIBE\ndestination:/queue/a\nid:1\nreceipt:r\n\n\0"
    ));
    let rest = ask("SEND\ndestination:/queue/a\nreceipt:r\n\nlast\0");
    let read = read + &rest + &ask("UNSUBSCRIBE\nid:1\nreceipt:r\n\n\0");
    assert!(read.contains("stays\0") && read.contains("last\0"), "{read}");
    assert!(!read.contains("late\0") && !read.contains("ttl\0"), "{read}");
}

#[test]
fn a_websocket_client_that_only_answers_pings_is_closed_after_ten_intervals() {
    let config = Config { port: 0, writers: 1, ..Config::default() };
    let broker = Broker::start(config, LogQueue::new(100, Level::Info), || ()).expect("a free port");
    let (mut dead, mut living) = (open_websocket(&broker), open_websocket(&broker));
    for _ in 0..6 {
        broker.advance_clock(Duration::from_secs(15));
        assert_eq!(exchange(&mut living, &masked(1, b"\n")), b"\x8a\x01?");
        assert_eq!(exchange(&mut dead, &masked(10, b"")), b"\x8a\x01?", "up to 90 s");
    }
    broker.advance_clock(Duration::from_secs(15));
    assert_eq!(exchange(&mut living, &masked(1, b"\n")), b"\x8a\x01?");
    dead.write_all(&masked(10, b"")).expect("a broker that reads");
    let end = String::from_utf8_lossy(&read_until(&mut dead, b"\0\x88")).into_owned();
    assert!(end.contains("E-HEART-BEAT-TIMEOUT") && end.contains("no STOMP data in 105"), "{end}");
    assert_eq!(exchange(&mut living, &masked(1, b"\n")), b"\x8a\x01?");
}
