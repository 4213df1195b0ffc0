//! Random client streams: our decoder is compared with tungstenite's server, with itself for other splits, and tested
//! with tungstenite's client as the peer.

mod ws_frames;

use std::io::{self, Cursor, Read, Write};

use proptest::collection::vec;
use proptest::prelude::*;
use stompica_proto::ws::encode::{self, Opcode};
use tungstenite::protocol::frame::coding::CloseCode;
use tungstenite::protocol::{Role, WebSocketConfig, WebSocketContext};
use tungstenite::{Error, Message};
use ws_frames::{
    BINARY, CLOSE, CONTINUE, Frame, Length, MESSAGE_MAX, PING, PONG, Receiver, Seen, TEXT, decode_pieces,
    stream,
};

/// Small enough to be exceeded sometimes.
const LIMIT: usize = 600;

/// The bytes of one side; written bytes are discarded.
struct Wire(Cursor<Vec<u8>>);

impl Read for Wire {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl Write for Wire {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn config(limit: usize) -> WebSocketConfig {
    let config = WebSocketConfig::default().read_buffer_size(4096);
    config.max_frame_size(Some(limit)).max_message_size(Some(limit))
}

/// Tungstenite's events for a stream.
fn oracle(bytes: Vec<u8>, role: Role, limit: usize) -> Vec<Seen> {
    let mut context = WebSocketContext::new(role, Some(config(limit)));
    let mut wire = Wire(Cursor::new(bytes));
    let mut seen = Vec::new();
    loop {
        let next = match context.read(&mut wire) {
            Ok(Message::Text(text)) => Seen::Text(text.as_bytes().to_vec()),
            Ok(Message::Binary(bytes)) => Seen::Binary(bytes.to_vec()),
            Ok(Message::Ping(bytes)) => Seen::Ping(bytes.to_vec()),
            Ok(Message::Pong(bytes)) => Seen::Pong(bytes.to_vec()),
            // Its result for a close code that is not allowed.
            Ok(Message::Close(Some(close))) if close.reason.as_str() == "Protocol violation" => {
                Seen::Error(1002)
            }
            Ok(Message::Close(close)) => Seen::Close(close.map(|close| close.code.into())),
            Err(Error::Protocol(tungstenite::error::ProtocolError::ResetWithoutClosingHandshake)) => {
                return seen;
            }
            Err(Error::Protocol(_)) => Seen::Error(1002),
            Err(Error::Utf8(_)) => Seen::Error(1007),
            Err(Error::Capacity(_)) => Seen::Error(1009),
            other => panic!("not expected of a stream in memory: {other:?}"),
        };
        let over = matches!(next, Seen::Close(_) | Seen::Error(_));
        seen.push(next);
        if over {
            return seen;
        }
    }
}

fn key() -> impl Strategy<Value = Option<[u8; 4]>> {
    any::<[u8; 4]>().prop_map(Some)
}

fn body() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => "[ -~]{0,40}".prop_map(String::into_bytes),
        4 => "\\PC{0,40}".prop_map(String::into_bytes),
        2 => vec(any::<u8>(), 0..12),
        1 => vec(Just(b'x'), 100..300),
        1 => vec(any::<u8>(), 100..400),
    ]
}

fn control() -> impl Strategy<Value = Frame> {
    let payload = prop_oneof![3 => vec(any::<u8>(), 0..20), 1 => vec(any::<u8>(), 120..=125)];
    (prop_oneof![Just(PING), Just(PONG)], payload, key())
        .prop_map(|(opcode, payload, key)| Frame::new(opcode, payload).mask(key))
}

/// A message, its payload split anywhere, with control frames between the fragments.
fn message() -> impl Strategy<Value = Vec<Frame>> {
    let body = prop_oneof![6 => "\\PC{0,60}".prop_map(String::into_bytes), 1 => body()];
    let cut = (any::<prop::sample::Index>(), prop::option::weighted(0.3, control()));
    (prop_oneof![Just(TEXT), Just(BINARY)], body, vec(cut, 0..4), key()).prop_map(
        |(opcode, body, cuts, key)| {
            let mut cuts: Vec<_> =
                cuts.into_iter().map(|(at, control)| (at.index(body.len() + 1), control)).collect();
            cuts.sort_by_key(|(at, _)| *at);
            let (mut frames, mut from) = (Vec::new(), 0);
            let opcode_at = |from: usize, frames: &[Frame]| {
                if from == 0 && frames.is_empty() { opcode } else { CONTINUE }
            };
            for (at, control) in cuts {
                frames.push(Frame::new(opcode_at(from, &frames), &body[from..at]).more().mask(key));
                frames.extend(control);
                from = at;
            }
            frames.push(Frame::new(opcode_at(from, &frames), &body[from..]).mask(key));
            frames
        },
    )
}

fn close() -> impl Strategy<Value = Frame> {
    let code = prop_oneof![4 => 1000..1016_u16, 1 => 3000..5000_u16, 1 => any::<u16>()];
    // The only code that tungstenite considers undefined although IANA has registered it.
    let code = code.prop_filter("registered after RFC 6455", |code| *code != 1014);
    let reason = prop_oneof![2 => "\\PC{0,20}".prop_map(String::into_bytes), 1 => vec(any::<u8>(), 0..8)];
    let payload = prop_oneof![
        1 => vec(any::<u8>(), 0..2),
        4 => (code, reason).prop_map(|(code, reason)| {
            // Only one error at a time: the RFC does not say which one is reported first.
            let reason = if CloseCode::from(code).is_allowed() { reason } else { Vec::new() };
            [&code.to_be_bytes()[..], &reason[..]].concat()
        }),
    ];
    (payload, key()).prop_map(|(payload, key)| Frame::new(CLOSE, payload).mask(key))
}

/// A frame with arbitrary errors.
fn wild() -> impl Strategy<Value = Frame> {
    let rsv = prop_oneof![9 => Just(0), 1 => 1..8_u8];
    let mask = prop_oneof![9 => key(), 1 => Just(None)];
    (any::<bool>(), rsv, 0..16_u8, mask, body()).prop_map(|(fin, rsv, opcode, mask, body)| {
        // The payloads of Close frames have their own strategy.
        let body = if opcode == CLOSE { Vec::new() } else { body };
        Frame { fin, ..Frame::new(opcode, body).rsv(rsv).mask(mask) }
    })
}

/// Mostly valid messages, sometimes invalid frames.
fn frames() -> impl Strategy<Value = Vec<Frame>> {
    let step = prop_oneof![
        8 => message(),
        4 => control().prop_map(|frame| vec![frame]),
        1 => close().prop_map(|frame| vec![frame]),
        2 => wild().prop_map(|frame| vec![frame]),
    ];
    vec(step, 0..8).prop_map(|steps| steps.concat())
}

/// Frames with lengths in any form; tungstenite accepts those that are not the shortest, we do not.
fn frames_in_any_form() -> impl Strategy<Value = Vec<Frame>> {
    let form = prop_oneof![
        20 => Just(Length::Shortest),
        1 => Just(Length::Bits16),
        1 => Just(Length::Bits64),
        1 => any::<u64>().prop_map(Length::Claimed),
    ];
    (frames(), vec(form, 40)).prop_map(|(frames, forms)| {
        let forms = forms.into_iter().chain(std::iter::repeat(Length::Shortest));
        frames.into_iter().zip(forms).map(|(frame, form)| frame.length(form)).collect()
    })
}

/// Splits a stream into pieces of these lengths, repeated as needed.
fn cut<'a>(mut bytes: &'a [u8], lengths: &[usize]) -> Vec<&'a [u8]> {
    let mut pieces = Vec::new();
    for length in lengths.iter().cycle() {
        let (piece, rest) = bytes.split_at((*length).min(bytes.len()));
        pieces.push(piece);
        bytes = rest;
        if bytes.is_empty() {
            break;
        }
    }
    pieces
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn agrees_with_tungstenite_on_every_stream(frames in frames()) {
        let bytes = stream(&frames);
        let ours = decode_pieces([&bytes[..]], LIMIT);
        let theirs = oracle(bytes, Role::Server, LIMIT);
        // A frame that is both too long and otherwise invalid: tungstenite checks the length first.
        if let (Some((Seen::Error(1002), ours)), Some((Seen::Error(1009), theirs))) =
            (ours.split_last(), theirs.split_last())
        {
            prop_assert_eq!(ours, theirs);
        } else {
            prop_assert_eq!(ours, theirs);
        }
    }

    #[test]
    fn any_split_gives_the_same(frames in frames_in_any_form(), lengths in vec(1..40_usize, 1..6)) {
        let bytes = stream(&frames);
        let whole = decode_pieces([&bytes[..]], LIMIT);
        prop_assert_eq!(&decode_pieces(cut(&bytes, &lengths), LIMIT), &whole);
        prop_assert_eq!(&decode_pieces(bytes.chunks(1), LIMIT), &whole);
    }

    #[test]
    fn random_bytes_never_panic(bytes in vec(any::<u8>(), 0..200), lengths in vec(1..40_usize, 1..6)) {
        let whole = decode_pieces([&bytes[..]], LIMIT);
        prop_assert_eq!(decode_pieces(cut(&bytes, &lengths), LIMIT), whole);
    }

    #[test]
    fn returned_text_is_utf8_except_for_an_incomplete_last_character(
        bytes in prop_oneof!["\\PC{0,80}".prop_map(String::into_bytes), body()],
        lengths in vec(1..9_usize, 1..6),
    ) {
        let mut receiver = Receiver::default();
        for piece in cut(&Frame::new(TEXT, &bytes).bytes(), &lengths) {
            receiver.push(piece, MESSAGE_MAX);
            match std::str::from_utf8(&receiver.message) {
                Ok(_) => {}
                Err(error) => prop_assert_eq!(error.error_len(), None),
            }
        }
        match std::str::from_utf8(&bytes) {
            Ok(_) => prop_assert_eq!(receiver.seen, vec![Seen::Text(bytes)]),
            Err(_) => prop_assert_eq!(receiver.seen, vec![Seen::Error(1007)]),
        }
    }

    #[test]
    fn tungstenite_reads_what_we_write(
        messages in vec((any::<bool>(), "\\PC{0,300}"), 0..6),
        probe in vec(any::<u8>(), 0..=125),
        code in 3000..5000_u16,
        reason in "\\PC{0,60}",
    ) {
        let (mut out, mut expected) = (Vec::new(), Vec::new());
        for (is_text, message) in messages {
            encode::header(&mut out, if is_text { Opcode::Text } else { Opcode::Binary }, message.len());
            out.extend_from_slice(message.as_bytes());
            let message = message.into_bytes();
            expected.push(if is_text { Seen::Text(message) } else { Seen::Binary(message) });
            encode::ping(&mut out, &probe);
            encode::pong(&mut out, &probe);
            expected.extend([Seen::Ping(probe.clone()), Seen::Pong(probe.clone())]);
        }
        encode::close(&mut out, code, &reason);
        expected.push(Seen::Close(Some(code)));
        prop_assert_eq!(oracle(out, Role::Client, MESSAGE_MAX), expected);
    }

    #[test]
    fn we_read_what_tungstenite_writes(
        messages in vec((any::<bool>(), "\\PC{0,300}"), 0..6),
        lengths in vec(1..400_usize, 1..6),
    ) {
        let mut client = WebSocketContext::new(Role::Client, None);
        let mut written = Cursor::new(Vec::new());
        let mut expected = Vec::new();
        for (is_text, message) in messages {
            let bytes = message.clone().into_bytes();
            expected.push(if is_text { Seen::Text(bytes.clone()) } else { Seen::Binary(bytes.clone()) });
            let message = if is_text { Message::text(message) } else { Message::binary(bytes) };
            client.write(&mut written, message).expect("writing to memory succeeds");
        }
        client.close(&mut written, None).expect("writing to memory succeeds");
        client.flush(&mut written).expect("writing to memory succeeds");
        expected.push(Seen::Close(None));
        let bytes = written.into_inner();
        prop_assert_eq!(decode_pieces(cut(&bytes, &lengths), MESSAGE_MAX), expected);
    }
}
