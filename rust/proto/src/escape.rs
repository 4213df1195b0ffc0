//! Header escapes (STOMP 1.2 and 1.1, "Value Encoding").
//!
//! Hot path: nothing is copied or allocated for a name or value without escapes, which is the usual case.

use std::borrow::Cow;

use memchr::{memchr, memchr2, memchr3};

use crate::Version;

/// The octet that a backslash and this letter stand for; `None` if the version does not define this escape.
fn meaning(letter: u8, version: Version) -> Option<u8> {
    match (letter, version) {
        (b'n', Version::V1_1 | Version::V1_2) => Some(b'\n'),
        (b'c', Version::V1_1 | Version::V1_2) => Some(b':'),
        (b'\\', Version::V1_1 | Version::V1_2) => Some(b'\\'),
        (b'r', Version::V1_2) => Some(b'\r'),
        _ => None,
    }
}

/// Unescapes a header's wire name or value.
///
/// A 1.0 name or value has no escapes and is returned unchanged. An escape that the version does not define is kept
/// unchanged; the decoder refuses those, by [`check`].
#[must_use]
pub fn unescape(raw: &[u8], version: Version) -> Cow<'_, [u8]> {
    if version == Version::V1_0 {
        return Cow::Borrowed(raw);
    }
    let Some(first) = memchr(b'\\', raw) else { return Cow::Borrowed(raw) };
    let (head, mut rest) = raw.split_at(first);
    let mut out = Vec::with_capacity(raw.len());
    out.extend_from_slice(head);
    while let Some((&byte, behind)) = rest.split_first() {
        let letter = if byte == b'\\' { behind.first() } else { None };
        if let Some(octet) = letter.and_then(|&letter| meaning(letter, version)) {
            out.push(octet);
            rest = behind.get(1..).unwrap_or_default();
        } else {
            out.push(byte);
            rest = behind;
        }
    }
    Cow::Owned(out)
}

/// Whether a wire name or value has only escapes that the version defines; always true in 1.0, which has none.
#[must_use]
pub fn check(raw: &[u8], version: Version) -> bool {
    if version == Version::V1_0 {
        return true;
    }
    let mut rest = raw;
    while let Some(at) = memchr(b'\\', rest) {
        match rest.get(at + 1) {
            Some(&letter) if meaning(letter, version).is_some() => {
                rest = rest.get(at + 2..).unwrap_or_default()
            }
            _ => return false,
        }
    }
    true
}

/// Appends a name or value, escaped for a receiver of this version.
///
/// 1.2 escapes CR, LF, colon and backslash; 1.1 all of these but CR, which is data there; 1.0 has no escapes: check
/// [`can_carry`] first.
pub fn escape_into(out: &mut Vec<u8>, value: &[u8], version: Version) {
    let mut rest = value;
    while let Some(at) = first_to_escape(rest, version) {
        let (clean, behind) = rest.split_at(at);
        let Some((&byte, behind)) = behind.split_first() else { break };
        out.extend_from_slice(clean);
        out.push(b'\\');
        out.push(match byte {
            b'\r' => b'r',
            b'\n' => b'n',
            b':' => b'c',
            other => other,
        });
        rest = behind;
    }
    out.extend_from_slice(rest);
}

/// Offset of the first octet that the version escapes.
fn first_to_escape(value: &[u8], version: Version) -> Option<usize> {
    match version {
        Version::V1_0 => None,
        Version::V1_1 => memchr3(b'\n', b':', b'\\', value),
        Version::V1_2 => {
            let found = memchr3(b'\n', b':', b'\\', value);
            let before = found.map_or(value, |at| value.get(..at).unwrap_or_default());
            memchr(b'\r', before).or(found)
        }
    }
}

/// Whether a header (unescaped name and value) can be represented in this version.
///
/// 1.0 has no escapes, so it allows no LF, and no colon in a name; nor does it allow an empty value (STOMP 1.0, "BNF").
/// No version allows an empty name. A header that cannot be represented is omitted (docs/behaviour.md, section 3).
#[must_use]
pub fn can_carry(name: &[u8], value: &[u8], version: Version) -> bool {
    if name.is_empty() {
        return false;
    }
    version != Version::V1_0
        || (!value.is_empty() && memchr(b'\n', value).is_none() && memchr2(b'\n', b':', name).is_none())
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::{can_carry, check, escape_into, unescape};
    use crate::Version::{V1_0, V1_1, V1_2};

    fn escaped(value: &[u8], version: crate::Version) -> Vec<u8> {
        let mut out = Vec::new();
        escape_into(&mut out, value, version);
        out
    }

    // docs/specification.md, items 35, 37
    #[test]
    fn each_version_decodes_its_own_escapes() {
        assert_eq!(&*unescape(br"a\nb\cc\\d\re", V1_2), b"a\nb:c\\d\re");
        assert_eq!(&*unescape(br"a\nb\cc\\d", V1_1), b"a\nb:c\\d");
        assert_eq!(&*unescape(br"a\nb\cc\\d", V1_0), br"a\nb\cc\\d");
        assert_eq!(&*unescape(br"\\n", V1_2), br"\n", "an escaped backslash starts no second escape");
    }

    #[test]
    fn a_value_without_backslash_is_not_copied() {
        assert!(matches!(unescape(b"/topic/a:b", V1_2), Cow::Borrowed(_)));
    }

    // docs/specification.md, item 36
    #[test]
    fn undefined_escapes_are_found() {
        assert!(check(br"a\r\n\c\\", V1_2));
        assert!(check(br"a\n\c\\", V1_1));
        assert!(!check(br"a\r", V1_1));
        assert!(!check(br"a\t", V1_2));
        assert!(!check(br"a\", V1_2));
        assert!(!check(br"\\\", V1_1));
        assert!(check(br"a\t\", V1_0));
        assert_eq!(&*unescape(br"a\t\", V1_2), br"a\t\", "kept unchanged");
    }

    // docs/specification.md, item 39
    #[test]
    fn output_is_escaped_for_the_receiver() {
        assert_eq!(escaped(b"a\r\nb:c\\d", V1_2), br"a\r\nb\cc\\d");
        assert_eq!(escaped(b"a\r\nb:c\\d", V1_1), b"a\r\\nb\\cc\\\\d");
        assert_eq!(escaped(b"a:c\\d", V1_0), b"a:c\\d");
        for version in [V1_1, V1_2] {
            let wire = escaped(b":\\\r\n::\r", version);
            assert!(check(&wire, version));
            assert_eq!(&*unescape(&wire, version), b":\\\r\n::\r");
        }
    }

    // docs/specification.md, item 42
    #[test]
    fn headers_that_1_0_cannot_carry_are_recognised() {
        assert!(can_carry(b"a", b"b:c", V1_0));
        assert!(!can_carry(b"a", b"b\nc", V1_0));
        assert!(!can_carry(b"a:b", b"c", V1_0));
        assert!(!can_carry(b"a\nb", b"c", V1_0));
        assert!(!can_carry(b"a", b"", V1_0));
        assert!(can_carry(b"a:\n", b"", V1_1));
        assert!(!can_carry(b"", b"b", V1_2));
    }
}
