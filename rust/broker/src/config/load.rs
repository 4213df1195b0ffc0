//! From the text of settings to a validated configuration, and back.

use std::fmt;

use super::table::{Availability, Setting, settings};
use super::value::{Field, Kind, alternatives};
use super::{Config, StoreKind, recording};

/// The reason why a setting was refused, in one line for the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    message: String,
}

impl ConfigError {
    pub(super) fn new(message: String) -> ConfigError {
        ConfigError { message }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ConfigError {}

/// One setting as the user wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Given {
    /// The name or an alias, in upper or lower case.
    pub key: String,
    /// The value as text.
    pub value: String,
    /// The place where it is written, for messages: `command line`, `STOMPICA_PORT`, `stompica.toml line 3`.
    pub source: String,
}

/// The effective value of one setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effective {
    /// Its key in the table.
    pub key: &'static str,
    /// The effective value.
    pub value: String,
    /// Its source; `default` if it was not set.
    pub source: String,
}

impl Config {
    /// Validates settings, given in order of increasing priority: if a setting is given twice, the later value applies,
    /// but both must be valid.
    ///
    /// # Errors
    /// The first setting that is unknown, out of range or not built yet.
    pub fn from_map(given: &[Given]) -> Result<Config, ConfigError> {
        load(given).map(|(config, _)| config)
    }
}

/// Like [`Config::from_map`], and also returns the effective value and the source of each setting.
///
/// # Errors
/// The first setting that is unknown, out of range or not built yet.
pub fn load(given: &[Given]) -> Result<(Config, Vec<Effective>), ConfigError> {
    let mut config = Config::default();
    for entry in given {
        apply(find(entry)?, entry, &mut config)?;
    }
    if !given.iter().any(|entry| names("ws_data_frame_max_length", &entry.key)) {
        config.limits.ws_message_bytes_max = Config::ws_message_bytes_for(config.limits.message_bytes_max);
    }
    check_lengths(&config)?;
    if let Some(refusal) = recording::refusal(&config) {
        return Err(ConfigError::new(refusal));
    }
    if config.log_frames {
        config.log_level = crate::log::Level::Debug;
    }
    let rows = settings().iter().filter(|setting| !setting.kind.is_other_form());
    let effective = rows.map(|setting| effective(setting, given, &config)).collect();
    Ok((config, effective))
}

/// The longest message, and the messages of the largest transaction, that a store on disk can write as one entry.
const STORED_BYTES_MAX: u64 = 512 << 20;

/// With a store on disk, what one frame or one COMMIT stores has a limit.
fn check_lengths(config: &Config) -> Result<(), ConfigError> {
    let lengths = [
        ("max_message_size", config.limits.message_bytes_max),
        ("max_transaction_size", config.max_transaction_size),
    ];
    match lengths.into_iter().find(|(_, bytes)| *bytes as u64 > STORED_BYTES_MAX) {
        Some((key, bytes)) if config.store != StoreKind::Memory => Err(ConfigError::new(format!(
            "setting '{key}' (value {bytes}): must be at most 512MiB with store={}",
            config.store.name()
        ))),
        _ => Ok(()),
    }
}

/// The effective value of one setting: the last entry that sets it applies, under any of its names.
fn effective(setting: &Setting, given: &[Given], config: &Config) -> Effective {
    let last = given.iter().rfind(|entry| setting.is_named(&entry.key) || fills_same(setting, &entry.key));
    let value = match last {
        Some(entry) if setting.field.is_none() => entry.value.trim().to_owned(),
        _ => setting.show(config),
    };
    let source = match last {
        Some(entry) if setting.is_named(&entry.key) => entry.source.clone(),
        Some(entry) => format!("{}={}, {}", entry.key, entry.value.trim(), entry.source),
        None => "default".to_owned(),
    };
    Effective { key: setting.key, value, source }
}

/// Whether `name`, as the user wrote it, means the setting `key`.
fn names(key: &str, name: &str) -> bool {
    settings().iter().any(|setting| setting.key == key && setting.is_named(name))
}

/// Whether `name` is another form of this setting: C stompica's `processors` sets `writers`, stompserver's `checkpoint`
/// sets `fsync`.
fn fills_same(setting: &Setting, name: &str) -> bool {
    let forms = [("writers", "processors"), ("fsync", "checkpoint")];
    forms.into_iter().any(|(key, form)| setting.key == key && names(form, name))
}

/// The keys of the settings whose values differ and that a reload cannot apply.
#[must_use]
pub fn needing_restart(running: &Config, wanted: &Config) -> Vec<&'static str> {
    settings()
        .iter()
        .filter(|setting| !setting.reloadable && !setting.kind.is_other_form())
        .filter(|setting| setting.show(running) != setting.show(wanted))
        .map(|setting| setting.key)
        .collect()
}

/// The running configuration, with all reloadable settings taken from `wanted`.
#[must_use]
pub fn reloaded(running: &Config, wanted: &Config) -> Config {
    let mut applied = wanted.clone();
    for setting in settings().iter().filter(|setting| !setting.reloadable) {
        if let Some(field) = setting.field.filter(|_| !setting.kind.is_other_form()) {
            let unchanged = field(&mut applied).accept(&setting.kind, &setting.show(running));
            debug_assert!(unchanged, "a rendered value is valid: {}", setting.key);
        }
    }
    applied
}

fn find(given: &Given) -> Result<&'static Setting, ConfigError> {
    let found = settings().iter().find(|setting| setting.is_named(&given.key));
    found.ok_or_else(|| unknown(&given.key, &format!("value {}, {}", quoted(&given.value), given.source)))
}

/// The error for an unknown setting; `detail` is added in brackets after the name.
pub(super) fn unknown(name: &str, detail: &str) -> ConfigError {
    let hint = nearest(name).map_or_else(
        || "'stompica --help' lists the settings".to_owned(),
        |key| format!("did you mean '{key}'?"),
    );
    ConfigError::new(format!("unknown setting {} ({detail}): {hint}", quoted(name)))
}

/// The setting that the user most likely meant by `name`.
fn nearest(name: &str) -> Option<&'static str> {
    let name = name.to_ascii_lowercase().replace('-', "_");
    settings()
        .iter()
        .flat_map(|setting| std::iter::once(&setting.key).chain(setting.aliases))
        .map(|key| (strsim::damerau_levenshtein(&name, &key.to_ascii_lowercase()), *key))
        .filter(|(distance, key)| *distance <= (key.len() / 3).clamp(1, 4))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, key)| key)
}

fn apply(setting: &Setting, given: &Given, config: &mut Config) -> Result<(), ConfigError> {
    let refuse = |why: &str| {
        let (key, value, source) = (setting.key, quoted(&given.value), &given.source);
        Err(ConfigError::new(format!("setting '{key}' (value {value}, {source}): {why}")))
    };
    if setting.availability == Availability::Only(&[]) {
        return refuse("not built yet in this version; remove it");
    }
    let text = given.value.trim();
    if let Availability::Only(taken) = setting.availability
        && is_allowed(&setting.kind, text)
        && !is_one_of(taken, &setting.kind, text)
    {
        return refuse(&format!("not built yet in this version; only {} is", alternatives(taken)));
    }
    let valid = match setting.field {
        Some(field) => field(config).accept(&setting.kind, text),
        None => is_allowed(&setting.kind, text),
    };
    if valid { Ok(()) } else { refuse(&format!("must be {}", setting.kind.allowed())) }
}

fn is_allowed(kind: &Kind, text: &str) -> bool {
    match kind {
        Kind::Choice(words) => words.iter().any(|word| word.eq_ignore_ascii_case(text)),
        Kind::Flag => false.accept(kind, text),
        _ => !text.is_empty() && !text.contains(char::is_control),
    }
}

/// Whether `text` is one of the accepted values; a flag may be written in any form.
fn is_one_of(taken: &[&str], kind: &Kind, text: &str) -> bool {
    let mut flag = false;
    let text = match kind {
        Kind::Flag if flag.accept(kind, text) => flag.show(kind),
        _ => text.to_owned(),
    };
    taken.iter().any(|word| word.eq_ignore_ascii_case(&text))
}

/// A text from outside in quotes, on one line and of bounded length.
pub(crate) fn quoted(text: &str) -> String {
    const SHOWN: usize = 80;
    let shown: String = text.chars().take(SHOWN).flat_map(char::escape_debug).collect();
    let rest = if text.chars().nth(SHOWN).is_some() { "…" } else { "" };
    format!("'{}{rest}'", shown.replace("\\'", "'").replace("\\\"", "\""))
}

#[cfg(test)]
#[path = "load_tests.rs"]
mod tests;
