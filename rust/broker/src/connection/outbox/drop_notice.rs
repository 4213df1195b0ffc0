//! The header that reports to a consumer how many messages `drop-oldest` and `drop-newest` dropped, on its next
//! MESSAGE.

use stompica_proto::ws::{self, Opcode};

use crate::door::planted;

/// A copy of an encoded MESSAGE, framed for TCP or WebSocket, with `dropped:COUNT` as its first header.
#[must_use]
pub fn with_drop_notice(frame: &[u8], count: u32) -> Vec<u8> {
    let notice = format!("dropped:{count}\n");
    let header_len = websocket_header_len(frame);
    let (header, stomp) = frame.split_at(header_len.min(frame.len()));
    let (command, rest) = stomp.split_at(b"MESSAGE\n".len().min(stomp.len()));
    let mut copy = Vec::with_capacity(frame.len() + notice.len() + 8);
    if let Some(first) = header.first() {
        let opcode = if first & 0x0f == 1 { Opcode::Text } else { Opcode::Binary };
        let added = if planted!("notice-not-in-length") { 0 } else { notice.len() };
        ws::encode::header(&mut copy, opcode, stomp.len() + added);
    }
    for part in [command, notice.as_bytes(), rest] {
        copy.extend_from_slice(part);
    }
    copy
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
