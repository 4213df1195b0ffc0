//! One header line: where it ends, where its colon is, whether it needs a closer look.
//!
//! Hot path: [`Line::quick`] goes eight octets at a time, through each line once. It knows the usual line; everything
//! else is left to [`Line::slow`], which tells the same.

use memchr::memchr;

/// A header line as found. Offsets count from the frame's first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Line {
    /// Behind its last byte, without the line end.
    pub end: usize,
    /// Behind its line end.
    pub next: usize,
    /// The first colon; `None`: there is none.
    pub colon: Option<usize>,
    pub has_more_colons: bool,
    /// A control character, a backslash or an octet beyond ASCII is in it.
    pub is_unusual: bool,
}

const ONES: u64 = u64::MAX / 0xFF;
const LOW_BITS: u64 = ONES * 0x7F;
const HIGH_BITS: u64 = ONES * 0x80;

/// The octets of a word that are zero: exact, by the highest bit of each.
#[inline]
fn zeros(word: u64) -> u64 {
    !(((word & LOW_BITS) + LOW_BITS) | word | LOW_BITS)
}

/// Index of the lowest octet that is marked.
#[inline]
fn lowest(marks: u64) -> usize {
    (marks.trailing_zeros() / 8) as usize
}

impl Line {
    /// Finds the line that starts at `start`, if its first control character is its line end and it does not touch the
    /// last octets of the input.
    #[inline]
    pub(super) fn quick(bytes: &[u8], start: usize, has_crlf: bool) -> Option<Line> {
        let (mut at, mut colon, mut more_colons, mut unusual) = (start, None, 0, 0);
        loop {
            let word = u64::from_le_bytes(*bytes.get(at..)?.first_chunk::<8>()?);
            let backslashes = zeros(word ^ (ONES * u64::from(b'\\')));
            // Borrows make the marks above the lowest one wrong, which alone is used.
            let controls = word.wrapping_sub(ONES * 0x20) & !word & HIGH_BITS;
            let mut colons = zeros(word ^ (ONES * u64::from(b':')));
            let before_end = (controls & controls.wrapping_neg()).wrapping_sub(1);
            colons &= before_end;
            if colons != 0 && colon.is_none() {
                colon = Some(at + lowest(colons));
                colons &= colons - 1;
            }
            more_colons |= colons;
            unusual |= (backslashes | word & HIGH_BITS) & before_end;
            if controls != 0 {
                let end = at + lowest(controls);
                let next = match bytes.get(end)? {
                    b'\n' => end + 1,
                    b'\r' if has_crlf && bytes.get(end + 1) == Some(&b'\n') => end + 2,
                    _ => return None,
                };
                return Some(Line {
                    end,
                    next,
                    colon,
                    has_more_colons: more_colons != 0,
                    is_unusual: unusual != 0,
                });
            }
            at += 8;
        }
    }

    /// Describes the line from `start` to the LF at `line_feed`.
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

    /// What both ways make of a line that starts at 1.
    fn both(line: &[u8], has_crlf: bool) -> (Option<Line>, Line) {
        let bytes = [b"_", line, b"\n:\\\xFF\0rest of it"].concat();
        (Line::quick(&bytes, 1, has_crlf), Line::slow(&bytes, 1, line.len() + 1, has_crlf))
    }

    #[test]
    fn both_ways_see_every_octet_at_every_place() {
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
                        let expected = (byte >= b' ' || is_end).then_some(slow);
                        assert_eq!(quick, expected, "{byte} at {at} of {length}");
                    }
                }
            }
        }
    }

    #[test]
    fn both_ways_count_colons_beside_their_neighbours_in_ascii() {
        for line in
            ["a:b:c", "::", ":;", ":;;;;;;;;;;", "a:9:", "a:\u{7f};:", "abcdefg:h", "abcdefg:h:", "a:]\\["]
        {
            let (quick, slow) = both(line.as_bytes(), false);
            assert_eq!(quick, Some(slow), "{line}");
            assert_eq!(slow.has_more_colons, line.matches(':').count() > 1, "{line}");
        }
    }

    #[test]
    fn the_quick_way_leaves_the_end_of_the_input() {
        assert_eq!(Line::quick(b"a:b\n\n\0", 0, true), None);
        assert_eq!(Line::quick(b"", 0, true), None);
        assert_eq!(Line::quick(b"0123456\r", 0, true), None);
    }
}
