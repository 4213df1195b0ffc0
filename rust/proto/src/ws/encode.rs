//! Server frames: final and unmasked (RFC 6455, 5.1 and 5.2).

/// The type of a frame (RFC 6455, 5.2). Continuations are never sent: a message is one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Opcode {
    /// A UTF-8 message.
    Text = 0x1,
    /// A binary message.
    Binary = 0x2,
    /// The close handshake.
    Close = 0x8,
    /// A liveness check.
    Ping = 0x9,
    /// The answer to a Ping.
    Pong = 0xa,
}

/// Maximum payload bytes of a control frame (RFC 6455, 5.5).
pub const CONTROL_PAYLOAD_MAX: usize = 125;

/// The close code that means "no code"; never sent (RFC 6455, 7.4.1).
pub const NO_CLOSE_CODE: u16 = 1005;

const FIN: u8 = 0x80;

/// Length of the header for a payload of this length: 2, 4 or 10.
#[must_use]
pub const fn header_len(payload_len: usize) -> usize {
    match payload_len {
        0..=125 => 2,
        126..=0xffff => 4,
        _ => 10,
    }
}

/// Appends the header of a frame whose payload has `payload_len` bytes.
#[inline]
pub fn header(out: &mut Vec<u8>, opcode: Opcode, payload_len: usize) {
    let first = FIN | opcode as u8;
    match header_len(payload_len) {
        2 => out.extend_from_slice(&[first, payload_len as u8]),
        4 => {
            let [a, b] = (payload_len as u16).to_be_bytes();
            out.extend_from_slice(&[first, 126, a, b]);
        }
        _ => {
            out.extend_from_slice(&[first, 127]);
            out.extend_from_slice(&(payload_len as u64).to_be_bytes());
        }
    }
}

/// Appends a Close frame. A reason over 123 bytes is truncated between two characters. With [`NO_CLOSE_CODE`] the frame
/// has no payload, for the answer to a Close without a code.
pub fn close(out: &mut Vec<u8>, code: u16, reason: &str) {
    if code == NO_CLOSE_CODE {
        header(out, Opcode::Close, 0);
        return;
    }
    let mut end = reason.len().min(CONTROL_PAYLOAD_MAX - 2);
    while !reason.is_char_boundary(end) {
        end -= 1;
    }
    let reason = &reason[..end];
    header(out, Opcode::Close, 2 + reason.len());
    out.extend_from_slice(&code.to_be_bytes());
    out.extend_from_slice(reason.as_bytes());
}

/// Appends a Ping frame. A payload over 125 bytes is truncated.
pub fn ping(out: &mut Vec<u8>, payload: &[u8]) {
    control(out, Opcode::Ping, payload);
}

/// Appends a Pong frame; the payload is that of the Ping (RFC 6455, 5.5.3). A payload over 125 bytes is truncated.
pub fn pong(out: &mut Vec<u8>, payload: &[u8]) {
    control(out, Opcode::Pong, payload);
}

fn control(out: &mut Vec<u8>, opcode: Opcode, payload: &[u8]) {
    let payload = &payload[..payload.len().min(CONTROL_PAYLOAD_MAX)];
    header(out, opcode, payload.len());
    out.extend_from_slice(payload);
}

#[cfg(test)]
mod tests {
    use tungstenite::protocol::frame::{
        FrameHeader,
        coding::{Data, OpCode},
    };

    use super::{NO_CLOSE_CODE, Opcode, close, header, header_len, ping, pong};

    #[test]
    fn headers_agree_with_tungstenite() {
        for payload_len in [0, 1, 125, 126, 127, 0xffff, 0x1_0000, 0x1_0001, 16 << 20, 1 << 40] {
            let mut ours = b"before".to_vec();
            header(&mut ours, Opcode::Binary, payload_len);
            let expected = FrameHeader { opcode: OpCode::Data(Data::Binary), ..FrameHeader::default() };
            let mut theirs = b"before".to_vec();
            expected.format(payload_len as u64, &mut theirs).expect("a Vec takes all");
            assert_eq!(ours, theirs);
            assert_eq!(ours.len(), 6 + header_len(payload_len));
        }
    }

    #[test]
    fn control_frames_stay_within_125_bytes() {
        let mut out = Vec::new();
        close(&mut out, 1000, "bye");
        assert_eq!(out, b"\x88\x05\x03\xe8bye");
        out.clear();
        close(&mut out, NO_CLOSE_CODE, "never sent");
        assert_eq!(out, b"\x88\x00");
        out.clear();
        close(&mut out, 1002, &"ä".repeat(100));
        assert_eq!((out[1], out.len()), (124, 126), "truncated between two characters");
        assert!(std::str::from_utf8(&out[4..]).is_ok());
        out.clear();
        ping(&mut out, b"");
        pong(&mut out, &[7; 200]);
        assert_eq!(out[..4], [0x89, 0, 0x8a, 125]);
        assert_eq!(out.len(), 4 + 125);
    }
}
