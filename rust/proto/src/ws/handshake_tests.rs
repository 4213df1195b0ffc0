use super::{Refusal, Upgrade, upgrade};
use crate::ws::parse_request;
use crate::{Limits, Version};

const LINES: [&str; 5] = [
    "Host: broker.example:3000",
    "Upgrade: websocket",
    "Connection: Upgrade",
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
    "Sec-WebSocket-Version: 13",
];

fn answer(request_line: &str, lines: &[&str], origins: Option<&[&str]>) -> Result<Upgrade, Refusal> {
    let head = format!("{request_line}\r\n{}\r\n\r\n", lines.join("\r\n"));
    let (request, _) =
        parse_request(head.as_bytes(), &Limits::default()).expect("valid HTTP").expect("whole");
    let origins: Option<Vec<String>> = origins.map(|list| list.iter().map(ToString::to_string).collect());
    upgrade(&request, origins.as_deref())
}

/// The answer to a valid request with these lines added, or replaced if the name is the same.
fn answer_with(changed: &[&str]) -> Result<Upgrade, Refusal> {
    let name = |line: &str| line.split(':').next().unwrap_or_default().to_ascii_lowercase();
    let kept = LINES.into_iter().filter(|line| changed.iter().all(|change| name(change) != name(line)));
    let lines: Vec<&str> = kept.chain(changed.iter().copied().filter(|line| !line.ends_with('!'))).collect();
    answer("GET /ws HTTP/1.1", &lines, None)
}

fn status(answer: Result<Upgrade, Refusal>) -> u16 {
    answer.map_or_else(|refusal| refusal.status, |_| 101)
}

#[test]
fn the_rfc_sample_gets_its_accept_key() {
    let upgrade = answer_with(&[]).expect("accepted");
    assert_eq!(
        String::from_utf8(upgrade.response).expect("text"),
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n"
    );
    assert_eq!(upgrade.subprotocol, None);
}

#[test]
fn tokens_are_case_insensitive_and_may_be_in_lists() {
    assert_eq!(status(answer_with(&["Connection: keep-alive, UPGRADE", "Upgrade: foo, WebSocket"])), 101);
    assert_eq!(status(answer_with(&["Connection: keep-alive", "Connection: upgrade"])), 101);
    assert_eq!(status(answer_with(&["Connection: upgraded"])), 400);
}

#[test]
fn each_missing_part_is_refused() {
    assert_eq!(status(answer("POST / HTTP/1.1", &LINES, None)), 405);
    assert_eq!(status(answer("GET / HTTP/1.0", &LINES, None)), 400);
    assert_eq!(status(answer_with(&["Host:"])), 400);
    assert_eq!(status(answer_with(&["Upgrade: h2c"])), 426);
    assert_eq!(status(answer_with(&["Connection: close"])), 400);
    assert_eq!(status(answer_with(&["Sec-WebSocket-Key: !"])), 400);
    assert_eq!(status(answer_with(&["Sec-WebSocket-Version: !"])), 426);
    assert_eq!(status(answer_with(&["Content-Length: 5"])), 400);
    assert_eq!(status(answer_with(&["Content-Length: 0"])), 101);
    assert_eq!(status(answer_with(&["Transfer-Encoding: chunked"])), 400);
}

#[test]
fn the_refusal_of_head_has_no_body() {
    let refusal = |line: &str| answer(line, &LINES, None).expect_err("refused").response();
    assert!(refusal("POST / HTTP/1.1").ends_with(b"GET\n"));
    assert!(refusal("HEAD / HTTP/1.1").ends_with(b"\r\n\r\n"));
}

#[test]
fn the_key_is_16_bytes_in_base64() {
    for key in
        ["", "abc", "dGhlIHNhbXBsZSBub25jZQ", "dGhlIHNhbXBsZSBub25jZQAA", "dGhlIHNhbXBsZSBub25j ZQ==", "AAAA"]
    {
        assert_eq!(status(answer_with(&[&format!("Sec-WebSocket-Key: {key}")])), 400, "{key:?}");
    }
    assert_eq!(status(answer_with(&["Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZR=="])), 101, "spare bits");
    let twice = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==";
    assert_eq!(status(answer_with(&[twice, twice])), 400);
}

#[test]
fn the_refusal_of_another_version_names_the_supported_one() {
    for version in ["8", "14", "13, 8", "+13"] {
        let refusal = answer_with(&[&format!("Sec-WebSocket-Version: {version}")]).expect_err("refused");
        let response = String::from_utf8(refusal.response()).expect("text");
        assert!(response.starts_with("HTTP/1.1 426 "), "{response}");
        assert!(response.contains("\r\nSec-WebSocket-Version: 13\r\n"), "{response}");
        assert!(response.contains("\r\nConnection: close, upgrade\r\n"), "{response}");
    }
}

#[test]
fn the_best_subprotocol_is_echoed() {
    let chosen = |lines: &[&str]| {
        let upgrade = answer_with(lines).expect("accepted");
        let response = String::from_utf8(upgrade.response).expect("text");
        let line = response.lines().find_map(|line| line.strip_prefix("Sec-WebSocket-Protocol: "));
        (upgrade.subprotocol, line.map(str::to_owned))
    };
    let v12 = (Some(Version::V1_2), Some("v12.stomp".to_owned()));
    assert_eq!(chosen(&["Sec-WebSocket-Protocol: v10.stomp, v11.stomp, v12.stomp"]), v12);
    assert_eq!(chosen(&["Sec-WebSocket-Protocol: mqtt,v12.stomp", "Sec-WebSocket-Protocol: v11.stomp"]), v12);
    let v10 = (Some(Version::V1_0), Some("v10.stomp".to_owned()));
    assert_eq!(chosen(&["Sec-WebSocket-Protocol: v10.stomp,v9.stomp"]), v10);
    assert_eq!(chosen(&["Sec-WebSocket-Protocol: mqtt"]), (None, None));
}

#[test]
fn extensions_are_not_accepted() {
    let upgrade = answer_with(&["Sec-WebSocket-Extensions: permessage-deflate"]).expect("accepted");
    let response = String::from_utf8(upgrade.response).expect("text");
    assert!(!response.to_ascii_lowercase().contains("extensions"), "{response}");
}

#[test]
fn by_default_only_pages_from_the_same_host_may_connect() {
    let allowed = |host: &str, origin: &str| {
        status(answer_with(&[&format!("Host: {host}"), &format!("Origin: {origin}")])) == 101
    };
    assert!(allowed("broker.example:3000", "http://broker.example"));
    assert!(allowed("broker.example:3000", "https://Broker.Example:8443"));
    assert!(allowed("localhost:3000", "http://127.0.0.1:8080"));
    assert!(allowed("127.0.0.9", "http://localhost"));
    assert!(allowed("[::1]:3000", "http://localhost:1"));
    assert!(allowed("[2001:db8::1]", "http://[2001:DB8:0::1]:80"));
    assert!(!allowed("broker.example", "http://evil.example"));
    assert!(!allowed("broker.example", "http://broker.example.evil"));
    assert!(!allowed("broker.example", "http://broker.example@evil.example"));
    assert!(!allowed("broker.example", "broker.example"));
    assert!(!allowed("localhost", "http://localhost.evil.example"));
    assert!(!allowed("localhost", "null"));
    assert!(!allowed("localhost", "file://"));
    assert!(!allowed("localhost", ""));
    let twice = ["Host: localhost", "Origin: http://localhost", "Origin: http://evil.example"];
    assert_eq!(status(answer_with(&twice)), 403);
}

#[test]
fn a_list_of_origins_replaces_the_default() {
    let allowed = |list: &[&str], origin: &str| {
        let mut lines = LINES.to_vec();
        let origin = format!("Origin: {origin}");
        lines.push(&origin);
        status(answer("GET / HTTP/1.1", &lines, Some(list))) == 101
    };
    let list = ["https://app.example", "http://dev.example:8080", "any.example"];
    assert!(allowed(&list, "https://app.example"));
    assert!(allowed(&list, "https://APP.example:443"));
    assert!(allowed(&list, "http://dev.example:8080"));
    assert!(allowed(&list, "http://any.example:1"));
    assert!(allowed(&list, "https://any.example"));
    assert!(!allowed(&list, "http://app.example"));
    assert!(!allowed(&list, "https://app.example:444"));
    assert!(!allowed(&list, "http://dev.example"));
    assert!(!allowed(&list, "http://broker.example:3000"), "its own host is not in the list");
    assert!(!allowed(&list, "null"));
    assert!(!allowed(&[], "http://broker.example:3000"));
    assert!(allowed(&["null"], "null"));
    assert!(allowed(&["*"], "null"));
    assert!(allowed(&["*"], "http://anywhere.example"));
    assert_eq!(status(answer("GET / HTTP/1.1", &LINES, Some(&[]))), 101, "no Origin, no page");
}
