//! Kinds of octets, eight at a time, so that the usual header line needs no second look.

/// Which kinds of octets some bytes hold.
#[derive(Clone, Copy, Default)]
pub(super) struct Kinds {
    special: u64,
    colon: u64,
    wide: u64,
}

const ONES: u64 = u64::MAX / 0xFF;
const HIGH_BITS: u64 = ONES * 0x80;

impl Kinds {
    #[inline]
    pub(super) fn of(bytes: &[u8]) -> Kinds {
        let mut kinds = Kinds::default();
        let mut words = bytes.chunks_exact(8);
        for word in &mut words {
            kinds = kinds.and(Kinds::of_word(word));
        }
        match bytes.last_chunk::<8>() {
            _ if words.remainder().is_empty() => kinds,
            // The last word may overlap the one before: seeing an octet twice changes nothing.
            Some(last) => kinds.and(Kinds::of_word(last)),
            None => bytes.iter().fold(kinds, |kinds, &byte| kinds.and(Kinds::of_word(&[byte]))),
        }
    }

    #[inline]
    fn of_word(bytes: &[u8]) -> Kinds {
        let word = match bytes.first_chunk::<8>() {
            Some(word) => u64::from_le_bytes(*word),
            None => ONES * u64::from(bytes.first().copied().unwrap_or(b' ')),
        };
        // The highest bit of some octet is set if and only if a zero octet (a small octet) is there.
        let has_zero = |word: u64| word.wrapping_sub(ONES) & !word & HIGH_BITS;
        let control = word.wrapping_sub(ONES * 0x20) & !word & HIGH_BITS;
        Kinds {
            special: control | has_zero(word ^ (ONES * u64::from(b'\\'))),
            colon: has_zero(word ^ (ONES * u64::from(b':'))),
            wide: word & HIGH_BITS,
        }
    }

    #[inline]
    pub(super) fn and(self, other: Kinds) -> Kinds {
        Kinds {
            special: self.special | other.special,
            colon: self.colon | other.colon,
            wide: self.wide | other.wide,
        }
    }

    /// A control character or a backslash.
    pub(super) fn is_special(self) -> bool {
        self.special != 0
    }

    pub(super) fn has_colon(self) -> bool {
        self.colon != 0
    }

    /// An octet beyond ASCII.
    pub(super) fn is_wide(self) -> bool {
        self.wide != 0
    }
}

#[cfg(test)]
mod tests {
    use super::Kinds;

    #[test]
    fn kinds_see_every_octet_at_every_place() {
        for length in 1..40 {
            for at in 0..length {
                for byte in 0..=255_u8 {
                    let mut bytes = vec![b'a'; length];
                    bytes[at] = byte;
                    let kinds = Kinds::of(&bytes);
                    assert_eq!(
                        kinds.is_special(),
                        byte < 0x20 || byte == b'\\',
                        "{byte} at {at} of {length}"
                    );
                    assert_eq!(kinds.has_colon(), byte == b':', "{byte} at {at} of {length}");
                    assert_eq!(kinds.is_wide(), byte >= 0x80, "{byte} at {at} of {length}");
                }
            }
        }
    }
}
