//! A WebSocket client's side of the framing (RFC 6455), strict and without fragments.

use crate::frames::shown;

/// The request that opens a WebSocket.
pub const HANDSHAKE: &[u8] = b"GET /ws HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n";

const BINARY: u8 = 2;
const PONG: u8 = 10;
const CLOSE: u8 = 8;

/// The state of one WebSocket.
#[derive(Debug, Default)]
pub struct WebSocket {
    is_open: bool,
    /// The broker answers in plain STOMP: too little of the handshake had arrived to tell it from STOMP.
    is_plain: bool,
    received: Vec<u8>,
    /// The broker has refused the handshake: the code of the ERROR that it would have sent.
    pub refusal: Option<&'static str>,
    /// The broker has sent a Close frame.
    pub is_closing: bool,
}

/// A frame of a client. Its masking key is zero, so that the bytes stay what they are.
fn client_frame(opcode: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0x80 | opcode];
    match payload.len() {
        len @ 0..126 => frame.push(0x80 | len as u8),
        len @ 126..65_536 => {
            frame.push(0x80 | 126);
            frame.extend_from_slice(&(len as u16).to_be_bytes());
        }
        len => {
            frame.push(0x80 | 127);
            frame.extend_from_slice(&(len as u64).to_be_bytes());
        }
    }
    frame.extend_from_slice(&[0; 4]);
    frame.extend_from_slice(payload);
    frame
}

/// A message of a client.
#[must_use]
pub fn message(payload: &[u8]) -> Vec<u8> {
    client_frame(BINARY, payload)
}

/// The answer to a ping.
#[must_use]
pub fn pong(payload: &[u8]) -> Vec<u8> {
    client_frame(PONG, payload)
}

/// The answer to a Close frame.
#[must_use]
pub fn close(payload: &[u8]) -> Vec<u8> {
    client_frame(CLOSE, payload)
}

impl WebSocket {
    /// Takes bytes of the broker. Appends the payloads of messages to `payloads`; returns the frames to answer with.
    ///
    /// # Errors
    /// The bytes are not allowed.
    pub fn receive(&mut self, bytes: &[u8], payloads: &mut Vec<u8>) -> Result<Vec<u8>, String> {
        if self.refusal.is_some() {
            return Ok(Vec::new()); // the rest of the refusal
        }
        self.received.extend_from_slice(bytes);
        let mut answers = Vec::new();
        if self.is_plain || (!self.is_open && self.received.starts_with(b"ERROR\n")) {
            self.is_plain = true;
            payloads.append(&mut self.received);
            return Ok(answers);
        }
        if !self.is_open {
            let Some(end) = self.received.windows(4).position(|four| four == b"\r\n\r\n") else {
                return Ok(answers);
            };
            let refusals = [(&b"HTTP/1.1 408 "[..], "E-LOGIN-TIMEOUT"), (b"HTTP/1.1 503 ", "E-CONNECTIONS")];
            if let Some((_, code)) = refusals.iter().find(|(start, _)| self.received.starts_with(start)) {
                self.refusal = Some(code);
                self.received.clear();
                return Ok(answers);
            }
            if !self.received.starts_with(b"HTTP/1.1 101 ") {
                return Err(format!("the handshake is refused: {}", shown(&self.received)));
            }
            self.received.drain(..end + 4);
            self.is_open = true;
        }
        while let Some((opcode, payload)) = take_frame(&mut self.received)? {
            match opcode {
                1 | 2 if self.is_closing => return Err("a message behind a Close frame".to_owned()),
                1 => payloads.extend_from_slice(
                    std::str::from_utf8(&payload)
                        .map_err(|_| "a text message that is not UTF-8".to_owned())?
                        .as_bytes(),
                ),
                2 => payloads.extend_from_slice(&payload),
                8 => {
                    self.is_closing = true;
                    answers.extend(close(&payload));
                }
                9 => answers.extend(pong(&payload)),
                _ => return Err(format!("opcode {opcode}")),
            }
        }
        Ok(answers)
    }

    /// What has arrived of a frame.
    #[must_use]
    pub fn part(&self) -> &[u8] {
        &self.received
    }
}

/// Takes a frame of a server from the front: its opcode and its payload.
///
/// # Errors
/// The bytes are not allowed.
pub(crate) fn take_frame(received: &mut Vec<u8>) -> Result<Option<(u8, Vec<u8>)>, String> {
    let [first, second, rest @ ..] = &received[..] else { return Ok(None) };
    if first & 0xF0 != 0x80 || second & 0x80 != 0 {
        return Err(format!("a WebSocket frame that begins with {first:#x} {second:#x}"));
    }
    let (len_bytes, len) = match (second & 0x7F, rest) {
        (126, [a, b, ..]) => (2, u64::from(u16::from_be_bytes([*a, *b]))),
        (127, [a, b, c, d, e, f, g, h, ..]) => (8, u64::from_be_bytes([*a, *b, *c, *d, *e, *f, *g, *h])),
        (126 | 127, _) => return Ok(None),
        (len, _) => (0, u64::from(len)),
    };
    let (opcode, start, len) = (first & 0x0F, 2 + len_bytes, len as usize);
    if received.len() < start + len {
        return Ok(None);
    }
    let payload = received[start..start + len].to_vec();
    received.drain(..start + len);
    Ok(Some((opcode, payload)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_pings_and_closes_are_taken_from_pieces_of_any_size() {
        let mut bytes = b"HTTP/1.1 101 x\r\n\r\n".to_vec();
        bytes.extend([0x81, 2, b'a', b'b', 0x89, 1, b'p', 0x82, 126, 0, 200]);
        bytes.extend([b'c'; 200]);
        bytes.extend([0x88, 2, 3, 232]);
        let (mut socket, mut payloads, mut answers) = (WebSocket::default(), Vec::new(), Vec::new());
        for byte in bytes {
            answers.extend(socket.receive(&[byte], &mut payloads).expect("valid"));
        }
        assert_eq!((payloads.len(), &payloads[..3]), (202, &b"abc"[..]));
        assert_eq!(answers, [&client_frame(PONG, b"p")[..], &client_frame(CLOSE, &[3, 232])].concat());
        assert!(socket.is_closing && socket.part().is_empty());
        assert!(socket.receive(&[0x82, 0], &mut payloads).is_err());
    }

    #[test]
    fn wrong_frames_are_errors() {
        for bytes in [&[0x01, 0][..], &[0x81, 0x80], &[0x83, 0], &[0x81, 1, 0xFF]] {
            let mut socket = WebSocket { is_open: true, ..WebSocket::default() };
            assert!(socket.receive(bytes, &mut Vec::new()).is_err(), "{bytes:?}");
        }
        assert!(WebSocket::default().receive(b"HTTP/1.1 400 x\r\n\r\n", &mut Vec::new()).is_err());
    }
}
