//! WebSocket frames as a rogue builds them: any opcode, mask, length and fragmentation, right or wrong.

use rand::Rng as _;
use rand::rngs::SmallRng;

/// The opcode of text.
pub const TEXT: u8 = 1;
/// The opcode of binary data.
pub const BINARY: u8 = 2;
/// The opcode of a ping.
pub const PING: u8 = 9;
/// The opcode of a Close frame.
pub const CLOSE: u8 = 8;
/// The bit of a last frame.
pub const LAST: u8 = 0x80;

/// A masked frame whose first byte is given.
pub fn frame(first: u8, payload: &[u8], mask: [u8; 4]) -> Vec<u8> {
    let mut bytes = header(first, payload.len() as u64);
    bytes.extend_from_slice(&mask);
    bytes.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    bytes
}

/// The first byte and the shortest form of a length, with the bit for a mask.
pub fn header(first: u8, len: u64) -> Vec<u8> {
    let mut bytes = vec![first];
    match len {
        0..126 => bytes.push(0x80 | len as u8),
        126..65_536 => {
            bytes.push(0x80 | 126);
            bytes.extend_from_slice(&(len as u16).to_be_bytes());
        }
        _ => {
            bytes.push(0x80 | 127);
            bytes.extend_from_slice(&len.to_be_bytes());
        }
    }
    bytes
}

/// One message in some fragments, with pings between them; returns the payloads of the pings.
pub fn message(payload: &[u8], random: &mut SmallRng) -> (Vec<u8>, Vec<Vec<u8>>) {
    let is_text = std::str::from_utf8(payload).is_ok() && random.random_ratio(1, 2);
    let (mut opcode, mut rest) = (if is_text { TEXT } else { BINARY }, payload);
    let (mut bytes, mut pings) = (Vec::new(), Vec::new());
    let is_split = random.random_ratio(1, 4);
    loop {
        let len = if is_split && random.random_ratio(7, 8) {
            random.random_range(0..=rest.len())
        } else {
            rest.len()
        };
        let is_last = len == rest.len();
        let (piece, behind) = rest.split_at(len);
        bytes.extend(frame(opcode | if is_last { LAST } else { 0 }, piece, random.random()));
        if is_last {
            return (bytes, pings);
        }
        (opcode, rest) = (0, behind);
        if random.random_ratio(1, 3) {
            let ping = ping_payload(random);
            bytes.extend(frame(LAST | PING, &ping, random.random()));
            pings.push(ping);
        }
    }
}

/// The payload of a ping.
pub fn ping_payload(random: &mut SmallRng) -> Vec<u8> {
    let len = *[0, 1, 20, 125].get(random.random_range(0..4_usize)).unwrap_or(&1);
    (0..len).map(|_| random.random()).collect()
}

/// Something that RFC 6455 forbids, and the code of the Close frame that has to follow; `bytes_max` is the largest
/// message.
pub fn misdeed(bytes_max: usize, random: &mut SmallRng) -> (&'static str, Vec<u8>, u16) {
    let mask: [u8; 4] = random.random();
    let all = |first: u8, payload: &[u8]| frame(first, payload, mask);
    let too_long = bytes_max as u64 + 1;
    let close = |code: u16| [&code.to_be_bytes()[..], b"bye"].concat();
    match random.random_range(0..19) {
        0 => ("an unmasked frame", vec![LAST | TEXT, 1, b'\n'], 1002),
        1 => ("reserved bits", all(LAST | 0x40 | TEXT, b"\n"), 1002),
        2 => ("a reserved opcode", all(LAST | random.random_range(3..8), b"\n"), 1002),
        3 => ("a reserved control opcode", all(LAST | random.random_range(11..16), b""), 1002),
        4 => ("a control frame in fragments", all(PING, b"x"), 1002),
        5 => ("a long ping", all(LAST | PING, &[b'x'; 126]), 1002),
        6 => ("a continuation of nothing", all(LAST, b"\n"), 1002),
        7 => ("a message within a message", [all(TEXT, b"\n"), all(LAST | TEXT, b"\n")].concat(), 1002),
        8 => ("a long form of a short length", [&[LAST | TEXT, 0xFE, 0, 1][..], &mask, b"a"].concat(), 1002),
        9 => {
            let length = [&[LAST | BINARY, 0xFF][..], &1000_u64.to_be_bytes()].concat();
            ("the longest form of a length", [&length[..], &mask, &[0; 1000]].concat(), 1002)
        }
        10 => {
            let length = [&[LAST | BINARY, 0xFF][..], &(1_u64 << 63).to_be_bytes()].concat();
            ("a length with its highest bit", [&length[..], &mask].concat(), 1002)
        }
        11 => ("a frame that is too long", [&header(LAST | BINARY, too_long)[..], &mask].concat(), 1009),
        12 => {
            // The fragments together have one byte too many.
            let second = [&header(LAST, too_long - 10)[..], &mask].concat();
            ("fragments that are too long", [all(BINARY, &[b'\n'; 10]), second].concat(), 1009)
        }
        13 => ("text that is not UTF-8", all(LAST | TEXT, b"\n\xFF"), 1007),
        14 => ("text that ends in a character", [all(TEXT, b"\n\xC3"), all(LAST, b"")].concat(), 1007),
        15 => ("a Close frame with half a code", all(LAST | CLOSE, &[3]), 1002),
        16 => {
            let code = [0, 999, 1005, 1006, 1015][random.random_range(0..5_usize)];
            ("a bad close code", all(LAST | CLOSE, &close(code)), 1002)
        }
        17 => ("a close reason that is not UTF-8", all(LAST | CLOSE, &[3, 232, 0xFF]), 1007),
        _ => ("a long Close frame", all(LAST | CLOSE, &[b'x'; 126]), 1002),
    }
}
