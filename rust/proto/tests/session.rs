//! The session's state table, and the conversion of a SEND's headers to a MESSAGE of any version.

use std::borrow::Cow;

use proptest::prelude::*;
use stompica_proto::encode::{self, Message};
use stompica_proto::error::Code;
use stompica_proto::escape::{can_carry, escape_into, unescape};
use stompica_proto::session::{AckMode, Request, Session};
use stompica_proto::{Command, Decoded, Decoder, Limits, ProtocolError, Version};

/// One connection: a decoder and a session that get complete frames.
struct Dialogue {
    decoder: Decoder,
    session: Session,
    own_headers: Vec<u8>,
}

impl Dialogue {
    fn new() -> Self {
        Dialogue { decoder: Decoder::new(), session: Session::new(), own_headers: Vec::new() }
    }

    fn connected(version: &str) -> Self {
        let mut dialogue = Dialogue::new();
        let connect = format!("CONNECT\naccept-version:{version}\nhost:x\n\n\0");
        dialogue.say(connect.as_bytes(), |request| assert!(matches!(request, Ok(Request::Connect { .. }))));
        dialogue
    }

    /// Feeds one frame and passes the session's result to `look`.
    fn say<T>(&mut self, bytes: &[u8], look: impl FnOnce(Result<Request<'_>, ProtocolError>) -> T) -> T {
        let mut spans = Vec::new();
        let decoded =
            self.decoder.decode(bytes, &mut spans, &Limits::default()).expect("a well-formed frame");
        let Decoded::Frame { frame, consumed } = decoded else { panic!("an incomplete frame: {bytes:?}") };
        assert_eq!(consumed, bytes.len());
        let request = self.session.handle(&frame, (10_000, 10_000), &mut self.own_headers);
        if matches!(request, Ok(Request::Connect { .. })) {
            self.decoder.connected(self.session.version());
        }
        look(request)
    }

    fn code(&mut self, bytes: &[u8]) -> Option<Code> {
        self.say(bytes, |request| request.err().map(|error| error.code))
    }
}

#[test]
fn the_first_frame_must_be_connect() {
    for frame in [
        "SEND\ndestination:/t\n\n\0",
        "SUBSCRIBE\nid:0\ndestination:/t\n\n\0",
        "DISCONNECT\n\n\0",
        "BEGIN\ntransaction:1\n\n\0",
    ] {
        // docs/specification.md, item 10
        assert_eq!(Dialogue::new().code(frame.as_bytes()), Some(Code::NotConnected), "{frame}");
    }
}

// docs/behaviour.md, section 9
#[test]
fn diag_is_accepted_before_and_after_connect() {
    let asks =
        |request: Result<Request<'_>, _>| matches!(request, Ok(Request::Diagnose { query: b"session" }));
    let mut dialogue = Dialogue::new();
    assert!(dialogue.say(b"DIAG\n\nsession\0", asks));
    assert_eq!(dialogue.code(b"SEND\ndestination:/t\n\n\0"), Some(Code::NotConnected));
    let mut dialogue = Dialogue::connected("1.1");
    assert!(dialogue.say(b"DIAG\ncontent-length:7\n\nsession\0", asks));
    dialogue.say(b"DISCONNECT\n\n\0", |request| assert!(request.is_ok()));
    assert_eq!(dialogue.code(b"DIAG\n\nsession\0"), Some(Code::NotConnected));
}

#[test]
fn a_second_connect_and_frames_after_disconnect_are_refused() {
    let mut dialogue = Dialogue::connected("1.2");
    assert_eq!(dialogue.code(b"STOMP\naccept-version:1.2\nhost:x\n\n\0"), Some(Code::Connected));
    let mut dialogue = Dialogue::connected("1.1");
    assert!(dialogue.say(b"DISCONNECT\n\n\0", |request| matches!(request, Ok(Request::Disconnect))));
    assert!(!dialogue.session.is_connected() && dialogue.session.was_connected());
    assert_eq!(dialogue.code(b"SEND\ndestination:/t\n\n\0"), Some(Code::NotConnected));
}

#[test]
fn versions_and_heart_beats_are_negotiated() {
    let mut dialogue = Dialogue::new();
    // docs/specification.md, item 6
    assert_eq!(dialogue.code(b"CONNECT\naccept-version:2.0,3.1\n\n\0"), Some(Code::Version));
    let mut dialogue = Dialogue::new();
    assert_eq!(dialogue.code(b"CONNECT\naccept-version:1.0,1.1\nheart-beat:500,20000\n\n\0"), None);
    assert_eq!(dialogue.session.version(), Version::V1_1);
    let beats = dialogue.session.heartbeat();
    assert_eq!((beats.receive_ms, beats.send_ms), (10_000, 20_000)); // docs/specification.md, item 17
    let mut dialogue = Dialogue::new();
    assert_eq!(dialogue.code(b"CONNECT\nheart-beat:500,500\n\n\0"), None);
    let beats = dialogue.session.heartbeat();
    assert_eq!((beats.receive_ms, beats.send_ms), (0, 0)); // docs/specification.md, item 22
    let mut dialogue = Dialogue::new();
    assert_eq!(
        dialogue.code(b"CONNECT\naccept-version:1.2\nheart-beat:a,b\n\n\0"),
        Some(Code::HeartBeatHeader)
    );
}

#[test]
fn missing_required_headers_are_refused() {
    let refused = |code: Code, frames: &[(&str, &str)]| {
        for (version, frame) in frames {
            let answer = Dialogue::connected(version).code(frame.as_bytes());
            assert_eq!(answer, Some(code), "{version} {frame}");
        }
    };
    refused(
        Code::DestinationMissing,
        &[("1.2", "SEND\n\nx\0"), ("1.2", "SEND\ndestination:\n\nx\0"), ("1.2", "SUBSCRIBE\nid:0\n\n\0")],
    );
    refused(
        Code::IdMissing,
        &[
            ("1.1", "SUBSCRIBE\ndestination:/t\n\n\0"),
            ("1.2", "UNSUBSCRIBE\n\n\0"),
            ("1.0", "UNSUBSCRIBE\n\n\0"),
            ("1.2", "ACK\nmessage-id:1\n\n\0"),
            ("1.1", "ACK\nid:1\n\n\0"),
            ("1.1", "ACK\nmessage-id:1\n\n\0"),
        ],
    );
    refused(Code::Command, &[("1.0", "NACK\nmessage-id:1\n\n\0")]);
    refused(Code::TransactionMissing, &[("1.2", "BEGIN\n\n\0"), ("1.2", "COMMIT\ntransaction:\n\n\0")]);
    refused(Code::AckMode, &[("1.2", "SUBSCRIBE\nid:0\ndestination:/t\nack:none\n\n\0")]);
}

#[test]
fn requests_have_the_values_of_the_frame() {
    let mut dialogue = Dialogue::connected("1.2");
    dialogue.say(b"SUBSCRIBE\nid:a\\cb\ndestination:/t\nack:client\nid:c\n\n\0", |request| {
        let Ok(Request::Subscribe { id, destination, ack }) = request else { panic!("{request:?}") };
        assert_eq!((id.as_deref(), &*destination, ack), (Some(&b"a:b"[..]), &b"/t"[..], AckMode::Client));
    });
    dialogue.say(b"NACK\nid:7\ntransaction:t\n\n\0", |request| {
        let Ok(Request::Ack { id, accept, transaction, .. }) = request else { panic!("{request:?}") };
        assert_eq!((&*id, accept, transaction.as_deref()), (&b"7"[..], false, Some(&b"t"[..])));
    });
    dialogue.say(b"ABORT\ntransaction:t\n\n\0", |request| {
        assert!(matches!(request, Ok(Request::Transaction { command: Command::Abort, .. })));
    });
    let mut old = Dialogue::connected("1.0");
    old.say(b"SUBSCRIBE\ndestination:  /t\n\n\0", |request| {
        let Ok(Request::Subscribe { id, destination, .. }) = request else { panic!("{request:?}") };
        // docs/specification.md, item 41
        assert_eq!((id, &*destination), (None, &b"/t"[..]), "1.0 values lose leading spaces");
    });
}

#[test]
fn connect_has_login_and_client_id_as_on_the_wire() {
    let connect = b"CONNECT\naccept-version:1.2\nhost:x\nlogin: a\\cb\nclient-id:c:1\nlogin:second\n\n\0";
    Dialogue::new().say(connect, |request| {
        let Ok(Request::Connect { login, client_id }) = request else { panic!("{request:?}") };
        assert_eq!((login.as_deref(), client_id.as_deref()), (Some(&b" a\\cb"[..]), Some(&b"c:1"[..])));
    });
    Dialogue::new().say(b"STOMP\naccept-version:1.2\nhost:x\n\n\0", |request| {
        assert!(matches!(request, Ok(Request::Connect { login: None, client_id: None })));
    });
}

#[test]
fn a_send_with_options_is_marked_and_keeps_its_headers() {
    let mut dialogue = Dialogue::connected("1.2");
    for (lines, expected) in [("", false), ("priority:4\n", false), ("x:a\\cb\n", false), ("ttl:5\n", true)] {
        for more in ["", "y:a\\cb\n"] {
            let frame = format!("SEND\ndestination:/t\n{lines}{more}\nx\0");
            dialogue.say(frame.as_bytes(), |request| {
                let Ok(Request::Send { options, .. }) = request else { panic!("{request:?}") };
                assert_eq!(options, expected, "{frame}");
            });
            assert_eq!(dialogue.own_headers, format!("{lines}{more}").as_bytes());
        }
    }
}

/// Parses header lines of a MESSAGE in a simple way: splits them at LF and the first colon, and unescapes.
fn read(head: &[u8], version: Version) -> Vec<(Vec<u8>, Vec<u8>)> {
    head.split(|&byte| byte == b'\n')
        .take_while(|line| !line.is_empty())
        .map(|line| {
            let colon = line.iter().position(|&byte| byte == b':').expect("a header line has a colon");
            let read = |part| unescape(part, version).into_owned();
            (read(&line[..colon]), read(&line[colon + 1..]))
        })
        .collect()
}

fn version() -> impl Strategy<Value = Version> {
    prop::sample::select(Version::ALL.to_vec())
}

fn name() -> impl Strategy<Value = String> {
    "[a-z:\\\\é\n]{1,6}"
        .prop_filter("server-owned", |name| !stompica_proto::header::is_server_owned(name.as_bytes()))
}

proptest! {
    #[test]
    fn a_senders_headers_reach_a_receiver_of_any_version(
        sender in version(),
        receiver in version(),
        headers in prop::collection::vec((name(), "[a-z :\\\\é\r\n]{0,8}"), 0..6),
        body in prop::collection::vec(any::<u8>(), 0..40),
    ) {
        let carried: Vec<&(String, String)> = headers
            .iter()
            .filter(|(name, value)| can_carry(name.as_bytes(), value.as_bytes(), sender))
            .filter(|(_, value)| sender != Version::V1_0 || !value.starts_with(' '))
            .collect();
        let mut frame = b"SEND\ndestination:/t\nreceipt:r\ntransaction:x\nmessage-id:forged\n".to_vec();
        for (name, value) in &carried {
            escape_into(&mut frame, name.as_bytes(), sender);
            frame.push(b':');
            escape_into(&mut frame, value.as_bytes(), sender);
            frame.push(b'\n');
        }
        frame.extend_from_slice(format!("content-length:{}\n\n", body.len()).as_bytes());
        frame.extend_from_slice(&body);
        frame.push(0);

        let mut dialogue = Dialogue::connected(sender.as_str());
        let plain = dialogue.say(&frame, |request| match request {
            Ok(Request::Send { plain, body: seen, .. }) => {
                assert_eq!(seen, body);
                plain
            }
            other => panic!("{other:?}"),
        });
        let message =
            Message { destination: b"/t", id: b"1", sender: 0, headers: &dialogue.own_headers, plain, expires_ms: 0, body: &body };
        let mut out = Vec::new();
        let left_out = encode::message_suffix(&mut out, &message, receiver);

        let expected: Vec<(Vec<u8>, Vec<u8>)> = carried
            .iter()
            .filter(|(name, value)| can_carry(name.as_bytes(), value.as_bytes(), receiver))
            .map(|(name, value)| (name.clone().into_bytes(), value.clone().into_bytes()))
            .collect();
        prop_assert_eq!(left_out, carried.len() - expected.len());
        let read = read(&out, receiver);
        prop_assert_eq!(&read[..2], &[(b"message-id".to_vec(), b"1".to_vec()), (b"destination".to_vec(), b"/t".to_vec())]);
        let (length, own) = read[2..].split_last().expect("content-length comes last");
        prop_assert_eq!(own, expected);
        prop_assert_eq!(length, &(b"content-length".to_vec(), body.len().to_string().into_bytes()));
        prop_assert!(out.ends_with(&[&b"\n\n"[..], &body, b"\0"].concat()));
    }

    #[test]
    fn no_frame_makes_the_session_panic(
        frames in prop::collection::vec(
            (prop::sample::select(vec!["CONNECT", "STOMP", "SEND", "SUBSCRIBE", "UNSUBSCRIBE", "ACK", "NACK", "BEGIN", "COMMIT", "ABORT", "DISCONNECT", "DIAG"]),
             prop::collection::vec((prop::sample::select(vec!["id", "destination", "ack", "transaction", "accept-version", "heart-beat", "message-id", "subscription", "x"]), "[a-z0-9.,]{0,5}"), 0..5)),
            1..12,
        ),
    ) {
        let mut dialogue = Dialogue::new();
        for (command, headers) in frames {
            let lines: String = headers.iter().map(|(name, value)| format!("{name}:{value}\n")).collect();
            let before = dialogue.session.was_connected();
            let accepted = dialogue.say(format!("{command}\n{lines}\n\0").as_bytes(), |request| request.is_ok());
            prop_assert!(before || !accepted || matches!(command, "CONNECT" | "STOMP" | "DIAG"));
        }
    }
}

/// The fast path of SEND returns borrowed values.
#[test]
fn a_plain_destination_is_not_copied() {
    let mut dialogue = Dialogue::connected("1.2");
    dialogue.say(b"SEND\ndestination:/t\n\nx\0", |request| {
        assert!(matches!(request, Ok(Request::Send { destination: Cow::Borrowed(_), plain: true, .. })));
    });
}
