//! Helpers of the WebSocket tests: valid and invalid client frames, and the decoder's events for a stream.
#![allow(dead_code, reason = "each test file uses a part")]

use stompica_proto::ws::{WsDecoder, WsEvent};

pub const CONTINUE: u8 = 0;
pub const TEXT: u8 = 1;
pub const BINARY: u8 = 2;
pub const CLOSE: u8 = 8;
pub const PING: u8 = 9;
pub const PONG: u8 = 10;

/// Message limit of the tests that do not set their own.
pub const MESSAGE_MAX: usize = 1 << 20;

/// How the payload length is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// In the shortest form.
    Shortest,
    /// In 16 bits, even if 7 are enough.
    Bits16,
    /// In 64 bits, even if fewer are enough.
    Bits64,
    /// This number in 64 bits, regardless of the payload.
    Claimed(u64),
}

/// A client frame: valid and final unless changed.
#[derive(Clone, Debug)]
pub struct Frame {
    pub fin: bool,
    /// The reserved bits, 0 to 7.
    pub rsv: u8,
    pub opcode: u8,
    pub mask: Option<[u8; 4]>,
    pub length: Length,
    pub payload: Vec<u8>,
}

impl Frame {
    pub fn new(opcode: u8, payload: impl AsRef<[u8]>) -> Frame {
        let payload = payload.as_ref().to_vec();
        Frame {
            fin: true,
            rsv: 0,
            opcode,
            mask: Some([0xa1, 0x0b, 0, 0x7f]),
            length: Length::Shortest,
            payload,
        }
    }

    /// Makes it a fragment that is not the last one of its message.
    pub fn more(mut self) -> Frame {
        self.fin = false;
        self
    }

    pub fn rsv(mut self, bits: u8) -> Frame {
        self.rsv = bits;
        self
    }

    pub fn length(mut self, length: Length) -> Frame {
        self.length = length;
        self
    }

    pub fn mask(mut self, mask: Option<[u8; 4]>) -> Frame {
        self.mask = mask;
        self
    }

    pub fn bytes(&self) -> Vec<u8> {
        let mask_bit = u8::from(self.mask.is_some()) << 7;
        let len = self.payload.len();
        let mut bytes = vec![u8::from(self.fin) << 7 | self.rsv << 4 | self.opcode];
        match (self.length, len) {
            (Length::Claimed(len), _) => {
                bytes.push(mask_bit | 127);
                bytes.extend(len.to_be_bytes());
            }
            (Length::Shortest, 0..=125) => bytes.push(mask_bit | len as u8),
            (Length::Shortest | Length::Bits16, 0..=0xffff) => {
                bytes.push(mask_bit | 126);
                bytes.extend((len as u16).to_be_bytes());
            }
            _ => {
                bytes.push(mask_bit | 127);
                bytes.extend((len as u64).to_be_bytes());
            }
        }
        let key = self.mask.unwrap_or_default();
        bytes.extend(self.mask.into_iter().flatten());
        bytes.extend(self.payload.iter().zip(key.iter().cycle()).map(|(byte, key)| byte ^ key));
        bytes
    }
}

/// The bytes of all frames in order.
pub fn stream(frames: &[Frame]) -> Vec<u8> {
    frames.iter().flat_map(Frame::bytes).collect()
}

/// A complete message, a control frame, or the end of the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    Text(Vec<u8>),
    Binary(Vec<u8>),
    Ping(Vec<u8>),
    Pong(Vec<u8>),
    Close(Option<u16>),
    /// Refused with this close code.
    Error(u16),
}

pub fn text(payload: impl AsRef<[u8]>) -> Seen {
    Seen::Text(payload.as_ref().to_vec())
}

pub fn binary(payload: impl AsRef<[u8]>) -> Seen {
    Seen::Binary(payload.as_ref().to_vec())
}

/// A decoder with the current message.
#[derive(Default)]
pub struct Receiver {
    decoder: WsDecoder,
    /// Payload received of an incomplete message.
    pub message: Vec<u8>,
    pub seen: Vec<Seen>,
}

impl Receiver {
    /// Decodes one piece of a stream. Checks the guarantees for every input: a call consumes at most the input, and
    /// [`WsEvent::NeedMore`] consumes all of it.
    pub fn push(&mut self, piece: &[u8], message_max: usize) {
        let mut bytes = piece.to_vec();
        let mut rest = &mut bytes[..];
        loop {
            let len = rest.len();
            let consumed = match self.decoder.decode(rest, message_max) {
                Ok((WsEvent::NeedMore, consumed)) => {
                    assert_eq!(consumed, len, "NeedMore consumes all input");
                    return;
                }
                Ok((event, consumed)) => {
                    assert!(consumed <= len);
                    self.event(event);
                    consumed
                }
                Err(error) => {
                    assert!(error.detail.len() <= 123, "fits into the reason of a Close: {}", error.detail);
                    self.seen.push(Seen::Error(error.close_code));
                    return;
                }
            };
            rest = &mut rest[consumed..];
        }
    }

    fn event(&mut self, event: WsEvent<'_>) {
        match event {
            WsEvent::Data { payload, text, message_end } => {
                assert!(message_end || !payload.is_empty(), "empty only at the end of a message");
                self.message.extend_from_slice(payload);
                if message_end {
                    let message = std::mem::take(&mut self.message);
                    self.seen.push(if text { Seen::Text(message) } else { Seen::Binary(message) });
                }
            }
            WsEvent::Ping(payload) => self.seen.push(Seen::Ping(payload.into_owned())),
            WsEvent::Pong(payload) => self.seen.push(Seen::Pong(payload.into_owned())),
            WsEvent::Close { code } => self.seen.push(Seen::Close(code)),
            WsEvent::NeedMore => {}
        }
    }
}

/// Decodes a stream that arrives in these pieces.
pub fn decode_pieces<'a>(pieces: impl IntoIterator<Item = &'a [u8]>, message_max: usize) -> Vec<Seen> {
    let mut receiver = Receiver::default();
    for piece in pieces {
        receiver.push(piece, message_max);
    }
    receiver.seen
}

/// Decodes these frames in one piece and byte by byte; the results must be equal.
pub fn decode(frames: &[Frame]) -> Vec<Seen> {
    let bytes = stream(frames);
    let whole = decode_pieces([&bytes[..]], MESSAGE_MAX);
    assert_eq!(decode_pieces(bytes.chunks(1), MESSAGE_MAX), whole, "byte by byte and in one piece");
    whole
}
