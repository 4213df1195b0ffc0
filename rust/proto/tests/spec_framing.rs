//! STOMP 1.0 to 1.2, "STOMP Frames": lines, bodies, bytes between frames.

mod codec;

use codec::{decode, error, one};
use stompica_proto::Command;
use stompica_proto::Version::{V1_0, V1_1, V1_2};
use stompica_proto::error::Code;

// docs/specification.md, item 24
#[test]
fn a_frame_is_command_headers_blank_line_body_nul() {
    for version in [V1_0, V1_1, V1_2] {
        let frame = one(Some(version), b"SEND\ndestination:/a\nx:1\n\nhello\nworld\0");
        assert_eq!(frame.command, Command::Send);
        assert_eq!(frame.headers[0], (b"destination".to_vec(), b"/a".to_vec()));
        assert_eq!(frame.headers[1], (b"x".to_vec(), b"1".to_vec()));
        assert_eq!(frame.body, b"hello\nworld");
        assert!(frame.plain);
    }
}

// docs/specification.md, item 24
#[test]
fn headers_and_body_may_be_missing() {
    assert_eq!(one(Some(V1_2), b"SEND\n\n\0").headers, []);
    assert_eq!(one(None, b"CONNECT\n\n\0").command, Command::Connect);
    assert_eq!(one(None, b"STOMP\n\n\0").command, Command::Stomp);
}

// docs/specification.md, item 25
#[test]
fn lines_of_1_2_may_end_in_crlf_mixed_with_lf() {
    let frame = one(Some(V1_2), b"SEND\r\na:1\nb:2\r\n\nbody\r\n\0");
    assert_eq!(frame.headers, [(b"a".to_vec(), b"1".to_vec()), (b"b".to_vec(), b"2".to_vec())]);
    assert_eq!(frame.body, b"body\r\n", "a body is not split into lines");
    assert!(frame.plain, "a line end is not part of its line");
    assert_eq!(one(Some(V1_2), b"SEND\n\r\n\0").body, b"");
}

// docs/specification.md, item 25
#[test]
fn cr_is_data_before_1_2() {
    for version in [V1_0, V1_1] {
        let frame = one(Some(version), b"SEND\na:1\r\nb:x\ry\n\n\0");
        assert_eq!(frame.headers, [(b"a".to_vec(), b"1\r".to_vec()), (b"b".to_vec(), b"x\ry".to_vec())]);
        assert!(!frame.plain);
        assert_eq!(error(Some(version), b"SEND\r\n\n\0"), Some(Code::Command));
        assert_eq!(error(Some(version), b"SEND\na:1\n\r\n\0"), Some(Code::Header), "a line without colon");
    }
}

// docs/behaviour.md, section 3
#[test]
fn connect_may_have_crlf_in_every_version() {
    let frame = one(None, b"CONNECT\r\naccept-version:1.0\r\nhost:x\r\n\r\n\0");
    assert_eq!(frame.headers[0], (b"accept-version".to_vec(), b"1.0".to_vec()));
    for version in [V1_0, V1_1, V1_2] {
        assert_eq!(one(Some(version), b"STOMP\r\nhost:x\r\n\r\n\0").headers[0].1, b"x");
    }
}

#[test]
fn a_cr_inside_a_line_of_1_2_is_an_error() {
    assert_eq!(error(Some(V1_2), b"SEND\na:x\ry\n\n\0"), Some(Code::Header));
    assert_eq!(error(Some(V1_2), b"SEND\na:x\r\r\n\n\0"), Some(Code::Header));
    assert_eq!(
        one(None, b"CONNECT\npasscode:x\ry\n\n\0").headers[0].1,
        b"x\ry",
        "its version is not known yet"
    );
}

// docs/specification.md, items 26, 19
#[test]
fn line_ends_between_frames_are_ignored() {
    for version in [None, Some(V1_0), Some(V1_1), Some(V1_2)] {
        let outcome = decode(version, b"\n\r\n\n\nSEND\n\na\0\n\r\n\r\n\nSEND\n\nb\0\n");
        assert_eq!(outcome.frames.len(), 2, "{version:?}");
        assert_eq!((outcome.error, outcome.left), (None, 0));
        assert_eq!(decode(version, b"\n\n\r\n").left, 0, "heart-beats need not be kept");
        assert_eq!(decode(version, b"\n\r").left, 1, "a CR may become CRLF");
    }
    assert_eq!(error(Some(V1_2), b"\rSEND\n\n\0"), Some(Code::Command));
}

// docs/specification.md, item 28
#[test]
fn content_length_counts_octets_and_allows_nul() {
    let frame = one(Some(V1_1), b"SEND\ncontent-length:9\n\na\0\xC3\xA9\xFF\n\0\r\n\0");
    assert_eq!(frame.body, b"a\0\xC3\xA9\xFF\n\0\r\n");
    assert_eq!(one(Some(V1_1), b"SEND\ncontent-length:0\n\n\0").body, b"");
    assert_eq!(one(Some(V1_1), b"SEND\ncontent-length:007\n\n1234567\0").body, b"1234567");
}

// docs/specification.md, item 29
#[test]
fn the_octet_after_the_body_must_be_nul() {
    assert_eq!(error(Some(V1_2), b"SEND\ncontent-length:3\n\nabcd\0"), Some(Code::ContentLength));
    assert_eq!(error(Some(V1_2), b"SEND\ncontent-length:0\n\nX"), Some(Code::ContentLength));
    let early = decode(Some(V1_2), b"SEND\ncontent-length:4\n\nabc\0");
    assert_eq!((early.frames.len(), early.error), (0, None), "a NUL within the length is data");
}

#[test]
fn a_content_length_must_be_digits() {
    for value in ["", " ", "x", "-1", "+1", "1.0", "1 1", "0x1", "1:2", "\u{661}"] {
        let stream = format!("SEND\ncontent-length:{value}\n\na\0");
        assert_eq!(error(Some(V1_2), stream.as_bytes()), Some(Code::ContentLength), "{value}");
    }
}

// docs/behaviour.md, section 3
#[test]
fn blanks_around_a_content_length_are_ignored() {
    for version in [V1_0, V1_1, V1_2] {
        for value in [" 1", "1 ", " \t 1 \t ", "1\t"] {
            let stream = format!("SEND\ncontent-length:{value}\n\n\0\0");
            assert_eq!(one(Some(version), stream.as_bytes()).body, b"\0", "{value:?}");
        }
    }
}

// docs/specification.md, item 30
#[test]
fn without_content_length_a_body_ends_at_its_first_nul() {
    let outcome = decode(Some(V1_2), b"SEND\n\nab\0SEND\n\n\0");
    assert_eq!(outcome.frames.iter().map(|frame| &frame.body[..]).collect::<Vec<_>>(), [&b"ab"[..], b""]);
    assert_eq!(one(Some(V1_2), b"SEND\nContent-Length:1\n\nabc\0").body, b"abc", "names are case-sensitive");
}

// docs/specification.md, item 33
#[test]
fn every_frame_may_have_a_content_length() {
    assert_eq!(one(Some(V1_2), b"SUBSCRIBE\nid:1\ncontent-length:0\n\n\0").command, Command::Subscribe);
    assert_eq!(one(None, b"CONNECT\ncontent-length:0\n\n\0").command, Command::Connect);
    assert_eq!(error(Some(V1_2), b"ACK\ncontent-length:0\n\nx\0"), Some(Code::ContentLength));
    assert_eq!(one(Some(V1_2), b"DIAG\ncontent-length:7\n\nsession\0").body, b"session");
}

const WITHOUT_BODY: [&str; 8] =
    ["SUBSCRIBE", "UNSUBSCRIBE", "ACK", "NACK", "BEGIN", "COMMIT", "ABORT", "DISCONNECT"];

// docs/specification.md, item 34
#[test]
fn a_forbidden_body_is_an_error_at_its_first_octet() {
    for command in WITHOUT_BODY {
        for body in ["x", "\n\r\nx", "\rx", " "] {
            for version in [V1_1, V1_2] {
                let stream = format!("{command}\n\n{body}");
                assert_eq!(error(Some(version), stream.as_bytes()), Some(Code::Body), "{command} {body:?}");
                let stream = format!("{command}\ncontent-length:9\n\n{body}");
                assert_eq!(error(Some(version), stream.as_bytes()), Some(Code::Body), "{command} {body:?}");
            }
        }
        let half = format!("{command}\ncontent-length:1\n\n\r\n\0");
        assert_eq!(
            error(Some(V1_2), half.as_bytes()),
            Some(Code::Body),
            "the CR is not a line end: {command}"
        );
    }
}

// docs/specification.md, item 34
#[test]
fn line_ends_as_a_body_are_ignored_in_every_version() {
    for command in WITHOUT_BODY {
        for version in [V1_0, V1_1, V1_2] {
            for body in ["\n", "\r\n", "\n\r\n\n"] {
                let frame = one(Some(version), format!("{command}\n\n{body}\0").as_bytes());
                assert_eq!(frame.body, b"", "{command} {body:?}");
                let counted = format!("{command}\ncontent-length:{}\n\n{body}\0", body.len());
                assert_eq!(one(Some(version), counted.as_bytes()).body, b"", "{command} {body:?}");
            }
        }
    }
    assert_eq!(error(Some(V1_2), b"ACK\ncontent-length:1\n\n\n\n\0"), Some(Code::ContentLength));
}

// docs/specification.md, item 34
#[test]
fn any_body_is_ignored_in_1_0_and_on_connect() {
    for stream in [&b"\n\nbody\0"[..], b"\ncontent-length:3\n\na\0b\0"] {
        for command in WITHOUT_BODY {
            assert_eq!(one(Some(V1_0), &[command.as_bytes(), stream].concat()).body, b"", "{command}");
        }
        for version in [None, Some(V1_0), Some(V1_1), Some(V1_2)] {
            assert_eq!(one(version, &[b"CONNECT", stream].concat()).command, Command::Connect);
            assert_eq!(one(version, &[b"STOMP", stream].concat()).body, b"");
        }
    }
}

// docs/specification.md, items 43, 47
#[test]
fn unknown_commands_are_an_error() {
    for line in
        ["", "send", "SEND ", " SEND", "SENDS", "MESSAGE", "CONNECTED", "RECEIPT", "ERROR", "GET / HTTP/1.1"]
    {
        if !line.is_empty() {
            assert_eq!(
                error(Some(V1_2), format!("{line}\na:b\n\n\0").as_bytes()),
                Some(Code::Command),
                "{line}"
            );
        }
    }
    assert_eq!(error(Some(V1_2), b"UNSUBSCRIBED-FROM"), Some(Code::Command), "without waiting for its end");
    assert_eq!(error(Some(V1_2), b"\0"), Some(Code::Command), "one NUL too many");
    assert_eq!(error(None, b"\x16\x03\x01\x02\x00\x01\x00"), Some(Code::Command));
}

// docs/specification.md, item 45
#[test]
fn a_missing_blank_line_is_an_error_as_soon_as_the_nul_arrives() {
    assert_eq!(error(None, b"CONNECT\n\0"), Some(Code::Header));
    assert_eq!(error(Some(V1_2), b"SEND\ndestination:/a\0"), Some(Code::Header));
    assert_eq!(error(Some(V1_2), b"SEND\ndestination:/a\0SEND\n"), Some(Code::Header));
}

#[test]
fn the_length_of_an_incomplete_frame_is_reported_once_known() {
    use stompica_proto::{Decoded, Decoder, Limits};
    let mut decoder = Decoder::new();
    decoder.connected(V1_2);
    let (input, mut spans) = (b"\n\nSEND\ncontent-length:1000\n\nab", Vec::new());
    let decoded = decoder.decode(input, &mut spans, &Limits::default());
    let whole = input.len() - 2 - 2 + 1000 + 1;
    assert!(matches!(decoded, Ok(Decoded::Incomplete { consumed: 2, frame_len: Some(len) }) if len == whole));
}

#[test]
fn an_idle_decoder_is_small() {
    assert!(std::mem::size_of::<stompica_proto::Decoder>() <= 48);
}
