//! Detection of STOMP, HTTP and TLS by the first bytes of a connection: they share one port.

/// The protocol that the first bytes of a connection show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sniffed {
    /// Not decided yet: call again with these bytes followed by more.
    Incomplete,
    /// STOMP, or an unknown protocol, which the STOMP decoder reports as an error.
    Stomp,
    /// An HTTP request line.
    Http,
    /// A TLS record.
    Tls,
}

/// Leading line ends that are skipped. With more of them it is STOMP, the only one of these protocols in which they
/// have a meaning. This bounds the input that [`sniff`] leaves undecided.
const LEADING_EOLS_MAX: usize = 16;

/// Longest HTTP method that is recognised. The longest registered one has 17 letters.
const METHOD_LEN_MAX: usize = 20;

/// Type of a TLS record with a ClientHello (RFC 8446, 5.1), and the major version that follows it.
const TLS_HANDSHAKE: u8 = 0x16;
const TLS_MAJOR: u8 = 3;

/// Detects the peer's protocol by its first bytes; returns [`Sniffed::Incomplete`] for at most 52 bytes.
///
/// An upper-case token followed by a space is HTTP; STOMP's CONNECT is followed by a line end. Line ends may come
/// first: they are heart-beats in STOMP, and RFC 9112, 2.2 asks a server to ignore them.
#[must_use]
pub fn sniff(bytes: &[u8]) -> Sniffed {
    match bytes {
        [TLS_HANDSHAKE] => return Sniffed::Incomplete,
        [TLS_HANDSHAKE, TLS_MAJOR, ..] => return Sniffed::Tls,
        _ => {}
    }
    let mut rest = bytes;
    let mut eols = 0;
    loop {
        rest = match rest {
            [b'\n', tail @ ..] | [b'\r', b'\n', tail @ ..] => tail,
            [] | [b'\r'] => return Sniffed::Incomplete,
            _ => break,
        };
        eols += 1;
        if eols > LEADING_EOLS_MAX {
            return Sniffed::Stomp;
        }
    }
    let letters = rest.iter().take(METHOD_LEN_MAX + 1).take_while(|byte| byte.is_ascii_uppercase()).count();
    match rest.get(letters) {
        _ if letters > METHOD_LEN_MAX => Sniffed::Stomp,
        None => Sniffed::Incomplete,
        Some(b' ') if letters > 0 => Sniffed::Http,
        Some(_) => Sniffed::Stomp,
    }
}

#[cfg(test)]
mod tests {
    use super::{Sniffed, sniff};

    /// Sniffs the whole input, after checking that no prefix gives a different decision.
    fn sniff_bytewise(bytes: &[u8]) -> Sniffed {
        let whole = sniff(bytes);
        for end in 0..bytes.len() {
            let part = sniff(&bytes[..end]);
            assert!(
                part == Sniffed::Incomplete || part == whole,
                "{part:?} after {end} bytes, then {whole:?}"
            );
        }
        whole
    }

    #[test]
    fn stomp_commands_end_their_line() {
        for first in
            ["CONNECT\n", "CONNECT\r\n", "STOMP\n", "\n\r\nSTOMP\n", "connect\n", "\0", "{", "SEND:", "\rA"]
        {
            assert_eq!(sniff_bytewise(first.as_bytes()), Sniffed::Stomp, "{first:?}");
        }
    }

    #[test]
    fn http_methods_are_followed_by_a_space() {
        for first in
            ["GET /", "CONNECT host:1", "OPTIONS *", "\r\nGET /", "PRI * HTTP/2.0", "UPDATEREDIRECTREF /"]
        {
            assert_eq!(sniff_bytewise(first.as_bytes()), Sniffed::Http, "{first:?}");
        }
    }

    #[test]
    fn tls_starts_with_a_handshake_record() {
        assert_eq!(sniff_bytewise(b"\x16\x03\x01\x02"), Sniffed::Tls);
        assert_eq!(sniff_bytewise(b"\x16A"), Sniffed::Stomp);
    }

    #[test]
    fn a_prefix_is_undecided_up_to_a_bound() {
        for first in ["", "\n", "\r", "\n\r", "C", "CONNECT", "CONTINUATION"] {
            assert_eq!(sniff_bytewise(first.as_bytes()), Sniffed::Incomplete, "{first:?}");
        }
        assert_eq!(sniff_bytewise(&[b'A'; 21]), Sniffed::Stomp);
        assert_eq!(sniff_bytewise(&[b'\n'; 17]), Sniffed::Stomp);
        let mut longest = b"\r\n".repeat(16);
        longest.extend([b'A'; 20]);
        assert_eq!((longest.len(), sniff_bytewise(&longest)), (52, Sniffed::Incomplete));
    }
}
