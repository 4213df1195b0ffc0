//! A frame by reference to the bytes it came in. No parsing here: see [`crate::decode`].
//!
//! Hot path: no allocation, no copy; a frame is a view for as long as the input buffer stands.

use std::borrow::Cow;

use crate::{Command, Version, escape};

/// Where one header line lies in the input: `name` and `value` as on the wire, still escaped, line end excluded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeaderSpan {
    /// Offset of the name's first byte.
    pub start: u32,
    /// Offset of the colon.
    pub colon: u32,
    /// Offset behind the value's last byte (before the CR, where CRLF ends the line in 1.2).
    pub end: u32,
}

/// One complete frame of a client, borrowed from the input.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// The command on the first line.
    pub command: Command,
    /// The bytes that the spans point into.
    pub input: &'a [u8],
    /// The header lines, in order.
    pub spans: &'a [HeaderSpan],
    /// The body without its NUL; empty where there is none.
    pub body: &'a [u8],
    /// Version whose escapes apply to the headers (`V1_0`, so none, for CONNECT and STOMP).
    pub version: Version,
    /// No header line holds a backslash, a CR, a second colon or an empty value: the lines mean the same in every
    /// version, so that they can be passed on as they are.
    pub plain: bool,
}

impl<'a> Frame<'a> {
    /// Header lines in order: name and value as on the wire (still escaped).
    pub fn raw_headers(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
        let input = self.input;
        self.spans.iter().map(move |span| {
            (&input[span.start as usize..span.colon as usize], &input[span.colon as usize + 1..span.end as usize])
        })
    }

    /// The wire value of the first header with this name. Names that a broker looks for need no escape.
    #[must_use]
    pub fn raw(&self, name: &[u8]) -> Option<&'a [u8]> {
        self.raw_headers().find(|(candidate, _)| *candidate == name).map(|(_, value)| value)
    }

    /// The value of the first header with this name, unescaped; repeated headers: the first wins (STOMP 1.2,
    /// "Repeated Header Entries"). The decoder has checked the escapes.
    #[must_use]
    pub fn header(&self, name: &[u8]) -> Option<Cow<'a, [u8]>> {
        self.raw(name).map(|raw| self.value(raw))
    }

    /// Unescapes a wire value of this frame. A 1.0 value loses its leading spaces.
    #[must_use]
    pub fn value(&self, raw: &'a [u8]) -> Cow<'a, [u8]> {
        if self.plain && self.version != Version::V1_0 { Cow::Borrowed(raw) } else { escape::unescape(raw, self.version) }
    }
}
