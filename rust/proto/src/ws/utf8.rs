//! UTF-8 validation of a text message that arrives in pieces (RFC 6455, 8.1).

/// The bytes are not valid UTF-8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NotUtf8;

/// Validates a stream of UTF-8; fails at the first byte that cannot become valid.
#[derive(Debug, Default)]
pub(super) struct Utf8Stream {
    /// The start of an incomplete character.
    pending: [u8; 3],
    pending_len: u8,
}

impl Utf8Stream {
    /// Validates the next piece.
    pub(super) fn push(&mut self, mut bytes: &[u8]) -> Result<(), NotUtf8> {
        while self.pending_len > 0 {
            let Some((&byte, rest)) = bytes.split_first() else { return Ok(()) };
            self.push_pending(byte)?;
            bytes = rest;
        }
        let (body, tail) = bytes.split_at(bytes.len() - unfinished(bytes));
        simdutf8::basic::from_utf8(body).map_err(|_| NotUtf8)?;
        tail.iter().try_for_each(|&byte| self.push_pending(byte))
    }

    /// Ends a message; fails if it ends within a character. The next message may follow.
    pub(super) fn finish(&mut self) -> Result<(), NotUtf8> {
        if std::mem::take(&mut self.pending_len) == 0 { Ok(()) } else { Err(NotUtf8) }
    }

    /// Adds one byte to the incomplete character.
    fn push_pending(&mut self, byte: u8) -> Result<(), NotUtf8> {
        let [a, b, c] = self.pending;
        let character = match self.pending_len {
            0 => &[byte][..],
            1 => &[a, byte],
            2 => &[a, b, byte],
            _ => &[a, b, c, byte],
        };
        match std::str::from_utf8(character) {
            Ok(_) => self.pending_len = 0,
            Err(error) if error.error_len().is_some() => return Err(NotUtf8),
            Err(_) => {
                // Four bytes are always a character or an error, so there are fewer than four.
                self.pending_len = character.len() as u8;
                if let Some(slot) = self.pending.get_mut(character.len() - 1) {
                    *slot = byte;
                }
            }
        }
        Ok(())
    }
}

/// Number of bytes at the end that are the start of an incomplete character.
fn unfinished(bytes: &[u8]) -> usize {
    for (behind, &byte) in bytes.iter().rev().take(3).enumerate() {
        let wanted = match byte {
            0x80..=0xbf => continue,
            0xc0..=0xdf => 2,
            0xe0..=0xef => 3,
            0xf0..=0xff => 4,
            _ => 1,
        };
        return if wanted > behind + 1 { behind + 1 } else { 0 };
    }
    0
}

#[cfg(test)]
mod tests {
    use super::{NotUtf8, Utf8Stream};

    fn check(pieces: &[&[u8]]) -> Result<(), NotUtf8> {
        let mut stream = Utf8Stream::default();
        pieces.iter().try_for_each(|piece| stream.push(piece))?;
        stream.finish()
    }

    #[test]
    fn agrees_with_the_standard_library_at_every_split() {
        let samples: [&[u8]; 14] = [
            "κόσμε".as_bytes(),
            "a\u{7f}\u{80}\u{7ff}\u{800}\u{ffff}\u{10000}\u{10ffff}".as_bytes(),
            b"",
            b"\x80",
            b"ab\xc0\x80",
            b"\xe0\x80\x80",
            b"\xed\xa0\x80",
            b"\xf4\x90\x80\x80",
            b"\xf5\x80\x80\x80",
            b"\xc3",
            b"\xe2\x82",
            b"\xf0\x9f\x98",
            b"\xce\xba\xff",
            b"\xe2\x82\xac\x80",
        ];
        for sample in samples {
            let expected = std::str::from_utf8(sample).map(drop).map_err(|_| NotUtf8);
            for first in 0..=sample.len() {
                for second in first..=sample.len() {
                    let pieces = [&sample[..first], &sample[first..second], &sample[second..]];
                    assert_eq!(check(&pieces), expected, "{pieces:x?}");
                }
            }
        }
    }

    #[test]
    fn fails_at_the_first_byte_that_cannot_become_valid() {
        let doomed: [&[u8]; 6] =
            [b"\xf4\x90", b"\xed\xa0", b"\xe0\x9f", b"\xf0\x8f", b"\xc1", b"\xce\xba\xf8"];
        for bytes in doomed {
            assert_eq!(Utf8Stream::default().push(bytes), Err(NotUtf8), "{bytes:x?}");
            let mut bytewise = Utf8Stream::default();
            let (last, before) = bytes.split_last().expect("no sample is empty");
            for byte in before {
                assert_eq!(bytewise.push(&[*byte]), Ok(()));
            }
            assert_eq!(bytewise.push(&[*last]), Err(NotUtf8), "{bytes:x?}");
        }
    }
}
