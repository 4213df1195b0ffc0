//! Tests of lines of which a part is held as stubs; the store is played here.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use proptest::sample::Index;
use stompica_proto::encode::Message;

use super::*;

const WINDOW: Window = Window { messages: 3, bytes: 1000 };

fn message(seq: u64, expires_ms: u64, len: usize) -> OwnedMessage {
    let body = vec![b'b'; len];
    let message = Message {
        destination: b"/queue/a",
        id: b"i",
        sender: 0,
        headers: b"",
        plain: true,
        expires_ms: 0,
        body: &body,
    };
    let mut owned = OwnedMessage::new(&message);
    (owned.seq, owned.expires_ms) = (seq, expires_ms);
    owned
}

/// A line of this many short messages, paged out.
fn line(count: u64) -> Pending {
    let mut pending = Pending::default();
    (1..=count).for_each(|seq| _ = pending.push(message(seq, 0, 1)));
    pending.page_out(WINDOW, usize::MAX, |message| message.seq);
    pending
}

fn next(pending: &mut Pending) -> Option<u64> {
    let first = pending.first().map(|message| message.seq);
    let popped = pending.pop().map(|message| message.seq);
    assert_eq!(first, popped);
    popped
}

fn drain(pending: &mut Pending) -> Vec<u64> {
    std::iter::from_fn(|| next(pending)).collect()
}

fn requests(pending: &mut Pending) -> Vec<u64> {
    std::iter::from_fn(|| pending.load_next(WINDOW)).map(|stub| stub.seq).collect()
}

#[test]
fn only_the_window_stays_loaded_and_nothing_is_requested_while_it_is_full() {
    let mut pending = line(10);
    assert_eq!((pending.len(), pending.stubs(), pending.bytes()), (10, 7, 10 * message(1, 0, 1).size()));
    assert!(requests(&mut pending).is_empty());
    pending.push(message(11, 0, 1));
    assert_eq!(drain(&mut pending), [1, 2, 3], "the newest message waits for those that are not loaded");
    assert!(pending.has_next() && pending.first().is_none());
    assert_eq!(requests(&mut pending), [4, 5, 6]);
    assert!(requests(&mut pending).is_empty());
}

#[test]
fn the_memory_of_expired_stubs_is_counted() {
    let mut pending = line(100);
    for seq in 50..100 {
        pending.expire_stub(seq);
        let paged = pending.paged.as_deref().unwrap();
        assert_eq!(paged.counted, paged.stub_bytes());
    }
}

#[test]
fn a_window_is_bounded_in_bytes_as_well() {
    let mut pending = Pending::default();
    (1..=5).for_each(|seq| _ = pending.push(message(seq, 0, 900)));
    pending.page_out(WINDOW, usize::MAX, |message| message.seq);
    assert_eq!(pending.stubs(), 3);
    assert_eq!((drain(&mut pending), requests(&mut pending)), (vec![1, 2], vec![3, 4]));
}

#[test]
fn messages_may_arrive_in_any_order_and_leave_in_theirs() {
    let mut pending = line(6);
    drain(&mut pending);
    assert_eq!(requests(&mut pending), [4, 5, 6]);
    assert!(pending.arrive(6, Some(message(6, 0, 1))) && pending.arrive(5, Some(message(5, 0, 1))));
    assert_eq!(next(&mut pending), None);
    assert!(pending.arrive(4, Some(message(4, 0, 1))));
    assert!(!pending.is_paged() || pending.stubs() == 0);
    pending.push(message(7, 0, 1));
    assert_eq!(drain(&mut pending), [4, 5, 6, 7]);
    assert_eq!((pending.len(), pending.bytes(), pending.is_paged()), (0, 0, false));
}

#[test]
fn a_message_that_comes_back_is_next_although_others_are_not_loaded() {
    let mut pending = line(6);
    let mut first = pending.pop().expect("it is loaded");
    drain(&mut pending);
    first.deliveries = 1;
    pending.put_back(first);
    assert_eq!(drain(&mut pending), [1]);
}

#[test]
fn a_message_that_cannot_be_read_holds_up_nobody() {
    let mut pending = line(5);
    drain(&mut pending);
    requests(&mut pending);
    assert!(pending.arrive(5, Some(message(5, 0, 1))) && pending.arrive(4, None));
    assert!(!pending.arrive(4, None), "it is gone");
    assert_eq!((drain(&mut pending), pending.len(), pending.bytes()), (vec![5], 0, 0));
}

#[test]
fn messages_that_the_store_cannot_take_stay_loaded_at_their_places() {
    let mut pending = Pending::default();
    (1..=8).for_each(|seq| _ = pending.push(message(seq, 0, 1)));
    let taken = pending.page_out(WINDOW, usize::MAX, |message| if message.seq % 2 == 0 { 0 } else { 7 });
    assert_eq!((taken, pending.stubs(), pending.len()), (5, 2, 8));
    assert_eq!(drain(&mut pending), [1, 2, 3, 4]);
    assert_eq!(requests(&mut pending), [5, 7]);
    pending.arrive(7, Some(message(7, 0, 1)));
    pending.arrive(5, Some(message(5, 0, 1)));
    assert_eq!(drain(&mut pending), [5, 6, 7, 8]);
}

#[test]
fn loaded_messages_before_the_first_stub_are_part_of_the_window() {
    let mut pending = Pending::default();
    (1..=9).for_each(|seq| _ = pending.push(message(seq, 0, 1)));
    // The store cannot take these messages, of which the last is behind all stubs.
    let is_refused = |seq| matches!(seq, 4 | 5 | 9);
    pending.page_out(WINDOW, usize::MAX, |message| if is_refused(message.seq) { 0 } else { message.seq });
    assert_eq!([1, 2, 3].map(|_| next(&mut pending)), [Some(1), Some(2), Some(3)]);
    assert_eq!(requests(&mut pending), [6], "two messages are loaded");
    assert_eq!(drain(&mut pending), [4, 5]);
    assert_eq!(requests(&mut pending), [7, 8]);
}

#[test]
fn a_message_of_a_transaction_stands_at_its_place_among_stubs() {
    let mut pending = Pending::default();
    [1, 2, 3, 5, 7].into_iter().for_each(|seq| _ = pending.push(message(seq, 0, 1)));
    pending.page_out(WINDOW, usize::MAX, |message| message.seq);
    [6, 4, 8].into_iter().for_each(|seq| _ = pending.place(message(seq, 0, 1)));
    assert_eq!(drain(&mut pending), [1, 2, 3, 4]);
    assert_eq!(requests(&mut pending), [5, 7]);
    [5, 7].into_iter().for_each(|seq| _ = pending.arrive(seq, Some(message(seq, 0, 1))));
    assert_eq!(drain(&mut pending), [5, 6, 7, 8]);
}

#[test]
fn a_stub_that_expires_leaves_the_line_without_being_loaded() {
    let mut pending = Pending::default();
    (1..=6).for_each(|seq| _ = pending.push(message(seq, if seq == 5 { 10 } else { 0 }, 1)));
    pending.page_out(WINDOW, usize::MAX, |message| 100 + message.seq);
    assert_eq!((pending.next_ms(), pending.drop_expired_stub()), (Some(10), None));
    let mut expired = Vec::new();
    assert_eq!((pending.advance(10, 9, &mut expired), expired.len(), pending.next_ms()), (1, 0, None));
    assert_eq!((pending.len(), pending.drop_expired_stub(), pending.len()), (6, Some(105), 5));
    drain(&mut pending);
    assert_eq!(requests(&mut pending), [4, 6]);
}

#[test]
fn an_expired_message_that_is_wanted_is_loaded_first_and_expires_then() {
    let mut pending = Pending::default();
    (1..=9).for_each(|seq| _ = pending.push(message(seq, if seq == 8 { 10 } else { 0 }, 1)));
    pending.page_out(WINDOW, usize::MAX, |message| message.seq);
    let mut expired = Vec::new();
    pending.advance(10, 9, &mut expired);
    assert_eq!(requests(&mut pending), [8]);
    pending.arrive(8, Some(message(8, 0, 1)));
    assert_eq!(pending.next_ms(), Some(10));
    pending.advance(10, 9, &mut expired);
    assert_eq!(expired.iter().map(|message| message.seq).collect::<Vec<_>>(), [8]);
    assert_eq!((pending.len(), drain(&mut pending)), (8, vec![1, 2, 3]));
}

#[test]
fn an_expired_message_that_is_loaded_stands_behind_one_that_was_placed_meanwhile() {
    let mut pending = Pending::default();
    (2..=5).for_each(|seq| _ = pending.push(message(seq, 1, 1)));
    pending.page_out(WINDOW, usize::MAX, |message| message.seq);
    let mut expired = Vec::new();
    pending.advance(1, usize::MAX, &mut expired);
    assert_eq!(expired.iter().map(|message| message.seq).collect::<Vec<_>>(), [2, 3, 4]);
    pending.place(message(1, 0, 1));
    assert_eq!(requests(&mut pending), [5]);
    pending.arrive(5, Some(message(5, 0, 1)));
    assert_eq!(drain(&mut pending), [1, 5]);
}

#[test]
fn everything_can_be_dropped_with_its_record_and_the_memory_is_given_back() {
    let before = held::bytes();
    let mut pending = Pending::default();
    for seq in 1..=9 {
        let mut message = message(seq, if seq > 7 { 10 } else { 0 }, 1);
        message.record = 100 + seq;
        pending.push(message);
    }
    let loaded = held::bytes();
    pending.page_out(WINDOW, usize::MAX, |message| message.record);
    assert!(held::bytes() < loaded, "stubs occupy less");
    pending.pop();
    assert_eq!(requests(&mut pending), [4]);
    pending.advance(10, 1, &mut Vec::new());
    let mut dropped: Vec<Dropped> = std::iter::from_fn(|| pending.drop_any()).collect();
    dropped.sort_unstable_by_key(|it| it.record);
    let expected = |record| Dropped { record, was_requested: record == 104 };
    assert_eq!(dropped, (102..=109).map(expected).collect::<Vec<_>>());
    assert_eq!((pending.len(), pending.bytes(), pending.next_ms(), pending.is_paged()), (0, 0, None, false));
    assert!(!pending.arrive(4, Some(message(4, 0, 1))), "it comes too late");
    let mut other = line(100);
    drain(&mut other);
    requests(&mut other);
    drop((pending, other));
    assert_eq!(held::bytes(), before);
}

#[derive(Clone, Debug)]
enum Step {
    Push { count: u64, ttl_ms: Option<u64>, len: usize },
    Keep,
    Place(Index),
    PageOut(usize),
    Load,
    Arrive(Index),
    Pop,
    PutBack(Index),
    Pass(u64),
    DropExpired,
}

fn step() -> impl Strategy<Value = Step> {
    let pick = || any::<Index>();
    let len = prop_oneof![4 => 0..50_usize, 1 => 400..900_usize];
    prop_oneof![
        4 => (1..6_u64, prop::option::weighted(0.3, 1..40_u64), len)
            .prop_map(|(count, ttl_ms, len)| Step::Push { count, ttl_ms, len }),
        1 => Just(Step::Keep),
        1 => pick().prop_map(Step::Place),
        3 => (1..8_usize).prop_map(Step::PageOut),
        3 => Just(Step::Load),
        6 => pick().prop_map(Step::Arrive),
        6 => Just(Step::Pop),
        2 => pick().prop_map(Step::PutBack),
        1 => (1..20_u64).prop_map(Step::Pass),
        1 => Just(Step::DropExpired),
    ]
}

/// A line, and what it is expected to hold.
#[derive(Default)]
struct Model {
    pending: Pending,
    next_seq: u64,
    now_ms: u64,
    /// Size and expiry of each message that waits, by place.
    waiting: BTreeMap<u64, (usize, u64)>,
    /// Places that are kept for transactions.
    places: Vec<u64>,
    requested: Vec<u64>,
    popped: Vec<OwnedMessage>,
    ended: BTreeSet<u64>,
}

impl Model {
    fn expect(&mut self, message: &OwnedMessage) {
        assert!(self.waiting.insert(message.seq, (message.size(), message.expires_ms)).is_none());
    }

    /// One message has left the line finally.
    fn end(&mut self, seq: u64) {
        assert!(self.waiting.remove(&seq).is_some() && self.ended.insert(seq), "{seq} ends twice");
    }

    fn is_expired(&self, expires_ms: u64) -> bool {
        expires_ms != 0 && expires_ms <= self.now_ms
    }

    fn run(&mut self, step: Step) {
        match step {
            Step::Push { count, ttl_ms, len } => {
                for _ in 0..count {
                    self.next_seq += 1;
                    let expires_ms = ttl_ms.map_or(0, |ttl_ms| self.now_ms + ttl_ms);
                    let message = message(self.next_seq, expires_ms, len);
                    self.expect(&message);
                    self.pending.push(message);
                }
            }
            Step::Keep => {
                self.next_seq += 1;
                self.places.push(self.next_seq);
            }
            Step::Place(which) if !self.places.is_empty() => {
                let seq = self.places.swap_remove(which.index(self.places.len()));
                let message = message(seq, 0, 5);
                self.expect(&message);
                self.pending.place(message);
            }
            Step::PageOut(count) => {
                self.pending.page_out(
                    WINDOW,
                    count,
                    |message| if message.seq % 7 == 0 { 0 } else { message.seq },
                );
            }
            Step::Load => self.load(),
            Step::Arrive(which) if !self.requested.is_empty() => {
                let seq = self.requested.swap_remove(which.index(self.requested.len()));
                self.arrive(seq);
            }
            Step::Pop => self.pop(),
            Step::PutBack(which) if !self.popped.is_empty() => {
                let mut message = self.popped.swap_remove(which.index(self.popped.len()));
                message.deliveries = 1;
                self.ended.remove(&message.seq);
                self.expect(&message);
                self.pending.put_back(message);
            }
            Step::Pass(ms) => {
                self.now_ms += ms;
                self.advance();
            }
            Step::DropExpired => {
                while let Some(record) = self.pending.drop_expired_stub() {
                    assert!(self.is_expired(self.waiting[&record].1));
                    self.end(record);
                }
            }
            Step::Place(_) | Step::Arrive(_) | Step::PutBack(_) => {}
        }
        self.check();
    }

    fn load(&mut self) {
        while let Some(stub) = self.pending.load_next(WINDOW) {
            let (size, expires_ms) = self.waiting[&stub.seq];
            assert_eq!((stub.record, stub.bytes as usize, stub.expires_ms), (stub.seq, size, expires_ms));
            self.requested.push(stub.seq);
        }
        assert!(self.requested.len() <= WINDOW.messages, "{:?}", self.requested);
    }

    /// The store has loaded a message, or cannot read it.
    fn arrive(&mut self, seq: u64) {
        let size = self.waiting[&seq].0 - message(seq, 0, 0).size();
        let is_unreadable = seq.is_multiple_of(11);
        assert!(self.pending.arrive(seq, (!is_unreadable).then(|| message(seq, 0, size))));
        if is_unreadable {
            self.end(seq);
        }
    }

    fn pop(&mut self) {
        let first = self.pending.first().map(|message| message.seq);
        let popped = self.pending.pop();
        assert_eq!(first, popped.as_ref().map(|message| message.seq));
        let Some(popped) = popped else { return };
        // A message that has expired may be in the store while others pass it.
        let mut before = self.waiting.range(..popped.seq);
        assert!(
            before.all(|(_, (_, expires_ms))| self.is_expired(*expires_ms)),
            "{} is not first",
            popped.seq
        );
        assert_eq!(self.waiting[&popped.seq], (popped.size(), popped.expires_ms));
        self.end(popped.seq);
        self.popped.push(popped);
    }

    fn advance(&mut self) {
        let mut expired = Vec::new();
        while self.pending.next_ms().is_some_and(|at_ms| at_ms <= self.now_ms) {
            assert!(self.pending.advance(self.now_ms, 2, &mut expired) <= 2);
        }
        for message in expired {
            assert!(self.is_expired(message.expires_ms));
            self.end(message.seq);
        }
    }

    fn check(&self) {
        let bytes = self.waiting.values().map(|(size, _)| size).sum();
        assert_eq!((self.pending.len(), self.pending.bytes()), (self.waiting.len(), bytes));
        let expiry = |(_, expires_ms): &(usize, u64)| (*expires_ms != 0).then_some(*expires_ms);
        let next_ms = self.waiting.values().filter_map(expiry).filter(|at_ms| *at_ms > self.now_ms).min();
        assert!(next_ms.is_none() || self.pending.next_ms() <= next_ms, "an expiry would be missed");
    }

    /// Lets everything arrive and leave.
    fn finish(mut self) {
        loop {
            self.load();
            let before = (self.requested.len(), self.waiting.len());
            std::mem::take(&mut self.requested).into_iter().rev().for_each(|seq| self.arrive(seq));
            self.advance();
            (0..self.waiting.len()).for_each(|_| self.pop());
            self.check();
            if before == (0, self.waiting.len()) {
                break;
            }
        }
        assert!(self.waiting.is_empty(), "{:?} wait forever", self.waiting);
        assert!(!self.pending.is_paged() && !self.pending.has_next() && self.pending.next_ms().is_none());
        assert_eq!(self.ended.len() + self.places.len(), self.next_seq as usize);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1000) })]

    #[test]
    fn every_message_leaves_once_and_in_order_whatever_the_store_does(steps in prop::collection::vec(step(), 1..120)) {
        let before = held::bytes();
        let mut model = Model::default();
        steps.into_iter().for_each(|step| model.run(step));
        model.finish();
        prop_assert_eq!(held::bytes(), before);
    }
}
