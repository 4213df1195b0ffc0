//! The arrival of a frame or WebSocket message of which a part has come: its start and its deadline.
//!
//! The time starts at the first byte, and stops while the broker does not read the connection.

use crate::timer::Since;

/// The number of bytes for which a frame gets one more second.
const BYTES_A_SECOND: u64 = 64 << 10;

/// The arrival of a frame, if a part of one has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arrival {
    /// The time of its first byte, plus the time in which the connection was not read.
    since_ms: Since,
    /// The time since which the connection is not read.
    stopped_ms: Since,
    /// Its length if known, else 0.
    announced: u64,
}

impl Arrival {
    /// Records that a frame is incomplete: the same one as before, or (`is_new`) one that has just begun.
    pub fn is_incomplete(&mut self, is_new: bool, announced: u64, now_ms: u64) {
        if is_new {
            self.since_ms = Since::NONE;
        }
        self.since_ms.get_or_set(now_ms);
        self.announced = announced;
    }

    /// Records that the frame is complete.
    pub fn is_over(&mut self) {
        *self = Arrival { stopped_ms: self.stopped_ms, ..Arrival::default() };
    }

    /// Stops the time, because the connection is not read.
    pub fn stop(&mut self, now_ms: u64) {
        self.stopped_ms.get_or_set(now_ms);
    }

    /// Continues the time when the connection is read again. Returns whether a deadline is running.
    pub fn go_on(&mut self, now_ms: u64) -> bool {
        let Some(stopped_ms) = self.stopped_ms.take() else { return false };
        let Some(since_ms) = self.since_ms.get() else { return false };
        self.since_ms = Since::at(since_ms + (now_ms - stopped_ms.max(since_ms)));
        true
    }

    /// The time of its first byte, plus the time in which the connection was not read.
    #[must_use]
    pub fn since_ms(&self) -> Option<u64> {
        self.since_ms.get()
    }

    /// Whether a part of a frame has arrived.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.since_ms.is_set()
    }

    /// Its length in bytes if known, else 0.
    #[must_use]
    pub fn announced(&self) -> usize {
        usize::try_from(self.announced).unwrap_or(usize::MAX)
    }

    /// The total time that it may take, in milliseconds; `came` bytes of it have arrived.
    #[must_use]
    pub fn allowed_ms(&self, came: usize, timeout_ms: u64) -> u64 {
        let bytes = self.announced.max(came as u64);
        timeout_ms.saturating_add(bytes.saturating_mul(1000) / BYTES_A_SECOND)
    }

    /// The time at which it must be complete; `None` while the broker does not read the connection.
    #[must_use]
    pub fn deadline_ms(&self, came: usize, timeout_ms: u64) -> Option<u64> {
        let since_ms = self.since_ms.get().filter(|_| !self.stopped_ms.is_set())?;
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
    fn a_long_frame_has_more_time() {
        let mut arrival = Arrival::default();
        arrival.is_incomplete(true, 128 << 10, 0);
        assert_eq!(arrival.deadline_ms(1, 1000), Some(3000), "by the announced length");
        arrival.is_incomplete(false, 0, 0);
        assert_eq!(arrival.deadline_ms(64 << 10, 1000), Some(2000), "by the bytes that have come");
    }

    #[test]
    fn the_clock_stops_while_the_connection_is_not_read() {
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
    fn a_frame_that_begins_while_the_clock_is_stopped_has_all_its_time() {
        let mut arrival = Arrival::default();
        arrival.stop(100);
        arrival.is_incomplete(true, 0, 700);
        arrival.go_on(900);
        assert_eq!(arrival.deadline_ms(0, 1000), Some(1900));
    }
}
