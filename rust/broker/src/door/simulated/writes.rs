//! When the broker wrote which bytes: a client may read them much later.

use std::collections::VecDeque;
use std::time::Duration;

/// What is known about the times of some bytes of the broker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// They were written then.
    pub at: Duration,
    /// They were encoded then or later: at the time of the write, unless bytes before them had to wait for room.
    pub encoded_from: Duration,
    /// What they tell was decided then or later: the broker had nothing to do before that.
    pub decided_from: Duration,
}

/// The writes of the bytes that a client has not taken.
#[derive(Debug, Default)]
pub(super) struct Writes {
    /// The number of bytes of each write, and its times.
    all: VecDeque<(usize, Written)>,
    /// Since some bytes had to wait for room: the times of the write that was not complete.
    waiting: Option<Written>,
    /// The decisions that may wait behind such bytes, and since when there are none of these any more. What waits with
    /// them outside of the outbox follows before the broker has nothing to do.
    behind: Option<(Duration, Duration)>,
}

impl Writes {
    /// Notes a write of `len` bytes; `is_partial`: the broker has more bytes for this connection.
    pub(super) fn note(&mut self, len: usize, now: Duration, quiet: Duration, is_partial: bool) {
        let behind = self.behind.filter(|(_, until)| quiet <= *until).map(|(decided_from, _)| decided_from);
        let fresh = Written { at: now, encoded_from: now, decided_from: behind.unwrap_or(quiet) };
        let written = Written { at: now, ..self.waiting.unwrap_or(fresh) };
        if len > 0 {
            self.all.push_back((len, written));
        }
        if is_partial || self.waiting.is_some() {
            self.behind = Some((written.decided_from, now));
        }
        self.waiting = is_partial.then_some(written);
    }

    /// Takes up to `max` bytes of the first write. Returns their number and times.
    pub(super) fn take(&mut self, max: usize) -> (usize, Written) {
        let Some((len, written)) = self.all.front_mut() else { return (0, Written::default()) };
        let (taken, written) = (max.min(*len), *written);
        *len -= taken;
        if *len == 0 {
            self.all.pop_front();
        }
        (taken, written)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_behind_others_that_waited_may_be_as_old_as_these() {
        let ms = Duration::from_millis;
        let written = |at, encoded_from, decided_from| Written {
            at: ms(at),
            encoded_from: ms(encoded_from),
            decided_from: ms(decided_from),
        };
        let mut writes = Writes::default();
        writes.note(5, ms(10), ms(9), false);
        writes.note(5, ms(20), ms(19), true);
        writes.note(0, ms(30), ms(29), true);
        writes.note(5, ms(40), ms(39), false);
        writes.note(5, ms(45), ms(39), false);
        writes.note(5, ms(50), ms(49), false);
        assert_eq!(writes.take(9), (5, written(10, 10, 9)));
        assert_eq!(writes.take(2), (2, written(20, 20, 19)));
        assert_eq!(writes.take(9), (3, written(20, 20, 19)));
        assert_eq!(writes.take(9), (5, written(40, 20, 19)));
        assert_eq!(writes.take(9), (5, written(45, 45, 19)));
        assert_eq!(writes.take(9), (5, written(50, 50, 49)));
        assert_eq!(writes.take(9).0, 0);
    }
}
