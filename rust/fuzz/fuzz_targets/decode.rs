//! Decoding STOMP frames: no panic, no endless loop, and the same result wherever the input is split.
//!
//! Input: one byte for the phase (before login, or a version), one for the lengths of the pieces, one for the limits,
//! then the stream.
#![no_main]

#[path = "../../proto/tests/codec/mod.rs"]
mod codec;

use codec::decode_pieces;
use libfuzzer_sys::fuzz_target;
use stompica_proto::{Limits, Version};

fuzz_target!(|input: &[u8]| {
    let [phase, pieces, limits, stream @ ..] = input else { return };
    let version = match phase % 4 {
        0 => None,
        1 => Some(Version::V1_0),
        2 => Some(Version::V1_1),
        _ => Some(Version::V1_2),
    };
    let limits = match limits % 2 {
        0 => Limits::default(),
        _ => Limits {
            message_bytes_max: 30,
            header_line_bytes_max: 24,
            headers_max: 4,
            before_login_bytes_max: 60,
            ..Limits::default()
        },
    };
    let whole = decode_pieces(version, limits, [stream]);
    let split = decode_pieces(version, limits, stream.chunks(usize::from(*pieces).max(1)));
    assert_eq!(whole, split);
});
