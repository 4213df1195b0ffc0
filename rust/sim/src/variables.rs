//! The environment variables that choose what runs, and the values that each allows.

use crate::{checkers, faults};

/// Values of the variables. A variable that is empty counts as not set, since `make` passes all of them on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variables {
    /// `SEED`: the first seed.
    pub seed: Option<u64>,
    /// `SEEDS`: how many.
    pub seeds: Option<u64>,
    /// `SECONDS`: no seed begins after this time.
    pub seconds: u64,
    /// `EVENTS`: steps of each seed before faults end.
    pub events: u64,
    /// `CORES`: how many seeds run side by side.
    pub cores: Option<u64>,
    /// `SHRINK`: seconds for cutting down the trace of a failure.
    pub shrink: u64,
    /// `LOG`: whether seeds may have the real log on the simulated disk.
    pub log: bool,
    /// `ONLY`: the checker whose findings count.
    pub only: Option<&'static str>,
    /// `FAULT`: the planted fault that is switched on.
    pub fault: Option<&'static str>,
    /// `FAULTS`: planted faults to search.
    pub faults: Option<Sought>,
}

/// Which planted faults a search is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sought {
    /// All of them: the search writes the table of the README.
    All,
    /// These.
    Some(Vec<&'static str>),
}

impl Sought {
    /// Their names.
    #[must_use]
    pub fn names(&self) -> &[&'static str] {
        match self {
            Sought::All => faults::ALL,
            Sought::Some(names) => names,
        }
    }
}

/// The largest number of seeds or seconds.
const COUNT_MAX: u64 = 1_000_000_000;
/// Cutting down a trace begins with a list of all steps.
const EVENTS_MAX: u64 = 1_000_000;
/// More threads than this are a mistake.
const CORES_MAX: u64 = 1000;

impl Variables {
    /// Reads all variables; `value` has the value of each.
    ///
    /// # Errors
    /// One line with the name of a variable, its value, and what is allowed.
    pub fn read(value: impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        let text = |name: &str| value(name).filter(|text| !text.is_empty());
        let number = |name: &str, least: u64, most: u64| {
            let Some(text) = text(name) else { return Ok(None) };
            match text.parse() {
                Ok(number) if (least..=most).contains(&number) => Ok(Some(number)),
                _ => Err(format!("{name}={text} must be a whole number from {least} to {most}")),
            }
        };
        let fault = |fault: &str| faults::ALL.iter().copied().find(|other| *other == fault);
        let lists_them = "; rust/sim/src/faults.rs lists them";
        let variables = Variables {
            seed: number("SEED", 0, u64::MAX)?,
            seeds: number("SEEDS", 1, COUNT_MAX)?,
            seconds: number("SECONDS", 1, COUNT_MAX)?.unwrap_or(10),
            events: number("EVENTS", 1, EVENTS_MAX)?.unwrap_or(2000),
            cores: number("CORES", 1, CORES_MAX)?,
            shrink: number("SHRINK", 0, COUNT_MAX)?.unwrap_or(20),
            log: number("LOG", 0, 1)?.unwrap_or(1) == 1,
            only: choice("ONLY", text("ONLY"), |only| {
                let known = checkers::NAMES.iter().copied().find(|name| *name == only);
                known.ok_or_else(|| format!("the name of a checker: {}", checkers::NAMES.join(", ")))
            })?,
            fault: choice("FAULT", text("FAULT"), |name| {
                fault(name).ok_or_else(|| format!("the name of a planted fault{lists_them}"))
            })?,
            faults: choice("FAULTS", text("FAULTS"), |names| match names {
                "all" => Ok(Sought::All),
                _ => match names.split(',').map(fault).collect() {
                    Some(names) => Ok(Sought::Some(names)),
                    None => {
                        Err(format!("all, or names of planted faults with commas between them{lists_them}"))
                    }
                },
            })?,
        };
        if variables.faults.is_some()
            && let Some((name, text)) =
                ["SEED", "SECONDS", "ONLY", "FAULT"].iter().find_map(|name| Some((name, text(name)?)))
        {
            return Err(format!(
                "{name}={text} must be left out beside FAULTS, which searches series of its own"
            ));
        }
        Ok(variables)
    }
}

/// The value of a variable that allows some words; `find` returns what is meant, or what is allowed.
fn choice<T>(
    name: &str,
    text: Option<String>,
    find: impl Fn(&str) -> Result<T, String>,
) -> Result<Option<T>, String> {
    let find = |text: String| find(&text).map_err(|allowed| format!("{name}={text} must be {allowed}"));
    text.map(find).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(values: &[(&str, &str)]) -> Result<Variables, String> {
        let find = |name: &str| values.iter().find(|(other, _)| *other == name);
        Variables::read(|name| find(name).map(|(_, value)| (*value).to_owned()))
    }

    #[test]
    fn variables_that_are_empty_or_not_set_have_their_defaults() {
        let variables = read(&[("SEED", ""), ("ONLY", "")]).expect("nothing is wrong");
        assert_eq!((variables.seed, variables.seeds, variables.cores), (None, None, None));
        assert_eq!((variables.seconds, variables.events, variables.shrink), (10, 2000, 20));
        assert_eq!((variables.only, variables.fault, variables.faults), (None, None, None));
    }

    #[test]
    fn values_are_read() {
        let variables = read(&[("SEED", "0"), ("SHRINK", "0"), ("ONLY", "loss"), ("FAULT", "credit-twice")]);
        let variables = variables.expect("nothing is wrong");
        assert_eq!((variables.seed, variables.shrink), (Some(0), 0));
        assert_eq!((variables.only, variables.fault), (Some("loss"), Some("credit-twice")));
        let sought = |names| read(&[("FAULTS", names)]).expect("nothing is wrong").faults.expect("it is set");
        assert_eq!(sought("credit-twice,ack-forgotten").names(), ["credit-twice", "ack-forgotten"]);
        assert_eq!(sought("all"), Sought::All);
    }

    #[test]
    fn a_wrong_value_gets_one_line_with_the_variable_the_value_and_what_is_allowed() {
        for (name, value, allowed) in [
            ("SEED", "x", "a whole number from 0 to 18446744073709551615"),
            ("SEED", "-1", "a whole number from 0 to"),
            ("SEED", " 1", "a whole number from 0 to"),
            ("SEEDS", "0", "a whole number from 1 to 1000000000"),
            ("SECONDS", "0", "a whole number from 1 to"),
            ("SECONDS", "1.5", "a whole number from 1 to"),
            ("EVENTS", "0", "a whole number from 1 to 1000000"),
            ("CORES", "1001", "a whole number from 1 to 1000"),
            ("SHRINK", "x", "a whole number from 0 to"),
            ("ONLY", "nosuch", "the name of a checker: accounting, acking, atomicity, beats,"),
            ("FAULT", "nosuch", "the name of a planted fault; rust/sim/src/faults.rs lists them"),
            ("FAULTS", "credit-twice,nosuch", "all, or names of planted faults with commas between them;"),
        ] {
            let line = read(&[(name, value)]).expect_err(name);
            assert!(line.starts_with(&format!("{name}={value} must be {allowed}")), "{line}");
            assert_eq!(line.lines().count(), 1, "{line}");
        }
    }

    #[test]
    fn what_a_search_would_ignore_is_refused() {
        for (name, value) in [("SEED", "1"), ("SECONDS", "5"), ("ONLY", "loss"), ("FAULT", "credit-twice")] {
            let line = read(&[("FAULTS", "all"), (name, value)]).expect_err(name);
            assert!(line.starts_with(&format!("{name}={value} must be left out beside FAULTS")), "{line}");
        }
        assert!(read(&[("FAULTS", "all"), ("SEEDS", "100"), ("EVENTS", "500"), ("CORES", "1")]).is_ok());
    }
}
