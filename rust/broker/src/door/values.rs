//! Values as the system's libraries have them, for the builds whose outside is computed.

use std::ops::{Add, BitOr, Sub};
use std::time::Duration;

use super::outside::now;

/// Keys of hash tables. They are constant, so that the order of a table follows from its contents.
pub type HashState = foldhash::fast::FixedState;

/// Identifies a source of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub usize);

/// The kinds of events to report. All are reported.
#[derive(Clone, Copy, Debug)]
pub struct Interest;

impl Interest {
    /// Bytes or connections have arrived.
    pub const READABLE: Interest = Interest;
    /// There is room to write.
    pub const WRITABLE: Interest = Interest;
}

impl BitOr for Interest {
    type Output = Interest;

    fn bitor(self, _: Interest) -> Interest {
        self
    }
}

/// A moment of the time that the outside computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(Duration);

impl Instant {
    /// The current moment.
    #[must_use]
    pub fn now() -> Self {
        Instant(now())
    }

    /// The time that has passed since this moment.
    #[must_use]
    pub fn elapsed(self) -> Duration {
        Instant::now() - self
    }

    /// The time between an earlier moment and this one; zero if the other one is later.
    #[must_use]
    pub fn saturating_duration_since(self, earlier: Instant) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    /// The moment after this time, if it can be represented.
    #[must_use]
    pub fn checked_add(self, time: Duration) -> Option<Instant> {
        self.0.checked_add(time).map(Instant)
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;

    fn add(self, time: Duration) -> Instant {
        Instant(self.0 + time)
    }
}

impl Sub for Instant {
    type Output = Duration;

    fn sub(self, earlier: Instant) -> Duration {
        self.saturating_duration_since(earlier)
    }
}
