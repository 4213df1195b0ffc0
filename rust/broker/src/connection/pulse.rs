//! How long a silent WebSocket client is waited for.
//!
//! Browsers put the timers of hidden pages to sleep, so a client that is late is pinged before it is given up. A browser
//! answers pings by itself, also for a page whose script is dead: so something of STOMP has to come now and then, too.

use stompica_proto::heartbeat::HeartBeat;

/// A silent client without heart-beats is pinged after this long, and given up after as long again.
const PING_MS: u64 = 60_000;

/// What is known of a WebSocket client's life, besides its last byte.
#[derive(Clone, Copy, Debug)]
pub struct Pulse {
    /// A ping is out since this time.
    pinged_ms: Option<u64>,
    /// The last byte of STOMP.
    stomp_ms: u64,
}

impl Pulse {
    /// The pulse of a client that has just come.
    #[must_use]
    pub fn new(now_ms: u64) -> Self {
        Pulse { pinged_ms: None, stomp_ms: now_ms }
    }

    /// Bytes have come, whatever they are: a pong will do.
    pub fn feel(&mut self) {
        self.pinged_ms = None;
    }

    /// Bytes of STOMP have come, or none were expected until now.
    pub fn feel_stomp(&mut self, now_ms: u64) {
        self.stomp_ms = now_ms;
    }

    /// Takes note of a ping; `false` if one is out already.
    pub fn ping(&mut self, now_ms: u64) -> bool {
        let is_first = self.pinged_ms.is_none();
        self.pinged_ms.get_or_insert(now_ms);
        is_first
    }

    /// When the client is to be pinged or given up, if its last byte came at `read_ms` and nothing comes until then.
    #[must_use]
    pub fn deadline(&self, beats: &HeartBeat, read_ms: u64) -> u64 {
        let patience_ms = beats.receive_deadline(read_ms).map_or(PING_MS, |at_ms| at_ms - read_ms);
        let silent_ms = self.pinged_ms.unwrap_or(read_ms).saturating_add(patience_ms);
        beats.stomp_deadline(self.stomp_ms).map_or(silent_ms, |at_ms| at_ms.min(silent_ms))
    }

    /// For how long nothing of STOMP has come, if that is too long.
    #[must_use]
    pub fn is_without_stomp(&self, beats: &HeartBeat, now_ms: u64) -> Option<u64> {
        beats.stomp_deadline(self.stomp_ms).filter(|at_ms| now_ms >= *at_ms).map(|_| now_ms - self.stomp_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn beats(receive_ms: u32) -> HeartBeat {
        HeartBeat { receive_ms, send_ms: 0 }
    }

    #[test]
    fn a_late_client_is_pinged_and_has_as_long_again() {
        let mut pulse = Pulse::new(1_000);
        assert_eq!(pulse.deadline(&beats(10_000), 1_000), 21_000);
        assert!(pulse.ping(21_000) && !pulse.ping(22_000));
        assert_eq!(pulse.deadline(&beats(10_000), 1_000), 41_000);
        pulse.feel();
        assert_eq!(pulse.deadline(&beats(10_000), 30_000), 50_000);
    }

    #[test]
    fn without_heart_beats_pongs_are_enough_for_ever() {
        let pulse = Pulse::new(1_000);
        assert_eq!(pulse.deadline(&HeartBeat::default(), 900_000), 960_000);
        assert_eq!(pulse.is_without_stomp(&HeartBeat::default(), u64::MAX), None);
    }

    #[test]
    fn pongs_alone_are_enough_for_ten_intervals_and_no_less_than_90_s() {
        let mut pulse = Pulse::new(1_000);
        for (interval_ms, end_ms) in [(1, 91_000), (9_000, 91_000), (10_000, 101_000), (60_000, 601_000)] {
            let beats = beats(interval_ms);
            assert_eq!(pulse.deadline(&beats, end_ms - 1), end_ms, "{interval_ms}");
            assert_eq!(pulse.is_without_stomp(&beats, end_ms - 1), None, "{interval_ms}");
            assert_eq!(pulse.is_without_stomp(&beats, end_ms), Some(end_ms - 1_000), "{interval_ms}");
        }
        pulse.feel_stomp(50_000);
        assert_eq!(pulse.is_without_stomp(&beats(9_000), 139_999), None);
        assert_eq!(pulse.is_without_stomp(&beats(9_000), 140_000), Some(90_000));
    }
}
