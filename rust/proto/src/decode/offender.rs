//! What an ERROR frame echoes of the frame that caused it. Never a passcode, never the body.

use std::borrow::Cow;

use memchr::{memchr, memrchr};

use crate::HeaderSpan;

/// Maximum bytes of an offending frame's head that are examined and echoed.
const HEAD_BYTES_MAX: usize = 2048;

/// Replacement for a passcode's value.
const MASK: &str = "********";

/// The command line and header lines of the frame at the start of `input` (leading EOLs are skipped), as far as they
/// have arrived, at most 2 KiB: up to the blank line or a NUL. They are neither unescaped nor checked and may be any
/// bytes.
#[must_use]
pub fn offending_head(input: &[u8]) -> &[u8] {
    let start = super::leading_eols(input);
    let input = input.get(start..).unwrap_or_default();
    let visible = input.get(..HEAD_BYTES_MAX).unwrap_or(input);
    let head = memchr(0, visible).and_then(|nul| visible.get(..nul)).unwrap_or(visible);
    let mut line_start = 0;
    for line in head.split_inclusive(|&byte| byte == b'\n') {
        if matches!(line, b"\n" | b"\r\n") {
            return head.get(..line_start).unwrap_or_default();
        }
        line_start += line.len();
    }
    head
}

/// The wire value of the first header with this name in the frame at the start of `input`, for the `receipt-id` of the
/// ERROR for a frame that could not be decoded. A line that has not arrived whole is omitted: its value is cut.
#[must_use]
pub fn offending_value<'a>(input: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let head = offending_head(input);
    let behind = input.get(super::leading_eols(input) + head.len());
    let whole = match behind {
        Some(0) => head.len(),
        _ => memrchr(b'\n', head).map_or(0, |line_feed| line_feed + 1),
    };
    head_value(head.get(..whole)?, name)
}

/// The wire value of the first header with this name in an [`offending_head`].
#[must_use]
pub fn head_value<'a>(head: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    lines(head).find_map(|(at, line)| {
        let span = span_of(at, line)?;
        (span.name(head) == name).then(|| span.value(head))
    })
}

/// A head as text for an ERROR's body or a log: passcodes are masked, invalid UTF-8 and control characters are
/// replaced, and line ends become LF.
///
/// A passcode is masked for any spelling of its name, even in a malformed header line.
#[must_use]
pub fn masked_head(head: &[u8]) -> Vec<u8> {
    masked_text(head).into_bytes()
}

pub(super) fn masked_text(head: &[u8]) -> String {
    let text = String::from_utf8_lossy(head).replace("\r\n", "\n");
    let ends_line = |letter| matches!(letter, '\n' | '\r' | '\0');
    let mut out = String::with_capacity(text.len());
    for line in text.split_inclusive(ends_line) {
        let content = line.trim_end_matches(ends_line);
        out.extend(mask_line(content).chars().map(|letter| if is_printed(letter) { letter } else { '?' }));
        if content.len() < line.len() {
            out.push('\n');
        }
    }
    out
}

fn is_printed(letter: char) -> bool {
    letter == '\t' || !letter.is_control()
}

fn mask_line(line: &str) -> Cow<'_, str> {
    let lower = line.to_ascii_lowercase();
    for word in ["passcode", "password"] {
        if let Some(at) = lower.find(word) {
            let known = line.get(..at + word.len()).unwrap_or_default();
            return Cow::Owned(format!("{known}:{MASK}"));
        }
        // A name with stray escapes or blanks inside is not exactly a passcode header, but was probably meant as one.
        let letters: String = lower.chars().filter(char::is_ascii_alphanumeric).collect();
        if letters.contains(word) {
            return Cow::Borrowed(MASK);
        }
    }
    Cow::Borrowed(line)
}

/// Fills `spans` with the header lines of a head, as offsets into it; does not check them.
pub(super) fn walk(head: &[u8], spans: &mut Vec<HeaderSpan>) {
    spans.clear();
    spans.extend(lines(head).filter_map(|(at, line)| span_of(at, line)));
}

/// Lines after the command line with their offsets, without their line ends.
fn lines(head: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let mut next = 0;
    head.split_inclusive(|&byte| byte == b'\n')
        .map(move |line| {
            let at = next;
            next += line.len();
            let line = line.strip_suffix(b"\n").unwrap_or(line);
            (at, line.strip_suffix(b"\r").unwrap_or(line))
        })
        .skip(1)
}

fn span_of(at: usize, line: &[u8]) -> Option<HeaderSpan> {
    let colon = memchr(b':', line)?;
    let offset = |bytes: usize| u32::try_from(at + bytes).ok();
    Some(HeaderSpan { start: offset(0)?, colon: offset(colon)?, end: offset(line.len())? })
}

#[cfg(test)]
mod tests {
    use super::{HEAD_BYTES_MAX, head_value, masked_head, offending_head, offending_value};

    #[test]
    fn a_value_is_known_once_its_line_is_whole() {
        let value = |input: &'static [u8]| offending_value(input, b"receipt");
        assert_eq!(value(b"\nWHAT\nreceipt:12\n"), Some(&b"12"[..]));
        assert_eq!(value(b"WHAT\nreceipt:12\n\nreceipt:3"), Some(&b"12"[..]));
        assert_eq!(value(b"SEND\nreceipt:12\0"), Some(&b"12"[..]));
        assert_eq!(value(b"WHAT\nreceipt:1"), None);
        assert_eq!(value(b"WHAT\nreceipt:1\r"), None);
        let long = [b"WHAT\nreceipt:", &[b'x'; HEAD_BYTES_MAX][..], b"\n\n\0"].concat();
        assert_eq!(offending_value(&long, b"receipt"), None, "more than is examined");
    }

    #[test]
    fn the_head_ends_at_the_blank_line_a_nul_or_2_kib() {
        assert_eq!(offending_head(b"\n\r\nSEND\na:b\n\nbody\0"), b"SEND\na:b\n");
        assert_eq!(offending_head(b"SEND\r\na:b\r\n\r\nbody\0"), b"SEND\r\na:b\r\n");
        assert_eq!(offending_head(b"SEND\na:b\0SEND\n"), b"SEND\na:b");
        assert_eq!(offending_head(b"SEND\na:"), b"SEND\na:");
        assert_eq!(offending_head(&[b'x'; 5000]).len(), 2048);
        assert_eq!(offending_head(b""), b"");
    }

    // docs/specification.md, item 53
    #[test]
    fn headers_of_an_offender_are_found() {
        let head = offending_head(b"SUBSCRIBE\nno colon\nreceipt:a\\cb\r\nreceipt:2\nid:7");
        assert_eq!(head_value(head, b"receipt"), Some(&b"a\\cb"[..]));
        assert_eq!(head_value(head, b"id"), Some(&b"7"[..]));
        assert_eq!(head_value(head, b"destination"), None);
    }

    #[test]
    fn passcodes_are_masked_however_they_are_spelt() {
        let masked = |head: &[u8]| String::from_utf8(masked_head(head)).expect("text");
        assert_eq!(
            masked(b"CONNECT\nlogin:a\npasscode:s3cret\nhost:x"),
            "CONNECT\nlogin:a\npasscode:********\nhost:x"
        );
        for head in [
            "CONNECT\nPassCode:s3cret\n",
            "CONNECT\r\npasscode: s3cret\r\n",
            "CONNECT\n passcode :s3cret",
            "CONNECT\npasscode s3cret",
            "CONNECT\npass\\code:s3cret",
            "CONNECT\npass code:s3cret",
            "CONNECT\rpasscode:s3cret\r",
            "passcode:s3cret",
            "CONNECT\npasscode:s3cret\0",
        ] {
            assert!(!masked(head.as_bytes()).contains("s3cret"), "{}", masked(head.as_bytes()));
        }
        let with_no_text = masked(b"CONNECT\npasscode:s3cret\xFF:s3cret");
        assert!(!with_no_text.contains("s3cret"), "{with_no_text}");
    }

    #[test]
    fn echoed_text_is_printable_utf_8() {
        assert_eq!(masked_head(b"SEND\r\na:\xFF\x1b\xC3\xA9"), "SEND\na:\u{FFFD}?\u{e9}".as_bytes());
    }
}
