//! Decodes client frames to payload bytes (RFC 6455, sections 5 to 8).
//!
//! Hot path: a payload is unmasked in place and returned by reference, even if only a part of its frame has arrived.
//! Only headers and control frames that arrive in pieces are buffered. Each call returns one event:
//!
//! ```text
//! between frames ── header ──> in a payload ── last byte ──> between frames
//!        │  └─ complete control frame ─> Ping, Pong ───────────────^
//!        └──── Close, or any error ─> ended: later input is dropped
//! ```

use std::borrow::Cow;
use std::io::Cursor;

use tungstenite::protocol::frame::FrameHeader;
use tungstenite::protocol::frame::coding::{CloseCode, Control, Data, OpCode};

use super::encode::CONTROL_PAYLOAD_MAX;
use super::mask::unmask;
use super::utf8::{NotUtf8, Utf8Stream};

/// Close codes of the decoder's errors (RFC 6455, 7.4.1).
const PROTOCOL: u16 = 1002;
const INVALID: u16 = 1007;
const TOO_BIG: u16 = 1009;

/// Bad gateway: registered with IANA after RFC 6455 and unknown to tungstenite.
const BAD_GATEWAY: u16 = 1014;

/// An event in the client's stream.
#[derive(Debug, PartialEq, Eq)]
pub enum WsEvent<'a> {
    /// Bytes of a message, in order. They are empty only at the end of a message.
    Data {
        /// The unmasked bytes, often a part of a frame or message. Those of a text message are UTF-8, except that the
        /// last character may be incomplete.
        payload: &'a [u8],
        /// Whether the message is text; otherwise it is binary.
        text: bool,
        /// Whether the message ends with these bytes.
        message_end: bool,
    },
    /// Must be answered by a Pong with the same payload, at most 125 bytes.
    Ping(Cow<'a, [u8]>),
    /// Needs no answer.
    Pong(Cow<'a, [u8]>),
    /// The client closes the connection: answer with a Close with the same code, unless one was sent before
    /// (RFC 6455, 5.5.1). No further event follows.
    Close {
        /// The close code; `None` if the frame had no payload.
        code: Option<u16>,
    },
    /// All input is consumed.
    NeedMore,
}

/// A client's protocol violation: answer with a Close with this code, then close the connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WsError {
    /// 1002 (protocol), 1007 (text that is not UTF-8) or 1009 (message too big).
    pub close_code: u16,
    /// One sentence: what was found and what is allowed. It fits into the reason of a Close.
    pub detail: String,
}

impl WsError {
    #[cold]
    fn new(close_code: u16, detail: impl Into<String>) -> Self {
        WsError { close_code, detail: detail.into() }
    }
}

impl std::fmt::Display for WsError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} ({})", self.detail, self.close_code)
    }
}

impl std::error::Error for WsError {}

impl From<NotUtf8> for WsError {
    fn from(_: NotUtf8) -> Self {
        WsError::new(INVALID, "text message is not UTF-8")
    }
}

/// Decodes the frames of one client.
#[derive(Debug, Default)]
pub struct WsDecoder {
    /// Payload bytes of the current data frame that have not arrived yet.
    remaining: u64,
    /// Payload bytes of the current message, announced by its frame headers so far.
    message_bytes: u64,
    /// The start of an incomplete header or control frame, still masked. Allocated only when needed.
    held: Vec<u8>,
    /// Masking key, rotated for the next payload byte.
    mask: [u8; 4],
    utf8: Utf8Stream,
    /// Whether the current data frame is the last one of its message.
    is_final: bool,
    message: Message,
    /// Whether there was a Close or an error.
    ended: bool,
}

/// The type of the current message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Message {
    #[default]
    None,
    Text,
    Binary,
}

/// The complete header of a client frame.
#[derive(Clone, Copy)]
struct Head {
    opcode: OpCode,
    is_final: bool,
    payload_len: u64,
    mask: [u8; 4],
    /// Length of the header itself.
    len: usize,
}

impl WsDecoder {
    /// Creates a decoder for the bytes after the handshake.
    #[must_use]
    pub fn new() -> Self {
        WsDecoder::default()
    }

    /// Whether a frame or a message is incomplete.
    #[must_use]
    pub fn is_mid_message(&self) -> bool {
        self.remaining > 0 || !self.held.is_empty() || self.message != Message::None
    }

    /// Payload bytes of the current message, announced by its frame headers so far.
    #[must_use]
    pub fn announced_bytes(&self) -> u64 {
        self.message_bytes
    }

    /// Decodes the first event of `input`; returns it with the number of bytes consumed.
    ///
    /// Call again with the rest of the input until the event is [`WsEvent::NeedMore`], which consumes all of it; then
    /// call with the client's next bytes. `input` is unmasked in place; bytes may arrive in any pieces.
    /// `max_message_bytes` limits one data frame and one assembled message, by the lengths in the headers.
    ///
    /// # Errors
    /// Any error is final; later calls consume and drop their input, as after [`WsEvent::Close`].
    pub fn decode<'a>(
        &mut self,
        input: &'a mut [u8],
        max_message_bytes: usize,
    ) -> Result<(WsEvent<'a>, usize), WsError> {
        if self.ended {
            return Ok((WsEvent::NeedMore, input.len()));
        }
        let result = self.next_event(input, max_message_bytes);
        if matches!(result, Err(_) | Ok((WsEvent::Close { .. }, _))) {
            *self = WsDecoder { ended: true, ..WsDecoder::default() };
        }
        result
    }

    #[inline]
    fn next_event<'a>(
        &mut self,
        input: &'a mut [u8],
        max_message_bytes: usize,
    ) -> Result<(WsEvent<'a>, usize), WsError> {
        let mut at = 0;
        while self.remaining == 0 {
            let head = if self.held.is_empty() {
                let rest = input.get(at..).unwrap_or_default();
                if rest.len() < unit_len(rest)? {
                    self.held.extend_from_slice(rest);
                    return Ok((WsEvent::NeedMore, input.len()));
                }
                let head = parse(rest)?;
                at += head.len;
                if let OpCode::Control(control) = head.opcode {
                    let consumed = at + head.payload_len as usize;
                    let payload = input.get_mut(at..consumed).unwrap_or_default();
                    unmask(payload, head.mask);
                    return Ok((control_event(control, Cow::Borrowed(payload))?, consumed));
                }
                head
            } else {
                let Some(taken) = self.top_up(input.get(at..).unwrap_or_default())? else {
                    return Ok((WsEvent::NeedMore, input.len()));
                };
                at += taken;
                let head = parse(&self.held)?;
                let mut held = std::mem::take(&mut self.held);
                if let OpCode::Control(control) = head.opcode {
                    let mut payload = held.split_off(head.len);
                    unmask(&mut payload, head.mask);
                    return Ok((control_event(control, Cow::Owned(payload))?, at));
                }
                head
            };
            self.start_frame(head, max_message_bytes)?;
            if self.is_final {
                break;
            }
        }
        self.take_payload(input, at)
    }

    /// Adds input to the held bytes until they are a complete header, including the payload of a control frame. Returns
    /// how many bytes it consumed, or `None` if all of the input was not enough.
    #[cold]
    fn top_up(&mut self, input: &[u8]) -> Result<Option<usize>, WsError> {
        let mut taken = 0;
        loop {
            let missing = unit_len(&self.held)?.saturating_sub(self.held.len());
            if missing == 0 {
                return Ok(Some(taken));
            }
            let rest = input.get(taken..).unwrap_or_default();
            if rest.is_empty() {
                return Ok(None);
            }
            let piece = &rest[..missing.min(rest.len())];
            self.held.extend_from_slice(piece);
            taken += piece.len();
        }
    }

    /// Checks the header of a data frame against the current message and the limit.
    #[inline]
    fn start_frame(&mut self, head: Head, max_message_bytes: usize) -> Result<(), WsError> {
        let OpCode::Data(data) = head.opcode else { return Err(reserved_opcode()) };
        self.message = match (data, self.message) {
            (Data::Continue, Message::None) => {
                return Err(WsError::new(PROTOCOL, "continuation frame without a message"));
            }
            (Data::Continue, message) => message,
            (Data::Text, Message::None) => Message::Text,
            (Data::Binary, Message::None) => Message::Binary,
            (Data::Reserved(_), _) => return Err(reserved_opcode()),
            _ => return Err(WsError::new(PROTOCOL, "new message before the end of the fragmented one")),
        };
        self.message_bytes = self.message_bytes.saturating_add(head.payload_len);
        if self.message_bytes > max_message_bytes as u64 {
            let detail = format!("message has {} bytes, {max_message_bytes} are allowed", self.message_bytes);
            return Err(WsError::new(TOO_BIG, detail));
        }
        self.remaining = head.payload_len;
        self.is_final = head.is_final;
        self.mask = head.mask;
        Ok(())
    }

    /// Returns the available payload of the current frame, which starts or continues at `at`.
    #[inline]
    fn take_payload<'a>(&mut self, input: &'a mut [u8], at: usize) -> Result<(WsEvent<'a>, usize), WsError> {
        let here = input.get_mut(at..).unwrap_or_default();
        let len = usize::try_from(self.remaining).map_or(here.len(), |remaining| remaining.min(here.len()));
        let payload = &mut here[..len];
        if payload.is_empty() && self.remaining > 0 {
            return Ok((WsEvent::NeedMore, at));
        }
        self.mask = unmask(payload, self.mask);
        self.remaining -= len as u64;
        let text = self.message == Message::Text;
        if text {
            self.utf8.push(payload)?;
        }
        let message_end = self.remaining == 0 && self.is_final;
        if message_end {
            self.utf8.finish()?;
            self.message = Message::None;
            self.message_bytes = 0;
        }
        Ok((WsEvent::Data { payload, text, message_end }, at + len))
    }
}

/// Length of the header at the start of `bytes`, including the payload of a control frame. While the length is unknown,
/// returns more than `bytes` has. Refuses errors that the first two bytes show.
#[inline]
fn unit_len(bytes: &[u8]) -> Result<usize, WsError> {
    let [first, second, ..] = *bytes else { return Ok(2) };
    if first & 0x70 != 0 {
        return Err(WsError::new(PROTOCOL, "reserved bits are set and no extension was negotiated"));
    }
    if second & 0x80 == 0 {
        return Err(WsError::new(PROTOCOL, "client frame is not masked"));
    }
    let length = usize::from(second & 0x7f);
    match OpCode::from(first & 0x0f) {
        OpCode::Data(Data::Reserved(_)) | OpCode::Control(Control::Reserved(_)) => Err(reserved_opcode()),
        OpCode::Control(_) if first & 0x80 == 0 => Err(WsError::new(PROTOCOL, "control frame is fragmented")),
        OpCode::Control(_) if length > CONTROL_PAYLOAD_MAX => {
            Err(WsError::new(PROTOCOL, "control frame payload is longer than 125 bytes"))
        }
        OpCode::Control(_) => Ok(2 + 4 + length),
        OpCode::Data(_) => Ok(match length {
            127 => 2 + 8 + 4,
            126 => 2 + 2 + 4,
            _ => 2 + 4,
        }),
    }
}

/// Parses the header at the start of `bytes`; [`unit_len`] has checked that it is complete.
#[inline]
fn parse(bytes: &[u8]) -> Result<Head, WsError> {
    // Hot path: the forms of nearly all frames, without the reader and the tracing of the general parser.
    let (payload_len, mask, len) = match *bytes {
        [_, second @ 0x80..=0xfd, a, b, c, d, ..] => (u64::from(second & 0x7f), [a, b, c, d], 6),
        [_, 0xfe, high, low, a, b, c, d, ..] => (u64::from(u16::from_be_bytes([high, low])), [a, b, c, d], 8),
        _ => return parse_long(bytes),
    };
    if len == 8 && payload_len < 126 {
        return Err(not_shortest());
    }
    let first = bytes.first().copied().unwrap_or_default();
    Ok(Head { opcode: OpCode::from(first & 0x0f), is_final: first & 0x80 != 0, payload_len, mask, len })
}

/// Parses a header with a 64-bit length.
#[cold]
fn parse_long(bytes: &[u8]) -> Result<Head, WsError> {
    let mut cursor = Cursor::new(bytes);
    let Ok(Some((header, payload_len))) = FrameHeader::parse(&mut cursor) else {
        return Err(reserved_opcode());
    };
    if payload_len <= u64::from(u16::MAX) {
        return Err(not_shortest());
    }
    if payload_len >> 63 != 0 {
        return Err(WsError::new(PROTOCOL, "payload length has its highest bit set"));
    }
    let FrameHeader { opcode, is_final, mask, .. } = header;
    let mask = mask.unwrap_or_default();
    Ok(Head { opcode, is_final, payload_len, mask, len: cursor.position() as usize })
}

#[cold]
fn not_shortest() -> WsError {
    WsError::new(PROTOCOL, "payload length is not in its shortest form")
}

#[cold]
fn reserved_opcode() -> WsError {
    WsError::new(PROTOCOL, "reserved opcode")
}

/// The event for a control frame with this payload.
#[cold]
fn control_event(control: Control, payload: Cow<'_, [u8]>) -> Result<WsEvent<'_>, WsError> {
    match control {
        Control::Ping => Ok(WsEvent::Ping(payload)),
        Control::Pong => Ok(WsEvent::Pong(payload)),
        Control::Close => Ok(WsEvent::Close { code: close_code(&payload)? }),
        Control::Reserved(_) => Err(reserved_opcode()),
    }
}

/// Checks the payload of a Close (RFC 6455, 5.5.1 and 7.4).
fn close_code(payload: &[u8]) -> Result<Option<u16>, WsError> {
    let (code, reason) = match payload {
        [] => return Ok(None),
        [_] => return Err(WsError::new(PROTOCOL, "close frame with one byte of payload")),
        [a, b, reason @ ..] => (u16::from_be_bytes([*a, *b]), reason),
    };
    if !CloseCode::from(code).is_allowed() && code != BAD_GATEWAY {
        return Err(WsError::new(PROTOCOL, format!("close code {code} is not allowed")));
    }
    match std::str::from_utf8(reason) {
        Ok(_) => Ok(Some(code)),
        Err(_) => Err(WsError::new(INVALID, "close reason is not UTF-8")),
    }
}

#[cfg(test)]
#[path = "decode_tests.rs"]
mod tests;
