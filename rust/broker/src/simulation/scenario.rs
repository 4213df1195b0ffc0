//! A scenario encoded as bytes: clients connect, send frames of all kinds, pause in the middle of a frame, read or stop
//! reading, and disconnect, while the shards take turns in any order and time passes. Every scenario must leave the
//! broker's guarantees intact.
//!
//! The guarantees: no panic; every RECEIPT arrives in order, or the connection ends; after an ERROR nothing follows and
//! the connection ends; the broker becomes idle; and once all clients have disconnected and the queues have been
//! consumed, the broker holds nothing.

use std::fmt::Write as _;
use std::time::Duration;

use super::client::Client;
use super::{SimulatedBroker, Snapshot};
use crate::config::{Config, SlowConsumer};

const CLIENTS_MAX: usize = 6;
const STEPS_MAX: usize = 400;
const DESTINATIONS: [&str; 12] = [
    "/topic/a",
    "/topic/a.b",
    "/queue/a",
    "/queue/b",
    "#w",
    "/temp-queue/t",
    "/temp-topic/t",
    "/queue/monitor",
    "DIAG",
    "/topic/*",
    "/queue/>",
    "/queue/a>",
];
/// Maximum memory of the names above, which remain in each shard's cache of resolved names.
const NAMES_BYTES_MAX: i64 = 2048;
/// Names of durable subscriptions. Each has one destination, so that it can be removed without knowing the scenario.
const DURABLES: [(&str, &str); 2] = [("d0", "/topic/a"), ("d1", "/topic/*")];
const SIZES: [usize; 6] = [0, 1, 100, 3000, 20_000, 70_000];
const VERSIONS: [&str; 3] = ["1.0", "1.1", "1.2"];
const ACKS: [&str; 3] = ["auto", "client", "client-individual"];
const PAUSES_MS: [u64; 6] = [1, 60, 250, 1100, 6000, 70_000];

/// The remaining bytes of the input; after its end, zeros.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn next(&mut self) -> usize {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        usize::from(*first)
    }

    fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.next() % choices.len()]
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

struct Scenario {
    broker: SimulatedBroker,
    clients: Vec<(Client, &'static str)>,
}

/// Settings with which a scenario reaches limits soon, or the usual ones.
fn config(kind: usize) -> Config {
    let mut config = Config {
        writers: 1 + kind % 2,
        publish_timeout: Duration::from_secs(5),
        queue_idle_expiry: Duration::from_secs(10),
        slow_consumer: SlowConsumer::Block(Duration::from_secs(2)),
        ..Config::default()
    };
    if kind & 2 != 0 {
        config.max_deliveries = 2;
        config.ack_timeout_ms = 200;
        config.ttl_ms = 50;
        config.prefetch = 2;
    }
    if kind & 4 != 0 {
        config.outbox_limit = 64 << 10;
        config.memory_limit = 1 << 20;
        config.max_queue_length = 3;
        config.max_subscriptions = 3;
        config.max_transactions = 2;
        config.max_retained = 1;
        config.max_destinations = 40;
    }
    if kind & 8 != 0 {
        config.slow_consumer = SlowConsumer::DropOldest;
        config.max_input_queue_size = 4;
    }
    config
}

/// Runs the scenario that `input` encodes.
///
/// # Panics
/// If the broker violates a guarantee.
pub fn run(input: &[u8]) {
    let mut bytes = Bytes(input);
    let mut scenario =
        Scenario { broker: SimulatedBroker::new(config(bytes.next())).expect("polls"), clients: Vec::new() };
    (0..CLIENTS_MAX / 2).for_each(|_| scenario.connect_client(&mut bytes));
    for _ in 0..STEPS_MAX {
        if bytes.is_empty() {
            break;
        }
        scenario.step(&mut bytes);
    }
    scenario.read_all_answers();
    scenario.disconnect_all();
    scenario.consume_leftovers();
}

impl Scenario {
    fn step(&mut self, bytes: &mut Bytes<'_>) {
        let action = bytes.next();
        match action % 16 {
            0 => self.connect_client(bytes),
            1 if !self.clients.is_empty() => self.disconnect_client(bytes),
            2 => self.broker.round(),
            3 => {
                let shard = bytes.next() % self.broker.shards();
                self.broker.turn(shard);
            }
            4 => {
                let ms = bytes.pick(&PAUSES_MS);
                self.broker.advance_ms(ms);
                self.broker.round();
            }
            5 => {
                let bytes_max = bytes.pick(&[100, 10_000, 1 << 20]);
                if let Some((client, _)) = self.pick_client(bytes) {
                    client.read(bytes_max);
                }
            }
            _ => self.send_frames(action, bytes),
        }
    }

    fn pick_client(&mut self, bytes: &mut Bytes<'_>) -> Option<&mut (Client, &'static str)> {
        let at = bytes.next() % self.clients.len().max(1);
        self.clients.get_mut(at)
    }

    fn connect_client(&mut self, bytes: &mut Bytes<'_>) {
        if self.clients.len() == CLIENTS_MAX {
            return;
        }
        let shard = bytes.next() % self.broker.shards();
        let version = bytes.pick(&VERSIONS);
        let mut client = Client::new(self.broker.connect(shard).expect("sockets"));
        client.send(format!("CONNECT\naccept-version:{version}\nhost:h\n\n\0").as_bytes());
        self.clients.push((client, version));
    }

    fn disconnect_client(&mut self, bytes: &mut Bytes<'_>) {
        let at = bytes.next() % self.clients.len();
        if bytes.next().is_multiple_of(2) {
            self.clients.swap_remove(at);
        } else {
            self.clients[at].0.half_close();
        }
    }

    /// Sends one or more frames of one client, maybe incomplete or followed by garbage.
    fn send_frames(&mut self, action: usize, bytes: &mut Bytes<'_>) {
        let Some((client, version)) = self.pick_client(bytes) else { return };
        let mut frames = Vec::new();
        for _ in 0..=(action / 16) % 3 {
            let frame = frame(action, client, version, bytes);
            frames.extend_from_slice(&frame);
        }
        match (action / 64, action % 16) {
            (_, 15) => {
                let invalid: Vec<u8> = (0..bytes.next() % 32).map(|_| bytes.next() as u8).collect();
                client.send_invalid(&invalid);
            }
            (3, _) => client.send_partially(&frames, bytes.next() % 40),
            _ => client.send(&frames),
        }
    }

    /// All clients read until nothing more arrives; time passes, so that waiting requests time out.
    fn read_all_answers(&mut self) {
        for _ in 0..12 {
            self.read_all();
            self.broker.advance_ms(1000);
        }
        self.read_all();
        self.clients.iter().for_each(|(client, _)| client.check_receipts());
    }

    fn read_all(&mut self) {
        for _ in 0..10_000 {
            self.broker.run_until_idle();
            let mut moved = false;
            for (client, _) in &mut self.clients {
                moved |= client.read(usize::MAX);
            }
            if !moved {
                return;
            }
        }
        panic!("the broker never stops sending");
    }

    /// All clients disconnect; only their messages remain.
    fn disconnect_all(&mut self) {
        self.clients.clear();
        for _ in 0..5 {
            self.broker.run_until_idle();
            self.broker.advance_ms(1000);
        }
        self.broker.run_until_idle();
        let Snapshot { connections, unanswered, .. } = self.broker.snapshot();
        assert_eq!((connections, unanswered), (0, 0), "{:?}", self.broker.snapshot());
    }

    /// A last client consumes all remaining messages; then the broker holds nothing.
    fn consume_leftovers(&mut self) {
        let mut client = Client::new(self.broker.connect(0).expect("sockets"));
        client.send(b"CONNECT\naccept-version:1.2\nhost:h\n\n\0");
        let mut ends = String::new();
        for pattern in ["/queue/>", "/queue/dlq/>"] {
            _ = write!(ends, "SUBSCRIBE\nid:{pattern}\ndestination:{pattern}\n\n\0");
        }
        for (name, destination) in DURABLES {
            _ = write!(ends, "SUBSCRIBE\nid:{name}\ndestination:{destination}\ndurable:true\n\n\0");
            _ = write!(ends, "UNSUBSCRIBE\nid:{name}\ndurable:true\n\n\0");
        }
        for topic in &DESTINATIONS[..2] {
            _ = write!(ends, "SEND\ndestination:{topic}\nretain:remove\n\n\0");
        }
        client.send(ends.as_bytes());
        self.clients.push((client, "1.2"));
        for _ in 0..20 {
            self.read_all();
            self.broker.advance_ms(1000);
        }
        assert!(!self.clients[0].0.is_closed(), "the last client was disconnected");
        self.clients.clear();
        for _ in 0..20 {
            self.broker.run_until_idle();
            self.broker.advance_ms(15_000);
        }
        self.broker.run_until_idle();
        let left = self.broker.snapshot();
        let Snapshot { message_bytes, held_bytes, .. } = left;
        assert_eq!(left, Snapshot { message_bytes, held_bytes, ..Snapshot::default() });
        assert!(message_bytes <= NAMES_BYTES_MAX && held_bytes <= 64 << 10, "{left:?}");
    }
}

/// A frame of the kind that `action` selects.
fn frame(action: usize, client: &mut Client, version: &str, bytes: &mut Bytes<'_>) -> Vec<u8> {
    let options = bytes.next();
    let mut head = String::new();
    let mut body = 0;
    match action % 16 {
        6..=8 => {
            _ = write!(head, "SEND\ndestination:{}\n", bytes.pick(&DESTINATIONS[..9]));
            head.push_str(SEND_HEADERS[options / 2 % SEND_HEADERS.len()]);
            body = bytes.pick(&SIZES);
            _ = writeln!(head, "content-length:{body}");
        }
        9 => subscribe(&mut head, options, bytes),
        10 => {
            let id = bytes.next() % 5;
            match DURABLES.get(id.wrapping_sub(3)) {
                Some((name, _)) => _ = write!(head, "UNSUBSCRIBE\nid:{name}\ndurable:true\n"),
                None => _ = write!(head, "UNSUBSCRIBE\nid:{id}\n"),
            }
        }
        11 | 12 => {
            let (id, subscription) = client.deliveries.pop_front().unwrap_or_default();
            let command = if (options / 2).is_multiple_of(3) { "NACK" } else { "ACK" };
            let name = if version == "1.2" { "id" } else { "message-id" };
            _ = write!(head, "{command}\n{name}:{id}\nsubscription:{subscription}\n");
            if (options / 8).is_multiple_of(3) {
                head.push_str("transaction:t0\n");
            }
        }
        13 => {
            let command =
                ["BEGIN", "COMMIT", "BEGIN", "COMMIT", "ABORT", "DISCONNECT", "DIAG"][bytes.next() % 7];
            _ = writeln!(head, "{command}");
            if command == "DIAG" {
                let query = bytes.pick(&["session", "queues", "shards", "stale"]);
                return format!("DIAG\n\n{query}\0").into_bytes();
            }
            _ = writeln!(head, "transaction:t{}", options / 2 % 2);
        }
        _ => return b"\n".to_vec(),
    }
    if options % 2 == 1 {
        _ = writeln!(head, "receipt:{}", client.expect_receipt());
    }
    head.push('\n');
    let mut frame = head.into_bytes();
    frame.resize(frame.len() + body, b'x');
    frame.push(0);
    frame
}

const SEND_HEADERS: [&str; 16] = [
    "",
    "",
    "",
    "",
    "transaction:t0\n",
    "transaction:t0\n",
    "transaction:t1\n",
    "retain:set\n",
    "retain:remove\n",
    "ttl:100\n",
    "ttl:70000\nmax-exceptions:1\n",
    "reply-to:/temp-queue/t\n",
    "persistent:true\n",
    "retain:set\ntransaction:t0\n",
    "ttl:0\n",
    "x:1\n",
];

fn subscribe(head: &mut String, options: usize, bytes: &mut Bytes<'_>) {
    let id = bytes.next() % 5;
    if let Some((name, destination)) = DURABLES.get(id.wrapping_sub(3)) {
        _ = write!(head, "SUBSCRIBE\nid:{name}\ndestination:{destination}\ndurable:true\n");
    } else {
        _ = write!(head, "SUBSCRIBE\nid:{id}\ndestination:{}\n", bytes.pick(&DESTINATIONS));
    }
    _ = writeln!(head, "ack:{}", ACKS[options / 2 % 3]);
    match options / 8 % 8 {
        0 => head.push_str("prefetch-count:1\n"),
        1 => head.push_str("slow-consumer:drop-newest\n"),
        2 => head.push_str("credit:2,1000\n"),
        3 => head.push_str("max-deliveries:1\nredelivery-delay:0\n"),
        _ => {}
    }
}
#[cfg(test)]
mod tests {
    use super::*;

    /// Pseudo-random bytes, the same for each seed.
    fn random_bytes(seed: u64) -> Vec<u8> {
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        };
        (0..600).map(|_| next()).collect()
    }

    #[test]
    fn random_scenarios_do_not_violate_the_guarantees() {
        for seed in 0..200 {
            let input = random_bytes(seed);
            run(&input);
        }
    }
}
