//! A frame by reference to its bytes. The parser is in [`crate::decode`].
//!
//! Hot path: no allocation, no copy; a frame borrows the input buffer.

use std::borrow::Cow;

use crate::{Command, Version, escape};

/// The position of one header line in the input: name and value are still escaped; the line end is excluded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeaderSpan {
    /// Offset of the name's first byte.
    pub start: u32,
    /// Offset of the colon.
    pub colon: u32,
    /// Offset after the value's last byte (before the CR if CRLF ends the line).
    pub end: u32,
}

impl HeaderSpan {
    /// The wire name; empty if the span does not belong to `input`.
    #[inline]
    #[must_use]
    pub fn name(self, input: &[u8]) -> &[u8] {
        input.get(self.start as usize..self.colon as usize).unwrap_or_default()
    }

    /// The wire value; empty if the span does not belong to `input`.
    #[inline]
    #[must_use]
    pub fn value(self, input: &[u8]) -> &[u8] {
        input.get(self.colon as usize + 1..self.end as usize).unwrap_or_default()
    }
}

/// One complete frame of a client, borrowed from the input.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// The command on the first line.
    pub command: Command,
    /// The bytes that the spans refer to: from the command's first byte to the NUL.
    pub input: &'a [u8],
    /// The header lines, in order.
    pub spans: &'a [HeaderSpan],
    /// The body without its NUL; empty if there is none.
    pub body: &'a [u8],
    /// Version whose escapes apply to the headers: `V1_0`, which has none, for CONNECT, STOMP and frames before login.
    pub version: Version,
    /// No header line has a backslash, a CR, a second colon, an empty value or a value with a leading space: the lines
    /// have the same meaning in every version and can be passed on unchanged.
    pub plain: bool,
}

impl<'a> Frame<'a> {
    /// Header lines in order: names and values as on the wire, still escaped.
    pub fn raw_headers(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
        let input = self.input;
        self.spans.iter().map(move |span| (span.name(input), span.value(input)))
    }

    /// The wire value of the first header with this name. The names that a broker looks up contain nothing to escape.
    #[must_use]
    pub fn raw(&self, name: &[u8]) -> Option<&'a [u8]> {
        self.raw_headers().find(|(candidate, _)| *candidate == name).map(|(_, value)| value)
    }

    /// The unescaped value of the first header with this name (of repeated headers the first wins: STOMP 1.2,
    /// "Repeated Header Entries"). The decoder has checked the escapes.
    #[must_use]
    pub fn header(&self, name: &[u8]) -> Option<Cow<'a, [u8]>> {
        self.raw(name).map(|raw| self.value(raw))
    }

    /// Unescapes a wire name of this frame. Escapes apply to names too; no version trims names.
    #[must_use]
    pub fn name(&self, raw: &'a [u8]) -> Cow<'a, [u8]> {
        if self.plain { Cow::Borrowed(raw) } else { escape::unescape(raw, self.version) }
    }

    /// Unescapes a wire value of this frame. In a 1.0 session leading spaces are removed, but not in CONNECT and STOMP,
    /// whose version is not known yet.
    #[must_use]
    pub fn value(&self, raw: &'a [u8]) -> Cow<'a, [u8]> {
        if self.plain || !self.command.is_escaped() {
            return Cow::Borrowed(raw);
        }
        match self.version {
            Version::V1_0 => {
                let spaces = raw.iter().take_while(|&&byte| byte == b' ').count();
                Cow::Borrowed(raw.get(spaces..).unwrap_or_default())
            }
            Version::V1_1 | Version::V1_2 => escape::unescape(raw, self.version),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Frame, HeaderSpan};
    use crate::{Command, Version};

    const INPUT: &[u8] = b"a:  1\na:2\nb:x\\cy";
    const SPANS: &[HeaderSpan] = &[
        HeaderSpan { start: 0, colon: 1, end: 5 },
        HeaderSpan { start: 6, colon: 7, end: 9 },
        HeaderSpan { start: 10, colon: 11, end: 16 },
    ];

    fn frame(command: Command, version: Version) -> Frame<'static> {
        Frame { command, input: INPUT, spans: SPANS, body: b"", version, plain: false }
    }

    // docs/specification.md, item 40
    #[test]
    fn the_first_of_repeated_headers_wins() {
        assert_eq!(frame(Command::Send, Version::V1_2).raw(b"a"), Some(&b"  1"[..]));
        assert_eq!(frame(Command::Send, Version::V1_2).raw_headers().count(), 3);
        assert_eq!(frame(Command::Send, Version::V1_2).raw(b"A"), None);
    }

    // docs/specification.md, items 13, 35, 37, 41
    #[test]
    fn values_are_trimmed_only_in_1_0_and_unescaped_from_1_1_on() {
        let value =
            |command, version, name| frame(command, version).header(name).map(|value| value.into_owned());
        assert_eq!(value(Command::Send, Version::V1_0, b"a"), Some(b"1".to_vec()));
        assert_eq!(value(Command::Send, Version::V1_1, b"a"), Some(b"  1".to_vec()));
        assert_eq!(value(Command::Connect, Version::V1_0, b"a"), Some(b"  1".to_vec()));
        assert_eq!(value(Command::Connect, Version::V1_0, b"b"), Some(b"x\\cy".to_vec()));
        assert_eq!(value(Command::Send, Version::V1_0, b"b"), Some(b"x\\cy".to_vec()));
        assert_eq!(value(Command::Send, Version::V1_1, b"b"), Some(b"x:y".to_vec()));
    }

    #[test]
    fn a_span_of_another_input_is_empty() {
        let span = HeaderSpan { start: 2, colon: 9, end: 11 };
        assert_eq!((span.name(b"abc"), span.value(b"abc")), (&b""[..], &b""[..]));
    }
}
