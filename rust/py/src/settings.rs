//! The table of settings for Python, and the checks of given settings.

use pyo3::prelude::*;

use stompica_broker::config::{self, Availability, Given, Kind};

use crate::error;

/// A setting as passed to and from Python: key, value, source.
pub(crate) type Triple = (String, String, String);

/// One row of the table of settings.
#[pyclass(frozen, get_all, module = "stompica._core")]
pub(crate) struct Setting {
    /// Documented name.
    key: &'static str,
    /// Other names.
    aliases: Vec<&'static str>,
    /// Heading it is listed under.
    group: &'static str,
    /// The allowed values, worded to follow "must be …".
    allowed: String,
    /// The default as documented.
    default: &'static str,
    /// Its meaning.
    doc: &'static str,
    /// Whether its values are 0 and 1, so that a command-line option for it needs no value.
    is_flag: bool,
    /// Whether a reload applies it.
    reloadable: bool,
    /// The only values accepted while its feature is not built; `None` if it is built.
    accepted: Option<Vec<&'static str>>,
}

/// The table of settings, in the order of help and docs.
#[pyfunction]
pub(crate) fn settings() -> Vec<Setting> {
    let row = |setting: &config::Setting| Setting {
        key: setting.key,
        aliases: setting.aliases.to_vec(),
        group: setting.group,
        allowed: setting.kind.allowed(),
        default: setting.default,
        doc: setting.doc,
        is_flag: setting.kind == Kind::Flag,
        reloadable: setting.reloadable,
        accepted: match setting.availability {
            Availability::Yes => None,
            Availability::Only(values) => Some(values.to_vec()),
        },
    };
    config::settings().iter().map(row).collect()
}

/// Checks settings, lowest priority first; returns every setting's effective value and its source.
#[pyfunction]
pub(crate) fn check(given: Vec<Triple>) -> PyResult<Vec<Triple>> {
    let (_, effective) = config::load(&entries(given)).map_err(error::config)?;
    Ok(effective.into_iter().map(|entry| (entry.key.to_owned(), entry.value, entry.source)).collect())
}

/// Parses the text of a settings file, TOML or stompserver's YAML; `name` is its name in error messages.
#[pyfunction]
pub(crate) fn parse_file(name: &str, text: &str) -> PyResult<Vec<Triple>> {
    let given = config::parse_file(name, text).map_err(error::config)?;
    Ok(given.into_iter().map(|entry| (entry.key, entry.value, entry.source)).collect())
}

/// Raises this process's soft descriptor limit to the hard one; returns the resulting soft limit.
#[pyfunction]
pub(crate) fn raise_descriptor_limit() -> u64 {
    config::raise_descriptor_limit()
}

/// Tells the kernel not to back this process's memory with huge pages; for a dedicated broker process.
#[pyfunction]
pub(crate) fn avoid_huge_pages() {
    config::avoid_huge_pages();
}

pub(crate) fn entries(given: Vec<Triple>) -> Vec<Given> {
    given.into_iter().map(|(key, value, source)| Given { key, value, source }).collect()
}
