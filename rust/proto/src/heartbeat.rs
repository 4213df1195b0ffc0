//! Heart-beats: negotiation and deadlines (STOMP 1.2 and 1.1, "Heart-beating").
//!
//! There is no clock here: the caller passes times as milliseconds of any monotonic clock.

use crate::ProtocolError;
use crate::error::Code;

/// The intervals of one session. The default is no heart-beats, as in every 1.0 session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeartBeat {
    /// Milliseconds within which the client promised to send data; 0: no promise.
    pub receive_ms: u32,
    /// Milliseconds within which the server must send data; 0: no obligation.
    pub send_ms: u32,
}

/// Browsers run the timers of a hidden page once a minute; this allows 50 % more for delays.
const HIDDEN_PAGE_MS: u64 = 90_000;

impl HeartBeat {
    /// Negotiates the intervals: each direction gets the greater of what the sender can do and the receiver wants, or
    /// none if either is 0. `header` is CONNECT's `heart-beat` as on the wire; missing means `0,0`. `offer_ms` is the
    /// header of CONNECTED: what the server can do, and what it wants.
    ///
    /// # Errors
    /// `E-HEART-BEAT` for anything but two non-negative integers around a comma.
    pub fn negotiate(header: Option<&[u8]>, offer_ms: (u32, u32)) -> Result<HeartBeat, ProtocolError> {
        let (client_sends, client_wants) = header.map_or(Ok((0, 0)), parse)?;
        let (server_sends, server_wants) = offer_ms;
        Ok(HeartBeat {
            receive_ms: agree(client_sends, server_wants),
            send_ms: agree(server_sends, client_wants),
        })
    }

    /// Time at which a beat must be written if nothing else is written before: a fifth of the interval early, so that a
    /// busy turn or a slow network does not delay it too much. `None`: never.
    #[must_use]
    pub fn next_send_due(&self, last_write_ms: u64) -> Option<u64> {
        let interval = u64::from(self.send_ms);
        (interval > 0).then(|| last_write_ms.saturating_add((interval - interval / 5).max(1)))
    }

    /// Whether a beat must be written now.
    #[must_use]
    pub fn send_due(&self, now_ms: u64, last_write_ms: u64) -> bool {
        self.next_send_due(last_write_ms).is_some_and(|due| now_ms >= due)
    }

    /// Time at which the client counts as dead if no byte has arrived: twice the interval after the last read, the
    /// tolerance described in docs/protocol.md, "Heart-beats". `None`: never.
    #[must_use]
    pub fn receive_deadline(&self, last_read_ms: u64) -> Option<u64> {
        let interval = u64::from(self.receive_ms);
        (interval > 0).then(|| last_read_ms.saturating_add(2 * interval))
    }

    /// Time at which a client counts as dead that sends bytes, but no STOMP: a browser still answers pings when the
    /// page's script is dead. It is ten times the interval after the last STOMP bytes, but longer than the pauses that
    /// browsers impose on timers of hidden pages. `None`: never.
    #[must_use]
    pub fn stomp_deadline(&self, last_stomp_ms: u64) -> Option<u64> {
        let interval = u64::from(self.receive_ms);
        (interval > 0).then(|| last_stomp_ms.saturating_add((10 * interval).max(HIDDEN_PAGE_MS)))
    }

    /// Whether the client has been silent for twice its interval.
    #[must_use]
    pub fn is_late(&self, now_ms: u64, last_read_ms: u64) -> bool {
        self.receive_deadline(last_read_ms).is_some_and(|late| now_ms >= late)
    }

    /// The session's next deadline; `None`: it has no heart-beats.
    #[must_use]
    pub fn next_deadline(&self, last_read_ms: u64, last_write_ms: u64) -> Option<u64> {
        self.receive_deadline(last_read_ms).into_iter().chain(self.next_send_due(last_write_ms)).min()
    }
}

fn agree(sends: u32, wants: u32) -> u32 {
    if sends == 0 || wants == 0 { 0 } else { sends.max(wants) }
}

/// Parses `x,y`. Nothing is trimmed; a number beyond `u32` milliseconds (49 days) becomes the maximum.
fn parse(header: &[u8]) -> Result<(u32, u32), ProtocolError> {
    let mut numbers = header.split(|&byte| byte == b',').map(number);
    match (numbers.next(), numbers.next(), numbers.next()) {
        (Some(Some(sends)), Some(Some(wants)), None) => Ok((sends, wants)),
        _ => Err(bad_header(header)),
    }
}

fn number(digits: &[u8]) -> Option<u32> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(
        digits
            .iter()
            .fold(0_u32, |sum, digit| sum.saturating_mul(10).saturating_add(u32::from(digit - b'0'))),
    )
}

#[cold]
fn bad_header(header: &[u8]) -> ProtocolError {
    let shown = String::from_utf8_lossy(header.get(..40).unwrap_or(header));
    ProtocolError::new(
        Code::HeartBeatHeader,
        format!("heart-beat '{shown}' is not two numbers of milliseconds such as '10000,10000'"),
    )
}

#[cfg(test)]
mod tests {
    use super::HeartBeat;
    use crate::error::Code;

    fn negotiate(header: &[u8], offer_ms: (u32, u32)) -> (u32, u32) {
        let agreed = HeartBeat::negotiate(Some(header), offer_ms).expect("a good header");
        (agreed.receive_ms, agreed.send_ms)
    }

    // docs/specification.md, items 15, 17
    #[test]
    fn the_slower_side_sets_each_interval() {
        assert_eq!(negotiate(b"5000,20000", (10_000, 8_000)), (8_000, 20_000));
        assert_eq!(negotiate(b"20000,5000", (10_000, 8_000)), (20_000, 10_000));
        assert_eq!(negotiate(b"0,5000", (10_000, 8_000)), (0, 10_000));
        assert_eq!(negotiate(b"5000,0", (10_000, 8_000)), (8_000, 0));
        assert_eq!(negotiate(b"5000,5000", (0, 0)), (0, 0));
        assert_eq!(negotiate(b"99999999999999999999,1", (1, 1)), (u32::MAX, 1));
    }

    // docs/specification.md, item 16
    #[test]
    fn a_missing_header_means_none() {
        assert_eq!(HeartBeat::negotiate(None, (10_000, 10_000)), Ok(HeartBeat::default()));
    }

    // docs/specification.md, item 15
    #[test]
    fn anything_but_two_numbers_is_an_error() {
        for header in
            ["", ",", "1", "1,", ",1", "1,2,3", "-1,5", "+1,5", "a,b", "1, 2", "1.5,2", "1;2", "1,2 "]
        {
            let error = HeartBeat::negotiate(Some(header.as_bytes()), (1, 1)).expect_err(header);
            assert_eq!(error.code, Code::HeartBeatHeader);
        }
    }

    // docs/specification.md, item 18
    #[test]
    fn a_beat_is_due_before_the_interval_ends() {
        let beats = HeartBeat { receive_ms: 0, send_ms: 1_000 };
        assert_eq!(beats.next_send_due(5_000), Some(5_800));
        assert!(!beats.send_due(5_799, 5_000));
        assert!(beats.send_due(5_800, 5_000));
        assert_eq!(HeartBeat { receive_ms: 0, send_ms: 1 }.next_send_due(5), Some(6));
    }

    // docs/specification.md, item 21
    #[test]
    fn a_client_is_late_after_twice_its_interval() {
        let beats = HeartBeat { receive_ms: 1_000, send_ms: 0 };
        assert!(!beats.is_late(6_999, 5_000));
        assert!(beats.is_late(7_000, 5_000));
        assert!(!beats.is_late(4_000, 5_000), "a read after `now` is not silence");
    }

    #[test]
    fn the_next_deadline_is_the_earlier_one() {
        let beats = HeartBeat { receive_ms: 1_000, send_ms: 1_000 };
        assert_eq!(beats.next_deadline(5_000, 5_000), Some(5_800));
        assert_eq!(beats.next_deadline(5_000, 7_000), Some(7_000));
        assert_eq!(HeartBeat::default().next_deadline(5_000, 5_000), None);
        assert!(!HeartBeat::default().is_late(u64::MAX, 0));
        assert!(!HeartBeat::default().send_due(u64::MAX, 0));
    }
}
