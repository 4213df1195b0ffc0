//! A frame, or a WebSocket message, of which only a part has arrived: when it began, and when it has to be complete.
//!
//! The clock starts at the first byte, and stops while the broker itself does not read the connection.

/// A frame gets one second more for this many bytes.
const BYTES_A_SECOND: u64 = 64 << 10;

/// The frame of which a part has arrived, if there is one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arrival {
    /// When its first byte came, plus the time in which nothing was read.
    since_ms: Option<u64>,
    /// Since when nothing is read.
    stopped_ms: Option<u64>,
    /// Its length where that is known, else 0.
    announced: u64,
}

impl Arrival {
    /// Notes that a frame is incomplete: the same one as before, or (`is_new`) one that has just begun.
    pub fn is_incomplete(&mut self, is_new: bool, announced: u64, now_ms: u64) {
        if is_new || self.since_ms.is_none() {
            self.since_ms = Some(now_ms);
        }
        self.announced = announced;
    }

    /// It is complete.
    pub fn is_over(&mut self) {
        *self = Arrival { stopped_ms: self.stopped_ms, ..Arrival::default() };
    }

    /// The connection is not read from now on.
    pub fn stop(&mut self, now_ms: u64) {
        self.stopped_ms.get_or_insert(now_ms);
    }

    /// The connection is read again. Returns whether a deadline is in force again.
    pub fn go_on(&mut self, now_ms: u64) -> bool {
        let Some(stopped_ms) = self.stopped_ms.take() else { return false };
        self.since_ms = self.since_ms.map(|since_ms| since_ms + (now_ms - stopped_ms.max(since_ms)));
        self.since_ms.is_some()
    }

    /// When its first byte came, plus the time in which nothing was read.
    #[must_use]
    pub fn since_ms(&self) -> Option<u64> {
        self.since_ms
    }

    /// Whether a part of a frame has arrived.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.since_ms.is_some()
    }

    /// Its length in bytes where that is known, else 0.
    #[must_use]
    pub fn announced(&self) -> usize {
        usize::try_from(self.announced).unwrap_or(usize::MAX)
    }

    /// How many milliseconds it may take in all; `came` bytes of it have arrived.
    #[must_use]
    pub fn allowed_ms(&self, came: usize, timeout_ms: u64) -> u64 {
        let bytes = self.announced.max(came as u64);
        timeout_ms.saturating_add(bytes.saturating_mul(1000) / BYTES_A_SECOND)
    }

    /// When it has to be complete; `None` while the broker does not read it.
    #[must_use]
    pub fn deadline_ms(&self, came: usize, timeout_ms: u64) -> Option<u64> {
        let since_ms = self.since_ms.filter(|_| self.stopped_ms.is_none())?;
        Some(since_ms.saturating_add(self.allowed_ms(came, timeout_ms)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_runs_from_the_first_byte() {
        let mut arrival = Arrival::default();
        assert_eq!(arrival.deadline_ms(0, 1000), None);
        arrival.is_incomplete(false, 0, 5);
        arrival.is_incomplete(false, 0, 900);
        assert_eq!(arrival.deadline_ms(10, 1000), Some(1005));
        arrival.is_incomplete(true, 0, 2000);
        assert_eq!(arrival.deadline_ms(10, 1000), Some(3000));
        arrival.is_over();
        assert_eq!(arrival.deadline_ms(10, 1000), None);
    }

    #[test]
    fn a_long_frame_has_longer() {
        let mut arrival = Arrival::default();
        arrival.is_incomplete(true, 128 << 10, 0);
        assert_eq!(arrival.deadline_ms(1, 1000), Some(3000), "by what was announced");
        arrival.is_incomplete(false, 0, 0);
        assert_eq!(arrival.deadline_ms(64 << 10, 1000), Some(2000), "or by what has come");
    }

    #[test]
    fn the_clock_stands_still_while_nothing_is_read() {
        let mut arrival = Arrival::default();
        arrival.is_incomplete(true, 0, 100);
        arrival.stop(300);
        arrival.stop(400);
        assert_eq!(arrival.deadline_ms(0, 1000), None);
        assert!(arrival.go_on(5300));
        assert!(!arrival.go_on(5400));
        assert_eq!(arrival.deadline_ms(0, 1000), Some(6100));
    }

    #[test]
    fn what_begins_while_nothing_is_read_has_all_its_time() {
        let mut arrival = Arrival::default();
        arrival.stop(100);
        arrival.is_incomplete(true, 0, 700);
        arrival.go_on(900);
        assert_eq!(arrival.deadline_ms(0, 1000), Some(1900));
    }
}
