//! From the text of settings to a validated configuration, and back.

use std::fmt;

use super::Config;
use super::table::{Availability, Setting, settings};
use super::value::{Field, Kind, alternatives};

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
    if config.log_frames {
        config.log_level = crate::log::Level::Debug;
    }
    let rows = settings().iter().filter(|setting| !setting.kind.is_other_form());
    let effective = rows.map(|setting| effective(setting, given, &config)).collect();
    Ok((config, effective))
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
mod tests {
    use super::*;

    fn given(pairs: &[(&str, &str)]) -> Vec<Given> {
        let entry = |(key, value): &(&str, &str)| Given {
            key: (*key).to_owned(),
            value: (*value).to_owned(),
            source: "command line".to_owned(),
        };
        pairs.iter().map(entry).collect()
    }

    fn error(key: &str, value: &str) -> String {
        Config::from_map(&given(&[(key, value)])).expect_err("the setting is refused").to_string()
    }

    #[test]
    fn without_settings_the_defaults_apply() {
        let (config, effective) = load(&[]).expect("nothing to refuse");
        assert_eq!(format!("{config:?}"), format!("{:?}", Config::default()));
        assert!(effective.iter().all(|entry| entry.source == "default"));
    }

    #[test]
    fn the_documented_defaults_are_the_actual_defaults() {
        let of_the_machine =
            ["max_connections", "writers", "processors", "memory_limit", "ws_data_frame_max_length"];
        let shown = |s: &&Setting| s.field.is_some() && !s.kind.is_other_form();
        for setting in settings().iter().filter(shown).filter(|s| !of_the_machine.contains(&s.key)) {
            assert_eq!(setting.show(&Config::default()), setting.default, "{}", setting.key);
        }
    }

    #[test]
    fn the_source_of_writers_may_be_processors() {
        let (config, effective) = load(&given(&[("writers", "9"), ("processors", "5")])).expect("valid");
        assert_eq!(config.writers, 3);
        let row = effective.iter().find(|entry| entry.key == "writers").expect("listed");
        assert_eq!((row.value.as_str(), row.source.as_str()), ("3", "processors=5, command line"));
        assert!(effective.iter().all(|entry| entry.key != "processors"));
    }

    #[test]
    fn every_effective_value_can_be_parsed_again() {
        let (config, effective) =
            load(&given(&[("writers", "3"), ("ws_origins", "https://a"), ("debug", "1")])).expect("valid");
        let again: Vec<Given> = effective
            .iter()
            .filter(|entry| settings().iter().any(|s| s.key == entry.key && s.field.is_some()))
            .map(|entry| Given { key: entry.key.into(), value: entry.value.clone(), source: "again".into() })
            .collect();
        let parsed = Config::from_map(&again).expect("what is shown is valid");
        assert_eq!(format!("{parsed:?}"), format!("{config:?}"));
    }

    #[test]
    fn names_and_aliases_are_unique_and_case_does_not_matter() {
        let mut names: Vec<String> = settings()
            .iter()
            .flat_map(|s| std::iter::once(s.key).chain(s.aliases.iter().copied()))
            .map(str::to_ascii_lowercase)
            .collect();
        names.sort();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count);
        assert!(Config::from_map(&given(&[("ttl", "0"), ("TTL", "0"), ("Heart-Beat", "0,0")])).is_ok());
    }

    #[test]
    fn the_error_names_the_refused_value_and_what_is_allowed() {
        assert_eq!(
            error("port", "70000"),
            "setting 'port' (value '70000', command line): must be a whole number, 0 to 65535"
        );
        assert_eq!(
            error("slow_consumer", "wait"),
            "setting 'slow_consumer' (value 'wait', command line): \
             must be block:TIME (100ms to 1h), drop-oldest, drop-newest or disconnect"
        );
        assert!(error("writers", "0").ends_with("must be a whole number, 1 to 64"));
        assert!(error("host", "").ends_with("must be a non-empty text without control characters"));
    }

    #[test]
    fn the_error_for_an_unknown_name_suggests_the_nearest_one() {
        assert!(error("prot", "1").ends_with("did you mean 'port'?"), "{}", error("prot", "1"));
        assert!(error("max-conections", "1").ends_with("did you mean 'max_connections'?"));
        assert!(error("colour", "red").ends_with("'stompica --help' lists the settings"));
    }

    #[test]
    fn an_error_is_one_line_of_bounded_length() {
        let text = error("port", &"x\ny".repeat(10_000));
        assert!(text.len() < 300 && !text.contains('\n'), "{text}");
    }

    #[test]
    fn a_setting_that_is_not_implemented_is_refused_by_name() {
        assert!(error("users", ".passwd").ends_with("not built yet in this version; remove it"));
        assert!(error("auth", "maybe").ends_with("must be 0 or 1"));
        for key in ["auth", "users", "tls_cert", "tls_key", "tls_client_ca"] {
            let text = error(key, "1");
            assert!(
                text.starts_with(&format!("setting '{key}'")) && text.contains("not built yet"),
                "{text}"
            );
        }
        assert_eq!(
            error("store", "sqlite"),
            "setting 'store' (value 'sqlite', command line): not built yet in this version; \
             only memory, file or dbm is"
        );
        assert!(error("record", "/topic/a").contains("not built yet"));
    }

    #[test]
    fn a_value_that_requests_the_existing_behaviour_is_accepted() {
        let anyway = [
            ("store", "Memory"),
            ("record", "none"),
            ("fsync", "always"),
            ("fsync", "never"),
            ("checkpoint", "0"),
            ("auth", "0"),
            ("auth", "off"),
            ("tls_cert", "none"),
            ("tls_key", "none"),
            ("tls_client_ca", "none"),
        ];
        for pair in anyway {
            assert!(Config::from_map(&given(&[pair])).is_ok(), "{pair:?}");
        }
    }

    #[test]
    fn the_settings_of_queues_and_stale_messages_are_applied() {
        let settings = [
            ("TTL", "60000"),
            ("max_stale_queue_size", "7"),
            ("max_retained", "8"),
            ("ack_timeout", "5s"),
            ("max_queue_length", "9"),
            ("max_queue_bytes", "1MiB"),
            ("queue_idle_expiry", "1m"),
            ("max_deliveries", "3"),
            ("redelivery_delay", "0"),
            ("prefetch", "10"),
        ];
        let config = Config::from_map(&given(&settings)).expect("valid");
        assert_eq!((config.ttl_ms, config.max_stale_queue_size, config.max_retained), (60_000, 7, 8));
        assert_eq!((config.ack_timeout_ms, config.max_deliveries, config.prefetch), (5_000, 3, 10));
        assert_eq!((config.max_queue_length, config.max_queue_bytes), (9, 1 << 20));
        assert_eq!((config.queue_idle_expiry.as_secs(), config.redelivery_delay.as_millis()), (60, 0));
        assert!(error("prefetch", "0").contains("must be a whole number, 1 to"));
        assert!(error("max_queue_length", "0").contains("must be a whole number from 1, or unlimited"));
    }

    #[test]
    fn the_later_value_of_a_setting_applies_but_both_must_be_valid() {
        let config = Config::from_map(&given(&[("port", "1"), ("port", "2")])).expect("valid");
        assert_eq!(config.port, 2);
        assert!(Config::from_map(&given(&[("port", "x"), ("port", "2")])).is_err());
    }

    #[test]
    fn the_websocket_limit_follows_the_message_limit_unless_it_is_set() {
        let config = Config::from_map(&given(&[("max_message_size", "1KiB")])).expect("valid");
        assert_eq!(config.limits.ws_message_bytes_max, 1024 + (1 << 20) + (64 << 10));
        let config =
            Config::from_map(&given(&[("max_message_size", "1KiB"), ("ws_data_frame_max_length", "2KiB")]));
        assert_eq!(config.expect("valid").limits.ws_message_bytes_max, 2048);
    }

    #[test]
    fn changed_settings_that_need_a_restart_are_listed() {
        let wanted = Config::from_map(&given(&[("port", "1"), ("log_level", "warn"), ("writers", "63")]));
        assert_eq!(needing_restart(&Config::default(), &wanted.expect("valid")), ["port", "writers"]);
    }

    #[test]
    fn a_reload_keeps_settings_that_need_a_restart() {
        let wanted = Config::from_map(&given(&[("port", "1"), ("log_level", "warn"), ("max_headers", "7")]));
        let applied = reloaded(&Config::default(), &wanted.expect("valid"));
        assert_eq!((applied.port, applied.log_level.name(), applied.limits.headers_max), (61613, "warn", 7));
    }
}
