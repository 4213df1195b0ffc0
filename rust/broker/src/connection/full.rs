//! A connection that is full: more waits for it than its outbox may hold, or than memory has room for. Its client has to
//! take or acknowledge some of it in time.

use crate::timer::Since;

/// What is owed to a client, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Owed {
    /// In its outbox.
    pub outbox: usize,
    /// In private queues of its subscriptions, and for its ACKs of messages from them.
    pub queued: usize,
}

impl Owed {
    /// All of it.
    #[must_use]
    pub fn all(self) -> usize {
        self.outbox + self.queued
    }
}

/// The state of a connection that is full.
#[derive(Debug)]
pub struct Full {
    since_ms: u64,
    /// What was owed to its client when it became full.
    owed: Owed,
    /// The bytes that its outbox had given to the socket until then.
    taken: u64,
    /// The bytes that its client has acknowledged since then.
    acknowledged: usize,
    /// Whether the time in which its own frames wait does not count.
    excuses_waits: bool,
    /// How long they have waited since it became full, and its ACKs behind them.
    waited_ms: u64,
    /// The time since which one of them waits.
    waits_since_ms: Since,
}

impl Full {
    /// A connection becomes full; its outbox has given `taken` bytes to the socket so far.
    #[must_use]
    pub fn new(now_ms: u64, owed: Owed, taken: u64) -> Self {
        Full {
            since_ms: now_ms,
            owed,
            taken,
            acknowledged: 0,
            excuses_waits: false,
            waited_ms: 0,
            waits_since_ms: Since::NONE,
        }
    }

    /// It waits for memory: the time in which its own frames wait does not count while it owes ACKs, which may wait behind
    /// them. The whole time is doubled at most: a client must not escape by endless waits.
    pub fn excuse_waits(&mut self) {
        self.excuses_waits = self.owed.queued > 0;
    }

    /// One that has been full since this time.
    #[cfg(test)]
    #[must_use]
    pub fn since(ms: u64) -> Box<Self> {
        Box::new(Full::new(ms, Owed::default(), 0))
    }

    /// The time since which it is full, or got more to take after it had taken enough.
    #[must_use]
    pub fn since_ms(&self) -> u64 {
        self.since_ms
    }

    /// Gives its client the whole time again.
    pub fn restart(&mut self, now_ms: u64) {
        (self.since_ms, self.waited_ms) = (now_ms, 0);
        if self.waits_since_ms.is_set() {
            self.waits_since_ms = Since::at(now_ms);
        }
    }

    /// Notes that its client has acknowledged messages from its private queues.
    pub fn note_acknowledged(&mut self, bytes: usize) {
        self.acknowledged += bytes;
    }

    /// Notes whether a frame of its client waits, so that no later ones are read.
    pub fn note_wait(&mut self, waits: bool, now_ms: u64) {
        if waits {
            self.waits_since_ms.get_or_set(now_ms);
        } else if let Some(since_ms) = self.waits_since_ms.take() {
            self.waited_ms += now_ms.saturating_sub(since_ms);
        }
    }

    /// The time by which its client has to take or acknowledge enough.
    #[must_use]
    pub fn deadline_ms(&self, patience_ms: u64) -> u64 {
        let waited_ms = match self.waits_since_ms.is_set() {
            _ if !self.excuses_waits => 0,
            true => patience_ms,
            false => self.waited_ms.min(patience_ms),
        };
        self.since_ms.saturating_add(patience_ms).saturating_add(waited_ms)
    }

    /// Whether its client has made progress: it took or acknowledged some of what was owed, or that has expired, and half of
    /// it if the rest is `relevant_bytes` or more. What has come since then does not hide that.
    #[must_use]
    pub fn has_progressed(&self, now: Owed, taken: u64, relevant_bytes: usize) -> bool {
        let read = usize::try_from(taken.saturating_sub(self.taken)).unwrap_or(usize::MAX);
        let gone = self.acknowledged.max(self.owed.queued.saturating_sub(now.queued));
        let done = read.min(self.owed.outbox) + gone.min(self.owed.queued);
        let left = self.owed.all() - done;
        done >= left || (done > 0 && left < relevant_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full(outbox: usize, queued: usize) -> Full {
        Full::new(1000, Owed { outbox, queued }, 50)
    }

    #[test]
    fn time_in_which_acks_may_wait_does_not_count_up_to_a_maximum() {
        let mut full = full(0, 10);
        full.excuse_waits();
        assert_eq!(full.deadline_ms(500), 1500);
        full.note_wait(true, 1100);
        full.note_wait(true, 1150);
        assert_eq!(full.deadline_ms(500), 2000);
        full.note_wait(false, 1200);
        assert_eq!(full.deadline_ms(500), 1600);
        full.note_wait(true, 1200);
        full.note_wait(false, 1900);
        assert_eq!(full.deadline_ms(500), 2000, "in all");
        full.restart(2000);
        assert_eq!((full.since_ms(), full.deadline_ms(500)), (2000, 2500));
    }

    #[test]
    fn waits_excuse_nobody_who_owes_no_acks_or_has_a_full_outbox() {
        let mut without_acks = full(10, 0);
        without_acks.excuse_waits();
        for mut full in [without_acks, full(10, 10)] {
            full.note_wait(true, 1000);
            assert_eq!(full.deadline_ms(500), 1500);
        }
    }

    #[test]
    fn progress_is_what_was_taken_or_acknowledged_of_what_was_owed() {
        let now = |outbox, queued| Owed { outbox, queued };
        assert!(!full(100, 0).has_progressed(now(100, 0), 50, 1000));
        assert!(full(100, 0).has_progressed(now(100, 0), 51, 1000), "more has come since");
        assert!(!full(100, 0).has_progressed(now(10, 0), 99, 50), "the rest is relevant");
        assert!(full(100, 0).has_progressed(now(500, 0), 100, 10), "half of it");
        assert!(!full(10, 100).has_progressed(now(0, 100), 10_000, 50), "more of the outbox than was owed");
        assert!(full(0, 100).has_progressed(now(0, 99), 50, 1000));
        assert!(!full(0, 100).has_progressed(now(0, 120), 50, 1000));
        let mut acknowledging = full(0, 100);
        acknowledging.note_acknowledged(10);
        assert!(acknowledging.has_progressed(now(0, 500), 50, 1000), "more has come since");
        assert!(full(0, 0).has_progressed(now(5, 5), 50, 1), "nothing was owed");
    }
}
