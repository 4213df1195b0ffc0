//! Bytes to frames.
//!
//! ```text
//! input ─► leading EOLs ─► head.rs: command line, header lines ─► body: content-length octets or up to NUL ─► Frame
//! ```
//! A frame may arrive in any fragmentation. The decoder keeps only offsets and does not search bytes twice, except for
//! the header lines of a frame that arrived in pieces, which are scanned once more when the frame is complete. The
//! result, error or frame, depends only on the bytes, not on where they were cut.
//!
//! Hot path: 40 to 60 ns for a small SEND, no allocation, no copy; `benches/decode.rs` measures it.

mod body;
mod head;
mod line;
mod offender;

use memchr::memchr;

use self::body::{BodyRule, skip_line_ends, unexpected_body};
use self::head::{Head, Phase};
pub use self::offender::{head_value, masked_head, offending_head, offending_value};
use crate::error::Code;
use crate::{Frame, HeaderSpan, Limits, ProtocolError, Version};

/// Result of [`Decoder::decode`].
#[derive(Debug)]
pub enum Decoded<'a> {
    /// A complete frame; the first `consumed` bytes of the input (leading EOLs included) are no longer needed.
    Frame {
        /// The frame, borrowed from the input.
        frame: Frame<'a>,
        /// Bytes up to and including the frame's NUL.
        consumed: usize,
    },
    /// No complete frame yet. Drop the first `consumed` bytes (EOLs between frames), and call again with the rest
    /// followed by more.
    Incomplete {
        /// Bytes to drop.
        consumed: usize,
        /// Length of the frame from the first kept byte, once its content-length is known.
        frame_len: Option<usize>,
    },
}

/// Finds frames in a stream of bytes.
#[derive(Debug)]
pub struct Decoder {
    head: Head,
    phase: Phase,
}

impl Decoder {
    /// Creates a decoder for a connection that has not sent CONNECT.
    #[must_use]
    pub fn new() -> Self {
        Decoder { head: Head::default(), phase: Phase::BeforeLogin }
    }

    /// Sets the negotiated version. Call it between frames: after CONNECT and before the next byte is decoded.
    pub fn connected(&mut self, version: Version) {
        self.phase = Phase::Session(version);
    }

    /// Decodes the first frame of `input`. `spans` is scratch space, cleared and filled by each call.
    ///
    /// # Errors
    /// Any error is final: send an ERROR frame and close the connection. `spans` then has the header lines of
    /// [`offending_head`]`(input)`, as offsets into that.
    pub fn decode<'a>(
        &mut self,
        input: &'a [u8],
        spans: &'a mut Vec<HeaderSpan>,
        limits: &Limits,
    ) -> Result<Decoded<'a>, ProtocolError> {
        spans.clear();
        let resumed = self.head.is_started();
        let start = if resumed { 0 } else { leading_eols(input) };
        let bytes = input.get(start..).unwrap_or_default();
        if !resumed && matches!(bytes, b"" | b"\r") {
            // No frame has begun: a CR may be the first half of an EOL.
            return Ok(Decoded::Incomplete { consumed: start, frame_len: None });
        }
        let end = match self.advance(bytes, spans, limits) {
            Ok(Progress::Whole { end }) => end,
            Ok(Progress::Partial { frame_len }) => {
                return Ok(Decoded::Incomplete { consumed: start, frame_len });
            }
            Err(error) => {
                offender::walk(offending_head(bytes), spans);
                return Err(error);
            }
        };
        if resumed {
            // The spans of earlier calls are lost, because the caller shares one vector between connections.
            spans.clear();
            self.head = Head::default();
            self.head.scan(bytes, spans, limits, self.phase)?;
        }
        let head = std::mem::take(&mut self.head);
        let Some(command) = head.command else {
            return Ok(Decoded::Incomplete { consumed: start, frame_len: None });
        };
        let frame = Frame {
            command,
            input: bytes.get(..end).unwrap_or_default(),
            spans,
            body: if command.has_body() { bytes.get(head.done..end - 1).unwrap_or_default() } else { b"" },
            version: self.phase.escapes_of(command),
            plain: head.plain,
        };
        Ok(Decoded::Frame { frame, consumed: start + end })
    }

    /// Continues with the frame at the start of `bytes`.
    fn advance(
        &mut self,
        bytes: &[u8],
        spans: &mut Vec<HeaderSpan>,
        limits: &Limits,
    ) -> Result<Progress, ProtocolError> {
        let Phase::BeforeLogin = self.phase else { return self.advance_within(bytes, spans, limits) };
        // Before login the size of a whole frame is limited: bytes beyond the limit are not examined.
        let bytes_max = limits.before_login_bytes_max;
        let visible = bytes.get(..bytes_max).unwrap_or(bytes);
        let progress = self.advance_within(visible, spans, limits)?;
        match progress {
            Progress::Partial { frame_len }
                if visible.len() >= bytes_max.max(1) || frame_len > Some(bytes_max) =>
            {
                Err(ProtocolError::new(
                    Code::LoginSize,
                    format!("the frame is longer than the {bytes_max} bytes allowed before login"),
                ))
            }
            progress => Ok(progress),
        }
    }

    fn advance_within(
        &mut self,
        bytes: &[u8],
        spans: &mut Vec<HeaderSpan>,
        limits: &Limits,
    ) -> Result<Progress, ProtocolError> {
        if !self.head.is_complete {
            if !self.head.scan(bytes, spans, limits, self.phase)? {
                return Ok(Progress::Partial { frame_len: None });
            }
            self.head.searched = self.head.done;
            check_length(&self.head, limits)?;
        }
        let rule = self.head.command.map(|command| BodyRule::of(command, self.phase));
        match self.head.content_length {
            _ if rule == Some(BodyRule::LineEnds) => self.end_after_line_ends(bytes, limits),
            Some(length) => end_by_length(bytes, self.head.done, length),
            None => self.end_by_nul(bytes, limits),
        }
    }

    /// Finds the end of a frame that must not have a body; skips line ends, with or without a content-length.
    fn end_after_line_ends(&mut self, bytes: &[u8], limits: &Limits) -> Result<Progress, ProtocolError> {
        let start = self.head.done;
        let length = self.head.content_length;
        let end = start.saturating_add(length.unwrap_or(limits.message_bytes_max));
        let at = skip_line_ends(bytes, self.head.searched, end);
        self.head.searched = at;
        match (bytes.get(at), length) {
            (_, Some(length)) if at == end => end_by_length(bytes, start, length),
            (Some(0), None) => Ok(Progress::Whole { end: at + 1 }),
            (Some(_), None) if at == end => Err(too_large(limits)),
            (Some(b'\r'), _) if bytes.len() == at + 1 && at + 1 < end => {
                Ok(Progress::Partial { frame_len: length.map(|_| end.saturating_add(1)) })
            }
            (Some(_), _) => Err(unexpected_body(self.head.command)),
            (None, length) => Ok(Progress::Partial { frame_len: length.map(|_| end.saturating_add(1)) }),
        }
    }

    /// Finds the end of a body without a content-length: its first NUL (STOMP 1.2, "Body").
    fn end_by_nul(&mut self, bytes: &[u8], limits: &Limits) -> Result<Progress, ProtocolError> {
        let end_max = self.head.done.saturating_add(limits.message_bytes_max).saturating_add(1);
        let visible = bytes.get(..end_max).unwrap_or(bytes);
        let unsearched = visible.get(self.head.searched..).unwrap_or_default();
        if let Some(at) = memchr(0, unsearched) {
            return Ok(Progress::Whole { end: self.head.searched + at + 1 });
        }
        if visible.len() >= end_max {
            return Err(too_large(limits));
        }
        self.head.searched = visible.len();
        Ok(Progress::Partial { frame_len: None })
    }
}

impl Default for Decoder {
    fn default() -> Self {
        Decoder::new()
    }
}

/// State of a frame; offsets are from its first byte.
enum Progress {
    Whole { end: usize },
    Partial { frame_len: Option<usize> },
}

/// Length of the leading EOLs: heart-beats, or line ends that clients add after a NUL. CRLF counts in every version
/// (docs/behaviour.md, section 3); a final CR, which may become CRLF, does not count yet.
fn leading_eols(input: &[u8]) -> usize {
    let mut at = 0;
    loop {
        match input.get(at) {
            Some(b'\n') => at += 1,
            Some(b'\r') if input.get(at + 1) == Some(&b'\n') => at += 2,
            _ => return at,
        }
    }
}

/// Refuses a body by its content-length, before it arrives.
fn check_length(head: &Head, limits: &Limits) -> Result<(), ProtocolError> {
    match head.content_length {
        Some(length) if length > limits.message_bytes_max => Err(too_large(limits)),
        _ => Ok(()),
    }
}

/// The octet after `length` octets must be NUL (STOMP 1.2, "Header content-length").
#[inline]
fn end_by_length(bytes: &[u8], body_start: usize, length: usize) -> Result<Progress, ProtocolError> {
    let nul = body_start.saturating_add(length);
    match bytes.get(nul) {
        Some(0) => Ok(Progress::Whole { end: nul + 1 }),
        None => Ok(Progress::Partial { frame_len: Some(nul.saturating_add(1)) }),
        Some(_) => Err(ProtocolError::new(
            Code::ContentLength,
            format!("content-length is {length}, but the octet after these {length} is not NUL"),
        )),
    }
}

#[cold]
fn too_large(limits: &Limits) -> ProtocolError {
    let max = limits.message_bytes_max;
    ProtocolError::new(
        Code::MessageSize,
        format!("the body is longer than the {max} bytes of max_message_size"),
    )
}
