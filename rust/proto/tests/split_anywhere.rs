//! The decoder's results depend on the bytes, never on where the network splits them.

mod codec;

use codec::{Outcome, Reader, decode, decode_pieces, send};
use proptest::prelude::*;
use stompica_proto::{Limits, Version};

const PHASES: [Option<Version>; 4] = [None, Some(Version::V1_0), Some(Version::V1_1), Some(Version::V1_2)];

/// Valid and invalid streams that cover every branch of the decoder.
const CORPUS: &[&[u8]] = &[
    b"CONNECT\naccept-version:1.2\nhost:x\n\n\0",
    b"STOMP\r\naccept-version:1.2\r\npasscode:a\\c:b\r\n\r\n\0\r\n\n",
    b"\n\r\n\nSEND\ndestination:/topic/a\n\nhello\0\n\nSEND\r\ndestination:/b\r\n\r\n\r\n\0",
    b"SEND\ndestination:/topic/a\ncontent-length:5\n\n\0\0a\0\0\0SUBSCRIBE\nid:0\ndestination:/a\n\n\0",
    b"SEND\na\\cb:\\n\\\\\nc:\\c\n\n\0",
    b"SEND\na:\\r\n\n\0",
    b"SEND\nx: padded\nx:second\nempty:\n\xC3\xA9:\xE2\x82\xAC\n\n\0",
    b"SEND\nx:\xC3\n\n\0",
    b"SEND\ncontent-length:2\n\nabc\0",
    b"SEND\ncontent-length:x\n\nabc\0",
    b"SEND\nno colon\n\n\0",
    b"SEND\n:empty name\n\n\0",
    b"SEND\na:b\0SEND\n",
    b"DISCONNECT\n\0",
    b"DISCONNECT\n\nbody\0",
    b"BEGIN\n\n\r\n\n\0DISCONNECT\ncontent-length:3\n\n\n\r\n\0",
    b"BEGIN\n\n\n\r",
    b"BEGIN\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\r\n\0",
    b"BEGIN\ncontent-length: 2\t\n\n\r\r\0",
    b"UNSUBSCRIBE\r\nid:1\r\n\r\n\0",
    b"UNSUBSCRIBES\n\n\0",
    b"send\n\n\0",
    b"\r\r\n",
    b"\0",
    b"SEND\nab:c\rd\n\n\0",
    b"SEND\nlong:0123456789012345678901234567890123456789\n\n\0",
    b"SEND\na:1\nb:2\nc:3\nd:4\ne:5\nf:6\n\n\0",
    b"SEND\na:1\n\n0123456789012345678901234567890123456789\0",
    b"SEND\ncontent-length:4000000000\n\n",
    b"SEND\ncontent-length:40\n\n",
];

fn tight() -> Limits {
    Limits {
        message_bytes_max: 30,
        header_line_bytes_max: 24,
        headers_max: 4,
        before_login_bytes_max: 60,
        ..Limits::default()
    }
}

// docs/specification.md, item 27
#[test]
fn any_split_of_the_corpus_gives_the_same_frames_or_the_same_error() {
    for stream in CORPUS {
        for version in PHASES {
            for limits in [Limits::default(), tight()] {
                let whole = decode_pieces(version, limits, [*stream]);
                for at in 0..=stream.len() {
                    let (head, tail) = stream.split_at(at);
                    assert_eq!(decode_pieces(version, limits, [head, tail]), whole, "{version:?} at {at}");
                }
                assert_eq!(decode_pieces(version, limits, stream.chunks(1)), whole, "{version:?} by octet");
                assert_eq!(decode_pieces(version, limits, stream.chunks(3)), whole, "{version:?} by three");
            }
        }
    }
}

// docs/specification.md, item 27
#[test]
fn a_thousand_frames_in_one_segment_are_a_thousand_frames() {
    let stream = b"SEND\ndestination:/topic/a\n\nhello\0\n".repeat(1000);
    let outcome = decode(Some(Version::V1_2), &stream);
    assert_eq!((outcome.frames.len(), outcome.error, outcome.left), (1000, None, 0));
}

#[test]
fn searched_body_octets_are_not_searched_again() {
    let mut reader = Reader::new(Some(Version::V1_2), Limits::default());
    reader.feed(b"SEND\na:b\n\nbody");
    let at = reader.kept.len() - 2;
    // No caller does this; a decoder that searched the octet again would end the body here.
    reader.kept[at] = 0;
    reader.feed(b"more\0");
    assert_eq!(reader.outcome.frames[0].body, b"bo\0ymore");
}

#[test]
fn checked_header_lines_are_not_checked_again_before_the_frame_is_complete() {
    let mut reader = Reader::new(Some(Version::V1_2), Limits::default());
    reader.feed(b"SEND\na:b\nc");
    reader.kept[6] = b'X';
    reader.feed(b":d");
    reader.feed(b"\n\nbody");
    assert_eq!(reader.outcome, Outcome { left: reader.kept.len(), ..Outcome::default() });
    reader.kept[6] = b':';
    reader.feed(b"\0");
    assert_eq!(reader.outcome.frames[0].headers.len(), 2);
}

/// A name (at least one character) or value: characters to escape, wide ones, and any others except NUL.
fn text(at_least: usize) -> impl Strategy<Value = String> {
    let letter = prop_oneof![
        4 => prop::char::range('a', 'z'),
        2 => prop::sample::select(vec![':', '\\', '\n', '\r', ' ', '\t', 'n', 'c', 'r', '\u{e9}', '\u{1F980}']),
        1 => any::<char>(),
    ];
    prop::collection::vec(letter.prop_filter("NUL ends frames", |&letter| letter != '\0'), at_least..24)
        .prop_map(|letters| letters.into_iter().collect())
}

fn headers() -> impl Strategy<Value = Vec<(String, String)>> {
    prop::collection::vec((text(1), text(0)), 0..8)
}

fn version() -> impl Strategy<Value = Version> {
    prop::sample::select(Version::ALL.to_vec())
}

/// Splits `bytes` at these places (modulo its length).
fn pieces<'a>(bytes: &'a [u8], cuts: &[prop::sample::Index]) -> Vec<&'a [u8]> {
    let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
    places.push(bytes.len());
    places.sort_unstable();
    let mut from = 0;
    places
        .into_iter()
        .map(|place| {
            let piece = &bytes[from..place];
            from = place;
            piece
        })
        .collect()
}

proptest! {
    // docs/specification.md, items 35, 37, 38, 39, 41, 44
    #[test]
    fn decoding_what_was_encoded_is_identity(
        version in version(),
        mut headers in headers(),
        body in prop::collection::vec(any::<u8>(), 0..64),
        crlf in prop::collection::vec(any::<bool>(), 1..8),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
    ) {
        if version == Version::V1_0 {
            headers.retain(|(name, value)| !name.contains([':', '\n']) && !value.contains('\n') && !value.starts_with(' '));
        }
        let eols: Vec<&str> =
            crlf.iter().map(|&crlf| if crlf && version == Version::V1_2 { "\r\n" } else { "\n" }).collect();
        let wire = send(&headers, &body, version, &eols);
        let outcome = decode_pieces(Some(version), Limits::default(), pieces(&wire, &cuts));
        prop_assert_eq!((outcome.frames.len(), outcome.error, outcome.left), (1, None, 0));
        let frame = &outcome.frames[0];
        let mut expected: Vec<(Vec<u8>, Vec<u8>)> =
            headers.iter().map(|(name, value)| (name.clone().into_bytes(), value.clone().into_bytes())).collect();
        if body.contains(&0) {
            expected.push((b"content-length".to_vec(), body.len().to_string().into_bytes()));
        }
        prop_assert_eq!(&frame.headers, &expected);
        prop_assert_eq!(&frame.body, &body);
        let is_plain = |(name, value): &(String, String)| {
            !name.contains([':', '\\', '\n', '\r']) && !value.contains([':', '\\', '\n', '\r'])
                && !value.is_empty() && !value.starts_with(' ')
        };
        prop_assert_eq!(frame.plain, headers.iter().all(is_plain));
    }

    #[test]
    fn random_octets_neither_panic_nor_depend_on_their_cuts(
        version in prop::sample::select(PHASES.to_vec()),
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
    ) {
        let whole = decode_pieces(version, tight(), [&bytes[..]]);
        prop_assert_eq!(decode_pieces(version, tight(), pieces(&bytes, &cuts)), whole);
    }

    #[test]
    fn damaged_frames_neither_panic_nor_depend_on_their_cuts(
        version in prop::sample::select(PHASES.to_vec()),
        streams in prop::collection::vec(prop::sample::select(CORPUS.to_vec()), 1..4),
        damage in prop::collection::vec(
            (any::<prop::sample::Index>(), prop::sample::select(b"\0\n\r:\\ 0a\xC3".to_vec()), 0..3_u8), 0..4),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
    ) {
        let mut bytes = streams.concat();
        for (place, byte, how) in damage {
            let at = place.index(bytes.len());
            match how {
                0 => bytes[at] = byte,
                1 => bytes.insert(at, byte),
                _ if bytes.len() > 1 => _ = bytes.remove(at),
                _ => {}
            }
        }
        for limits in [Limits::default(), tight()] {
            let whole = decode_pieces(version, limits, [&bytes[..]]);
            prop_assert_eq!(decode_pieces(version, limits, pieces(&bytes, &cuts)), whole.clone());
            prop_assert_eq!(decode_pieces(version, limits, bytes.chunks(1)), whole);
        }
    }
}
