//! Random request heads: no panic, and one answer for each, independent of how the bytes are split.

use proptest::collection::vec;
use proptest::prelude::*;
use stompica_proto::Limits;
use stompica_proto::transport::{Sniffed, sniff};
use stompica_proto::ws::{parse_request, upgrade};

const LINES: [&str; 12] = [
    "Host: localhost:3000\r\n",
    "Host: [::1]\r\n",
    "Upgrade: websocket\r\n",
    "Connection: keep-alive, Upgrade\r\n",
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n",
    "Sec-WebSocket-Version: 13\r\n",
    "Sec-WebSocket-Protocol: v10.stomp, v12.stomp\r\n",
    "Origin: http://localhost\r\n",
    "Origin: null\r\n",
    "Content-Length: 3\r\n",
    "Broken header\r\n",
    ": no name\r\n",
];

/// The answer to a head: the status of the response and the length of the head; `None` if it is incomplete.
fn answer(bytes: &[u8], limits: &Limits) -> Option<(u16, usize)> {
    match parse_request(bytes, limits) {
        Ok(None) => None,
        Err(status) => Some((status.code, 0)),
        Ok(Some((request, len))) => {
            assert!(len <= bytes.len().min(limits.http_head_bytes_max));
            let status = upgrade(&request, None).map_or_else(|refusal| refusal.status, |_| 101);
            Some((status, len))
        }
    }
}

/// The first answer to a stream that arrives byte by byte.
fn answer_bytewise(bytes: &[u8], limits: &Limits) -> Option<(u16, usize)> {
    (0..=bytes.len()).find_map(|end| answer(&bytes[..end], limits))
}

fn head() -> impl Strategy<Value = Vec<u8>> {
    let first = prop_oneof![
        8 => Just("GET / HTTP/1.1\r\n"),
        1 => Just("GET /ws?x HTTP/1.0\r\n"),
        1 => Just("POST http://x/ HTTP/1.1\r\n"),
        1 => Just("PRI * HTTP/2.0\r\n"),
    ];
    let lines = prop_oneof![
        Just((0..6).collect()).prop_shuffle(),
        vec(0..LINES.len(), 0..9),
        Just(vec![0, 2, 3, 4, 5, 6]),
    ];
    (first, lines, any::<bool>()).prop_map(|(first, lines, ends)| {
        let mut head = first.to_owned();
        head.extend(lines.into_iter().map(|line| LINES[line]));
        head.push_str(if ends { "\r\nbehind" } else { "" });
        head.into_bytes()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_request_gets_the_same_answer_at_every_split(head in head(), max in prop_oneof![Just(16 << 10), 20..300_usize]) {
        let limits = Limits { http_head_bytes_max: max, ..Limits::default() };
        prop_assert_eq!(answer_bytewise(&head, &limits), answer(&head, &limits));
    }

    #[test]
    fn a_changed_request_never_panics(head in head(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut head = head;
        let at = at.index(head.len());
        head[at] = byte;
        let _ = answer_bytewise(&head, &Limits::default());
    }

    #[test]
    fn random_bytes_are_one_protocol(bytes in vec(prop_oneof![any::<u8>(), b'\n'..=b'\r', b'A'..=b'Z'], 0..80)) {
        let whole = sniff(&bytes);
        prop_assert!(whole != Sniffed::Incomplete || bytes.len() <= 52);
        for end in 0..bytes.len() {
            let part = sniff(&bytes[..end]);
            prop_assert!(part == Sniffed::Incomplete || part == whole);
        }
        let _ = answer(&bytes, &Limits::default());
    }
}
