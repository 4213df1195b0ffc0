//! Settings as texts: what is accepted, what is refused, and how that is said.

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
fn what_a_store_writes_at_once_is_limited() {
    for key in ["max_message_size", "max_transaction_size"] {
        let with = |store| Config::from_map(&given(&[("store", store), (key, "600MiB")]));
        assert!(with("memory").is_ok());
        let text = with("file").expect_err("too long for an entry").to_string();
        assert_eq!(
            text,
            format!("setting '{key}' (value 629145600): must be at most 512MiB with store=file")
        );
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
        assert!(text.starts_with(&format!("setting '{key}'")) && text.contains("not built yet"), "{text}");
    }
    assert_eq!(
        error("record", "/topic/a"),
        "setting 'record' (value '/topic/a'): needs store=file, and store is memory"
    );
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
