//! What a home holds of the past for one new subscription, found and sent piece by piece.
//!
//! ```text
//! last values, by name ─► stale messages, by arrival ─► end
//! ```
//! A replay keeps its place by name, so that it survives whatever comes and goes meanwhile. It sends a *window* of
//! messages at a time, and stops until its subscriber asks for the next one.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Bound;

use super::retained::Retained;
use super::stale::{Place, Stale};
use crate::ids::SubscriptionKey;
use crate::message::OwnedMessage;
use crate::requester::Requester;

/// Messages of one window.
const WINDOW_MESSAGES: usize = 64;
/// Bytes of one window; the last message may exceed them.
pub const WINDOW_BYTES: usize = 64 << 10;

/// A new subscription, on the shard that tells of it.
#[derive(Clone, Copy, Debug)]
pub struct Newcomer {
    /// The subscription.
    pub key: SubscriptionKey,
    /// It takes no messages of this connection.
    pub without: u64,
}

/// What comes next.
#[derive(Debug)]
pub enum Step {
    /// A message, and whether it is a last value.
    Send(OwnedMessage, bool),
    /// Nothing was found yet; go on when there is time.
    Later,
    /// There is one, but the window is used up.
    Pause,
    /// That was all.
    End,
}

/// Where a search by name goes on: behind this name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cursor(pub Option<Box<[u8]>>);

/// How much was looked at, and how much may be.
#[derive(Clone, Copy, Debug)]
pub struct Visits {
    /// Names and messages that were looked at.
    pub count: usize,
    /// How many may be, about.
    pub max: usize,
}

impl Visits {
    /// Whether the rest is for later.
    #[must_use]
    pub fn is_exhausted(self) -> bool {
        self.count >= self.max
    }
}

/// Which names are wanted.
#[derive(Clone, Copy, Debug)]
pub struct Search<'a> {
    /// What all of them begin with; the name itself, if it is no pattern.
    prefix: &'a [u8],
    is_pattern: bool,
}

impl<'a> Search<'a> {
    /// One for names that begin so, or (`false`) for this name alone.
    #[must_use]
    pub fn new(prefix: &'a [u8], is_pattern: bool) -> Self {
        Search { prefix, is_pattern }
    }

    /// Where to look behind a place.
    #[must_use]
    pub fn range<'b>(&'b self, behind: &'b Cursor) -> (Bound<&'b [u8]>, Bound<&'b [u8]>) {
        let from = behind.0.as_deref().map_or(Bound::Included(self.prefix), Bound::Excluded);
        (from, Bound::Unbounded)
    }

    /// Whether this name, or one behind it, may be wanted.
    #[must_use]
    pub fn may_reach(&self, name: &[u8]) -> bool {
        if self.is_pattern { name.starts_with(self.prefix) } else { name == self.prefix }
    }

    /// Whether this name is wanted.
    #[must_use]
    pub fn is_for(&self, name: &[u8], matches: impl Fn(&[u8]) -> bool) -> bool {
        !self.is_pattern || matches(name)
    }
}

#[derive(Debug)]
enum Stage {
    /// Last values behind this name.
    Retained(Cursor),
    /// Which stale messages there are, behind this one.
    FindStale(Place),
    SendStale,
}

/// One of them.
#[derive(Debug)]
pub struct Replay {
    /// What was subscribed to.
    pub name: Box<[u8]>,
    prefix_len: usize,
    is_pattern: bool,
    /// Stale messages of this connection stay for others.
    without: u64,
    stage: Stage,
    /// Stale messages, by their arrival.
    stale: BinaryHeap<Reverse<u64>>,
    messages_left: usize,
    bytes_left: usize,
    /// The frame that waits for the end, or until nothing more can be sent before an ACK.
    pub reply: Option<Requester>,
}

impl Replay {
    /// One from the beginning; its first window is still to be asked for. What a pattern matches begins with so much of
    /// it, `None` if it is a plain name.
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

    /// The subscriber has room for a window.
    pub fn open(&mut self) {
        (self.messages_left, self.bytes_left) = (WINDOW_MESSAGES, WINDOW_BYTES);
    }

    /// Takes the next step. What has expired by now is passed over.
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
                        if let Some(stored) = found {
                            return self.send(stored, true);
                        }
                    }
                    None if visits.is_exhausted() => return Step::Later,
                    None => self.stage = Stage::FindStale(Place::default()),
                },
                Stage::FindStale(place) => match stale.next_behind(&search, place, &matches, visits) {
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
                    if is_wanted && let Some(stored) = stale.take_one(first) {
                        return self.send(stored, false);
                    }
                }
            }
        }
        Step::Later
    }

    fn send(&mut self, stored: OwnedMessage, retained: bool) -> Step {
        self.messages_left -= 1;
        self.bytes_left = self.bytes_left.saturating_sub(stored.size());
        Step::Send(stored, retained)
    }

    /// Bytes it occupies, about.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        size_of::<Replay>() + self.name.len() + 8 * self.stale.capacity() + 64
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use stompica_proto::encode::Message;

    use super::*;
    use crate::ids::{NOBODY, ShardId};
    use crate::queue::stale::StaleCounts;

    fn stored(destination: &[u8], body: &[u8]) -> OwnedMessage {
        OwnedMessage::new(&Message { destination, id: b"i", sender: 0, headers: b"", plain: true, body })
    }

    struct Past {
        retained: Retained,
        stale: Stale,
    }

    impl Past {
        fn new() -> Self {
            let counts = Arc::new(StaleCounts::new(1));
            Past { retained: Retained::new(Arc::default()), stale: Stale::new(ShardId(0), counts) }
        }

        fn step(&mut self, replay: &mut Replay, max: usize) -> (Step, usize) {
            let mut visits = Visits { count: 0, max };
            let past = (&mut self.retained, &mut self.stale);
            let step = replay.step(0, past, |name| name != b"/t/no", &mut visits);
            (step, visits.count)
        }

        /// Bodies up to the next pause or the end, and which of the two it was.
        fn window(&mut self, replay: &mut Replay) -> (Vec<u8>, bool) {
            let mut bodies = Vec::new();
            loop {
                match self.step(replay, 3).0 {
                    Step::Send(stored, _) => bodies.push(stored.message().body[0]),
                    Step::Later => {}
                    Step::Pause => return (bodies, false),
                    Step::End => return (bodies, true),
                }
            }
        }
    }

    #[test]
    fn last_values_come_by_name_and_stale_messages_by_arrival_window_by_window() {
        let mut past = Past::new();
        for at in 0..100_u8 {
            past.retained.set(stored(format!("/t/{at:03}").as_bytes(), &[at]));
        }
        for (at, name) in [(201_u8, b"/t/z"), (202, b"/t/a"), (203, b"/t/z")] {
            _ = past.stale.hold(stored(name, &[at]), 10);
        }
        past.retained.set(stored(b"/t/no", b"!"));
        past.retained.set(stored(b"/u", b"!"));
        let mut replay = Replay::new((*b"/t/>").into(), Some(3), NOBODY, None);
        assert_eq!(past.window(&mut replay), (vec![], false), "no window was asked for");
        replay.open();
        assert_eq!(past.window(&mut replay), ((0..64).collect(), false));
        past.retained.remove(b"/t/064");
        past.retained.remove(b"/t/063");
        replay.open();
        let rest: Vec<u8> = (65..100).chain([201, 202, 203]).collect();
        assert_eq!(past.window(&mut replay), (rest, true));
        assert_eq!(past.stale.next_ms(), None, "stale messages were taken out");
    }

    #[test]
    fn a_plain_name_gets_its_own_and_looks_at_nothing_else() {
        let mut past = Past::new();
        for name in [&b"/t"[..], b"/t/a", b"/t/b"] {
            past.retained.set(stored(name, name));
        }
        let mut replay = Replay::new((*b"/t/a").into(), None, NOBODY, None);
        replay.open();
        let (first, visits) = past.step(&mut replay, 100);
        assert!(matches!(first, Step::Send(found, true) if found.destination() == b"/t/a"));
        assert_eq!(visits, 1);
        assert!(matches!(past.step(&mut replay, 100), (Step::End, 1)));
    }

    #[test]
    fn stale_messages_of_one_name_are_found_a_portion_at_a_time() {
        let mut past = Past::new();
        for at in 0..200_u8 {
            _ = past.stale.hold(stored(b"/t/a", &[at]), 1000);
        }
        let mut replay = Replay::new((*b"/t/a").into(), None, NOBODY, None);
        let mut steps = 0;
        while let (Step::Later, visits) = past.step(&mut replay, 20) {
            steps += 1;
            assert!(visits <= 21, "{visits} in step {steps}");
        }
        assert!(steps >= 10, "{steps} steps");
        let mut bodies = Vec::new();
        while bodies.len() < 200 {
            replay.open();
            bodies.extend(past.window(&mut replay).0);
        }
        assert!(bodies.into_iter().eq(0..200));
    }

    #[test]
    fn what_has_expired_is_passed_over() {
        let mut past = Past::new();
        for (expires_ms, number) in [(0, 0), (5, 1), (6, 2)] {
            let name = [b'/', b't', b'/', number];
            let mut value = stored(&name, &[number]);
            value.expires_ms = expires_ms;
            past.retained.set(value);
            let mut stale = stored(&name, &[number + 10]);
            stale.expires_ms = expires_ms.max(5);
            _ = past.stale.hold(stale, 10);
        }
        let mut replay = Replay::new((*b"/t/>").into(), Some(3), NOBODY, None);
        replay.open();
        let mut bodies = Vec::new();
        let mut visits = Visits { count: 0, max: 100 };
        let mut step = || replay.step(5, (&mut past.retained, &mut past.stale), |_| true, &mut visits);
        while let Step::Send(stored, _) = step() {
            bodies.push(stored.message().body[0]);
        }
        assert_eq!(bodies, [0, 2, 12]);
    }

    #[test]
    fn large_messages_use_a_window_up_by_their_bytes_and_share_them() {
        let mut past = Past::new();
        let body = vec![b'x'; WINDOW_BYTES];
        for name in [b"/t/a", b"/t/b"] {
            past.retained.set(stored(name, &body));
        }
        let before = crate::message::held_bytes();
        let mut replay = Replay::new((*b"/t/>").into(), Some(3), NOBODY, None);
        replay.open();
        let (first, _) = past.step(&mut replay, 100);
        assert!(matches!(first, Step::Send(..)));
        assert!(crate::message::held_bytes() < before + 1000, "its bytes are there once");
        assert!(matches!(past.step(&mut replay, 100).0, Step::Pause));
    }
}
