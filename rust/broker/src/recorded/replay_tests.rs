use super::*;
use crate::collections::keyed::Key;
use crate::ids::ShardId;
use crate::message::options::Until;
use crate::requester::AnswerTo;

const KEY: Key = Key { index: 3, generation: 1 };

fn options(from: ReplayFrom, epoch: Option<u64>) -> ReplayOptions {
    ReplayOptions { from, until: Until::Never, delay_ms: 0, skips_gaps: false, epoch, lease: None }
}

fn replay(next: u64) -> Replay {
    let to = AnswerTo { shard: ShardId(0), conn: ConnKey::NONE, token: 1, awaited: false };
    let asked = (to.requester(), Offender::default());
    let mut replay = Replay::new(
        (*b"/t").into(),
        ConnKey::NONE,
        (KEY, KEY, (1, 1)),
        options(ReplayFrom::First, None),
        asked,
    );
    if let Some((requester, _)) = replay.requester.take() {
        _ = requester.answered();
    }
    replay.next = next;
    replay
}

fn block(first: u64, count: u64) -> Arc<Block> {
    let mut block = Block::new((*b"/t").into(), 7, first, 0);
    for seq in first..first + count {
        let body = seq.to_string();
        block.push(&Recorded {
            time_ms: seq,
            plain: true,
            persistent: false,
            id: b"",
            headers: b"",
            body: body.as_bytes(),
        });
    }
    Arc::new(block)
}

fn portion(blocks: &[(u64, u64)], first: u64) -> Portion {
    let extent = Extent {
        name: (*b"/t").into(),
        epoch: 7,
        first,
        next: 100,
        durable: 100,
        last_ms: 0,
        bytes: 0,
        spans: Vec::new(),
    };
    let place = Some(Place { segment: 1, offset: 44 });
    let blocks = blocks.iter().map(|(first, count)| block(*first, *count)).collect();
    Portion { blocks, place, is_end: false, extent: Some(extent) }
}

/// Takes steps until one is no message: the numbers of the messages, and the last step.
fn steps(replay: &mut Replay, window: &Window) -> (Vec<u64>, &'static str) {
    let mut seqs = Vec::new();
    loop {
        match replay.step(window) {
            Step::Message(message, seq, 7) => {
                assert_eq!(message.body, seq.to_string().as_bytes());
                seqs.push(seq);
            }
            Step::Message(..) => panic!("another epoch"),
            Step::Gap(_) => return (seqs, "gap"),
            Step::Read => return (seqs, "read"),
            Step::Wait => return (seqs, "wait"),
        }
        replay.advance();
    }
}

#[test]
fn history_and_the_window_together_leave_no_gap_and_nothing_twice() {
    let (mut replay, mut window) = (replay(3), Window::default());
    window.next = 8;
    assert_eq!(steps(&mut replay, &window), (vec![], "read"));
    assert_eq!(replay.take(portion(&[(1, 4)], 1)), None);
    window.push(block(8, 2)); // a live message while history is read
    assert_eq!(steps(&mut replay, &window), (vec![3, 4], "read"));
    assert_eq!(replay.take(portion(&[(5, 3), (8, 1)], 1)), None);
    assert_eq!(steps(&mut replay, &window), (vec![5, 6, 7, 8, 9], "wait"));
    window.push(block(10, 1));
    assert_eq!(steps(&mut replay, &window), (vec![10], "wait"));
}

#[test]
fn one_that_falls_behind_the_window_reads_again() {
    let (mut replay, mut window) = (replay(5), Window::default());
    window.push(block(5, 1));
    assert_eq!(steps(&mut replay, &window), (vec![5], "wait"));
    window.push(block(8, 1)); // what was between has left the window
    assert_eq!(steps(&mut replay, &window), (vec![], "read"));
    assert_eq!(replay.place(), None, "its place is behind");
}

#[test]
fn what_is_gone_is_a_gap() {
    let (mut replay, mut window) = (replay(2), Window::default());
    window.next = 20;
    assert_eq!(replay.take(portion(&[(6, 2)], 6)), None);
    assert_eq!(steps(&mut replay, &window), (vec![], "gap"));
    replay.skip_to(6);
    assert_eq!(steps(&mut replay, &window), (vec![6, 7], "read"));
    assert_eq!(replay.take(portion(&[], 15)), Some(15));
    replay.skip_to(15);
    assert_eq!(steps(&mut replay, &window), (vec![], "read"));
}

#[test]
fn a_beginning_depends_on_the_epoch() {
    let mut extent = portion(&[], 10).extent;
    if let Some(extent) = &mut extent {
        extent.spans = vec![Span { epoch: 1, first: 1, last: 49 }, Span { epoch: 7, first: 50, last: 99 }];
    }
    let at = |from, epoch| beginning(&options(from, epoch), (7, 105), extent.as_ref());
    assert_eq!(at(ReplayFrom::First, None), Beginning::At(10, true));
    assert_eq!(at(ReplayFrom::Last, None), Beginning::At(104, true));
    assert_eq!(at(ReplayFrom::Next, None), Beginning::At(105, true));
    assert_eq!(at(ReplayFrom::Time(5), None), Beginning::Find(5));
    for (seq, epoch, expected) in [
        (10, None, Beginning::At(10, true)),
        (9, None, Beginning::Gone(10)),
        (105, Some(7), Beginning::At(105, true)),
        (50, Some(1), Beginning::At(50, true)),
        (51, Some(1), Beginning::Gone(50)),
        (9, Some(1), Beginning::Gone(10)),
        (60, Some(3), Beginning::Gone(10)),
    ] {
        assert_eq!(at(ReplayFrom::Seq(seq), epoch), expected, "{seq} of {epoch:?}");
    }
    let nothing = beginning(&options(ReplayFrom::First, None), (7, 1), None);
    assert_eq!(nothing, Beginning::At(1, true));
}

#[test]
fn the_last_replay_of_a_destination_ends_its_window() {
    let mut replays = Replays::default();
    let other = Key { index: 4, generation: 1 };
    replays.insert(KEY, replay(1));
    replays.insert(other, Replay { queue: other, ..replay(1) });
    assert_eq!((replays.note(block(1, 1)), replays.note(block(2, 1))), (2, 2));
    assert!(replays.has_listed() && replays.of_queue(other) == Some(other));
    assert_eq!(
        [replays.next_listed(), replays.next_listed(), replays.next_listed()],
        [Some(KEY), Some(other), None]
    );
    assert!(replays.remove(KEY).is_some_and(|(_, is_last)| !is_last));
    assert!(replays.remove(other).is_some_and(|(_, is_last)| is_last) && replays.remove(other).is_none());
    assert_eq!((replays.note(block(3, 1)), replays.held_bytes()), (0, 0));
}
