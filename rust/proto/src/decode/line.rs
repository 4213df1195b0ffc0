//! One header line: its end, its colon, and whether it needs a closer check.
//!
//! Hot path: [`Line::quick`] examines each line once, several octets at a time. It handles usual lines and leaves
//! others to [`Line::slow`], which gives the same result.

use memchr::memchr;

/// A header line. Offsets are from the frame's first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Line {
    /// Offset after its last byte, without the line end.
    pub end: usize,
    /// Offset after its line end.
    pub next: usize,
    /// Offset of the first colon, if any.
    pub colon: Option<usize>,
    pub has_more_colons: bool,
    /// It has a control character, a backslash or an octet beyond ASCII.
    pub is_unusual: bool,
}

/// A word with 1 in each octet.
const ONES: u64 = u64::MAX / 0xFF;
const HIGH_BITS: u64 = ONES * 0x80;
const COLONS: u64 = ONES * b':' as u64;
const BACKSLASHES: u64 = ONES * b'\\' as u64;

/// Offset of the first octet from `at` on that is a control character, a backslash, beyond ASCII, or equal to the octet
/// that `colons` repeats eight times.
#[inline]
fn next_notable(bytes: &[u8], mut at: usize, colons: u64) -> Option<usize> {
    loop {
        let word = word_at(bytes, at)?;
        // The high bit of an octet is set if its subtraction borrows, that is if it is notable, or if it is beyond
        // ASCII, which is notable anyway. A borrow may corrupt higher octets, but only the lowest marked octet is used.
        let below_blank = word.wrapping_sub(ONES * u64::from(b' '));
        let colon = (word ^ colons).wrapping_sub(ONES);
        let backslash = (word ^ BACKSLASHES).wrapping_sub(ONES);
        let marks = (below_blank | colon | backslash | word) & HIGH_BITS;
        if marks != 0 {
            return Some(at + (marks.trailing_zeros() / 8) as usize);
        }
        at += 8;
    }
}

/// Eight octets from `at` on, padded with NULs, which do not end a line, after the end of the input.
#[inline]
fn word_at(bytes: &[u8], at: usize) -> Option<u64> {
    match bytes.get(at..)?.first_chunk() {
        Some(octets) => Some(u64::from_le_bytes(*octets)),
        None => last_word(bytes, at),
    }
}

#[cold]
fn last_word(bytes: &[u8], at: usize) -> Option<u64> {
    let missing = at + 8 - bytes.len();
    u64::from_le_bytes(*bytes.last_chunk()?).checked_shr(8 * missing as u32)
}

impl Line {
    /// Finds the line that starts at `start`, if it is complete and usual. Inlined: returning the result through
    /// memory, written by words and read in larger pieces, would cost more time than the search.
    #[inline]
    pub(super) fn quick(bytes: &[u8], start: usize, has_crlf: bool) -> Option<Line> {
        let (mut at, mut colon, mut colons, mut has_more_colons) = (start, None, COLONS, false);
        loop {
            at = next_notable(bytes, at, colons)?;
            let next = match bytes.get(at)? {
                b':' => {
                    if colon.is_some() {
                        has_more_colons = true;
                        colons = BACKSLASHES; // further colons do not matter
                    }
                    colon = colon.or(Some(at));
                    at += 1;
                    continue;
                }
                b'\n' => at + 1,
                b'\r' if has_crlf && bytes.get(at + 1) == Some(&b'\n') => at + 2,
                _ => return None,
            };
            return Some(Line { end: at, next, colon, has_more_colons, is_unusual: false });
        }
    }

    /// Examines the line from `start` to the LF at `line_feed`.
    pub(super) fn slow(bytes: &[u8], start: usize, line_feed: usize, has_crlf: bool) -> Line {
        let line = bytes.get(start..line_feed).unwrap_or_default();
        let line = if has_crlf { line.strip_suffix(b"\r").unwrap_or(line) } else { line };
        let colon = memchr(b':', line);
        let value = colon.and_then(|colon| line.get(colon + 1..)).unwrap_or_default();
        Line {
            end: start + line.len(),
            next: line_feed + 1,
            colon: colon.map(|colon| start + colon),
            has_more_colons: memchr(b':', value).is_some(),
            is_unusual: line.iter().any(|&byte| byte < b' ' || byte == b'\\' || byte >= 0x80),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Line;

    /// The results of both methods for a line that starts at offset 1.
    fn both(line: &[u8], has_crlf: bool) -> (Option<Line>, Line) {
        let bytes = [b"_", line, b"\n:\\\xFF\0rest of it"].concat();
        (Line::quick(&bytes, 1, has_crlf), Line::slow(&bytes, 1, line.len() + 1, has_crlf))
    }

    #[test]
    fn both_methods_agree_on_every_octet_at_every_place() {
        for length in 1..26 {
            for at in 0..length {
                for byte in (0..=255_u8).filter(|&byte| byte != b'\n') {
                    let mut line = vec![b'a'; length];
                    line[at] = byte;
                    for has_crlf in [false, true] {
                        let (quick, slow) = both(&line, has_crlf);
                        assert_eq!(slow.colon, (byte == b':').then_some(at + 1));
                        let is_end = has_crlf && byte == b'\r' && at + 1 == length;
                        let is_usual = matches!(byte, b' '..=0x7F) && byte != b'\\';
                        assert_eq!(slow.is_unusual, !is_usual && !is_end);
                        assert_eq!(slow.end, if is_end { length } else { length + 1 });
                        let expected = (is_usual || is_end).then_some(slow);
                        assert_eq!(quick, expected, "{byte} at {at} of {length}");
                    }
                }
            }
        }
    }

    #[test]
    fn both_methods_count_colons_next_to_their_ascii_neighbours() {
        for line in
            ["a:b:c", "::", ":;", ":;;;;;;;;;;", "a:9:", "a:\u{7f};:", "abcdefg:h", "abcdefg:h:", "a:]["]
        {
            let (quick, slow) = both(line.as_bytes(), false);
            assert_eq!(quick, Some(slow), "{line}");
            assert_eq!(slow.has_more_colons, line.matches(':').count() > 1, "{line}");
        }
    }

    #[test]
    fn the_quick_method_finds_only_complete_lines() {
        let whole = b"_______a:b\r\n";
        assert_eq!(Line::quick(whole, 7, true), Some(Line::slow(whole, 7, 11, true)));
        for begun in [&b""[..], b"a:b", b"a:b\0\n", b"0123456\r", b"0123456789abcde:", b"0123456789abcd:\r"] {
            assert_eq!(Line::quick(begun, 0, true), None, "{begun:?}");
        }
    }
}
