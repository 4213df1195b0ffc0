//! HTTP requests that open no WebSocket, and the status of each answer.

use rand::Rng as _;
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom as _;

/// The lines of an upgrade but its request line.
const UPGRADE: &str = "Host: h\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n";

const TABLE: [(u16, &str); 14] = [
    (404, "GET / HTTP/1.1\r\nHost: h\r\n"),
    (404, "GET /elsewhere?a=b HTTP/1.1\r\nHost: h\r\nX: y\r\n"),
    (200, "GET /healthz HTTP/1.1\r\nHost: h\r\n"),
    (200, "HEAD /healthz HTTP/1.1\r\nHost: h\r\n"),
    (200, "GET /readyz HTTP/1.0\r\n"),
    (405, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n"),
    (400, "GET / HTTP/1.1\r\n"),
    (400, "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n"),
    (400, "GET / HTTP/1.1\r\nHost: h\r\nX : y\r\n"),
    (400, "GET /\r\n"),
    (400, "GET / FTP/1.1\r\nHost: h\r\n"),
    (505, "GET / HTTP/2.0\r\nHost: h\r\n"),
    (505, "PRI * HTTP/2.0\r\n"),
    (
        426,
        "GET / HTTP/1.1\r\nHost: h\r\nUpgrade: websocket, h2c\r\nConnection: Upgrade\r\n\
        Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 12\r\n",
    ),
];

/// The request line of an upgrade, what is taken out of the other lines, what is added, and the status.
const UPGRADES: [(u16, &str, &str, &str); 9] = [
    (405, "POST / HTTP/1.1", "", ""),
    (400, "GET / HTTP/1.0", "", ""),
    (400, "GET / HTTP/1.1", "Host: h\r\n", ""),
    (400, "GET / HTTP/1.1", "Connection: Upgrade\r\n", ""),
    (400, "GET / HTTP/1.1", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n", ""),
    (400, "GET / HTTP/1.1", "", "Content-Length: 5\r\n"),
    (426, "GET / HTTP/1.1", "Sec-WebSocket-Version: 13\r\n", ""),
    (403, "GET / HTTP/1.1", "", "Origin: http://evil.example\r\n"),
    (403, "GET / HTTP/1.1", "", "Origin: null\r\n"),
];

/// The longest head of a request that is accepted.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// The largest number of fields.
const FIELDS_MAX: usize = 100;

/// A request that is answered by this status.
pub fn request(random: &mut SmallRng) -> (u16, Vec<u8>) {
    let (status, text) = match random.random_range(0..6) {
        0 | 1 => {
            TABLE.choose(random).map_or((404, String::new()), |(status, text)| (*status, (*text).to_owned()))
        }
        2 | 3 => {
            let (status, line, without, with) = UPGRADES.choose(random).expect("a table that is not empty");
            (*status, format!("{line}\r\n{}{with}", UPGRADE.replace(without, "")))
        }
        4 => {
            // As long as possible, and one byte more.
            let spare = HEAD_BYTES_MAX - "GET / HTTP/1.1\r\nHost: h\r\nX: \r\n\r\n".len();
            let more = random.random_range(0..2);
            let text = format!("GET / HTTP/1.1\r\nHost: h\r\nX: {}\r\n", "x".repeat(spare + more));
            (if more == 0 { 404 } else { 431 }, text)
        }
        _ => {
            let more = random.random_range(0..2);
            let text = format!("GET / HTTP/1.1\r\nHost: h\r\n{}", "A: b\r\n".repeat(FIELDS_MAX - 1 + more));
            (if more == 0 { 404 } else { 431 }, text)
        }
    };
    (status, format!("{text}\r\n").into_bytes())
}

/// The first line of a request that is too long.
pub fn long_line() -> Vec<u8> {
    format!("GET /{}", "x".repeat(HEAD_BYTES_MAX)).into_bytes()
}

/// A part of a request that never ends.
pub fn part(random: &mut SmallRng) -> Vec<u8> {
    let whole = format!("GET /ws HTTP/1.1\r\n{UPGRADE}");
    let len = random.random_range(4..=whole.len());
    whole.as_bytes()[..len].to_vec()
}
