//! docs/specification.md, item 46, and docs/behaviour.md, section 1: every limit is exact, and its violation is
//! detected as early as possible.

mod codec;

use codec::decode_pieces;
use stompica_proto::error::Code;
use stompica_proto::{Limits, Version};

const LIMITS: Limits = Limits {
    message_bytes_max: 100,
    header_line_bytes_max: 20,
    headers_max: 3,
    before_login_bytes_max: 64,
    ws_message_bytes_max: 0,
    http_head_bytes_max: 0,
};

/// Decodes a stream at once and octet by octet; the results must be equal.
fn outcome(version: Option<Version>, stream: &[u8]) -> Result<usize, Code> {
    let at_once = decode_pieces(version, LIMITS, [stream]);
    assert_eq!(at_once, decode_pieces(version, LIMITS, stream.chunks(1)));
    at_once.error.map_or(Ok(at_once.frames.len()), Err)
}

const SESSION: Option<Version> = Some(Version::V1_2);

#[test]
fn a_body_at_the_limit_passes_and_one_octet_more_does_not() {
    let body = "x".repeat(100);
    assert_eq!(outcome(SESSION, format!("SEND\n\n{body}\0").as_bytes()), Ok(1));
    assert_eq!(outcome(SESSION, format!("SEND\ncontent-length:100\n\n{body}\0").as_bytes()), Ok(1));
    assert_eq!(outcome(SESSION, format!("SEND\n\n{body}").as_bytes()), Ok(0), "it may end here");
    assert_eq!(outcome(SESSION, format!("SEND\n\n{body}x").as_bytes()), Err(Code::MessageSize));
}

#[test]
fn a_content_length_beyond_the_limit_is_refused_before_the_body_arrives() {
    assert_eq!(outcome(SESSION, b"SEND\ncontent-length:101\n\n"), Err(Code::MessageSize));
    assert_eq!(outcome(SESSION, b"SEND\ncontent-length:9999\n\n"), Err(Code::MessageSize));
    let beyond_any_word = format!("SEND\ncontent-length:{}\n\n", "9".repeat(40));
    let outcome = decode_pieces(SESSION, Limits::default(), [beyond_any_word.as_bytes()]);
    assert_eq!(outcome.error, Some(Code::MessageSize));
}

#[test]
fn a_header_line_at_the_limit_passes_and_one_octet_more_does_not() {
    let value = "v".repeat(18);
    assert_eq!(outcome(SESSION, format!("SEND\na:{value}\n\n\0").as_bytes()), Ok(1));
    assert_eq!(outcome(SESSION, format!("SEND\na:{value}\r\n\n\0").as_bytes()), Ok(1), "CRLF does not count");
    assert_eq!(outcome(SESSION, format!("SEND\na:{value}v\n\n\0").as_bytes()), Err(Code::HeaderSize));
    assert_eq!(
        outcome(SESSION, format!("SEND\na:{value}v").as_bytes()),
        Err(Code::HeaderSize),
        "before its end"
    );
    assert_eq!(outcome(SESSION, format!("SEND\na:{value}\r").as_bytes()), Ok(0));
    let before_1_2 = outcome(Some(Version::V1_1), format!("SEND\na:{value}\r\n\n\0").as_bytes());
    assert_eq!(before_1_2, Err(Code::HeaderSize), "CR is data there and counts");
}

#[test]
fn headers_up_to_the_limit_pass_and_one_more_does_not() {
    assert_eq!(outcome(SESSION, b"SEND\na:1\na:2\na:3\n\n\0"), Ok(1));
    assert_eq!(outcome(SESSION, b"SEND\na:1\na:2\na:3\na:4\n"), Err(Code::HeaderCount));
}

#[test]
fn the_size_of_a_whole_frame_is_limited_before_login() {
    let fill = |bytes: usize| {
        format!("CONNECT\na:{}\nb:{}\nc:{}\n\n\0", "x".repeat(16), "y".repeat(16), "z".repeat(bytes))
    };
    let exact = fill(64 - fill(0).len());
    assert_eq!(exact.len(), 64);
    assert_eq!(outcome(None, exact.as_bytes()), Ok(1));
    assert_eq!(outcome(None, fill(exact.len() + 1 - fill(0).len()).as_bytes()), Err(Code::LoginSize));
    assert_eq!(outcome(None, format!("SEND\n\n{}", "x".repeat(58)).as_bytes()), Err(Code::LoginSize));
    assert_eq!(
        outcome(None, b"SEND\ncontent-length:60\n\n"),
        Err(Code::LoginSize),
        "before the body arrives"
    );
    assert_eq!(
        outcome(SESSION, format!("SEND\n\n{}\0", "x".repeat(58)).as_bytes()),
        Ok(1),
        "allowed after login"
    );
}

#[test]
fn line_ends_before_login_do_not_count() {
    let stream = [&b"\n".repeat(1000)[..], b"CONNECT\n\n\0"].concat();
    assert_eq!(outcome(None, &stream), Ok(1));
}

#[test]
fn a_maximal_limit_does_not_overflow() {
    let limits = Limits {
        message_bytes_max: usize::MAX,
        header_line_bytes_max: usize::MAX,
        headers_max: usize::MAX,
        before_login_bytes_max: usize::MAX,
        ..LIMITS
    };
    for version in [None, SESSION] {
        let stream = format!("SEND\na:b\ncontent-length:{}\n\nbody", usize::MAX);
        let outcome = decode_pieces(version, limits, stream.as_bytes().chunks(1));
        assert_eq!((outcome.frames.len(), outcome.error), (0, None));
        assert_eq!(decode_pieces(version, limits, [&b"SEND\na:b\n\nbody\0"[..]]).frames.len(), 1);
    }
}
