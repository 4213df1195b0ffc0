//! Large messages, in frames and reads of many sizes: every byte arrives, in order and with the right type.

mod ws_frames;

use ws_frames::{BINARY, CONTINUE, Frame, Receiver, Seen, TEXT};

const MAX: usize = 16 << 20;

/// `len` bytes of text with characters of one to four bytes, so that some are split.
fn long_text(len: usize) -> Vec<u8> {
    let mut text = "stomp äöü €‰ 😀 ".as_bytes().repeat(len / 24 + 1);
    let mut end = len;
    while std::str::from_utf8(&text[..end]).is_err() {
        end -= 1;
    }
    text.truncate(end);
    text.resize(len, b'.');
    text
}

/// The message in frames of `frame_len` bytes of payload.
fn frames(opcode: u8, message: &[u8], frame_len: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(message.len() + message.len() / frame_len * 14 + 14);
    let count = message.len().div_ceil(frame_len);
    for (at, part) in message.chunks(frame_len).enumerate() {
        let frame = Frame::new(if at == 0 { opcode } else { CONTINUE }, part);
        bytes.extend(if at + 1 == count { frame } else { frame.more() }.bytes());
    }
    bytes
}

fn arrives(opcode: u8, len: usize, frame_len: usize, read_len: usize) {
    let message = long_text(len);
    let bytes = frames(opcode, &message, frame_len);
    let mut receiver = Receiver::default();
    for piece in bytes.chunks(read_len) {
        receiver.push(piece, MAX);
    }
    let expected = if opcode == TEXT { Seen::Text(message) } else { Seen::Binary(message) };
    // Not `assert_eq`, which would print megabytes.
    assert!(receiver.seen == [expected], "{len} bytes in frames of {frame_len}, reads of {read_len}");
}

#[test]
fn one_frame_of_64_kib_to_16_mib() {
    for len in [64 << 10, 256 << 10, 1 << 20, 4 << 20, 8 << 20, 16 << 20] {
        arrives(TEXT, len, len, 64 << 10);
        arrives(BINARY, len, len, 64 << 10);
    }
}

#[test]
fn four_mib_in_fragments_of_64_bytes_to_4_mib() {
    for frame_len in [64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20] {
        arrives(TEXT, 4 << 20, frame_len, 64 << 10);
        arrives(BINARY, 4 << 20, frame_len, 64 << 10);
    }
}

#[test]
fn one_mib_in_reads_of_1_byte_to_1_mib() {
    for read_len in [1, 7, 64, 127, 128, 256, 1000, 1024, 2048, 65_537, 1 << 20] {
        arrives(TEXT, 1 << 20, 1 << 20, read_len);
        arrives(BINARY, 1 << 20, 1 << 20, read_len);
    }
}

#[test]
fn fragments_that_are_not_aligned_with_the_reads() {
    // 1,300 bytes are about the payload of a TCP segment.
    for read_len in [1, 3, 1299, 1300, 1301, 1308] {
        arrives(TEXT, 64 << 10, 1300, read_len);
    }
}

#[test]
fn a_thousand_small_messages_in_one_read() {
    for len in [0, 16, 64, 256, 1024, 4096] {
        let message = long_text(len);
        let bytes = Frame::new(TEXT, &message).bytes().repeat(1000);
        let mut receiver = Receiver::default();
        receiver.push(&bytes, MAX);
        assert_eq!(receiver.seen.len(), 1000);
        assert!(receiver.seen.iter().all(|seen| *seen == Seen::Text(message.clone())));
    }
}

#[test]
fn one_byte_over_16_mib_is_refused() {
    let mut receiver = Receiver::default();
    receiver.push(&frames(BINARY, &vec![0; MAX + 1], 1 << 20), MAX);
    assert_eq!(receiver.seen, [Seen::Error(1009)]);
    assert_eq!(receiver.message.len(), MAX, "the payload within the limit was returned as it arrived");
}
