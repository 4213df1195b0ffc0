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
    /// Names and patterns of destinations, separated by commas.
    Destinations,
    /// The values of `fsync`.
    Fsync,
    /// stompserver's form of `fsync`: seconds, or 0 for `always`.
    Checkpoint,
}

impl Kind {
    /// Whether it is another form of a setting, which sets the same field.
    #[must_use]
    pub fn is_other_form(&self) -> bool {
        matches!(self, Kind::Processors | Kind::Checkpoint)
    }

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
            Kind::Fsync => "always, interval:TIME (1ms to 1h) or never".to_owned(),
            Kind::Checkpoint => "0 (always), or a number of seconds up to 3600".to_owned(),
            Kind::Destinations => {
                "none, or names and patterns of topics and queues, separated by commas, as in \
                                   /topic/prices/>,/queue/orders"
                    .to_owned()
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
pub(super) fn parse_time(text: &str, unit: Unit) -> Option<u64> {
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

pub(crate) fn show_size(bytes: u64) -> String {
    for (shift, suffix) in [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")] {
        if bytes > 0 && bytes.trailing_zeros() >= shift {
            return format!("{}{suffix}", bytes >> shift);
        }
    }
    bytes.to_string()
}

pub(super) fn show_time(ms: u64) -> String {
    for (scale, suffix) in [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s")] {
        if ms > 0 && ms.is_multiple_of(scale) {
            return format!("{}{suffix}", ms / scale);
        }
    }
    if ms == 0 { "0".to_owned() } else { format!("{ms}ms") }
}

pub(super) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
#[path = "value_tests.rs"]
mod tests;
