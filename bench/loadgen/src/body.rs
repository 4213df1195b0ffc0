//! Message bodies: a tag that names the publisher, a sequence number of eight digits, then a fixed fill.

/// Digits of a sequence number. It counts from 0 over the life of a publisher.
pub const DIGITS: usize = 8;

/// Octets of the longest tag: it is compared as one machine word.
pub const TAG_MAX: usize = 8;

/// Shape of the bodies of one publisher.
#[derive(Debug, Clone)]
pub struct Body {
    /// Tag of the publisher in the low octets, in memory order.
    tag: u64,
    tag_mask: u64,
    tag_len: usize,
    /// The whole body, with sequence number 0.
    template: Vec<u8>,
}

impl Body {
    /// A body of `size` octets; `size` includes tag and number.
    pub fn new(tag: &str, size: usize) -> Body {
        assert!((1..=TAG_MAX).contains(&tag.len()), "a tag has 1 to {TAG_MAX} octets");
        let mut template = tag.as_bytes().to_vec();
        template.extend_from_slice(&digits(0));
        let fill = (template.len()..size).map(|at| b'a' + u8::try_from(at % 26).expect("under 26"));
        template.extend(fill.collect::<Vec<u8>>());
        let mut word = [0; 8];
        word[..tag.len()].copy_from_slice(tag.as_bytes());
        let tag_mask = if tag.len() == 8 { u64::MAX } else { (1 << (8 * tag.len())) - 1 };
        Body { tag: u64::from_le_bytes(word), tag_mask, tag_len: tag.len(), template }
    }

    /// Octets of the body.
    pub fn size(&self) -> usize {
        self.template.len()
    }

    /// Octet at which the sequence number begins.
    pub fn sequence_at(&self) -> usize {
        self.tag_len
    }

    /// Octets of tag and sequence number, which `sequence` needs.
    pub fn prefix(&self) -> usize {
        self.tag_len + DIGITS
    }

    /// The body with sequence number 0.
    pub fn template(&self) -> &[u8] {
        &self.template
    }

    /// The body with this sequence number.
    pub fn numbered(&self, sequence: u64) -> Vec<u8> {
        let mut body = self.template.clone();
        body[self.tag_len..self.prefix()].copy_from_slice(&digits(sequence));
        body
    }

    /// Sequence number of a body, from at least its first `prefix()` octets. `None` if the body is another publisher's.
    #[inline]
    pub fn sequence(&self, body: &[u8]) -> Option<u64> {
        let word = u64::from_le_bytes(body.get(..8)?.try_into().ok()?);
        if word & self.tag_mask != self.tag {
            return None;
        }
        number(body.get(self.tag_len..self.tag_len + DIGITS)?.try_into().ok()?)
    }

    /// Whether `part`, found at octet `at` of a body, is as it was sent. Ignores tag and number.
    pub fn fill_is_intact(&self, at: usize, part: &[u8]) -> bool {
        let skipped = self.prefix().saturating_sub(at).min(part.len());
        let at = at + skipped;
        self.template.get(at..at + part.len() - skipped) == Some(&part[skipped..])
    }
}

/// The eight digits of `sequence`.
pub fn digits(sequence: u64) -> [u8; DIGITS] {
    let mut text = [b'0'; DIGITS];
    let mut rest = sequence;
    for digit in text.iter_mut().rev() {
        *digit = b'0' + u8::try_from(rest % 10).expect("a digit");
        rest /= 10;
    }
    text
}

/// Adds one to a number of eight digits.
#[inline]
pub fn increment(text: &mut [u8; DIGITS]) {
    for digit in text.iter_mut().rev() {
        if *digit < b'9' {
            *digit += 1;
            return;
        }
        *digit = b'0';
    }
}

/// Reads eight digits at once. `None` if an octet is not a digit.
#[inline]
pub fn number(text: [u8; DIGITS]) -> Option<u64> {
    let word = u64::from_le_bytes(text);
    let low = word ^ 0x3030_3030_3030_3030;
    // A digit leaves 0..=9; adding 0x76 carries into the top bit from 10 on.
    if (low | low.wrapping_add(0x7676_7676_7676_7676)) & 0x8080_8080_8080_8080 != 0 {
        return None;
    }
    let pairs = low.wrapping_mul(10).wrapping_add(low >> 8) & 0x00ff_00ff_00ff_00ff;
    let fours = pairs.wrapping_mul(100).wrapping_add(pairs >> 16) & 0x0000_ffff_0000_ffff;
    Some(fours.wrapping_mul(10_000).wrapping_add(fours >> 32) & 0xffff_ffff)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_read_back() {
        for sequence in [0, 1, 9, 10, 12_345_678, 99_999_999, 90_000_001] {
            assert_eq!(number(digits(sequence)), Some(sequence));
        }
        let mut text = digits(0);
        for sequence in 1..12_000 {
            increment(&mut text);
            assert_eq!(number(text), Some(sequence));
        }
    }

    #[test]
    fn non_digits_are_refused() {
        for octet in (0..=255_u8).filter(|octet| !octet.is_ascii_digit()) {
            for at in 0..DIGITS {
                let mut text = digits(12_345_678);
                text[at] = octet;
                assert_eq!(number(text), None, "octet {octet} at {at}");
            }
        }
    }

    #[test]
    fn a_body_knows_its_publisher_and_its_fill() {
        let body = Body::new("pub-0003", 117);
        assert_eq!(body.size(), 117);
        assert_eq!(body.sequence(body.template()), Some(0));
        assert_eq!(Body::new("pub-0004", 117).sequence(body.template()), None);
        assert!(body.fill_is_intact(0, body.template()));
        assert!(body.fill_is_intact(50, &body.template()[50..60]));
        let mut altered = body.template().to_vec();
        altered[100] ^= 1;
        assert!(!body.fill_is_intact(0, &altered));
        assert_eq!(Body::new("hello ", 14).template(), b"hello 00000000");
    }
}
