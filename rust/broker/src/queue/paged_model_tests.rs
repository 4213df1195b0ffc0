//! A paged queue and a store that answers in any order, compared with a plain model.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use proptest::sample::Index;

use super::*;

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
