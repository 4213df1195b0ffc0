//! Tests of the outbox against a socket that takes what it is told to.

use super::*;

/// A socket that takes `room` bytes, then would block.
struct Socket {
    room: usize,
    taken: Vec<u8>,
}

impl Socket {
    fn with_room(room: usize) -> Self {
        Socket { room, taken: Vec::new() }
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let before = self.taken.len();
        for slice in slices {
            let count = slice.len().min(self.room);
            self.taken.extend_from_slice(&slice[..count]);
            self.room -= count;
        }
        match self.taken.len() - before {
            0 => Err(io::ErrorKind::WouldBlock.into()),
            count => Ok(count),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn frame(byte: u8, len: usize) -> Vec<u8> {
    vec![byte; len]
}

fn append(outbox: &mut Outbox, pool: &mut ChunkPool, bytes: &[u8]) {
    outbox.append(pool, false, |out| out.extend_from_slice(bytes));
}

fn share(outboxes: &mut [Outbox], pool: &mut ChunkPool, chunk: ChunkId, bytes: &[u8]) {
    let (start, end) = pool.append(chunk, |out| out.extend_from_slice(bytes));
    for outbox in outboxes {
        if outbox.push_shared(pool, chunk, start, end) {
            pool.retain(chunk, 1);
        }
    }
}

#[test]
fn a_burst_to_one_group_is_one_range() {
    let mut pool = ChunkPool::default();
    let mut outboxes = [Outbox::default(), Outbox::default()];
    let chunk = pool.open();
    for byte in 0..100 {
        share(&mut outboxes, &mut pool, chunk, &frame(byte, 10));
    }
    pool.release(chunk);
    for outbox in &mut outboxes {
        assert_eq!((outbox.ranges.len(), outbox.bytes()), (1, 1000));
        let mut socket = Socket::with_room(2000);
        assert_eq!(outbox.flush(&mut pool, &mut socket).expect("takes all"), Flushed::Drained);
        assert_eq!(socket.taken, (0..100).flat_map(|byte| frame(byte, 10)).collect::<Vec<_>>());
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
                taken.extend_from_slice(&socket.taken);
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
    let mut pool = ChunkPool::default();
    let mut outbox = Outbox::default();
    for byte in 0..5 {
        append(&mut outbox, &mut pool, &frame(byte, 300));
    }
    let mut socket = Socket::with_room(350);
    assert_eq!(outbox.flush(&mut pool, &mut socket).expect("short write"), Flushed::Blocked);
    assert_eq!(outbox.cut_unsent(&mut pool), 3);
    outbox.append(&mut pool, true, |out| out.extend_from_slice(b"ERROR"));
    socket.room = 1000;
    assert_eq!(outbox.flush(&mut pool, &mut socket).expect("takes all"), Flushed::Drained);
    let expected = [frame(0, 300), frame(1, 300), b"ERROR".to_vec()].concat();
    assert_eq!(socket.taken, expected);
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn dropping_the_oldest_spares_control_frames_and_the_frame_in_writing() {
    let mut pool = ChunkPool::default();
    let mut outbox = Outbox::default();
    append(&mut outbox, &mut pool, &frame(0, 300));
    append(&mut outbox, &mut pool, &frame(1, 300));
    outbox.append(&mut pool, true, |out| out.extend_from_slice(b"RECEIPT"));
    append(&mut outbox, &mut pool, &frame(2, 300));
    append(&mut outbox, &mut pool, &frame(3, 300));
    let mut socket = Socket::with_room(100);
    assert_eq!(outbox.flush(&mut pool, &mut socket).expect("short write"), Flushed::Blocked);
    assert_eq!(outbox.drop_oldest(&mut pool, 510), 2);
    socket.room = 10_000;
    assert_eq!(outbox.flush(&mut pool, &mut socket).expect("takes all"), Flushed::Drained);
    let told = [&frame(3, 300)[..8], b"dropped:2\n", &frame(3, 300)[8..]].concat();
    assert_eq!(socket.taken, [frame(0, 300), b"RECEIPT".to_vec(), told].concat());
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn what_was_dropped_is_told_once_even_if_the_telling_frame_is_dropped_too() {
    let mut pool = ChunkPool::default();
    let mut outbox = Outbox::default();
    append(&mut outbox, &mut pool, &frame(0, 300));
    let mut socket = Socket::with_room(100);
    outbox.flush(&mut pool, &mut socket).expect("short write");
    for byte in 1..20 {
        append(&mut outbox, &mut pool, &frame(byte, 300));
        outbox.drop_oldest(&mut pool, 600);
        outbox.flush(&mut pool, &mut socket).expect("would block");
    }
    socket.room = 10_000;
    assert_eq!(outbox.flush(&mut pool, &mut socket).expect("takes all"), Flushed::Drained);
    let told = [&frame(19, 300)[..8], b"dropped:18\n", &frame(19, 300)[8..]].concat();
    assert_eq!(socket.taken, [frame(0, 300), told].concat());
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn a_cut_keeps_the_rest_of_a_frame_that_was_copied_out_of_a_large_chunk() {
    let mut pool = ChunkPool::default();
    let mut outboxes = [Outbox::default()];
    let chunk = pool.open();
    for byte in 0..100 {
        share(&mut outboxes, &mut pool, chunk, &frame(byte, 640));
    }
    pool.release(chunk);
    let [outbox] = &mut outboxes;
    let mut socket = Socket::with_room(98 * 640 + 7);
    assert_eq!(outbox.flush(&mut pool, &mut socket).expect("short write"), Flushed::Blocked);
    assert_eq!(outbox.cut_unsent(&mut pool), 1);
    outbox.append(&mut pool, true, |out| out.extend_from_slice(b"ERROR"));
    socket.room = 1000;
    assert_eq!(outbox.flush(&mut pool, &mut socket).expect("takes all"), Flushed::Drained);
    assert_eq!(socket.taken[98 * 640..], [frame(98, 640), b"ERROR".to_vec()].concat());
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn a_lagging_outbox_does_not_pin_a_large_chunk() {
    let mut pool = ChunkPool::default();
    let mut outboxes = [Outbox::default()];
    let chunk = pool.open();
    for byte in 0..100 {
        share(&mut outboxes, &mut pool, chunk, &frame(byte, 640));
    }
    pool.release(chunk);
    let mut socket = Socket::with_room(63_000);
    assert_eq!(outboxes[0].flush(&mut pool, &mut socket).expect("short write"), Flushed::Blocked);
    assert!(pool.held_bytes() < 4_000, "{} bytes are held for 1,000", pool.held_bytes());
    socket.room = 10_000;
    assert_eq!(outboxes[0].flush(&mut pool, &mut socket).expect("takes all"), Flushed::Drained);
    assert_eq!(socket.taken, (0..100).flat_map(|byte| frame(byte, 640)).collect::<Vec<_>>());
}

#[test]
fn more_ranges_than_one_writev_leave_more_to_flush() {
    let mut pool = ChunkPool::default();
    let mut outbox = Outbox::default();
    for number in 0..IOVECS_MAX + 10 {
        outbox.append(&mut pool, number % 2 == 0, |out| out.extend_from_slice(b"0123456789"));
    }
    let mut socket = Socket::with_room(1 << 20);
    assert_eq!(outbox.flush(&mut pool, &mut socket).expect("takes all"), Flushed::More);
    assert_eq!(outbox.flush(&mut pool, &mut socket).expect("takes all"), Flushed::Drained);
    assert_eq!(socket.taken.len(), 10 * (IOVECS_MAX + 10));
}
