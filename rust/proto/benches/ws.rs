//! Nanoseconds to decode a WebSocket frame: `cargo bench -p stompica-proto --bench ws`.
//!
//! Each line is the median of the runs, with the fastest and the slowest, over 64 KiB of equal frames, as from one read.
//! A pass unmasks the payload in place and the next one masks it again; both forms are ASCII.

use std::hint::black_box;
use std::time::{Duration, Instant};

use stompica_proto::ws::{WsDecoder, WsEvent};

const RUNS: usize = 15;
const RUN: Duration = Duration::from_millis(60);
const READ_BYTES: usize = 64 << 10;

const TEXT: u8 = 0x81;
const BINARY: u8 = 0x82;
const PING: u8 = 0x89;

fn main() {
    for (name, first, len) in [
        ("binary 0 B", BINARY, 0),
        ("binary 117 B", BINARY, 117),
        ("binary 217 B", BINARY, 217),
        ("text 117 B", TEXT, 117),
        ("text 217 B", TEXT, 217),
        ("text 16 KiB", TEXT, 16 << 10),
        ("ping 4 B", PING, 4),
    ] {
        report(name, &frame(first, len));
    }
}

/// A masked frame with `len` bytes of payload.
fn frame(first: u8, len: u16) -> Vec<u8> {
    let mut frame = vec![first];
    match u8::try_from(len) {
        Ok(len @ 0..=125) => frame.push(0x80 | len),
        _ => {
            frame.push(0x80 | 126);
            frame.extend(len.to_be_bytes());
        }
    }
    frame.extend([1, 2, 3, 4]);
    frame.resize(frame.len() + usize::from(len), b'x');
    frame
}

/// Prints the cost of one frame.
fn report(name: &str, frame: &[u8]) {
    let count = (READ_BYTES / frame.len()).max(1);
    let mut input = frame.repeat(count);
    let mut costs: Vec<f64> = (0..RUNS).map(|_| run(&mut input, count)).collect();
    costs.sort_by(f64::total_cmp);
    let (low, middle, high) = (costs[0], costs[RUNS / 2], costs[RUNS - 1]);
    println!("{name:40} {middle:7.1} ns a frame ({low:.1} to {high:.1}), {} bytes", frame.len());
}

fn run(input: &mut [u8], count: usize) -> f64 {
    let (mut frames, mut checksum) = (0, 0);
    let begin = Instant::now();
    while begin.elapsed() < RUN {
        checksum += pass(black_box(input));
        frames += count;
    }
    black_box(checksum);
    begin.elapsed().as_nanos() as f64 / frames as f64
}

fn pass(input: &mut [u8]) -> usize {
    let mut decoder = WsDecoder::new();
    let (mut at, mut checksum) = (0, 0);
    while at < input.len() {
        let (event, consumed) = decoder.decode(&mut input[at..], 1 << 20).expect("good frames");
        checksum += match event {
            WsEvent::Data { payload, .. } => payload.len(),
            WsEvent::Ping(payload) => payload.len(),
            other => unreachable!("not in the input: {other:?}"),
        };
        at += consumed;
    }
    checksum
}
