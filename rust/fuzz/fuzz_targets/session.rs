//! STOMP sessions: no input causes a panic; the session requests nothing from the broker before CONNECT or after the
//! first error; and every frame that the broker would answer, or send to receivers of any version, is well-formed.
//!
//! Input: one byte for the lengths of the pieces, then the stream.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stompica_proto::decode::{masked_head, offending_head};
use stompica_proto::encode::{self, Message, Offender};
use stompica_proto::session::{Request, Session};
use stompica_proto::{Decoded, Decoder, Frame, Limits, ProtocolError, Version, header};

/// Whether the session continues.
type Continues = bool;

fuzz_target!(|input: &[u8]| {
    let [pieces, stream @ ..] = input else { return };
    let (mut decoder, mut session) = (Decoder::new(), Session::new());
    let (mut kept, mut spans) = (Vec::new(), Vec::new());
    for piece in stream.chunks(usize::from(*pieces).max(1)) {
        kept.extend_from_slice(piece);
        loop {
            match decoder.decode(&kept, &mut spans, &Limits::default()) {
                Ok(Decoded::Frame { frame, consumed }) => {
                    if !handle(&mut session, &mut decoder, &frame) {
                        return;
                    }
                    kept.drain(..consumed);
                }
                Ok(Decoded::Incomplete { consumed, .. }) => {
                    kept.drain(..consumed);
                    break;
                }
                Err(error) => return encode_error(&error, &kept, session.version()),
            }
        }
    }
});

fn handle(session: &mut Session, decoder: &mut Decoder, frame: &Frame<'_>) -> Continues {
    let was_connected = session.is_connected();
    let mut own_headers = b"headers of the previous frame".to_vec();
    match session.handle(frame, (10_000, 10_000), &mut own_headers) {
        Ok(Request::Connect { .. }) => {
            assert!(!was_connected && session.is_connected());
            decoder.connected(session.version());
            let mut out = Vec::new();
            encode::connected(&mut out, session.version(), "s", (0, 0), None);
            lines_of(&out, b"CONNECTED");
        }
        Ok(Request::Diagnose { .. }) => {}
        Ok(Request::Send { destination, body, plain, .. }) => {
            assert!(was_connected && !destination.is_empty());
            let message = Message {
                destination: &destination,
                id: b"0-1",
                sender: 0,
                headers: &own_headers,
                plain,
                expires_ms: 0,
                body,
            };
            Version::ALL.into_iter().for_each(|version| encode_for(&message, version));
        }
        Ok(Request::Disconnect) => {
            assert!(was_connected && !session.is_connected());
            return false;
        }
        Ok(_) => assert!(was_connected),
        Err(error) => {
            encode_error(&error, frame.input, session.version());
            return false;
        }
    }
    if let Some(id) = frame.header(header::RECEIPT) {
        let mut out = Vec::new();
        encode::receipt(&mut out, &id, session.version());
        assert_eq!(lines_of(&out, b"RECEIPT").len(), 1);
    }
    true
}

/// Encodes a message for a receiver of `version` and checks the frame.
fn encode_for(message: &Message<'_>, version: Version) {
    let mut out = Vec::new();
    encode::message_prefix(&mut out, Some(b"0"), version);
    encode::message_suffix(&mut out, message, version);
    let body_at = out.len() - message.body.len() - 1;
    assert_eq!(&out[body_at..out.len() - 1], message.body);
    let lines = lines_of(&out[..], b"MESSAGE");
    let own = message.headers.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).count();
    for name in [&b"subscription"[..], b"message-id", b"destination", b"content-length"] {
        assert_eq!(lines.iter().filter(|(known, _)| *known == name).count(), 1, "{}", name.escape_ascii());
    }
    assert!(lines.len() <= own + 4, "no header is duplicated");
}

/// Encodes the ERROR frame for an error and checks it.
fn encode_error(error: &ProtocolError, input: &[u8], version: Version) {
    let head = masked_head(offending_head(input));
    let mut out = Vec::new();
    encode::error(&mut out, error, &Offender { receipt: None, subscription: None, head }, version);
    let lines = lines_of(&out, b"ERROR");
    assert_eq!(lines.iter().filter(|(name, _)| *name == b"code").count(), 1);
}

/// Names and values of the header lines of a server frame.
fn lines_of<'a>(frame: &'a [u8], command: &[u8]) -> Vec<(&'a [u8], &'a [u8])> {
    assert_eq!(frame.last(), Some(&0));
    let head_len = frame.windows(2).position(|pair| pair == b"\n\n").expect("the head ends with a blank line");
    let mut lines = frame[..head_len].split(|byte| *byte == b'\n');
    assert_eq!(lines.next(), Some(command));
    lines
        .map(|line| {
            let colon = line.iter().position(|byte| *byte == b':').expect("a header has a colon");
            (&line[..colon], &line[colon + 1..])
        })
        .collect()
}
