//! Parsers of settings files: TOML, and stompserver's flat YAML.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::load::{ConfigError, Given, unknown};
use super::settings;

/// stompserver settings that have no counterpart here and are ignored: logs go to stderr, and a process supervisor does
/// the rest.
const STOMPSERVER_IGNORED: [&str; 9] =
    ["daemon", "user", "group", "logdir", "logfile", "log_dir", "pidfile", "etc_dir", "configfile"];

/// Parses a settings file. `name` is used in messages; its extension selects the format.
///
/// # Errors
/// The first line that is not a setting, or the first unknown setting.
pub fn parse_file(name: &str, text: &str) -> Result<Vec<Given>, ConfigError> {
    let lower = name.to_ascii_lowercase();
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if lower.ends_with(".yml")
        || lower.ends_with(".yaml")
        || (!lower.ends_with(".toml") && looks_like_yaml(text))
    {
        parse_stompserver_yaml(name, text)
    } else {
        parse_toml(name, text)
    }
}

/// stompserver writes `:port: 61613`; a TOML line never starts with a colon or three dashes.
fn looks_like_yaml(text: &str) -> bool {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with('#'));
    line.is_some_and(|line| line.starts_with(':') || line.starts_with("---"))
}

/// Parses a TOML file: top-level `key = value` lines, with lists for settings that have several values.
///
/// # Errors
/// A line that is not TOML, a table, a date, or an unknown setting.
pub fn parse_toml(name: &str, text: &str) -> Result<Vec<Given>, ConfigError> {
    let table = DeTable::parse(text).map_err(|error| {
        let line = error.span().map_or(1, |span| line_of(text, span.start));
        let reason = error.message().lines().next().unwrap_or_default();
        ConfigError::new(format!("{name} line {line}: not TOML: {reason}"))
    })?;
    let mut given: Vec<(usize, Given)> = Vec::new();
    for (key, value) in table.get_ref() {
        let source = format!("{name} line {}", line_of(text, key.span().start));
        let key_text = key.get_ref().as_ref();
        check_known(key_text, &source)?;
        let value = scalar(text, value).map_or_else(|| list(text, value), Ok).map_err(|kind| {
            ConfigError::new(format!(
                "setting '{key_text}' ({source}): must be a string, a number, true or false, or a list of these, \
                 not {kind}"
            ))
        })?;
        given.push((key.span().start, Given { key: key_text.to_owned(), value, source }));
    }
    given.sort_by_key(|(start, _)| *start);
    Ok(given.into_iter().map(|(_, given)| given).collect())
}

/// The text of a value that is not a list; `file` is the whole file. A number that is too large for TOML is kept as
/// written: the setting decides whether it is valid, and some settings are text.
fn scalar(file: &str, value: &Spanned<DeValue<'_>>) -> Option<String> {
    match value.get_ref() {
        DeValue::String(text) => Some(text.clone().into_owned()),
        DeValue::Integer(number) => Some(
            i64::from_str_radix(number.as_str(), number.radix())
                .map_or_else(|_| file.get(value.span()).unwrap_or_default().to_owned(), |n| n.to_string()),
        ),
        DeValue::Float(number) => Some(number.as_str().to_owned()),
        DeValue::Boolean(flag) => Some(flag.to_string()),
        _ => None,
    }
}

/// A list's items, separated by commas; the error names the type of the value or item that is not allowed.
fn list(file: &str, value: &Spanned<DeValue<'_>>) -> Result<String, String> {
    let kind = |value: &Spanned<DeValue<'_>>| format!("{} {}", article(value), value.get_ref().type_str());
    let DeValue::Array(items) = value.get_ref() else { return Err(kind(value)) };
    let item = |item| scalar(file, item).ok_or_else(|| format!("a list with {} in it", kind(item)));
    Ok(items.iter().map(item).collect::<Result<Vec<String>, String>>()?.join(","))
}

fn article(value: &Spanned<DeValue<'_>>) -> &'static str {
    if matches!(value.get_ref(), DeValue::Array(_)) { "an" } else { "a" }
}

/// Parses stompserver's configuration: flat lines `:key: value`; the first colon is optional.
///
/// # Errors
/// A line of another form, or an unknown setting.
pub fn parse_stompserver_yaml(name: &str, text: &str) -> Result<Vec<Given>, ConfigError> {
    let mut given = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let source = format!("{name} line {}", index + 1);
        let trimmed = line.split(" #").next().unwrap_or_default().trim_end();
        if trimmed.is_empty() || trimmed.trim_start().starts_with('#') || trimmed == "---" || trimmed == "..."
        {
            continue;
        }
        let flat = trimmed.strip_prefix(':').unwrap_or(trimmed);
        let Some((key, value)) = flat.split_once(':').filter(|(key, value)| {
            !key.is_empty()
                && !key.contains(char::is_whitespace)
                && (value.is_empty() || value.starts_with(' '))
        }) else {
            return Err(ConfigError::new(format!("{source}: must be a line like ':port: 61613'")));
        };
        let value = unquoted(value.trim());
        if value.is_empty() || value == "~" || STOMPSERVER_IGNORED.contains(&key) {
            continue;
        }
        check_known(key, &source)?;
        given.push(Given { key: key.to_owned(), value: value.to_owned(), source });
    }
    Ok(given)
}

fn unquoted(text: &str) -> &str {
    let inner = |quote: char| text.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote));
    inner('"').or_else(|| inner('\'')).unwrap_or(text)
}

fn check_known(key: &str, source: &str) -> Result<(), ConfigError> {
    if key.eq_ignore_ascii_case("config") {
        return Err(ConfigError::new(format!(
            "setting 'config' ({source}): a settings file can't name another one"
        )));
    }
    if settings().iter().any(|setting| setting.is_named(key)) { Ok(()) } else { Err(unknown(key, source)) }
}

/// The number of the line, from 1, that contains the byte at `offset`.
fn line_of(text: &str, offset: usize) -> usize {
    text.bytes().take(offset).filter(|byte| *byte == b'\n').count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The error for a file that is refused.
    fn error(file: &str, text: &str) -> String {
        parse_file(file, text).expect_err("refused").to_string()
    }

    fn pairs(given: &[Given]) -> Vec<(&str, &str)> {
        given.iter().map(|entry| (entry.key.as_str(), entry.value.as_str())).collect()
    }

    #[test]
    fn toml_values_become_text_with_line_numbers() {
        let text = "# comment\nport = 3000\nTTL = 0\ndebug = true\nlogin_timeout = 1.5\nhost = \"::1\"\n\
                    ws_origins = [\"https://a\", \"https://b\"]\n";
        let given = parse_file("s.toml", text).expect("valid");
        assert_eq!(
            pairs(&given),
            [
                ("port", "3000"),
                ("TTL", "0"),
                ("debug", "true"),
                ("login_timeout", "1.5"),
                ("host", "::1"),
                ("ws_origins", "https://a,https://b")
            ]
        );
        assert_eq!(given[0].source, "s.toml line 2");
    }

    #[test]
    fn an_error_in_toml_names_the_line() {
        let error = |text: &str| error("s.toml", text);
        assert_eq!(
            error("port = 1\nprot = 2"),
            "unknown setting 'prot' (s.toml line 2): did you mean 'port'?"
        );
        assert!(
            error("port = 1\nhost = ").starts_with("s.toml line 2: not TOML: "),
            "{}",
            error("port = 1\nhost = ")
        );
        assert!(error("[port]\na = 1").starts_with("setting 'port' (s.toml line 1): must be a string"));
        assert!(error("config = 'other.toml'").contains("can't name another one"));
        assert!(error("host = 1979-05-27").ends_with("or a list of these, not a datetime"));
        assert!(error("host = ['a', {}]").ends_with("or a list of these, not a list with a table in it"));
        assert!(error("host = [[]]").ends_with("or a list of these, not a list with an array in it"));
    }

    #[test]
    fn a_number_too_large_for_toml_is_kept_as_written() {
        let text =
            "port = 99999999999999999999\ndir = 0x8000_0000_0000_0000_0\nhost = [1, 9223372036854775808]\n";
        let given = parse_file("s.toml", text).expect("valid");
        assert_eq!(
            pairs(&given),
            [
                ("port", "99999999999999999999"),
                ("dir", "0x8000_0000_0000_0000_0"),
                ("host", "1,9223372036854775808")
            ]
        );
    }

    #[test]
    fn stompserver_yaml_is_parsed() {
        let text = "---\n# my server\n:port: 61613\n:host: \"0.0.0.0\"\n:queue: memory\n:auth: false\n\
                    :checkpoint: 0\n:logfile: stompserver.log\n:working_dir:\ndebug: true # all of it\n";
        let given = parse_file("stompserver.conf", text).expect("valid");
        assert_eq!(
            pairs(&given),
            [
                ("port", "61613"),
                ("host", "0.0.0.0"),
                ("queue", "memory"),
                ("auth", "false"),
                ("checkpoint", "0"),
                ("debug", "true")
            ]
        );
        assert_eq!(given[0].source, "stompserver.conf line 3");
    }

    #[test]
    fn an_error_in_yaml_names_the_line() {
        assert_eq!(error("s.yml", ":port: 1\n- a"), "s.yml line 2: must be a line like ':port: 61613'");
        assert_eq!(error("s.yml", ":port:1"), "s.yml line 1: must be a line like ':port: 61613'");
        assert!(error("s.yml", ":prot: 1").ends_with("did you mean 'port'?"));
        let given = parse_file("s.yml", ":auth: true").expect("read");
        assert_eq!(pairs(&given), [("auth", "true")]);
    }
}
