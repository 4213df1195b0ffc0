//! The replay of a home's stale and retained messages to one new subscription, found and sent in portions.
//!
//! ```text
//! retained messages, by name ─► stale messages, by arrival ─► end
//! ```
//! Stale messages of a pattern are found by name, and then sorted. If they are many, or there is only one name, they are
//! visited by arrival instead: thousands of subscriptions may each be at the beginning of a million messages.
//!
//! A replay remembers its position as a name, so that messages may come and go meanwhile. It sends a *window* of
//! messages at a time, and stops until its subscriber requests the next one.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Bound;

use super::retained::Retained;
use super::stale::{Place, Stale};
use crate::ids::SubscriptionKey;
use crate::message::OwnedMessage;
use crate::requester::Requester;

/// The maximum number of stale messages that are found by name.
const FOUND_MAX: usize = 512;
/// The number of messages of a window.
const WINDOW_MESSAGES: usize = 64;
/// The number of bytes of a window; the last message may exceed it.
pub const WINDOW_BYTES: usize = 64 << 10;

/// A new subscription, on the shard that announces it.
#[derive(Clone, Copy, Debug)]
pub struct Newcomer {
    /// The subscription.
    pub key: SubscriptionKey,
    /// Messages of this connection are omitted.
    pub without: u64,
}

/// The result of a step.
#[derive(Debug)]
pub enum Step {
    /// A message, and whether it is a retained one.
    Send(OwnedMessage, bool),
    /// Nothing was found yet; continue later.
    Later,
    /// There is another message, but the window is used up.
    Pause,
    /// All messages have been sent.
    End,
}

/// The position of a search by name: after this name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cursor(pub Option<Box<[u8]>>);

/// The number of visits so far, and their limit.
#[derive(Clone, Copy, Debug)]
pub struct Visits {
    /// Visited names and messages.
    pub count: usize,
    /// The approximate maximum.
    pub max: usize,
}

impl Visits {
    /// Whether the rest has to be done later.
    #[must_use]
    pub fn is_exhausted(self) -> bool {
        self.count >= self.max
    }
}

/// The names that a search looks for.
#[derive(Clone, Copy, Debug)]
pub struct Search<'a> {
    /// The common prefix of the names, or the name itself if there is no pattern.
    prefix: &'a [u8],
    is_pattern: bool,
}

impl<'a> Search<'a> {
    /// A search for names that begin with a prefix, or (`false`) for this name alone.
    #[must_use]
    pub fn new(prefix: &'a [u8], is_pattern: bool) -> Self {
        Search { prefix, is_pattern }
    }

    /// The one name that it looks for, if it has no pattern.
    #[must_use]
    pub fn plain_name(&self) -> Option<&'a [u8]> {
        (!self.is_pattern).then_some(self.prefix)
    }

    /// The range of names after a position.
    #[must_use]
    pub fn range<'b>(&'b self, behind: &'b Cursor) -> (Bound<&'b [u8]>, Bound<&'b [u8]>) {
        let from = behind.0.as_deref().map_or(Bound::Included(self.prefix), Bound::Excluded);
        (from, Bound::Unbounded)
    }

    /// Whether this name or a later one may match.
    #[must_use]
    pub fn may_reach(&self, name: &[u8]) -> bool {
        if self.is_pattern { name.starts_with(self.prefix) } else { name == self.prefix }
    }

    /// Whether this name matches.
    #[must_use]
    pub fn is_for(&self, name: &[u8], matches: impl Fn(&[u8]) -> bool) -> bool {
        !self.is_pattern || matches(name)
    }
}

#[derive(Debug)]
enum Stage {
    /// Sends the retained messages after this name.
    Retained(Cursor),
    /// Finds the stale messages after this position.
    FindStale(Place),
    /// Sends the stale messages that were found.
    SendStale,
    /// Sends the stale messages after this arrival.
    VisitStale(u64),
}

/// A replay to one subscription.
#[derive(Debug)]
pub struct Replay {
    /// The destination or pattern of the subscription.
    pub name: Box<[u8]>,
    prefix_len: usize,
    is_pattern: bool,
    /// Stale messages of this connection are kept for other subscriptions.
    without: u64,
    stage: Stage,
    /// Stale messages, by arrival.
    stale: BinaryHeap<Reverse<u64>>,
    messages_left: usize,
    bytes_left: usize,
    /// The frame that waits for the end, or for the point at which the next message needs an ACK.
    pub reply: Option<Requester>,
}

impl Replay {
    /// A replay from the beginning, without a window. `literal_len` is the length of the prefix that all matches of a
    /// pattern have in common, `None` for a plain name.
    #[must_use]
    pub fn new(name: Box<[u8]>, literal_len: Option<usize>, without: u64, reply: Option<Requester>) -> Self {
        Replay {
            prefix_len: literal_len.unwrap_or(name.len()),
            is_pattern: literal_len.is_some(),
            without,
            name,
            stage: Stage::Retained(Cursor::default()),
            stale: BinaryHeap::new(),
            messages_left: 0,
            bytes_left: 0,
            reply,
        }
    }

    /// Opens a window, because the subscriber has room for it.
    pub fn open(&mut self) {
        (self.messages_left, self.bytes_left) = (WINDOW_MESSAGES, WINDOW_BYTES);
    }

    /// Takes the next step. Expired messages are skipped.
    pub fn step(
        &mut self,
        now_ms: u64,
        (retained, stale): (&mut Retained, &mut Stale),
        matches: impl Fn(&[u8]) -> bool,
        visits: &mut Visits,
    ) -> Step {
        let is_open = self.messages_left > 0 && self.bytes_left > 0;
        while !visits.is_exhausted() {
            let search = Search { prefix: &self.name[..self.prefix_len], is_pattern: self.is_pattern };
            match &mut self.stage {
                Stage::Retained(cursor) => match retained.next_behind(&search, cursor, &matches, visits) {
                    Some(_) if !is_open => return Step::Pause,
                    Some(name) => {
                        let found = retained.copy_of(&name, now_ms);
                        *cursor = Cursor(Some(name));
                        if let Some(message) = found {
                            return self.send(message, true);
                        }
                    }
                    None if visits.is_exhausted() => return Step::Later,
                    None if self.is_pattern => self.stage = Stage::FindStale(Place::default()),
                    None => self.stage = Stage::VisitStale(0),
                },
                Stage::FindStale(place) => match stale.next_behind(&search, place, &matches, visits) {
                    Some(_) if self.stale.len() == FOUND_MAX => {
                        self.stale = BinaryHeap::new();
                        self.stage = Stage::VisitStale(0);
                    }
                    Some(arrival) => self.stale.push(Reverse(arrival)),
                    None if visits.is_exhausted() => return Step::Later,
                    None => self.stage = Stage::SendStale,
                },
                Stage::SendStale => {
                    let Some(&Reverse(first)) = self.stale.peek() else { return Step::End };
                    visits.count += 1;
                    let is_wanted = stale.holds_for(first, self.without, now_ms);
                    if is_wanted && !is_open {
                        return Step::Pause;
                    }
                    self.stale.pop();
                    if is_wanted && let Some(message) = stale.take_one(first) {
                        return self.send(message, false);
                    }
                }
                Stage::VisitStale(behind) => {
                    let Some(next) = stale.next_arrived(&search, behind, &matches, visits) else {
                        return if visits.is_exhausted() { Step::Later } else { Step::End };
                    };
                    let is_wanted = stale.holds_for(next, self.without, now_ms);
                    if is_wanted && !is_open {
                        return Step::Pause;
                    }
                    *behind = next;
                    if is_wanted && let Some(message) = stale.take_one(next) {
                        return self.send(message, false);
                    }
                }
            }
        }
        Step::Later
    }

    fn send(&mut self, message: OwnedMessage, retained: bool) -> Step {
        self.messages_left -= 1;
        self.bytes_left = self.bytes_left.saturating_sub(message.size());
        Step::Send(message, retained)
    }

    /// The approximate memory in bytes.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        size_of::<Replay>() + self.name.len() + 8 * self.stale.capacity() + 64
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::ids::{NOBODY, ShardId};
    use crate::queue::stale::StaleCounts;
    use crate::queue::stale::tests::message as stale_message;

    fn message(destination: &[u8], body: &[u8]) -> OwnedMessage {
        stale_message(destination, body, 0)
    }

    struct History {
        retained: Retained,
        stale: Stale,
    }

    impl History {
        fn new() -> Self {
            let counts = Arc::new(StaleCounts::new(1));
            History { retained: Retained::new(Arc::default()), stale: Stale::new(ShardId(0), counts) }
        }

        fn step(&mut self, replay: &mut Replay, max: usize) -> (Step, usize) {
            let mut visits = Visits { count: 0, max };
            let history = (&mut self.retained, &mut self.stale);
            let step = replay.step(0, history, |name| name != b"/t/no", &mut visits);
            (step, visits.count)
        }

        /// The bodies up to the next pause or the end, and whether it was a pause.
        fn window(&mut self, replay: &mut Replay) -> (Vec<u8>, bool) {
            let mut bodies = Vec::new();
            loop {
                match self.step(replay, 3).0 {
                    Step::Send(message, _) => bodies.push(message.message().body[0]),
                    Step::Later => {}
                    Step::Pause => return (bodies, false),
                    Step::End => return (bodies, true),
                }
            }
        }
    }

    #[test]
    fn windows_have_retained_messages_by_name_then_stale_ones_by_arrival() {
        let mut history = History::new();
        for at in 0..100_u8 {
            history.retained.set(message(format!("/t/{at:03}").as_bytes(), &[at]));
        }
        for (at, name) in [(201_u8, b"/t/z"), (202, b"/t/a"), (203, b"/t/z")] {
            _ = history.stale.keep(message(name, &[at]), 10);
        }
        history.retained.set(message(b"/t/no", b"!"));
        history.retained.set(message(b"/u", b"!"));
        let mut replay = Replay::new((*b"/t/>").into(), Some(3), NOBODY, None);
        assert_eq!(history.window(&mut replay), (vec![], false), "no window is open");
        replay.open();
        assert_eq!(history.window(&mut replay), ((0..64).collect(), false));
        history.retained.remove(b"/t/064");
        history.retained.remove(b"/t/063");
        replay.open();
        let rest: Vec<u8> = (65..100).chain([201, 202, 203]).collect();
        assert_eq!(history.window(&mut replay), (rest, true));
        assert_eq!(history.stale.next_ms(), None, "stale messages were removed");
    }

    #[test]
    fn a_plain_name_gets_its_messages_without_visits_to_other_names() {
        let mut history = History::new();
        for name in [&b"/t"[..], b"/t/a", b"/t/b"] {
            history.retained.set(message(name, name));
        }
        let mut replay = Replay::new((*b"/t/a").into(), None, NOBODY, None);
        replay.open();
        let (first, visits) = history.step(&mut replay, 100);
        assert!(matches!(first, Step::Send(found, true) if found.destination() == b"/t/a"));
        assert_eq!(visits, 1);
        assert!(matches!(history.step(&mut replay, 100), (Step::End, 1)));
    }

    /// Sends all messages of a replay in portions of 20 visits. Returns their bodies, and the number of portions.
    fn send_in_portions(history: &mut History, replay: &mut Replay) -> (Vec<u8>, usize) {
        let (mut bodies, mut portions) = (Vec::new(), 0);
        loop {
            let (step, visits) = history.step(replay, 20);
            assert!(visits <= 21, "{visits} in portion {portions}");
            match step {
                Step::Send(message, _) => bodies.push(message.message().body[0]),
                Step::Later => portions += 1,
                Step::Pause => replay.open(),
                Step::End => return (bodies, portions),
            }
        }
    }

    #[test]
    fn stale_messages_of_a_pattern_are_found_in_portions() {
        let mut history = History::new();
        for at in 0..200_u8 {
            _ = history.stale.keep(message(b"/t/a", &[at]), 1000);
        }
        let mut replay = Replay::new((*b"/t/>").into(), Some(3), NOBODY, None);
        let (bodies, portions) = send_in_portions(&mut history, &mut replay);
        assert!(bodies.into_iter().eq(0..200) && portions >= 10, "{portions} portions");
    }

    #[test]
    fn very_many_stale_messages_are_sent_by_arrival_and_not_remembered() {
        for (pattern, prefix_len) in [(&b"/t/>"[..], Some(3)), (b"/t/1", None)] {
            let mut history = History::new();
            for at in 0..5000_usize {
                let name: &[u8] = [&b"/t/1"[..], b"/t/no", b"/u", b"/t/2"][at % 4];
                _ = history.stale.keep(message(name, &[(at % 251) as u8]), 5000);
            }
            let mut replay = Replay::new(pattern.into(), prefix_len, NOBODY, None);
            while !matches!(history.step(&mut replay, 20).0, Step::Pause) {}
            assert!(replay.held_bytes() < 10_000, "{}", replay.held_bytes());
            let expected = (0..5000_usize).filter(|at| at % 4 == 0 || (at % 4 == 3 && prefix_len.is_some()));
            let (bodies, _) = send_in_portions(&mut history, &mut replay);
            assert!(bodies.into_iter().eq(expected.map(|at| (at % 251) as u8)));
        }
    }

    #[test]
    fn expired_messages_are_skipped() {
        let mut history = History::new();
        for (expires_ms, number) in [(0, 0), (5, 1), (6, 2)] {
            let name = [b'/', b't', b'/', number];
            let mut value = message(&name, &[number]);
            value.expires_ms = expires_ms;
            history.retained.set(value);
            let mut stale = message(&name, &[number + 10]);
            stale.expires_ms = expires_ms.max(5);
            _ = history.stale.keep(stale, 10);
        }
        let mut replay = Replay::new((*b"/t/>").into(), Some(3), NOBODY, None);
        replay.open();
        let mut bodies = Vec::new();
        let mut visits = Visits { count: 0, max: 100 };
        let mut step = || replay.step(5, (&mut history.retained, &mut history.stale), |_| true, &mut visits);
        while let Step::Send(message, _) = step() {
            bodies.push(message.message().body[0]);
        }
        assert_eq!(bodies, [0, 2, 12]);
    }

    #[test]
    fn large_messages_fill_a_window_by_their_bytes_and_are_not_copied() {
        let mut history = History::new();
        let body = vec![b'x'; WINDOW_BYTES];
        for name in [b"/t/a", b"/t/b"] {
            history.retained.set(message(name, &body));
        }
        let before = crate::held::bytes();
        let mut replay = Replay::new((*b"/t/>").into(), Some(3), NOBODY, None);
        replay.open();
        let (first, _) = history.step(&mut replay, 100);
        assert!(matches!(first, Step::Send(..)));
        assert!(crate::held::bytes() < before + 1000, "its bytes are in memory once");
        assert!(matches!(history.step(&mut replay, 100).0, Step::Pause));
    }
}
