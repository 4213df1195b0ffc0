//! Write markers, gaps and cuts, compared with a plain list of frames.

use proptest::prelude::*;

use super::*;

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
