//! Every requirement of RFC 6455 on a server's framing, by section. The tests of the opening handshake (section 4) are
//! in `ws/handshake_tests.rs` and, over a socket, in `tests/ws`.

mod ws_frames;

use stompica_proto::Limits;
use stompica_proto::ws::{encode, parse_request, upgrade};
use ws_frames::{
    BINARY, CLOSE, CONTINUE, Frame, Length, MESSAGE_MAX, PING, PONG, Receiver, Seen, TEXT, binary, decode,
    decode_pieces, stream, text,
};

const PROTOCOL: Seen = Seen::Error(1002);
const INVALID: Seen = Seen::Error(1007);
const TOO_BIG: Seen = Seen::Error(1009);

// Section 1.3: the handshake of the RFC's example.

#[test]
fn s1_3_sample_handshake_is_accepted() {
    let request = "GET /chat HTTP/1.1\r\nHost: server.example.com\r\nUpgrade: websocket\r\n\
                   Connection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
                   Origin: http://server.example.com\r\nSec-WebSocket-Protocol: chat, v11.stomp\r\n\
                   Sec-WebSocket-Version: 13\r\n\r\nframes";
    let (head, len) = parse_request(request.as_bytes(), &Limits::default()).expect("HTTP").expect("whole");
    assert_eq!(&request[len..], "frames");
    let response = String::from_utf8(upgrade(&head, None).expect("accepted").response).expect("text");
    assert!(response.starts_with("HTTP/1.1 101 "), "{response}");
    assert!(response.contains("\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"), "{response}");
    assert!(response.contains("\r\nSec-WebSocket-Protocol: v11.stomp\r\n"), "{response}");
}

// Section 5.1: overview.

#[test]
fn s5_1_unmasked_frame_is_1002() {
    for opcode in [TEXT, BINARY, CLOSE, PING, PONG] {
        assert_eq!(decode(&[Frame::new(opcode, "").mask(None)]), [PROTOCOL]);
        assert_eq!(
            decode(&[Frame::new(TEXT, "x"), Frame::new(opcode, "abc").mask(None)]),
            [text("x"), PROTOCOL]
        );
    }
    assert_eq!(decode(&[Frame::new(TEXT, "a").more(), Frame::new(CONTINUE, "b").mask(None)]), [PROTOCOL]);
}

#[test]
fn s5_1_server_frames_are_not_masked() {
    let mut out = Vec::new();
    for len in [0, 125, 126, 0xffff, 0x1_0000] {
        out.clear();
        encode::header(&mut out, encode::Opcode::Binary, len);
        assert_eq!(out[1] & 0x80, 0, "{len}");
    }
}

// Section 5.2: the base framing.

#[test]
fn s5_2_reserved_bits_are_1002() {
    for bits in 1..8 {
        for opcode in [TEXT, BINARY, CLOSE, PING, PONG] {
            assert_eq!(
                decode(&[Frame::new(opcode, "").rsv(bits)]),
                [PROTOCOL],
                "bits {bits}, opcode {opcode}"
            );
        }
        let continued = [Frame::new(BINARY, "a").more(), Frame::new(CONTINUE, "b").rsv(bits)];
        assert_eq!(decode(&continued), [PROTOCOL], "bits {bits}");
    }
}

#[test]
fn s5_2_reserved_opcodes_are_1002() {
    for opcode in [3, 4, 5, 6, 7, 11, 12, 13, 14, 15] {
        assert_eq!(decode(&[Frame::new(opcode, "")]), [PROTOCOL], "opcode {opcode}");
        assert_eq!(decode(&[Frame::new(opcode, "abc").more()]), [PROTOCOL], "opcode {opcode}");
        let inside = [Frame::new(TEXT, "a").more(), Frame::new(opcode, ""), Frame::new(CONTINUE, "b")];
        assert_eq!(decode(&inside), [PROTOCOL], "opcode {opcode} inside a message");
    }
}

#[test]
fn s5_2_lengths_of_7_16_and_64_bits() {
    for len in [0, 1, 124, 125, 126, 127, 128, 0xfffe, 0xffff, 0x1_0000, 0x1_0001] {
        let payload = vec![b'*'; len];
        assert_eq!(decode(&[Frame::new(TEXT, &payload)]), [text(&payload)], "{len}");
        assert_eq!(decode(&[Frame::new(BINARY, &payload)]), [binary(&payload)], "{len}");
    }
}

#[test]
fn s5_2_length_not_in_its_shortest_form_is_1002() {
    for (len, form) in [
        (0, Length::Bits16),
        (125, Length::Bits16),
        (0, Length::Bits64),
        (125, Length::Bits64),
        (126, Length::Bits64),
        (0xffff, Length::Bits64),
    ] {
        assert_eq!(decode(&[Frame::new(BINARY, vec![0; len]).length(form)]), [PROTOCOL], "{len} as {form:?}");
    }
}

#[test]
fn s5_2_length_with_the_highest_bit_is_1002() {
    for len in [1 << 63, u64::MAX] {
        assert_eq!(decode(&[Frame::new(BINARY, "").length(Length::Claimed(len))]), [PROTOCOL]);
    }
}

// Section 5.3: masking.

#[test]
fn s5_3_each_frame_has_its_own_mask() {
    let frames = [[0; 4], [1, 2, 3, 4], [0xff; 4], [0, 0, 0, 1]].map(|key| {
        let payload: Vec<u8> = (0..=255).collect();
        Frame::new(BINARY, payload).mask(Some(key))
    });
    let payload: Vec<u8> = (0..=255).collect();
    assert_eq!(decode(&frames), [binary(&payload), binary(&payload), binary(&payload), binary(&payload)]);
}

#[test]
fn s5_3_mask_continues_wherever_a_payload_is_split() {
    let payload: Vec<u8> = (0..300).map(|at| (at % 251) as u8).collect();
    let bytes = Frame::new(BINARY, &payload).bytes();
    for cut in 0..=bytes.len() {
        let (first, second) = bytes.split_at(cut);
        assert_eq!(decode_pieces([first, second], MESSAGE_MAX), [binary(&payload)], "cut at {cut}");
    }
    for size in 1..20 {
        assert_eq!(decode_pieces(bytes.chunks(size), MESSAGE_MAX), [binary(&payload)], "pieces of {size}");
    }
}

// Section 5.4: fragmentation.

#[test]
fn s5_4_fragments_form_one_message_of_the_first_ones_type() {
    let frames = [
        Frame::new(TEXT, "one ").more(),
        Frame::new(CONTINUE, "two ").more(),
        Frame::new(CONTINUE, "three"),
        Frame::new(BINARY, [0xff]).more(),
        Frame::new(CONTINUE, [0xfe]),
        Frame::new(TEXT, "next"),
    ];
    assert_eq!(decode(&frames), [text("one two three"), binary([0xff, 0xfe]), text("next")]);
}

#[test]
fn s5_4_empty_fragments_and_empty_messages() {
    let frames = [
        Frame::new(TEXT, ""),
        Frame::new(TEXT, "").more(),
        Frame::new(CONTINUE, "").more(),
        Frame::new(CONTINUE, ""),
        Frame::new(BINARY, "").more(),
        Frame::new(CONTINUE, "middle").more(),
        Frame::new(CONTINUE, ""),
        Frame::new(BINARY, ""),
    ];
    assert_eq!(decode(&frames), [text(""), text(""), binary("middle"), binary("")]);
}

#[test]
fn s5_4_control_frames_between_fragments() {
    let frames = [
        Frame::new(TEXT, "a").more(),
        Frame::new(PING, "1"),
        Frame::new(CONTINUE, "b").more(),
        Frame::new(PONG, "2"),
        Frame::new(PING, ""),
        Frame::new(CONTINUE, "c"),
    ];
    let seen = [Seen::Ping(b"1".to_vec()), Seen::Pong(b"2".to_vec()), Seen::Ping(Vec::new()), text("abc")];
    assert_eq!(decode(&frames), seen);
}

#[test]
fn s5_4_continuation_without_a_message_is_1002() {
    assert_eq!(decode(&[Frame::new(CONTINUE, "a")]), [PROTOCOL]);
    assert_eq!(decode(&[Frame::new(CONTINUE, "").more()]), [PROTOCOL]);
    assert_eq!(decode(&[Frame::new(TEXT, "a"), Frame::new(CONTINUE, "b")]), [text("a"), PROTOCOL]);
    let after_fragments =
        [Frame::new(TEXT, "a").more(), Frame::new(CONTINUE, "b"), Frame::new(CONTINUE, "c")];
    assert_eq!(decode(&after_fragments), [text("ab"), PROTOCOL]);
}

#[test]
fn s5_4_new_message_inside_a_fragmented_one_is_1002() {
    for opcode in [TEXT, BINARY] {
        for frame in [Frame::new(opcode, "b"), Frame::new(opcode, "b").more(), Frame::new(opcode, "")] {
            assert_eq!(decode(&[Frame::new(TEXT, "a").more(), frame]), [PROTOCOL]);
        }
    }
}

// Section 5.5: control frames.

#[test]
fn s5_5_control_frame_over_125_bytes_is_1002() {
    for opcode in [CLOSE, PING, PONG] {
        for len in [126, 0x1_0000] {
            assert_eq!(
                decode(&[Frame::new(opcode, vec![0; len])]),
                [PROTOCOL],
                "opcode {opcode}, {len} bytes"
            );
        }
    }
    assert_eq!(decode(&[Frame::new(PING, [7; 125])]), [Seen::Ping(vec![7; 125])]);
    assert_eq!(decode(&[Frame::new(PONG, [7; 125])]), [Seen::Pong(vec![7; 125])]);
}

#[test]
fn s5_5_fragmented_control_frame_is_1002() {
    for opcode in [CLOSE, PING, PONG] {
        assert_eq!(decode(&[Frame::new(opcode, "").more()]), [PROTOCOL]);
        assert_eq!(decode(&[Frame::new(TEXT, "a").more(), Frame::new(opcode, "b").more()]), [PROTOCOL]);
    }
}

#[test]
fn s5_5_1_frames_after_a_close_are_ignored() {
    let frames = [Frame::new(CLOSE, b"\x03\xe8bye"), Frame::new(TEXT, "late"), Frame::new(3, "")];
    assert_eq!(decode(&frames), [Seen::Close(Some(1000))]);
    let within = [Frame::new(TEXT, "a").more(), Frame::new(CLOSE, ""), Frame::new(CONTINUE, "late")];
    assert_eq!(decode(&within), [Seen::Close(None)]);
}

#[test]
fn s5_5_1_close_with_one_byte_is_1002() {
    assert_eq!(decode(&[Frame::new(CLOSE, [3])]), [PROTOCOL]);
}

#[test]
fn s5_5_1_close_reason_is_utf8_of_up_to_123_bytes() {
    let close = |reason: &[u8]| decode(&[Frame::new(CLOSE, [b"\x03\xe8", reason].concat())]);
    assert_eq!(close("größer €".as_bytes()), [Seen::Close(Some(1000))]);
    assert_eq!(close(&[b'.'; 123]), [Seen::Close(Some(1000))]);
    assert_eq!(close(&[b'.'; 124]), [PROTOCOL]);
    assert_eq!(close(b"\xce\xba\xff"), [INVALID]);
    assert_eq!(close(b"cut \xe2\x82"), [INVALID]);
}

#[test]
fn s5_5_2_ping_returns_its_payload_for_the_pong() {
    assert_eq!(decode(&[Frame::new(PING, [0, 0xff, 0xfe])]), [Seen::Ping(vec![0, 0xff, 0xfe])]);
    let mut pong = Vec::new();
    encode::pong(&mut pong, &[0, 0xff, 0xfe]);
    assert_eq!(pong, [0x8a, 3, 0, 0xff, 0xfe]);
}

#[test]
fn s5_5_3_unsolicited_pong_is_allowed() {
    assert_eq!(
        decode(&[Frame::new(PONG, "hello"), Frame::new(TEXT, "a")]),
        [Seen::Pong(b"hello".to_vec()), text("a")]
    );
}

// Section 5.6 and 8.1: text is UTF-8.

#[test]
fn s5_6_binary_is_any_bytes() {
    assert_eq!(decode(&[Frame::new(BINARY, [0xff, 0xc0, 0])]), [binary([0xff, 0xc0, 0])]);
}

#[test]
fn s8_1_text_that_is_not_utf8_is_1007() {
    let invalid: [&[u8]; 9] = [
        b"\x80",
        b"abc\xff",
        b"\xc0\xaf",
        b"\xe0\x9f\xbf",
        b"\xed\xa0\x80",
        b"\xf0\x8f\xbf\xbf",
        b"\xf4\x90\x80\x80",
        b"\xf8\x88\x80\x80\x80",
        b"\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5\xed\xa0\x80edited",
    ];
    for bytes in invalid {
        assert_eq!(decode(&[Frame::new(TEXT, bytes)]), [INVALID], "{bytes:x?}");
        for cut in 0..=bytes.len() {
            let frames = [Frame::new(TEXT, &bytes[..cut]).more(), Frame::new(CONTINUE, &bytes[cut..])];
            assert_eq!(decode(&frames), [INVALID], "{bytes:x?} cut at {cut}");
        }
    }
}

#[test]
fn s8_1_text_that_ends_within_a_character_is_1007() {
    for bytes in [&b"a\xc3"[..], b"\xe2\x82", b"\xf0\x9f\x98"] {
        assert_eq!(decode(&[Frame::new(TEXT, bytes)]), [INVALID], "{bytes:x?}");
        let frames = [Frame::new(TEXT, bytes).more(), Frame::new(PING, ""), Frame::new(CONTINUE, "")];
        assert_eq!(decode(&frames), [Seen::Ping(Vec::new()), INVALID], "{bytes:x?}");
    }
}

#[test]
fn s8_1_characters_may_be_split_between_fragments() {
    let whole = "a\u{7f}\u{80}\u{7ff}\u{800}\u{d7ff}\u{e000}\u{fffd}\u{ffff}\u{10000}\u{10ffff}";
    for cut in 0..=whole.len() {
        let (first, second) = whole.as_bytes().split_at(cut);
        let frames = [
            Frame::new(TEXT, first).more(),
            Frame::new(PING, b"\xff"),
            Frame::new(CONTINUE, "").more(),
            Frame::new(CONTINUE, second),
        ];
        assert_eq!(decode(&frames), [Seen::Ping(vec![0xff]), text(whole)], "cut at {cut}");
    }
}

#[test]
fn s8_1_fails_at_the_first_bad_byte_not_at_the_end_of_the_frame() {
    for (good, bad) in
        [(&b"\xf4"[..], 0x90), (b"\xed", 0xa0), (b"\xe0", 0x9f), (b"\xf0", 0x80), (b"ab", 0x80)]
    {
        let payload = [good, &[bad], b"the rest never arrives"].concat();
        let bytes = Frame::new(TEXT, payload).bytes();
        let mut receiver = Receiver::default();
        receiver.push(&bytes[..6 + good.len()], MESSAGE_MAX);
        assert_eq!(receiver.seen, [], "{good:x?} may yet become a character");
        receiver.push(&bytes[6 + good.len()..7 + good.len()], MESSAGE_MAX);
        assert_eq!(receiver.seen, [INVALID], "{good:x?} {bad:x}");
    }
}

// Section 7.4: close codes.

#[test]
fn s7_4_1_defined_close_codes_are_accepted() {
    for code in [1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 1012, 1013, 1014] {
        assert_eq!(decode(&[Frame::new(CLOSE, u16::to_be_bytes(code))]), [Seen::Close(Some(code))], "{code}");
    }
}

#[test]
fn s7_4_1_codes_that_no_endpoint_may_send_are_1002() {
    for code in [1004, 1005, 1006, 1015] {
        assert_eq!(decode(&[Frame::new(CLOSE, u16::to_be_bytes(code))]), [PROTOCOL], "{code}");
    }
}

#[test]
fn s7_4_2_reserved_ranges() {
    for code in [0, 1, 999, 1016, 1100, 2000, 2999, 5000, 65535] {
        assert_eq!(decode(&[Frame::new(CLOSE, u16::to_be_bytes(code))]), [PROTOCOL], "{code}");
    }
    for code in [3000, 3999, 4000, 4999] {
        assert_eq!(decode(&[Frame::new(CLOSE, u16::to_be_bytes(code))]), [Seen::Close(Some(code))], "{code}");
    }
}

// Section 7.1.7 and 10.4: failing the connection, limits.

#[test]
fn s7_1_7_frames_after_an_error_are_ignored() {
    let frames = [Frame::new(TEXT, "a").rsv(4), Frame::new(TEXT, "late"), Frame::new(CLOSE, "")];
    assert_eq!(decode(&frames), [PROTOCOL]);
}

#[test]
fn s10_4_frame_over_the_limit_is_1009_by_its_header() {
    let exact = Frame::new(BINARY, [1; 100]).bytes();
    assert_eq!(decode_pieces([&exact[..]], 100), [binary([1; 100])]);
    let mut receiver = Receiver::default();
    receiver.push(&Frame::new(BINARY, [1; 101]).bytes()[..6], 100);
    assert_eq!(receiver.seen, [TOO_BIG], "before any payload has arrived");
    let claimed = Frame::new(BINARY, "").length(Length::Claimed((1 << 63) - 1)).bytes();
    assert_eq!(decode_pieces([&claimed[..]], usize::MAX >> 1), [], "within the limit");
    assert_eq!(decode_pieces([&claimed[..]], 100), [TOO_BIG]);
}

#[test]
fn s10_4_assembled_message_over_the_limit_is_1009() {
    let fits =
        [Frame::new(TEXT, [b'a'; 60]).more(), Frame::new(PING, [0; 90]), Frame::new(CONTINUE, [b'b'; 40])];
    let twice = stream(&[&fits[..], &fits[..]].concat());
    assert_eq!(decode_pieces([&twice[..]], 100).len(), 4, "the limit applies to each message");
    let over = [&fits[..2], &[Frame::new(CONTINUE, [b'b'; 41])]].concat();
    assert_eq!(decode_pieces([&stream(&over)[..]], 100), [Seen::Ping(vec![0; 90]), TOO_BIG]);
    let last = Frame::new(CONTINUE, "").length(Length::Claimed(u64::MAX >> 1));
    let endless = [Frame::new(TEXT, [b'a'; 60]).more(), last];
    assert_eq!(decode_pieces([&stream(&endless)[..]], usize::MAX >> 1), [TOO_BIG], "no overflow");
}
