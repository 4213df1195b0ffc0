//! The settings that say where messages are stored, and when they are safe there.

use std::time::Duration;

use super::value::{Field, Kind, Unit, millis, parse_time, show_time};

/// Where messages are stored; setting `store`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreKind {
    /// They end with the process.
    Memory,
    /// A log of segments on disk.
    File,
    /// A SQLite database on disk.
    Sqlite,
}

/// When a group of the log is synced to disk; setting `fsync`, or `checkpoint` in stompserver's form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fsync {
    /// At once: a RECEIPT means that the message is on disk.
    Always,
    /// So long after the last time at most: a RECEIPT means that the message was written.
    Interval(Duration),
    /// When the system likes.
    Never,
}

/// The shortest and the longest interval between two syncs, in milliseconds.
const INTERVAL_MS: std::ops::RangeInclusive<u64> = 1..=3_600_000;

impl StoreKind {
    /// Its value of the setting.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            StoreKind::Memory => "memory",
            StoreKind::File => "file",
            StoreKind::Sqlite => "sqlite",
        }
    }
}

impl Field for StoreKind {
    fn accept(&mut self, _: &Kind, text: &str) -> bool {
        *self = match text.to_ascii_lowercase().as_str() {
            "memory" => StoreKind::Memory,
            "file" | "dbm" => StoreKind::File,
            "sqlite" | "activerecord" => StoreKind::Sqlite,
            _ => return false,
        };
        true
    }

    fn show(&self, _: &Kind) -> String {
        self.name().to_owned()
    }
}

impl Field for Fsync {
    fn accept(&mut self, kind: &Kind, text: &str) -> bool {
        let text = text.to_ascii_lowercase();
        let interval = |time: &str, unit| {
            let ms = parse_time(time, unit).filter(|ms| INTERVAL_MS.contains(ms));
            ms.map(|ms| Fsync::Interval(Duration::from_millis(ms)))
        };
        let found = match (kind, text.as_str()) {
            (Kind::Checkpoint, "0") | (Kind::Fsync, "always") => Some(Fsync::Always),
            (Kind::Fsync, "never") => Some(Fsync::Never),
            (Kind::Checkpoint, time) => interval(time, Unit::Seconds),
            (_, text) => text.strip_prefix("interval:").and_then(|time| interval(time, Unit::Millis)),
        };
        found.inspect(|found| *self = *found).is_some()
    }

    fn show(&self, _: &Kind) -> String {
        match self {
            Fsync::Always => "always".to_owned(),
            Fsync::Interval(interval) => format!("interval:{}", show_time(millis(*interval))),
            Fsync::Never => "never".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fsync(kind: Kind, text: &str) -> Option<String> {
        let mut fsync = Fsync::Never;
        fsync.accept(&kind, text).then(|| fsync.show(&Kind::Fsync))
    }

    #[test]
    fn fsync_is_read_as_it_is_shown() {
        for (text, shown) in [("always", "always"), ("NEVER", "never"), ("interval:250", "interval:250ms")] {
            assert_eq!(fsync(Kind::Fsync, text).as_deref(), Some(shown));
            assert_eq!(fsync(Kind::Fsync, shown).as_deref(), Some(shown));
        }
        for wrong in ["", "sometimes", "interval", "interval:", "interval:0", "interval:2h", "250"] {
            assert_eq!(fsync(Kind::Fsync, wrong), None, "{wrong}");
        }
    }

    #[test]
    fn checkpoint_is_the_interval_in_seconds() {
        assert_eq!(fsync(Kind::Checkpoint, "0").as_deref(), Some("always"));
        assert_eq!(fsync(Kind::Checkpoint, "5").as_deref(), Some("interval:5s"));
        assert_eq!(fsync(Kind::Checkpoint, "always"), None);
    }
}
