//! Bytes to frames.

use crate::{Frame, HeaderSpan, Limits, ProtocolError, Version};

/// What [`Decoder::decode`] found at the start of the input.
#[derive(Debug)]
pub enum Decoded<'a> {
    /// A whole frame; the first `consumed` bytes of the input (leading EOLs included) are done with.
    Frame {
        /// The frame, borrowed from the input.
        frame: Frame<'a>,
        /// Bytes up to and including the frame's NUL.
        consumed: usize,
    },
    /// No whole frame yet. Drop the first `consumed` bytes (EOLs between frames), keep the rest, and call again with
    /// the rest and more behind it.
    Incomplete {
        /// Bytes that need not be kept.
        consumed: usize,
        /// How long the frame will be, counted from the first kept byte, once its content-length is known.
        frame_len: Option<usize>,
    },
}

/// Finds frames in a stream of bytes.
#[derive(Debug)]
pub struct Decoder {
    version: Version,
}

impl Decoder {
    /// A decoder for a connection that has not sent CONNECT.
    #[must_use]
    pub fn new() -> Self {
        Decoder { version: Version::V1_2 }
    }

    /// Sets the negotiated version.
    pub fn connected(&mut self, version: Version) {
        self.version = version;
    }

    /// Decodes the first frame of `input`.
    ///
    /// # Errors
    /// Any error is final: the connection gets an ERROR frame and is closed.
    pub fn decode<'a>(
        &mut self,
        input: &'a [u8],
        spans: &'a mut Vec<HeaderSpan>,
        limits: &Limits,
    ) -> Result<Decoded<'a>, ProtocolError> {
        let _ = (input, spans, limits);
        Ok(Decoded::Incomplete { consumed: 0, frame_len: None })
    }
}

impl Default for Decoder {
    fn default() -> Self {
        Decoder::new()
    }
}
