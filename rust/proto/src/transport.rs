//! Telling STOMP, HTTP and TLS apart by the first bytes of a connection: all of them come in on one port.

/// What the first bytes of a connection are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sniffed {
    /// Not decided yet: call again with these bytes and more behind them.
    Incomplete,
    /// A STOMP frame, or something else that the STOMP decoder reports as an error.
    Stomp,
    /// The request line of HTTP.
    Http,
    /// A TLS record.
    Tls,
}

/// Line ends before the first frame that are looked past; with more of them it is STOMP, the only protocol here in
/// which they mean something. Bounds how much [`sniff`] leaves undecided.
const LEADING_EOLS_MAX: usize = 16;

/// Longest method of HTTP that is recognised. The longest registered one has 17 letters.
const METHOD_LEN_MAX: usize = 20;

/// Type of a TLS record that carries a ClientHello (RFC 8446, 5.1), and the major version behind it.
const TLS_HANDSHAKE: u8 = 0x16;
const TLS_MAJOR: u8 = 3;

/// Decides by the first bytes which protocol the peer speaks; [`Sniffed::Incomplete`] for at most 52 bytes.
///
/// An upper-case token followed by a space is HTTP. STOMP's CONNECT ends its line and HTTP's does not. Line ends may
/// come first: heart-beats in STOMP, and RFC 9112, 2.2 asks a server to ignore them.
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

    /// The answer to the whole input, after checking that no shorter one was decided differently.
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
    fn a_beginning_stays_undecided_but_not_for_long() {
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
