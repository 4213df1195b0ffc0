//! The header that reports to a consumer how many messages `drop-oldest` and `drop-newest` dropped, on its next
//! MESSAGE.

use std::ops::Range;

use stompica_proto::ws::{self, Opcode};

use crate::door::planted;

/// A copy of an encoded MESSAGE, framed for TCP or WebSocket, whose `dropped` header reports `count` more messages than
/// before.
#[must_use]
pub fn with_drop_notice(frame: &[u8], count: u32) -> Vec<u8> {
    let (header, stomp) = split(frame);
    let (place, told) = notice_in(stomp).unwrap_or((COMMAND_LEN..COMMAND_LEN, 0));
    let notice = format!("dropped:{}\n", told.saturating_add(count));
    let (command, rest) = (&stomp[..place.start], &stomp[place.end..]);
    let mut copy = Vec::with_capacity(frame.len() + notice.len() + 8);
    if let Some(first) = header.first() {
        let opcode = if first & 0x0f == 1 { Opcode::Text } else { Opcode::Binary };
        let added = if planted!("notice-not-in-length") { 0 } else { notice.len() };
        ws::encode::header(&mut copy, opcode, command.len() + added + rest.len());
    }
    for part in [command, notice.as_bytes(), rest] {
        copy.extend_from_slice(part);
    }
    copy
}

/// The number of dropped messages that an encoded MESSAGE reports.
#[must_use]
pub fn told_by(frame: &[u8]) -> u32 {
    notice_in(split(frame).1).map_or(0, |(_, told)| told)
}

/// Length of the command and its line end.
const COMMAND_LEN: usize = b"MESSAGE\n".len();

/// Where the `dropped` header of a MESSAGE is, and its value. The broker's own headers precede `message-id`, and a
/// sender may have one of the same name behind it.
fn notice_in(stomp: &[u8]) -> Option<(Range<usize>, u32)> {
    let mut start = COMMAND_LEN;
    loop {
        let line = &stomp[start..start + memchr::memchr(b'\n', &stomp[start..])?];
        if line.is_empty() || line.starts_with(b"message-id:") {
            return None;
        }
        let end = start + line.len() + 1;
        if let Some(count) = line.strip_prefix(b"dropped:") {
            let count = std::str::from_utf8(count).ok().and_then(|count| count.parse().ok());
            return Some((start..end, count.unwrap_or(0)));
        }
        start = end;
    }
}

/// The WebSocket header of a server's frame, and the STOMP frame.
fn split(frame: &[u8]) -> (&[u8], &[u8]) {
    frame.split_at(websocket_header_len(frame))
}

/// Length of the WebSocket header before a server's frame; 0 for plain STOMP, whose first byte is a letter.
fn websocket_header_len(frame: &[u8]) -> usize {
    match frame {
        [first, ..] if first & 0x80 == 0 => 0,
        [_, 126, ..] => 4,
        [_, 127, ..] => 10,
        [_, _, ..] => 2,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_notice_adds_to_the_first() {
        let once = b"MESSAGE\nsubscription:0\nack:0-1\ndropped:7\nmessage-id:1\ndropped:100\n\nx\0";
        let twice = b"MESSAGE\nsubscription:0\nack:0-1\ndropped:9\nmessage-id:1\ndropped:100\n\nx\0";
        assert_eq!(with_drop_notice(once, 2), twice);
        assert_eq!([told_by(once), told_by(twice)], [7, 9]);
        assert_eq!(told_by(b"MESSAGE\nmessage-id:1\ndropped:100\n\nx\0"), 0, "the sender's own header");
        let mut framed = vec![0x82, once.len() as u8];
        framed.extend_from_slice(once);
        assert_eq!(told_by(&framed), 7);
    }

    #[test]
    fn the_notice_is_the_first_header_in_either_framing() {
        let plain = b"MESSAGE\nsubscription:0\n\nx\0";
        let noticed = with_drop_notice(plain, 7);
        assert_eq!(noticed, b"MESSAGE\ndropped:7\nsubscription:0\n\nx\0");
        for padding in [0_usize, 200, 70_000] {
            let body = [&plain[..], &vec![b'y'; padding]].concat();
            let mut framed = Vec::new();
            ws::encode::header(&mut framed, Opcode::Binary, body.len());
            framed.extend_from_slice(&body);
            let mut wanted = Vec::new();
            ws::encode::header(&mut wanted, Opcode::Binary, body.len() + 10);
            wanted.extend_from_slice(&noticed);
            wanted.extend_from_slice(&vec![b'y'; padding]);
            assert_eq!(with_drop_notice(&framed, 7), wanted);
        }
    }
}
