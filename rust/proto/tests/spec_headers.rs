//! STOMP 1.0 to 1.2, headers: escapes, repetition, padding, UTF-8.

mod codec;

use codec::{error, one};
use stompica_proto::Version::{V1_0, V1_1, V1_2};
use stompica_proto::error::Code;

// docs/specification.md, items 35, 38
#[test]
fn escapes_are_decoded_in_names_and_values() {
    let frame = one(Some(V1_2), b"SEND\na\\cb\\n\\\\\\r:x\\cy\\n\\\\\\r\n\n\0");
    assert_eq!(frame.headers, [(b"a:b\n\\\r".to_vec(), b"x:y\n\\\r".to_vec())]);
    assert!(!frame.plain);
    let frame = one(Some(V1_1), b"SEND\na\\cb:x\\cy\\n\\\\r\n\n\0");
    assert_eq!(frame.headers, [(b"a:b".to_vec(), b"x:y\n\\r".to_vec())]);
}

// docs/specification.md, item 36
#[test]
fn undefined_escapes_are_fatal() {
    for line in ["a:\\t", "a:\\", "a:\\\\\\", "\\t:a", "a\\:b", "a:\\N", "a:\\C", "a:\\ "] {
        for version in [V1_1, V1_2] {
            let stream = format!("SEND\n{line}\n\n\0");
            assert_eq!(error(Some(version), stream.as_bytes()), Some(Code::Escape), "{line} in {version:?}");
        }
    }
    assert_eq!(error(Some(V1_1), b"SEND\na:\\r\n\n\0"), Some(Code::Escape));
}

// docs/specification.md, item 37
#[test]
fn version_1_0_has_no_escapes() {
    let frame = one(Some(V1_0), b"SEND\na:\\n\\t\\\n\n\0");
    assert_eq!(frame.headers[0].1, b"\\n\\t\\");
    assert!(!frame.plain, "it has another meaning in other versions");
}

// docs/specification.md, item 13
#[test]
fn connect_has_no_escapes_and_keeps_colons() {
    for version in [None, Some(V1_0), Some(V1_1), Some(V1_2)] {
        for command in ["CONNECT", "STOMP"] {
            let stream = format!("{command}\npasscode: a\\cb:c\\t\\\n\n\0");
            assert_eq!(
                one(version, stream.as_bytes()).headers[0].1,
                b" a\\cb:c\\t\\",
                "{command} in {version:?}"
            );
        }
    }
}

// docs/specification.md, item 40
#[test]
fn repeated_headers_keep_their_order_and_the_first_content_length_counts() {
    let frame = one(Some(V1_2), b"SEND\na:1\nb:2\na:3\ncontent-length:2\ncontent-length:9\n\nab\0");
    let values: Vec<&[u8]> = frame.headers.iter().map(|(_, value)| &value[..]).collect();
    assert_eq!(values, [&b"1"[..], b"2", b"3", b"2", b"9"]);
    assert_eq!(frame.body, b"ab");
    assert_eq!(one(Some(V1_2), b"SEND\ncontent-length:2\ncontent-length:x\n\nab\0").body, b"ab");
}

// docs/specification.md, item 41
#[test]
fn only_leading_spaces_in_1_0_are_trimmed() {
    for version in [V1_1, V1_2] {
        let frame = one(Some(version), b"SEND\n a : b \n\n\0");
        assert_eq!(frame.headers, [(b" a ".to_vec(), b" b ".to_vec())]);
        assert!(!frame.plain, "a 1.0 receiver would remove the space");
    }
    let frame = one(Some(V1_0), b"SEND\n a :  b \nt:\tc\n\n\0");
    assert_eq!(frame.headers, [(b" a ".to_vec(), b"b ".to_vec()), (b"t".to_vec(), b"\tc".to_vec())]);
}

// docs/specification.md, item 42
#[test]
fn values_may_be_empty_and_names_may_not() {
    for version in [V1_0, V1_1, V1_2] {
        let frame = one(Some(version), b"SEND\na:\n\n\0");
        assert_eq!(frame.headers, [(b"a".to_vec(), b"".to_vec())]);
        assert!(!frame.plain);
        assert_eq!(error(Some(version), b"SEND\n:a\n\n\0"), Some(Code::Header));
        assert_eq!(error(Some(version), b"SEND\n:\n\n\0"), Some(Code::Header));
    }
}

#[test]
fn a_value_may_contain_colons() {
    for version in [V1_0, V1_1, V1_2] {
        let frame = one(Some(version), b"SEND\na:b:c:\n\n\0");
        assert_eq!(frame.headers[0].1, b"b:c:");
        assert!(!frame.plain);
    }
}

// docs/specification.md, item 43
#[test]
fn names_are_case_sensitive() {
    let frame = one(Some(V1_2), b"SEND\nA:1\na:2\n\n\0");
    assert_eq!(frame.headers, [(b"A".to_vec(), b"1".to_vec()), (b"a".to_vec(), b"2".to_vec())]);
}

// docs/specification.md, item 44
#[test]
fn headers_are_utf_8() {
    for version in [V1_0, V1_1, V1_2] {
        let stream = "SEND\n\u{e9}:\u{20ac}\u{1F980}\n\n\0";
        let frame = one(Some(version), stream.as_bytes());
        assert_eq!(frame.headers, [("\u{e9}".as_bytes().to_vec(), "\u{20ac}\u{1F980}".as_bytes().to_vec())]);
        assert!(frame.plain);
        // A lone continuation byte, truncated and overlong sequences, a surrogate, beyond the last code point, an
        // invalid byte.
        for bad in [&b"\x80"[..], b"\xC3", b"\xC0\xAF", b"\xED\xA0\x80", b"\xF4\x90\x80\x80", b"\xFF"] {
            for stream in [[b"SEND\na:", bad, b"\n\n\0"].concat(), [b"SEND\n", bad, b":a\n\n\0"].concat()] {
                assert_eq!(error(Some(version), &stream), Some(Code::Utf8), "{stream:?}");
            }
        }
    }
    assert_eq!(one(Some(V1_2), b"SEND\n\n\xFF\xC3\0").body, b"\xFF\xC3", "bodies are octets");
}

// docs/specification.md, item 45
#[test]
fn a_line_without_colon_is_an_error() {
    for version in [V1_0, V1_1, V1_2] {
        assert_eq!(error(Some(version), b"SEND\ndestination /a\n\n\0"), Some(Code::Header));
    }
}

#[test]
fn control_characters_except_nul_and_cr_are_data() {
    let frame = one(Some(V1_2), b"SEND\na\x01:\x7F\t\x1B\n\n\0");
    assert_eq!(frame.headers, [(b"a\x01".to_vec(), b"\x7F\t\x1B".to_vec())]);
    assert!(frame.plain);
}
