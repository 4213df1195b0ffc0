//! Tests of values of settings.

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
