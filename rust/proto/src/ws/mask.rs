//! Masking of client payloads (RFC 6455, 5.3).

/// Unmasks `bytes` in place, eight at a time.
///
/// Returns the key, rotated for the byte that follows, so that a payload may arrive in pieces.
pub(super) fn unmask(bytes: &mut [u8], key: [u8; 4]) -> [u8; 4] {
    let [a, b, c, d] = key;
    let wide = u64::from_ne_bytes([a, b, c, d, a, b, c, d]);
    let (words, tail) = bytes.as_chunks_mut::<8>();
    for word in words {
        *word = (u64::from_ne_bytes(*word) ^ wide).to_ne_bytes();
    }
    for (byte, key) in tail.iter_mut().zip(wide.to_ne_bytes()) {
        *byte ^= key;
    }
    let mut next = key;
    next.rotate_left(tail.len() % 4);
    next
}

#[cfg(test)]
mod tests {
    use super::unmask;

    #[test]
    fn agrees_with_the_definition_at_every_length_and_split() {
        let key = [0x37, 0xfa, 0x21, 0x3d];
        for len in 0..40_usize {
            let plain: Vec<u8> = (0..len as u8).collect();
            let masked: Vec<u8> =
                plain.iter().zip(key.iter().cycle()).map(|(byte, key)| byte ^ key).collect();
            for cut in 0..=len {
                let mut bytes = masked.clone();
                let next = unmask(&mut bytes[..cut], key);
                unmask(&mut bytes[cut..], next);
                assert_eq!(bytes, plain, "{len} bytes cut at {cut}");
            }
        }
    }
}
