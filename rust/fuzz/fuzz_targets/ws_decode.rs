//! Decoding WebSocket frames: no panic, no endless loop, and the same messages wherever the input is split.
//!
//! Input: one byte for the lengths of the pieces, then the stream after the handshake.
#![no_main]

#[path = "../../proto/tests/ws_frames/mod.rs"]
mod ws_frames;

use libfuzzer_sys::fuzz_target;
use ws_frames::decode_pieces;

const MESSAGE_BYTES_MAX: usize = 1000;

fuzz_target!(|input: &[u8]| {
    let [pieces, stream @ ..] = input else { return };
    let whole = decode_pieces([stream], MESSAGE_BYTES_MAX);
    let split = decode_pieces(stream.chunks(usize::from(*pieces).max(1)), MESSAGE_BYTES_MAX);
    assert_eq!(whole, split);
});
