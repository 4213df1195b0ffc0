//! WebSocket frames: no panic, no endless loop, and the same messages wherever the bytes are cut.
//!
//! Input: one octet for the lengths of the pieces, then the stream behind the handshake.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stompica_proto::ws::{WsDecoder, WsEvent};

const MESSAGE_BYTES_MAX: usize = 1000;

/// What is the same for every cut: whole messages, control frames, and how it ends.
#[derive(Debug, Default, PartialEq, Eq)]
struct Outcome {
    messages: Vec<(bool, Vec<u8>)>,
    controls: Vec<(&'static str, Vec<u8>)>,
    close: Option<Option<u16>>,
    error: Option<u16>,
}

fn decode<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Outcome {
    let (mut decoder, mut outcome, mut message) = (WsDecoder::new(), Outcome::default(), Vec::new());
    for piece in pieces {
        let mut bytes = piece.to_vec();
        let mut rest = &mut bytes[..];
        loop {
            let len = rest.len();
            let consumed = match decoder.decode(rest, MESSAGE_BYTES_MAX) {
                Ok((event, consumed)) => {
                    assert!(consumed <= len);
                    let needs_more = event == WsEvent::NeedMore;
                    take(event, &mut message, &mut outcome);
                    if needs_more {
                        assert_eq!(consumed, len, "NeedMore takes all there is");
                        break;
                    }
                    consumed
                }
                Err(error) => {
                    outcome.error = Some(error.close_code);
                    return outcome;
                }
            };
            rest = &mut rest[consumed..];
        }
    }
    outcome
}

fn take(event: WsEvent<'_>, message: &mut Vec<u8>, outcome: &mut Outcome) {
    match event {
        WsEvent::Data { payload, text, message_end } => {
            message.extend_from_slice(payload);
            assert!(message.len() <= MESSAGE_BYTES_MAX);
            if message_end {
                let whole = std::mem::take(message);
                assert!(!text || std::str::from_utf8(&whole).is_ok());
                outcome.messages.push((text, whole));
            }
        }
        WsEvent::Ping(payload) => outcome.controls.push(("ping", payload.into_owned())),
        WsEvent::Pong(payload) => outcome.controls.push(("pong", payload.into_owned())),
        WsEvent::Close { code } => outcome.close = Some(code),
        WsEvent::NeedMore => {}
    }
}

fuzz_target!(|input: &[u8]| {
    let [pieces, stream @ ..] = input else { return };
    assert_eq!(decode([stream]), decode(stream.chunks(usize::from(*pieces).max(1))));
});
