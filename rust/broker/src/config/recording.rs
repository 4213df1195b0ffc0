//! The settings of recording: which destinations, and how much is kept.

use super::value::{Field, Kind};
use super::{Config, StoreKind};

/// The names and patterns of recorded destinations; setting `record`. None: nothing is recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record(pub Vec<String>);

/// The kinds of destinations that are not recorded, by the beginnings of their names.
const OTHER_KINDS: [&str; 4] = ["#", "/temp-", "DIAG", "/queue/monitor"];

impl Field for Record {
    fn accept(&mut self, _: &Kind, text: &str) -> bool {
        if text.eq_ignore_ascii_case("none") {
            self.0.clear();
            return true;
        }
        let names: Vec<&str> = text.split(',').map(str::trim).collect();
        let is_valid = |name: &&str| {
            !name.is_empty()
                && !name.contains(|c: char| c.is_control() || c.is_whitespace())
                && !OTHER_KINDS.iter().any(|kind| name.starts_with(kind))
        };
        if !names.iter().all(is_valid) {
            return false;
        }
        self.0 = names.into_iter().map(str::to_owned).collect();
        true
    }

    fn show(&self, _: &Kind) -> String {
        if self.0.is_empty() { "none".to_owned() } else { self.0.join(",") }
    }
}

/// Why these settings cannot record, if so.
pub(super) fn refusal(config: &Config) -> Option<String> {
    let needs_file = !config.record.0.is_empty() && config.store != StoreKind::File;
    needs_file.then(|| {
        let value = config.record.show(&Kind::Destinations);
        format!("setting 'record' (value '{value}'): needs store=file, and store is {}", config.store.name())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_patterns_are_read_as_they_are_shown() {
        let mut record = Record::default();
        assert!(record.accept(&Kind::Destinations, "/topic/prices/>, /queue/orders"));
        assert_eq!(record.show(&Kind::Destinations), "/topic/prices/>,/queue/orders");
        for wrong in ["", "/topic/a,", "#jobs", "/temp-queue/a", "DIAG", "/queue/monitor", "/topic/a b"] {
            assert!(!record.accept(&Kind::Destinations, wrong), "{wrong}");
        }
        assert!(record.accept(&Kind::Destinations, "None") && record.0.is_empty());
    }
}
