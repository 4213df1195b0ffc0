//! What a SUBSCRIBE asks for of the history of its destination.

use stompica_proto::{Frame, ProtocolError};

use super::{bad_value, boxed, digits};
use crate::config::{Field as _, Kind, Unit};

const REPLAY_FROM: &[u8] = b"replay-from";
const X_STREAM_OFFSET: &[u8] = b"x-stream-offset";
const REPLAY_UNTIL: &[u8] = b"replay-until";
const REPLAY_DELAY: &[u8] = b"replay-delay";
const REPLAY_LEASE: &[u8] = b"replay-lease";
const ON_GAP: &[u8] = b"on-gap";
const EPOCH: &[u8] = b"epoch";

const FROM: &str =
    "first, last, next, seq=NUMBER, time=TIME (ISO 8601 or ms since 1970) or ago=TIME (as in 60s)";
const OFFSET: &str = "first, last, next, offset=NUMBER or timestamp=SECONDS";
const UNTIL: &str = "seq=NUMBER or time=TIME (ISO 8601 or ms since 1970)";
/// The longest delay, and the longest time ago.
const TIME_MAX_MS: u64 = 3650 * 86_400_000;
/// The longest name of a lease.
const LEASE_BYTES_MAX: usize = 200;

/// Where a replay begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplayFrom {
    /// With the first message that is there.
    First,
    /// With the last one.
    Last,
    /// With the next one that comes.
    Next,
    /// With this number.
    Seq(u64),
    /// With the first one of this time, in milliseconds since 1970, or later.
    Time(u64),
}

/// Where a replay ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// Nowhere: live messages follow.
    Never,
    /// With this number.
    Seq(u64),
    /// With the last message of this time or earlier.
    Time(u64),
}

/// The replay that a SUBSCRIBE asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplayOptions {
    /// Where it begins.
    pub from: ReplayFrom,
    /// Where it ends.
    pub until: Until,
    /// How long after it was recorded a message is delivered, in milliseconds.
    pub delay_ms: u64,
    /// Whether it goes on with the first message that is there if some are gone; otherwise it ends with an ERROR.
    pub skips_gaps: bool,
    /// The epoch of the number that it begins with.
    pub epoch: Option<u64>,
    /// The name of the reader's lease.
    pub lease: Option<Box<[u8]>>,
}

impl ReplayOptions {
    /// Whether a message is behind the end that was asked for.
    #[must_use]
    pub fn is_behind_end(&self, seq: u64, time_ms: u64) -> bool {
        match self.until {
            Until::Never => false,
            Until::Seq(last) => seq > last,
            Until::Time(last_ms) => time_ms > last_ms,
        }
    }
}

/// Reads what a SUBSCRIBE says about history; `now_ms` is the time since 1970. `None`: it asks for none.
///
/// # Errors
/// `E-VALUE`, also for a header that means nothing without `replay-from`.
pub fn replay_options(frame: &Frame<'_>, now_ms: u64) -> Result<Option<ReplayOptions>, ProtocolError> {
    let from = match (frame.header(REPLAY_FROM), frame.header(X_STREAM_OFFSET)) {
        (Some(value), _) => Some(from(&value, now_ms).ok_or_else(|| bad_value(REPLAY_FROM, &value, FROM))?),
        (None, Some(value)) => {
            Some(offset(&value).ok_or_else(|| bad_value(X_STREAM_OFFSET, &value, OFFSET))?)
        }
        (None, None) => None,
    };
    let Some(from) = from else {
        let stray = [REPLAY_UNTIL, REPLAY_DELAY, REPLAY_LEASE, ON_GAP];
        return match stray.into_iter().find_map(|name| Some((name, frame.header(name)?))) {
            Some((name, value)) if (name, &*value) != (REPLAY_DELAY, b"0") => {
                Err(bad_value(name, &value, "accompanied by replay-from"))
            }
            _ => Ok(None),
        };
    };
    let until = match frame.header(REPLAY_UNTIL) {
        Some(value) => until(&value).ok_or_else(|| bad_value(REPLAY_UNTIL, &value, UNTIL))?,
        None => Until::Never,
    };
    let delay_ms = match frame.header(REPLAY_DELAY) {
        Some(value) => digits(&value)
            .filter(|ms| *ms <= TIME_MAX_MS)
            .ok_or_else(|| bad_value(REPLAY_DELAY, &value, "a whole number of milliseconds"))?,
        None => 0,
    };
    let skips_gaps = match frame.header(ON_GAP) {
        Some(value) if value.eq_ignore_ascii_case(b"first") => true,
        Some(value) if !value.eq_ignore_ascii_case(b"error") => {
            return Err(bad_value(ON_GAP, &value, "error or first"));
        }
        _ => false,
    };
    let epoch = match frame.header(EPOCH) {
        Some(value) => Some(digits(&value).ok_or_else(|| bad_value(EPOCH, &value, "a whole number"))?),
        None => None,
    };
    let lease = match frame.header(REPLAY_LEASE) {
        Some(value) if value.is_empty() || value.len() > LEASE_BYTES_MAX => {
            return Err(bad_value(REPLAY_LEASE, &value, "a name of 1 to 200 bytes"));
        }
        value => value.map(boxed),
    };
    Ok(Some(ReplayOptions { from, until, delay_ms, skips_gaps, epoch, lease }))
}

fn from(value: &[u8], now_ms: u64) -> Option<ReplayFrom> {
    match value.trim_ascii() {
        b"first" => Some(ReplayFrom::First),
        b"last" => Some(ReplayFrom::Last),
        b"next" => Some(ReplayFrom::Next),
        other => {
            if let Some(seq) = other.strip_prefix(b"seq=") {
                return digits(seq).filter(|seq| *seq > 0).map(ReplayFrom::Seq);
            }
            if let Some(time) = other.strip_prefix(b"time=") {
                return time_ms(time).map(ReplayFrom::Time);
            }
            let ago = std::str::from_utf8(other.strip_prefix(b"ago=")?).ok()?;
            let mut time = std::time::Duration::ZERO;
            let kind = Kind::Time { unit: Unit::Seconds, min_ms: 0, max_ms: TIME_MAX_MS };
            let is_time = time.accept(&kind, ago);
            let ago_ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
            is_time.then_some(ReplayFrom::Time(now_ms.saturating_sub(ago_ms)))
        }
    }
}

/// RabbitMQ's header: offsets count from 0, timestamps are in seconds.
fn offset(value: &[u8]) -> Option<ReplayFrom> {
    match value.trim_ascii() {
        b"first" => Some(ReplayFrom::First),
        b"last" => Some(ReplayFrom::Last),
        b"next" => Some(ReplayFrom::Next),
        other => {
            if let Some(offset) = other.strip_prefix(b"offset=") {
                return digits(offset)?.checked_add(1).map(ReplayFrom::Seq);
            }
            let seconds = digits(other.strip_prefix(b"timestamp=")?)?;
            seconds.checked_mul(1000).map(ReplayFrom::Time)
        }
    }
}

fn until(value: &[u8]) -> Option<Until> {
    let value = value.trim_ascii();
    if let Some(seq) = value.strip_prefix(b"seq=") {
        return digits(seq).map(Until::Seq);
    }
    time_ms(value.strip_prefix(b"time=")?).map(Until::Time)
}

/// Milliseconds since 1970, or a date and time of ISO 8601; UTC if it says nothing else.
fn time_ms(text: &[u8]) -> Option<u64> {
    if let Some(ms) = digits(text) {
        return Some(ms);
    }
    let text = std::str::from_utf8(text).ok()?;
    let read: toml::value::Datetime = text.parse().ok()?;
    let date = read.date?;
    let time = match read.time {
        Some(time) => {
            let whole = i64::from(time.hour) * 3600
                + i64::from(time.minute) * 60
                + i64::from(time.second.unwrap_or(0));
            whole * 1000 + i64::from(time.nanosecond.unwrap_or(0) / 1_000_000)
        }
        None => 0,
    };
    let offset_min = match read.offset {
        Some(toml::value::Offset::Custom { minutes }) => i64::from(minutes),
        _ => 0,
    };
    let ms = days_since_1970(date.year.into(), date.month.into(), date.day.into()) * 86_400_000 + time
        - offset_min * 60_000;
    u64::try_from(ms).ok()
}

/// The days from 1970-01-01 to a date of the Gregorian calendar, counted in eras of 400 years that begin in March.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::super::tests::{assert_refused, with};
    use super::*;

    const NOW_MS: u64 = 1_000_000;

    fn options(lines: &str) -> Result<Option<ReplayOptions>, ProtocolError> {
        with("SUBSCRIBE", lines, |frame| replay_options(frame, NOW_MS))
    }

    fn start(lines: &str) -> ReplayFrom {
        options(lines).expect(lines).expect("a replay").from
    }

    #[test]
    fn every_beginning_is_understood() {
        for (value, expected) in [
            ("first", ReplayFrom::First),
            ("last", ReplayFrom::Last),
            ("next", ReplayFrom::Next),
            ("seq=7", ReplayFrom::Seq(7)),
            ("time=1500", ReplayFrom::Time(1500)),
            ("time=1970-01-01T00\\c00\\c01.5Z", ReplayFrom::Time(1500)),
            ("time=2026-11-29T12\\c00\\c00+02\\c00", ReplayFrom::Time(1_795_946_400_000)),
            ("time=2000-02-29", ReplayFrom::Time(951_782_400_000)),
            ("ago=60s", ReplayFrom::Time(940_000)),
            ("ago=2000s", ReplayFrom::Time(0)),
        ] {
            assert_eq!(start(&format!("replay-from:{value}")), expected, "{value}");
        }
        assert_eq!(start("x-stream-offset:offset=0"), ReplayFrom::Seq(1));
        assert_eq!(start("x-stream-offset:timestamp=5"), ReplayFrom::Time(5000));
        assert_eq!(start("x-stream-offset:first"), ReplayFrom::First);
    }

    #[test]
    fn all_options_are_read() {
        let lines =
            "replay-from:seq=5\nepoch:9\nreplay-until:seq=8\nreplay-delay:20\non-gap:first\nreplay-lease:r";
        let read = options(lines).expect("valid").expect("a replay");
        assert_eq!((read.until, read.delay_ms, read.skips_gaps), (Until::Seq(8), 20, true));
        assert_eq!((read.epoch, read.lease.as_deref()), (Some(9), Some(&b"r"[..])));
        assert_eq!(options("a:b").expect("valid"), None);
        assert_eq!(options("replay-delay:0").expect("valid"), None);
    }

    #[test]
    fn everything_else_is_refused_with_the_header() {
        assert_refused(
            &[
                "replay-from:",
                "replay-from:seq=0",
                "replay-from:seq=-1",
                "replay-from:seq=99999999999999999999",
                "replay-from:time=yesterday",
                "replay-from:time=2026-13-01",
                "replay-from:ago=x",
                "replay-from:5",
                "x-stream-offset:seq=5",
                "x-stream-offset:offset=18446744073709551615",
                "replay-until:seq=5",
                "replay-lease:a",
                "on-gap:first",
            ],
            options,
        );
        for line in ["replay-until:7", "replay-delay:-5", "on-gap:maybe", "epoch:x", "replay-lease:"] {
            assert_refused(&[line], |line| options(&format!("{line}\nreplay-from:first")));
        }
    }
}
