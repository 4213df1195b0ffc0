//! Nanoseconds to decode a frame: `cargo bench -p stompica-proto --bench decode`.
//!
//! Each line is the median of the runs, with the fastest and the slowest, over 64 KiB of equal frames, as from one read.
//! Bodies are not read; only a checksum of their lengths is computed.

use std::hint::black_box;
use std::time::{Duration, Instant};

use stompica_proto::{Decoded, Decoder, HeaderSpan, Limits, Version};

const RUNS: usize = 15;
const RUN: Duration = Duration::from_millis(60);
const READ_BYTES: usize = 64 << 10;

fn main() {
    let body = "x".repeat(117);
    let sends: &[(&str, String)] = &[
        (
            "SEND 117 B, content-length",
            format!("SEND\ndestination:/topic/bench\ncontent-length:117\n\n{body}\0"),
        ),
        ("SEND 117 B, no content-length", format!("SEND\ndestination:/topic/bench\n\n{body}\0")),
        (
            "SEND 117 B, CRLF",
            format!("SEND\r\ndestination:/topic/bench\r\ncontent-length:117\r\n\r\n{body}\0"),
        ),
        (
            "SEND 117 B, wide and escaped headers",
            format!("SEND\ndestination:/topic/b\u{e9}nch\ncontent-length:117\nx:a\\cb\n\n{body}\0"),
        ),
        (
            "SEND 117 B, 8 headers",
            format!(
                "SEND\ndestination:/topic/bench\ncontent-type:application/json\nreceipt:message-12345\n\
                 correlation-id:6ba7b810-9dad-11d1\nreply-to:/temp-queue/answers\npriority:4\nts:1700000000000\n\
                 content-length:117\n\n{body}\0"
            ),
        ),
        ("SEND 16 KiB, content-length", {
            let body = "x".repeat(16 << 10);
            format!("SEND\ndestination:/topic/bench\ncontent-length:{}\n\n{body}\0", body.len())
        }),
    ];
    for (name, frame) in sends {
        report(name, frame.as_bytes(), usize::MAX);
    }
    report("SEND 117 B, each in two pieces", sends[0].1.as_bytes(), 60);
}

/// Prints the cost of one frame. If `cut` is shorter than a frame, each frame arrives in two pieces, split there.
fn report(name: &str, frame: &[u8], cut: usize) {
    let input = frame.repeat((READ_BYTES / frame.len()).max(1));
    let mut spans = Vec::new();
    let mut costs: Vec<f64> = (0..RUNS).map(|_| run(&input, cut, &mut spans)).collect();
    costs.sort_by(f64::total_cmp);
    println!(
        "{name:40} {:7.1} ns a frame ({:.1} to {:.1}), {} bytes",
        costs[RUNS / 2],
        costs[0],
        costs[RUNS - 1],
        frame.len()
    );
}

fn run(input: &[u8], cut: usize, spans: &mut Vec<HeaderSpan>) -> f64 {
    let (mut frames, mut checksum) = (0_u64, 0_usize);
    let begin = Instant::now();
    while begin.elapsed() < RUN {
        let (count, sum) = pass(black_box(input), cut, spans);
        frames += count;
        checksum += sum;
    }
    black_box(checksum);
    begin.elapsed().as_nanos() as f64 / frames as f64
}

fn pass(input: &[u8], cut: usize, spans: &mut Vec<HeaderSpan>) -> (u64, usize) {
    let limits = Limits::default();
    let mut decoder = Decoder::new();
    decoder.connected(Version::V1_2);
    let (mut at, mut frames, mut checksum) = (0, 0, 0);
    while at < input.len() {
        if let Some(piece) = input[at..].get(..cut) {
            let first = decoder.decode(piece, spans, &limits).expect("a good frame");
            assert!(matches!(first, Decoded::Incomplete { consumed: 0, .. }));
        }
        match decoder.decode(&input[at..], spans, &limits).expect("a good frame") {
            Decoded::Frame { frame, consumed } => {
                at += consumed;
                frames += 1;
                checksum += frame.body.len() + frame.spans.len();
            }
            Decoded::Incomplete { .. } => unreachable!("the input ends with a frame"),
        }
    }
    (frames, checksum)
}
