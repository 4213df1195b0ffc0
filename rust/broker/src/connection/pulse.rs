//! Deadlines for silent WebSocket clients.
//!
//! Browsers suspend the timers of hidden pages, so a late client is pinged before it is disconnected. A browser
//! answers pings by itself, even if the page's script is dead; so STOMP bytes have to come now and then, too.

use stompica_proto::heartbeat::HeartBeat;

use crate::door::planted;

/// A silent client without heart-beats is pinged after this time, and disconnected after the same time again.
const PING_MS: u64 = 60_000;

/// The liveness of a WebSocket client, besides its last byte.
#[derive(Clone, Copy, Debug)]
pub struct Pulse {
    /// The time of the ping that is not answered yet.
    pinged_ms: Option<u64>,
    /// The time of the last STOMP byte.
    stomp_ms: u64,
    /// The time of the last heart-beat that was sent beside a ping or pong.
    beside_ms: u64,
}

impl Pulse {
    /// The state of a new client.
    #[must_use]
    pub fn new(now_ms: u64) -> Self {
        Pulse { pinged_ms: None, stomp_ms: now_ms, beside_ms: now_ms }
    }

    /// Records bytes of any kind: a pong is enough.
    pub fn note_bytes(&mut self) {
        self.pinged_ms = None;
    }

    /// Records STOMP bytes, or that none were expected until now.
    pub fn note_stomp_bytes(&mut self, now_ms: u64) {
        self.stomp_ms = now_ms;
    }

    /// Records that a ping is sent; `false` if one is pending already.
    pub fn ping(&mut self, now_ms: u64) -> bool {
        let is_first = self.pinged_ms.is_none();
        self.pinged_ms.get_or_insert(now_ms);
        is_first
    }

    /// Whether a ping or pong needs a heart-beat beside it, since the script of a page does not see either of them. The
    /// next heart-beat is due after four fifths of the interval, so one in each tenth of it is enough. Records it.
    pub fn needs_beat_beside(&mut self, beats: &HeartBeat, now_ms: u64) -> bool {
        let interval_ms = u64::from(beats.send_ms);
        let is_needed = interval_ms > 0
            && now_ms.saturating_sub(self.beside_ms) >= interval_ms / 10
            && !planted!("pings-count-as-beats");
        if is_needed {
            self.beside_ms = now_ms;
        }
        is_needed
    }

    /// The time at which the client has to be pinged or disconnected, if its last byte came at `read_ms`.
    #[must_use]
    pub fn deadline(&self, beats: &HeartBeat, read_ms: u64) -> u64 {
        let patience_ms = beats.receive_deadline(read_ms).map_or(PING_MS, |at_ms| at_ms - read_ms);
        let silent_ms = self.pinged_ms.unwrap_or(read_ms).saturating_add(patience_ms);
        beats.stomp_deadline(self.stomp_ms).map_or(silent_ms, |at_ms| at_ms.min(silent_ms))
    }

    /// The duration without STOMP bytes, if it is too long.
    #[must_use]
    pub fn is_without_stomp(&self, beats: &HeartBeat, now_ms: u64) -> Option<u64> {
        beats.stomp_deadline(self.stomp_ms).filter(|at_ms| now_ms >= *at_ms).map(|_| now_ms - self.stomp_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The client promised to send something every 10 s.
    const BEATS: HeartBeat = HeartBeat { receive_ms: 10_000, send_ms: 0 };

    #[test]
    fn a_late_client_is_pinged_and_gets_the_same_time_again() {
        let mut pulse = Pulse::new(1_000);
        assert_eq!(pulse.deadline(&BEATS, 1_000), 21_000);
        assert!(pulse.ping(21_000) && !pulse.ping(22_000));
        assert_eq!(pulse.deadline(&BEATS, 1_000), 41_000);
        pulse.note_bytes();
        assert_eq!(pulse.deadline(&BEATS, 30_000), 50_000);
    }

    #[test]
    fn a_heart_beat_stands_beside_pings_but_not_beside_each_of_many() {
        let beats = HeartBeat { receive_ms: 0, send_ms: 10_000 };
        let mut pulse = Pulse::new(1_000);
        assert!(!pulse.needs_beat_beside(&HeartBeat::default(), 90_000), "nobody wants it");
        let needed: Vec<u64> =
            (1_000..4_500).step_by(100).filter(|at_ms| pulse.needs_beat_beside(&beats, *at_ms)).collect();
        assert_eq!(needed, [2_000, 3_000, 4_000]);
    }

    #[test]
    fn without_heart_beats_pongs_are_always_enough() {
        let pulse = Pulse::new(1_000);
        assert_eq!(pulse.deadline(&HeartBeat::default(), 900_000), 960_000);
        assert_eq!(pulse.is_without_stomp(&HeartBeat::default(), u64::MAX), None);
    }

    #[test]
    fn pongs_alone_are_enough_for_ten_intervals_but_at_least_90_s() {
        let mut pulse = Pulse::new(1_000);
        for (interval_ms, end_ms) in [(1, 91_000), (9_000, 91_000), (10_000, 101_000), (60_000, 601_000)] {
            let beats = HeartBeat { receive_ms: interval_ms, send_ms: 0 };
            assert_eq!(pulse.deadline(&beats, end_ms - 1), end_ms, "{interval_ms}");
            assert_eq!(pulse.is_without_stomp(&beats, end_ms - 1), None, "{interval_ms}");
            assert_eq!(pulse.is_without_stomp(&beats, end_ms), Some(end_ms - 1_000), "{interval_ms}");
        }
        pulse.note_stomp_bytes(50_000);
        let beats = HeartBeat { receive_ms: 9_000, send_ms: 0 };
        assert_eq!(pulse.is_without_stomp(&beats, 139_999), None);
        assert_eq!(pulse.is_without_stomp(&beats, 140_000), Some(90_000));
    }
}
