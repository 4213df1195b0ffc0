//! Tests of the outbox against a scripted socket.

use proptest::prelude::*;

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

// Write markers, gaps and cuts, compared with a plain list of frames.

/// One frame of the list.
struct Waiting {
    bytes: Vec<u8>,
    control: bool,
    /// The number of dropped messages that it reports.
    told: u32,
    /// A write marker follows it.
    marked: bool,
}

/// The expected behaviour of an outbox.
#[derive(Default)]
struct Model {
    frames: VecDeque<Waiting>,
    /// Bytes of the first frame that were taken.
    taken: usize,
    gap: u32,
}

impl Model {
    fn push(&mut self, bytes: Vec<u8>, control: bool) {
        self.frames.push_back(Waiting { bytes, control, told: 0, marked: false });
    }

    fn bytes(&self) -> usize {
        self.frames.iter().map(|frame| frame.bytes.len()).sum::<usize>() - self.taken
    }

    /// The first MESSAGE of which no byte was taken.
    fn next_message(&self) -> Option<usize> {
        let in_writing = usize::from(self.taken > 0);
        (in_writing..self.frames.len()).find(|at| !self.frames[*at].control)
    }

    fn tell(&mut self) {
        if let Some(at) = self.next_message()
            && self.gap > 0
        {
            let frame = &mut self.frames[at];
            let gap = std::mem::take(&mut self.gap);
            frame.told += gap;
            frame.bytes = with_drop_notice(&frame.bytes, gap);
        }
    }

    /// The bytes that are taken, and the number of markers that they pass.
    fn take(&mut self, room: usize) -> (Vec<u8>, usize) {
        self.tell();
        let (mut bytes, mut passed) = (Vec::new(), 0);
        while bytes.len() < room
            && let Some(first) = self.frames.front()
        {
            let end = first.bytes.len().min(self.taken + room - bytes.len());
            bytes.extend_from_slice(&first.bytes[self.taken..end]);
            self.taken = end;
            if end == first.bytes.len() {
                self.taken = 0;
                passed += usize::from(first.marked);
                self.frames.pop_front();
            }
        }
        (bytes, passed)
    }

    fn drop_oldest(&mut self, bytes_max: usize) -> usize {
        let mut dropped = 0;
        while self.bytes() > bytes_max
            && let Some(frame) = self.next_message().and_then(|at| self.frames.remove(at))
        {
            self.gap += 1 + frame.told;
            dropped += 1;
        }
        dropped
    }

    /// The number of frames that are cut, and of markers with them.
    fn cut(&mut self) -> (usize, usize) {
        let cut = self.frames.split_off(usize::from(self.taken > 0));
        (cut.len(), cut.iter().filter(|frame| frame.marked).count())
    }

    fn mark(&mut self, moves: bool) -> bool {
        let last = self.frames.iter_mut().rev().skip(1).find(|frame| frame.marked).filter(|_| moves);
        let moved = last.map(|frame| frame.marked = false).is_some();
        if let Some(frame) = self.frames.back_mut() {
            frame.marked = true;
        }
        moved
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// A frame of one connection alone.
    Append {
        who: usize,
        len: usize,
        control: bool,
    },
    /// A tracked frame, with a write marker of its own or the previous one moved.
    Follow {
        who: usize,
        len: usize,
        moves: bool,
    },
    /// A series of frames to both connections.
    Share {
        lens: Vec<usize>,
    },
    /// The chunk of shared frames is released.
    Close,
    Flush {
        who: usize,
        room: usize,
    },
    /// The socket takes whole frames.
    FlushFrames {
        who: usize,
        count: usize,
    },
    Drop {
        who: usize,
        bytes_max: usize,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let len = || prop_oneof![6 => 20..60_usize, 4 => 240..400_usize, 1 => 2_000..30_000_usize];
    let room = prop_oneof![4 => 0..100_usize, 4 => 100..2_000_usize, 1 => 2_000..60_000_usize];
    prop_oneof![
        2 => (0..2_usize, len(), any::<bool>()).prop_map(|(who, len, control)| Step::Append { who, len, control }),
        4 => (0..2_usize, len(), any::<bool>()).prop_map(|(who, len, moves)| Step::Follow { who, len, moves }),
        4 => prop::collection::vec(len(), 1..5).prop_map(|lens| Step::Share { lens }),
        1 => Just(Step::Close),
        4 => (0..2_usize, room).prop_map(|(who, room)| Step::Flush { who, room }),
        2 => (0..2_usize, 1..6_usize).prop_map(|(who, count)| Step::FlushFrames { who, count }),
        2 => (0..2_usize, 0..3_000_usize).prop_map(|(who, bytes_max)| Step::Drop { who, bytes_max }),
    ]
}

/// A frame with a number that identifies it.
fn numbered(number: usize, len: usize) -> Vec<u8> {
    let mut bytes = format!("MESSAGE\n{number:08}").into_bytes();
    bytes.resize(len.max(bytes.len()), b'.');
    bytes
}

struct Bench {
    pool: ChunkPool,
    outboxes: [Outbox; 2],
    models: [Model; 2],
    shared: Option<ChunkId>,
    number: usize,
}

impl Bench {
    fn next_frame(&mut self, len: usize) -> Vec<u8> {
        self.number += 1;
        numbered(self.number, len)
    }

    fn append(&mut self, who: usize, len: usize, control: bool) {
        let bytes = self.next_frame(len);
        self.outboxes[who].append(&mut self.pool, kind_of(control), |out| out.extend_from_slice(&bytes));
        self.models[who].push(bytes, control);
    }

    fn close(&mut self) {
        if let Some(chunk) = self.shared.take() {
            self.pool.release(chunk);
        }
    }

    fn share(&mut self, lens: &[usize]) {
        if self.shared.is_some_and(|chunk| self.pool.is_full(chunk)) {
            self.close();
        }
        let chunk = *self.shared.get_or_insert_with(|| self.pool.open());
        let mut run = None;
        for len in lens {
            let bytes = self.next_frame(*len);
            let (start, end) = self.pool.append(chunk, |out| out.extend_from_slice(&bytes));
            run = Some((run.map_or(start, |(start, _)| start), end));
            self.models.iter_mut().for_each(|model| model.push(bytes.clone(), false));
        }
        let (start, end) = run.expect("a series is not empty");
        for outbox in &mut self.outboxes {
            if outbox.push_shared(&mut self.pool, chunk, start, end) {
                self.pool.retain(chunk, 1);
            }
        }
    }

    fn flush(&mut self, who: usize, room: usize) {
        let mut socket = Socket::with_room(room);
        self.outboxes[who].flush(&mut self.pool, &mut socket).expect("short writes are no errors");
        let (bytes, passed) = self.models[who].take(room);
        assert_eq!(String::from_utf8_lossy(&socket.script().taken), String::from_utf8_lossy(&bytes));
        assert_eq!(self.outboxes[who].take_passed(), passed, "markers whose last byte was taken");
    }

    fn run(&mut self, step: Step) {
        match step {
            Step::Append { who, len, control } => self.append(who, len, control),
            Step::Follow { who, len, moves } => {
                self.append(who, len, true);
                match self.models[who].mark(moves) {
                    true => self.outboxes[who].move_last_mark(),
                    false => self.outboxes[who].mark(),
                }
            }
            Step::Share { lens } => self.share(&lens),
            Step::Close => self.close(),
            Step::Flush { who, room } => self.flush(who, room),
            Step::FlushFrames { who, count } => {
                let model = &mut self.models[who];
                model.tell();
                let room = model.frames.iter().take(count).map(|frame| frame.bytes.len()).sum::<usize>();
                self.flush(who, room.saturating_sub(self.models[who].taken));
            }
            Step::Drop { who, bytes_max } => {
                let dropped = self.outboxes[who].drop_oldest(&mut self.pool, bytes_max);
                assert_eq!(dropped, self.models[who].drop_oldest(bytes_max));
            }
        }
        for (outbox, model) in self.outboxes.iter_mut().zip(&self.models) {
            assert_eq!((outbox.bytes(), outbox.gap), (model.bytes(), model.gap));
            assert_eq!((outbox.take_passed(), outbox.take_cut()), (0, 0), "nothing was taken or cut since");
        }
    }

    /// One outbox is cut and reports the drops, the other one is flushed to its end.
    fn finish(mut self) {
        let cut = self.outboxes[0].cut_unsent(&mut self.pool);
        assert_eq!((cut, self.outboxes[0].take_cut()), self.models[0].cut());
        self.append(0, 30, true);
        for who in 0..2 {
            while !self.models[who].frames.is_empty() {
                self.flush(who, 40_000);
            }
            assert!(self.outboxes[who].is_empty() && self.outboxes[who].write_markers.is_empty());
        }
        self.close();
        assert_eq!((self.pool.in_use(), self.pool.held_bytes()), (0, 0));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1000) })]

    #[test]
    fn outboxes_agree_with_a_list_of_frames(steps in prop::collection::vec(step(), 1..80)) {
        let mut bench = Bench {
            pool: ChunkPool::default(),
            outboxes: Default::default(),
            models: Default::default(),
            shared: None,
            number: 0,
        };
        steps.into_iter().for_each(|step| bench.run(step));
        bench.finish();
    }
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
