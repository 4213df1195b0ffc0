//! The client side of WebSocket (RFC 6455), as far as the generator needs it.

use tungstenite::handshake::{client::generate_key, derive_accept_key};

use crate::fault::Fault;

/// Opcodes of RFC 6455, section 5.2.
pub const TEXT: u8 = 1;
/// Binary data.
pub const BINARY: u8 = 2;
/// Close.
pub const CLOSE: u8 = 8;
/// Ping.
pub const PING: u8 = 9;
/// Pong.
pub const PONG: u8 = 10;

/// Header of a server's frame.
#[derive(Debug, PartialEq, Eq)]
pub struct Header {
    /// Opcode; 0 continues a message.
    pub opcode: u8,
    /// Octets of the header.
    pub size: usize,
    /// Octets of the payload.
    pub payload: u64,
}

/// Reads a server's frame header; `None` if it is incomplete.
#[inline]
pub fn header(bytes: &[u8]) -> Result<Option<Header>, Fault> {
    let [first, second, rest @ ..] = bytes else { return Ok(None) };
    if first & 0x70 != 0 || second & 0x80 != 0 {
        return Err(Fault::malformed("reserved bit or mask in a server's WebSocket frame", bytes));
    }
    let (size, payload) = match second {
        126 => match rest {
            [a, b, ..] => (4, u64::from(u16::from_be_bytes([*a, *b]))),
            _ => return Ok(None),
        },
        127 => match rest.first_chunk::<8>() {
            Some(length) => (10, u64::from_be_bytes(*length)),
            None => return Ok(None),
        },
        short => (2, u64::from(*short)),
    };
    Ok(Some(Header { opcode: first & 0x0f, size, payload }))
}

/// Appends a frame header: a client's with a `mask`, a server's without.
pub fn write_header(out: &mut Vec<u8>, opcode: u8, payload: usize, mask: Option<[u8; 4]>) {
    let masked = if mask.is_some() { 0x80 } else { 0 };
    out.push(0x80 | opcode);
    match payload {
        0..=125 => out.push(masked | u8::try_from(payload).expect("at most 125")),
        126..=0xffff => {
            out.push(masked | 126);
            out.extend_from_slice(&u16::try_from(payload).expect("at most 65535").to_be_bytes());
        }
        _ => {
            out.push(masked | 127);
            out.extend_from_slice(&(payload as u64).to_be_bytes());
        }
    }
    out.extend_from_slice(&mask.unwrap_or_default()[..if mask.is_some() { 4 } else { 0 }]);
}

/// Masks or unmasks in place; `phase` is the index of the first octet in the payload.
pub fn mask(bytes: &mut [u8], key: [u8; 4], phase: usize) {
    let mut turned = key;
    turned.rotate_left(phase % 4);
    let word = u64::from(u32::from_ne_bytes(turned));
    let word = word << 32 | word;
    let mut words = bytes.chunks_exact_mut(8);
    for part in &mut words {
        let value = u64::from_ne_bytes(part.try_into().expect("chunks of eight")) ^ word;
        part.copy_from_slice(&value.to_ne_bytes());
    }
    for (octet, key) in words.into_remainder().iter_mut().zip(turned.iter().cycle()) {
        *octet ^= key;
    }
}

/// A complete client frame.
pub fn client_frame(opcode: u8, payload: &[u8]) -> Vec<u8> {
    let key: [u8; 4] = rand::random();
    let mut frame = Vec::with_capacity(payload.len() + 14);
    write_header(&mut frame, opcode, payload.len(), Some(key));
    let at = frame.len();
    frame.extend_from_slice(payload);
    mask(&mut frame[at..], key, 0);
    frame
}

/// An upgrade request and the key it was made with.
pub fn upgrade_request(host: &str, path: &str) -> (Vec<u8>, String) {
    let key = generate_key();
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: v12.stomp\r\n\r\n"
    );
    (request.into_bytes(), key)
}

/// Octets of an upgrade response that accepts `key`; `None` if it is incomplete.
pub fn upgrade_response(bytes: &[u8], key: &str) -> Result<Option<usize>, Fault> {
    let Some(end) = memchr::memmem::find(bytes, b"\r\n\r\n") else { return Ok(None) };
    let text = String::from_utf8_lossy(&bytes[..end]);
    let accept = derive_accept_key(key.as_bytes());
    let accepted = text
        .lines()
        .filter_map(|line| line.split_once(':'))
        .any(|(name, value)| name.eq_ignore_ascii_case("sec-websocket-accept") && value.trim() == accept);
    if !text.starts_with("HTTP/1.1 101 ") || !accepted {
        return Err(Fault::malformed("upgrade refused", bytes));
    }
    Ok(Some(end + 4))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_read_back() {
        for payload in [0, 1, 125, 126, 65_535, 65_536, 1 << 33] {
            let mut bytes = Vec::new();
            write_header(&mut bytes, BINARY, payload, None);
            for cut in 0..bytes.len() {
                assert_eq!(header(&bytes[..cut]), Ok(None));
            }
            let expected = Header { opcode: BINARY, size: bytes.len(), payload: payload as u64 };
            assert_eq!(header(&bytes), Ok(Some(expected)));
        }
    }

    #[test]
    fn masked_or_reserved_frames_are_faults() {
        assert!(header(&[0x81, 0x85]).is_err());
        assert!(header(&[0xc1, 0x05]).is_err());
    }

    #[test]
    fn masking_in_parts_equals_masking_at_once() {
        let plain: Vec<u8> = (0..100).collect();
        let key = [1, 2, 3, 250];
        let mut whole = plain.clone();
        mask(&mut whole, key, 0);
        assert!(
            whole.iter().zip(&plain).enumerate().all(|(at, (masked, octet))| masked ^ key[at % 4] == *octet)
        );
        for cut in 0..100 {
            let mut parts = plain.clone();
            mask(&mut parts[..cut], key, 0);
            mask(&mut parts[cut..], key, cut);
            assert_eq!(parts, whole);
        }
    }
}
