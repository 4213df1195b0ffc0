//! Tests of the outbox against a scripted socket.

#[path = "model_tests.rs"]
mod model_tests;

use super::*;
use crate::connection::socket::Socket;

fn frame(byte: u8, len: usize) -> Vec<u8> {
    vec![byte; len]
}

fn kind_of(control: bool) -> Kind {
    if control { Kind::Answer } else { Kind::Message }
}

fn append(outbox: &mut Outbox, pool: &mut ChunkPool, bytes: &[u8]) {
    outbox.append(pool, Kind::Message, |out| out.extend_from_slice(bytes));
}

fn share(outboxes: &mut [Outbox], pool: &mut ChunkPool, chunk: ChunkId, bytes: &[u8]) {
    let (start, end) = pool.append(chunk, |out| out.extend_from_slice(bytes));
    for outbox in outboxes {
        if outbox.push_shared(pool, chunk, start, end) {
            pool.retain(chunk, 1);
        }
    }
}

/// Flushes an outbox to a socket that now takes everything.
fn drain(outbox: &mut Outbox, pool: &mut ChunkPool, socket: &mut Socket) {
    socket.script().room = 10_000;
    assert_eq!(outbox.flush(pool, socket).expect("takes all"), Flushed::Drained);
}

/// The frame with a header that reports this number of dropped frames.
fn with_notice(frame: &[u8], dropped: u32) -> Vec<u8> {
    [&frame[..8], format!("dropped:{dropped}\n").as_bytes(), &frame[8..]].concat()
}

/// An outbox with this many frames of 300 bytes: frame n consists of bytes n.
fn with_frames(count: u8) -> (ChunkPool, Outbox) {
    let (mut pool, mut outbox) = (ChunkPool::default(), Outbox::default());
    (0..count).for_each(|byte| append(&mut outbox, &mut pool, &frame(byte, 300)));
    (pool, outbox)
}

/// Outboxes that share 100 frames of this length in one chunk: frame n consists of bytes n.
fn with_shared_burst<const OUTBOXES: usize>(len: usize) -> (ChunkPool, [Outbox; OUTBOXES]) {
    let mut pool = ChunkPool::default();
    let mut outboxes = [(); OUTBOXES].map(|()| Outbox::default());
    let chunk = pool.open();
    for byte in 0..100 {
        share(&mut outboxes, &mut pool, chunk, &frame(byte, len));
    }
    pool.release(chunk);
    (pool, outboxes)
}

#[test]
fn a_burst_to_one_group_is_one_range() {
    let (mut pool, mut outboxes) = with_shared_burst::<2>(10);
    for outbox in &mut outboxes {
        assert_eq!((outbox.ranges.len(), outbox.bytes()), (1, 1000));
        let mut socket = Socket::with_room(2000);
        assert_eq!(outbox.flush(&mut pool, &mut socket).expect("takes all"), Flushed::Drained);
        assert_eq!(socket.script().taken, (0..100).flat_map(|byte| frame(byte, 10)).collect::<Vec<_>>());
    }
    assert_eq!(pool.in_use(), 0, "drained outboxes hold no chunk");
}

#[test]
fn every_interleaving_of_shared_and_private_frames_keeps_order() {
    for pattern in 0..256_u32 {
        for len in [10_usize, 300] {
            let mut pool = ChunkPool::default();
            let mut outbox = [Outbox::default()];
            let chunk = pool.open();
            let mut expected = Vec::new();
            for bit in 0..8_u8 {
                let bytes = frame(bit, len);
                expected.extend_from_slice(&bytes);
                if pattern >> bit & 1 == 1 {
                    share(&mut outbox, &mut pool, chunk, &bytes);
                } else {
                    append(&mut outbox[0], &mut pool, &bytes);
                }
            }
            pool.release(chunk);
            let mut taken = Vec::new();
            loop {
                let mut socket = Socket::with_room(7);
                let flushed = outbox[0].flush(&mut pool, &mut socket).expect("no error");
                taken.extend_from_slice(&socket.script().taken);
                if flushed == Flushed::Drained {
                    break;
                }
            }
            assert_eq!(taken, expected, "pattern {pattern:b}");
            assert_eq!((pool.in_use(), pool.held_bytes()), (0, 0));
        }
    }
}

#[test]
fn a_cut_keeps_the_rest_of_a_frame_in_writing() {
    let (mut pool, mut outbox) = with_frames(5);
    let mut socket = Socket::with_room(350);
    assert_eq!(outbox.flush(&mut pool, &mut socket).expect("short write"), Flushed::Blocked);
    assert_eq!(outbox.cut_unsent(&mut pool), 3);
    outbox.append(&mut pool, Kind::Answer, |out| out.extend_from_slice(b"ERROR"));
    drain(&mut outbox, &mut pool, &mut socket);
    let expected = [frame(0, 300), frame(1, 300), b"ERROR".to_vec()].concat();
    assert_eq!(socket.script().taken, expected);
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn dropping_the_oldest_spares_control_frames_and_the_frame_in_writing() {
    let (mut pool, mut outbox) = with_frames(2);
    outbox.append(&mut pool, Kind::Answer, |out| out.extend_from_slice(b"RECEIPT"));
    append(&mut outbox, &mut pool, &frame(2, 300));
    append(&mut outbox, &mut pool, &frame(3, 300));
    let mut socket = Socket::with_room(100);
    assert_eq!(outbox.flush(&mut pool, &mut socket).expect("short write"), Flushed::Blocked);
    assert_eq!(outbox.drop_oldest(&mut pool, 510), 2);
    drain(&mut outbox, &mut pool, &mut socket);
    let told = with_notice(&frame(3, 300), 2);
    assert_eq!(socket.script().taken, [frame(0, 300), b"RECEIPT".to_vec(), told].concat());
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn drops_are_reported_once_even_if_the_reporting_frame_is_dropped_too() {
    let (mut pool, mut outbox) = with_frames(1);
    let mut socket = Socket::with_room(100);
    outbox.flush(&mut pool, &mut socket).expect("short write");
    for byte in 1..20 {
        append(&mut outbox, &mut pool, &frame(byte, 300));
        outbox.drop_oldest(&mut pool, 600);
        outbox.flush(&mut pool, &mut socket).expect("would block");
    }
    drain(&mut outbox, &mut pool, &mut socket);
    let told = with_notice(&frame(19, 300), 18);
    assert_eq!(socket.script().taken, [frame(0, 300), told].concat());
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn a_cut_keeps_the_rest_of_a_frame_that_was_copied_out_of_a_large_chunk() {
    let (mut pool, [mut outbox]) = with_shared_burst(640);
    let mut socket = Socket::with_room(98 * 640 + 7);
    assert_eq!(outbox.flush(&mut pool, &mut socket).expect("short write"), Flushed::Blocked);
    assert_eq!(outbox.cut_unsent(&mut pool), 1);
    outbox.append(&mut pool, Kind::Answer, |out| out.extend_from_slice(b"ERROR"));
    drain(&mut outbox, &mut pool, &mut socket);
    assert_eq!(socket.script().taken[98 * 640..], [frame(98, 640), b"ERROR".to_vec()].concat());
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn a_lagging_outbox_does_not_pin_a_large_chunk() {
    let (mut pool, [mut outbox]) = with_shared_burst(640);
    let mut socket = Socket::with_room(63_000);
    assert_eq!(outbox.flush(&mut pool, &mut socket).expect("short write"), Flushed::Blocked);
    assert!(pool.held_bytes() < 4_000, "{} bytes are held for 1,000", pool.held_bytes());
    drain(&mut outbox, &mut pool, &mut socket);
    assert_eq!(socket.script().taken, (0..100).flat_map(|byte| frame(byte, 640)).collect::<Vec<_>>());
}

#[test]
fn more_ranges_than_one_writev_leave_more_to_flush() {
    let mut pool = ChunkPool::default();
    let mut outbox = Outbox::default();
    for number in 0..IOVECS_MAX + 10 {
        outbox.append(&mut pool, kind_of(number % 2 == 0), |out| out.extend_from_slice(b"0123456789"));
    }
    let mut socket = Socket::with_room(1 << 20);
    assert_eq!(outbox.flush(&mut pool, &mut socket).expect("takes all"), Flushed::More);
    assert_eq!(outbox.flush(&mut pool, &mut socket).expect("takes all"), Flushed::Drained);
    assert_eq!(socket.script().taken.len(), 10 * (IOVECS_MAX + 10));
}

#[test]
fn a_drop_notice_survives_the_copy_out_of_a_large_chunk() {
    let mut pool = ChunkPool::default();
    let mut outbox = Outbox::default();
    let mut socket = Socket::with_room(0);
    outbox.append(&mut pool, Kind::Answer, |out| out.extend_from_slice(&frame(b'c', 60_000)));
    append(&mut outbox, &mut pool, &frame(1, 300));
    append(&mut outbox, &mut pool, &frame(2, 300));
    assert_eq!(outbox.drop_oldest(&mut pool, 60_300), 1);
    outbox.flush(&mut pool, &mut socket).expect("would block"); // the second frame reports the first
    outbox.append(&mut pool, Kind::Answer, |out| out.extend_from_slice(&frame(b'c', 5_000)));
    append(&mut outbox, &mut pool, &frame(3, 300));
    socket.script().room = 60_000;
    assert_eq!(outbox.flush(&mut pool, &mut socket).expect("short write"), Flushed::Blocked);
    assert_eq!(outbox.drop_oldest(&mut pool, 5_300), 1);
    socket = Socket::with_room(10_000);
    assert_eq!(outbox.flush(&mut pool, &mut socket).expect("takes all"), Flushed::Drained);
    let told = with_notice(&frame(3, 300), 2);
    assert_eq!(socket.script().taken[5_000..], told);
}

#[test]
fn an_outbox_whose_frames_were_all_dropped_holds_no_chunk() {
    let (mut pool, mut outbox) = with_frames(1);
    assert_eq!(outbox.drop_oldest(&mut pool, 100), 1);
    assert_eq!((outbox.bytes(), pool.in_use()), (0, 0));
}

#[test]
fn bytes_of_answers_are_counted_until_they_are_written_or_cut() {
    let mut pool = ChunkPool::default();
    let mut outbox = Outbox::default();
    append(&mut outbox, &mut pool, &frame(1, 100));
    outbox.append(&mut pool, Kind::Answer, |out| out.extend_from_slice(&frame(2, 50)));
    append(&mut outbox, &mut pool, &frame(3, 100));
    outbox.append(&mut pool, Kind::Answer, |out| out.extend_from_slice(&frame(4, 30)));
    assert_eq!((outbox.bytes(), outbox.answer_bytes()), (280, 80));
    outbox.flush(&mut pool, &mut Socket::with_room(120)).expect("takes some");
    assert_eq!((outbox.bytes(), outbox.answer_bytes()), (160, 60));
    outbox.drop_oldest(&mut pool, 0);
    assert_eq!((outbox.bytes(), outbox.answer_bytes()), (60, 60), "they are never dropped to make room");
    outbox.cut_unsent(&mut pool);
    assert_eq!((outbox.bytes(), outbox.answer_bytes()), (30, 30), "the rest of the one in writing stays");
    outbox.clear(&mut pool);
    assert_eq!((outbox.bytes(), outbox.answer_bytes()), (0, 0));
}

#[test]
fn bytes_that_the_socket_holds_back_do_not_count_as_written() {
    let (mut pool, mut outbox) = (ChunkPool::default(), Outbox::default());
    let mut socket = Socket::with_room(150);
    socket.script().holds_back = true;
    append(&mut outbox, &mut pool, &frame(1, 100));
    outbox.mark();
    append(&mut outbox, &mut pool, &frame(2, 100));
    outbox.mark();
    let end = outbox.end();
    assert_eq!(outbox.flush(&mut pool, &mut socket).expect("takes some"), Flushed::Blocked);
    assert_eq!((outbox.bytes(), outbox.written(), outbox.take_passed()), (50, 0, 0));
    socket.script().holds_back = false;
    socket.script().room = 20;
    assert_eq!(outbox.flush(&mut pool, &mut socket).expect("takes some"), Flushed::Blocked);
    assert_eq!((outbox.bytes(), outbox.written(), outbox.take_passed()), (30, 170, 1));
    socket.script().holds_back = true;
    socket.script().room = 100;
    assert_eq!(outbox.flush(&mut pool, &mut socket).expect("takes the rest"), Flushed::Blocked);
    assert!(outbox.is_empty() && !outbox.has_passed(end), "the last frame is not written yet");
    socket.script().holds_back = false;
    assert_eq!(outbox.flush(&mut pool, &mut socket).expect("passes on"), Flushed::Drained);
    assert!(outbox.has_passed(end));
    assert_eq!((outbox.written(), outbox.take_passed()), (200, 1));
}
