//! Values of settings as text: parsing within bounds, and rendering in a form that can be parsed again.

use std::time::Duration;

use crate::log::Level;

use super::{Compat, Ids, LogFormat, SlowConsumer, Wildcards, system};

/// The unit of a bare number for settings that are durations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Milliseconds.
    Millis,
    /// Seconds.
    Seconds,
}

/// The type of a setting's value, with inclusive bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A whole number.
    Integer {
        /// Least.
        min: u64,
        /// Greatest.
        max: u64,
    },
    /// C stompica's number of processors: writers plus two; 0 means the default of `writers`.
    Processors,
    /// A whole number from 1, or `unlimited`.
    Count,
    /// Bytes.
    Size {
        /// Least.
        min: u64,
        /// Greatest.
        max: u64,
    },
    /// A number of bytes from 1, or `unlimited`.
    SizeOrUnlimited,
    /// A number of bytes, or a percentage of the memory.
    Memory {
        /// Least.
        min: u64,
    },
    /// A duration.
    Time {
        /// Unit of a bare number.
        unit: Unit,
        /// Least, milliseconds.
        min_ms: u64,
        /// Greatest, milliseconds.
        max_ms: u64,
    },
    /// `0` or `1`.
    Flag,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// Any text except the empty one.
    Text,
    /// The values of `slow_consumer`.
    SlowConsumer,
    /// Two numbers of milliseconds.
    Heartbeat,
    /// Origins, separated by commas.
    Origins,
}

impl Kind {
    /// The allowed values, as the end of the sentence "must be …".
    #[must_use]
    pub fn allowed(&self) -> String {
        match *self {
            Kind::Integer { min, max } => format!("a whole number, {min} to {max}"),
            Kind::Processors => format!("a whole number, 0 to {}", system::WRITERS_MAX + 2),
            Kind::Count => "a whole number from 1, or unlimited".to_owned(),
            Kind::Size { min, max } => format!("a size, {} to {}", show_size(min), show_size(max)),
            Kind::SizeOrUnlimited => "a size from 1 byte, or unlimited".to_owned(),
            Kind::Memory { min } => {
                format!("a size from {}, or a share of the memory, 1% to 100%", show_size(min))
            }
            Kind::Time { min_ms, max_ms, unit } => {
                let unit = if unit == Unit::Millis { "ms" } else { "s" };
                format!("a time, {} to {} (a bare number is in {unit})", show_time(min_ms), show_time(max_ms))
            }
            Kind::Flag => "0 or 1".to_owned(),
            Kind::Choice(words) => alternatives(words),
            Kind::Text => "a non-empty text without control characters".to_owned(),
            Kind::SlowConsumer => {
                "block:TIME (100ms to 1h), drop-oldest, drop-newest or disconnect".to_owned()
            }
            Kind::Heartbeat => {
                "two numbers of milliseconds as in 10000,10000, each 0 (none) to 4294967295".to_owned()
            }
            Kind::Origins => {
                "same-host, or origins separated by commas as in https://example.org:8443".to_owned()
            }
        }
    }
}

/// The words as one phrase: `a, b or c`.
pub(super) fn alternatives(words: &[&str]) -> String {
    match words {
        [] => String::new(),
        [only] => (*only).to_owned(),
        [first @ .., last] => format!("{} or {last}", first.join(", ")),
    }
}

/// A value that can be set from text: a field of `Config`, or a header that overrides a setting for one subscription.
pub(crate) trait Field {
    /// Sets the value from text; returns false and leaves it unchanged if `kind` does not allow it.
    fn accept(&mut self, kind: &Kind, text: &str) -> bool;
    /// Renders the value in a form that `accept` can read.
    fn show(&self, kind: &Kind) -> String;
}

macro_rules! whole_number_field {
    ($($type:ty),*) => {$(
        impl Field for $type {
            fn accept(&mut self, kind: &Kind, text: &str) -> bool {
                number(kind, text).and_then(|n| <$type>::try_from(n).ok()).map(|n| *self = n).is_some()
            }
            fn show(&self, kind: &Kind) -> String {
                show_number(kind, u64::try_from(*self).unwrap_or(u64::MAX))
            }
        }
    )*};
}
whole_number_field!(u16, u32, u64, usize);

macro_rules! word_field {
    ($type:ty { $($variant:ident = $word:literal),* }) => {
        impl Field for $type {
            fn accept(&mut self, _: &Kind, text: &str) -> bool {
                match text.to_ascii_lowercase().as_str() {
                    $($word => *self = <$type>::$variant,)*
                    _ => return false,
                }
                true
            }
            fn show(&self, _: &Kind) -> String {
                match self { $(<$type>::$variant => $word,)* }.to_owned()
            }
        }
    };
}
word_field!(Wildcards { Ancestor = "ancestor", Segment = "segment" });
word_field!(Compat { None = "none", Stompica = "stompica" });
word_field!(Ids { Random = "random", Sequential = "sequential" });
word_field!(Level { Debug = "debug", Info = "info", Warn = "warn", Error = "error" });
word_field!(LogFormat { Text = "text", Json = "json" });

impl Field for Duration {
    fn accept(&mut self, kind: &Kind, text: &str) -> bool {
        number(kind, text).map(|ms| *self = Duration::from_millis(ms)).is_some()
    }
    fn show(&self, kind: &Kind) -> String {
        show_number(kind, millis(*self))
    }
}

impl Field for bool {
    fn accept(&mut self, _: &Kind, text: &str) -> bool {
        match text.to_ascii_lowercase().as_str() {
            "1" | "true" | "yes" | "on" => *self = true,
            "0" | "false" | "no" | "off" => *self = false,
            _ => return false,
        }
        true
    }
    fn show(&self, _: &Kind) -> String {
        u8::from(*self).to_string()
    }
}

impl Field for String {
    fn accept(&mut self, _: &Kind, text: &str) -> bool {
        if text.is_empty() || text.contains(char::is_control) {
            return false;
        }
        text.clone_into(self);
        true
    }
    fn show(&self, _: &Kind) -> String {
        self.clone()
    }
}

impl Field for (u32, u32) {
    fn accept(&mut self, _: &Kind, text: &str) -> bool {
        let one = |part: &str| parse_integer(part).and_then(|ms| u32::try_from(ms).ok());
        match text.split_once(',').and_then(|(ours, theirs)| Some((one(ours)?, one(theirs)?))) {
            Some(pair) => *self = pair,
            None => return false,
        }
        true
    }
    fn show(&self, _: &Kind) -> String {
        format!("{},{}", self.0, self.1)
    }
}

impl Field for SlowConsumer {
    fn accept(&mut self, _: &Kind, text: &str) -> bool {
        let text = text.to_ascii_lowercase();
        *self = match text.as_str() {
            "drop-oldest" => SlowConsumer::DropOldest,
            "drop-newest" => SlowConsumer::DropNewest,
            "disconnect" => SlowConsumer::Disconnect,
            _ => match text.strip_prefix("block:").and_then(|time| parse_time(time, Unit::Seconds)) {
                Some(ms @ 100..=3_600_000) => SlowConsumer::Block(Duration::from_millis(ms)),
                _ => return false,
            },
        };
        true
    }
    fn show(&self, _: &Kind) -> String {
        match self {
            SlowConsumer::Block(time) => format!("block:{}", show_time(millis(*time))),
            SlowConsumer::DropOldest => "drop-oldest".to_owned(),
            SlowConsumer::DropNewest => "drop-newest".to_owned(),
            SlowConsumer::Disconnect => "disconnect".to_owned(),
        }
    }
}

/// `None` is the default, `same-host`. An origin is a scheme, `://` and an authority, with nothing after it.
impl Field for Option<Vec<String>> {
    fn accept(&mut self, _: &Kind, text: &str) -> bool {
        if text.eq_ignore_ascii_case("same-host") {
            *self = None;
            return true;
        }
        let origins: Vec<&str> = text.split(',').map(str::trim).collect();
        let valid = |origin: &str| {
            let authority = origin.split_once("://").map_or("", |(_, authority)| authority);
            !authority.is_empty()
                && !origin.contains(|c: char| c.is_whitespace() || c.is_control())
                && !authority.contains('/')
        };
        if !origins.iter().all(|origin| valid(origin)) {
            return false;
        }
        *self = Some(origins.into_iter().map(str::to_owned).collect());
        true
    }
    fn show(&self, _: &Kind) -> String {
        self.as_ref().map_or_else(|| "same-host".to_owned(), |origins| origins.join(","))
    }
}

/// The number (bytes, milliseconds) that `text` means for a setting of this kind, if it is within bounds.
fn number(kind: &Kind, text: &str) -> Option<u64> {
    let within = |n: Option<u64>, min, max| n.filter(|n| (min..=max).contains(n));
    let unlimited = text.eq_ignore_ascii_case("unlimited");
    match *kind {
        Kind::Integer { min, max } => within(parse_integer(text), min, max),
        Kind::Processors => match within(parse_integer(text), 0, system::WRITERS_MAX as u64 + 2)? {
            0 => Some(system::default_writers() as u64),
            processors => Some(processors.saturating_sub(2).max(1)),
        },
        Kind::Count if unlimited => Some(u64::MAX),
        Kind::Count => within(parse_integer(text), 1, u64::MAX),
        Kind::SizeOrUnlimited if unlimited => Some(u64::MAX),
        Kind::SizeOrUnlimited => within(parse_size(text), 1, u64::MAX),
        Kind::Size { min, max } => within(parse_size(text), min, max),
        Kind::Memory { min } => match text.strip_suffix('%') {
            Some(share) => Some(system::memory_share(within(parse_integer(share), 1, 100)?)),
            None => within(parse_size(text), min, u64::MAX),
        },
        Kind::Time { unit, min_ms, max_ms } => within(parse_time(text, unit), min_ms, max_ms),
        _ => None,
    }
}

fn show_number(kind: &Kind, n: u64) -> String {
    match kind {
        Kind::Count | Kind::SizeOrUnlimited if n == u64::MAX => "unlimited".to_owned(),
        Kind::Size { .. } | Kind::SizeOrUnlimited | Kind::Memory { .. } => show_size(n),
        Kind::Time { .. } => show_time(n),
        _ => n.to_string(),
    }
}

/// Digits, with `_` allowed between them.
fn parse_integer(text: &str) -> Option<u64> {
    let digits = text.trim();
    let valid = digits.starts_with(|c: char| c.is_ascii_digit())
        && digits.ends_with(|c: char| c.is_ascii_digit())
        && digits.bytes().all(|b| b.is_ascii_digit() || b == b'_');
    if valid { digits.replace('_', "").parse().ok() } else { None }
}

/// Bytes: `16777216`, `16MiB`, `16m`, `16MB` (MB is a million).
fn parse_size(text: &str) -> Option<u64> {
    let (number, suffix) = split_suffix(text);
    let scale: u64 = match suffix.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "t" | "tib" => 1 << 40,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        _ => return None,
    };
    scaled(number, scale)
}

/// Milliseconds: `250ms`, `5s`, `1.5s`, `5m`, `1h`, or a bare number in the setting's own unit.
fn parse_time(text: &str, unit: Unit) -> Option<u64> {
    let (number, suffix) = split_suffix(text);
    let scale = match suffix.to_ascii_lowercase().as_str() {
        "" if unit == Unit::Seconds => 1_000,
        "" | "ms" => 1,
        "s" => 1_000,
        "m" | "min" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    scaled(number, scale)
}

fn split_suffix(text: &str) -> (&str, &str) {
    let text = text.trim();
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '_' || c == '.')).unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    (number, suffix.trim())
}

/// A decimal number times a scale, in whole units; `None` if it is not a number, is too large, or is greater than zero
/// but less than one unit: 0 often means "never" or "no limit", so rounding down would change the meaning.
fn scaled(number: &str, scale: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    if fraction.is_empty() || fraction.len() > 9 || !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let tenth_powers = 10u128.pow(u32::try_from(fraction.len()).ok()?);
    let part = u128::from(fraction.parse::<u64>().ok()?) * u128::from(scale) / tenth_powers;
    let units = parse_integer(whole)?.checked_mul(scale)?.checked_add(u64::try_from(part).ok()?)?;
    let lost = units == 0 && fraction.bytes().any(|b| b != b'0');
    (!lost).then_some(units)
}

fn show_size(bytes: u64) -> String {
    for (shift, suffix) in [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")] {
        if bytes > 0 && bytes.trailing_zeros() >= shift {
            return format!("{}{suffix}", bytes >> shift);
        }
    }
    bytes.to_string()
}

fn show_time(ms: u64) -> String {
    for (scale, suffix) in [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s")] {
        if ms > 0 && ms.is_multiple_of(scale) {
            return format!("{}{suffix}", ms / scale);
        }
    }
    if ms == 0 { "0".to_owned() } else { format!("{ms}ms") }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_accept_binary_and_decimal_suffixes() {
        for (text, bytes) in [
            ("16777216", 16 << 20),
            ("16MiB", 16 << 20),
            ("16 mib", 16 << 20),
            ("64k", 64 << 10),
            ("1.5g", 3 << 29),
        ] {
            assert_eq!(parse_size(text), Some(bytes), "{text}");
        }
        assert_eq!(parse_size("2MB"), Some(2_000_000));
        assert_eq!(parse_size("1_000"), Some(1_000));
        for text in ["", "MiB", "-1", "1.MiB", "1..2k", "1x", "0x10", "99999999999TiB", "_1", "1e3"] {
            assert_eq!(parse_size(text), None, "{text}");
        }
    }

    #[test]
    fn times_accept_suffixes_and_bare_numbers_in_the_setting_s_unit() {
        assert_eq!(parse_time("5", Unit::Seconds), Some(5_000));
        assert_eq!(parse_time("5", Unit::Millis), Some(5));
        assert_eq!(parse_time("250ms", Unit::Seconds), Some(250));
        assert_eq!(parse_time("1.5s", Unit::Millis), Some(1_500));
        assert_eq!(parse_time("5m", Unit::Millis), Some(300_000));
        assert_eq!(parse_time("soon", Unit::Millis), None);
    }

    #[test]
    fn a_positive_value_below_one_unit_is_refused() {
        assert_eq!(parse_time("0.5", Unit::Millis), None);
        assert_eq!(parse_size("0.5"), None);
        assert_eq!(parse_time("0.0", Unit::Millis), Some(0));
        assert_eq!(parse_time("0.5", Unit::Seconds), Some(500));
        assert_eq!(parse_time("0.0009s", Unit::Seconds), None);
        assert_eq!(parse_time("0.001", Unit::Seconds), Some(1));
    }

    #[test]
    fn slow_consumer_accepts_its_four_policies() {
        let mut policy = SlowConsumer::Disconnect;
        assert!(policy.accept(&Kind::SlowConsumer, "block:250ms"));
        assert_eq!(policy, SlowConsumer::Block(Duration::from_millis(250)));
        assert_eq!(policy.show(&Kind::SlowConsumer), "block:250ms");
        for text in ["block", "block:", "block:0s", "block:2h", "drop"] {
            assert!(!policy.accept(&Kind::SlowConsumer, text), "{text}");
        }
    }

    #[test]
    fn processors_are_writers_plus_two() {
        let mut writers = 9usize;
        for (text, expected) in [("1", 1), ("2", 1), ("3", 1), ("6", 4), ("0", system::default_writers())] {
            assert!(writers.accept(&Kind::Processors, text));
            assert_eq!(writers, expected, "processors={text}");
        }
    }

    #[test]
    fn origins_need_a_scheme_and_an_authority() {
        let mut origins = Some(vec![]);
        assert!(origins.accept(&Kind::Origins, "https://a.example, http://b:8080"));
        assert_eq!(origins, Some(vec!["https://a.example".into(), "http://b:8080".into()]));
        for text in ["", "a.example", "https://", "https://a/path", "https://a,,"] {
            assert!(!origins.accept(&Kind::Origins, text), "{text}");
        }
        assert!(origins.accept(&Kind::Origins, "same-host"));
        assert_eq!(origins, None);
    }
}
