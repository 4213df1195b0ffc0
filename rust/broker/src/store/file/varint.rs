//! Numbers of variable length: seven bits a byte, the lowest ones first; the highest bit says that more follow.

/// Appends a number, in one to ten bytes.
#[inline]
pub fn put(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Appends the difference from one number to the next one, either of which may be larger.
#[inline]
pub fn put_step(out: &mut Vec<u8>, from: u64, to: u64) {
    let step = to.wrapping_sub(from) as i64;
    put(out, ((step << 1) ^ (step >> 63)) as u64);
}

/// Bytes that are read from the front.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Reads these bytes.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Reader(bytes)
    }

    /// The next number; `None`: none is there, or it is larger than 64 bits.
    #[inline]
    pub fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for at in 0..10 {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7F) << (7 * at);
            if byte < 0x80 {
                return (at < 9 || byte < 2).then_some(number);
            }
        }
        None
    }

    /// The number behind the difference from `from` to it.
    #[inline]
    pub fn step(&mut self, from: u64) -> Option<u64> {
        let folded = self.number()?;
        let step = (folded >> 1) as i64 ^ -((folded & 1) as i64);
        Some(from.wrapping_add(step as u64))
    }

    /// The next byte.
    #[inline]
    pub fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    /// The next bytes, so many.
    #[inline]
    pub fn bytes(&mut self, count: u64) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(usize::try_from(count).ok()?)?;
        self.0 = rest;
        Some(bytes)
    }

    /// Bytes behind their number.
    #[inline]
    pub fn text(&mut self) -> Option<&'a [u8]> {
        let count = self.number()?;
        self.bytes(count)
    }

    /// What is left.
    #[must_use]
    pub fn rest(&self) -> &'a [u8] {
        self.0
    }
}

/// Appends bytes behind their number.
#[inline]
pub fn put_text(out: &mut Vec<u8>, text: &[u8]) {
    put(out, text.len() as u64);
    out.extend_from_slice(text);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn small_numbers_take_one_byte_and_the_largest_ten() {
        for (number, length) in [(0, 1), (127, 1), (128, 2), (16_383, 2), (16_384, 3), (u64::MAX, 10)] {
            let mut out = Vec::new();
            put(&mut out, number);
            assert_eq!((out.len(), Reader::new(&out).number()), (length, Some(number)));
        }
    }

    #[test]
    fn what_is_cut_off_or_larger_than_64_bits_is_no_number() {
        assert_eq!(Reader::new(&[]).number(), None);
        assert_eq!(Reader::new(&[0x80]).number(), None);
        assert_eq!(Reader::new(&[0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 2]).number(), None);
        assert_eq!(Reader::new(&[0x80; 11]).number(), None);
        assert_eq!(Reader::new(&[3, b'a']).text(), None);
    }

    proptest! {
        #[test]
        fn numbers_steps_and_texts_are_read_as_they_were_written(
            number: u64, from: u64, to: u64, text in proptest::collection::vec(any::<u8>(), 0..200),
        ) {
            let mut out = Vec::new();
            put(&mut out, number);
            put_step(&mut out, from, to);
            put_text(&mut out, &text);
            let mut reader = Reader::new(&out);
            prop_assert_eq!(reader.number(), Some(number));
            prop_assert_eq!(reader.step(from), Some(to));
            prop_assert_eq!(reader.text(), Some(&text[..]));
            prop_assert!(reader.rest().is_empty());
        }
    }
}
