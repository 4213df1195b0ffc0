//! The opening handshake of a WebSocket (RFC 6455, section 4.2).

use std::net::{IpAddr, Ipv6Addr};

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{GeneralPurpose, GeneralPurposeConfig};
use tungstenite::handshake::derive_accept_key;

use super::http::{Request, response};
use crate::Version;

/// The subprotocols of STOMP, in order of preference.
const SUBPROTOCOLS: [(&str, Version); 3] =
    [("v12.stomp", Version::V1_2), ("v11.stomp", Version::V1_1), ("v10.stomp", Version::V1_0)];

/// Decodes the key. The four unused trailing bits of 16 bytes in base64 have no meaning and are ignored.
const KEY_BASE64: GeneralPurpose =
    GeneralPurpose::new(&STANDARD, GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true));

/// A successful handshake: the bytes after the request's head are WebSocket frames.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upgrade {
    /// The complete 101 response.
    pub response: Vec<u8>,
    /// The subprotocol in the response; `None` if the client offered none of STOMP's.
    pub subprotocol: Option<Version>,
}

/// A refused handshake: the connection gets a response and is closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// 400, 403 (origin), 405 or 426 (WebSocket version).
    pub status: u16,
    /// One sentence for the body of the response and the log.
    pub reason: &'static str,
    /// Additional headers of the response.
    pub headers: &'static [(&'static str, &'static str)],
    /// The request was HEAD, so the response has no body.
    head_only: bool,
}

impl Refusal {
    const fn new(status: u16, reason: &'static str) -> Self {
        Refusal { status, reason, headers: &[], head_only: false }
    }

    /// The response to send before closing.
    #[must_use]
    pub fn response(&self) -> Vec<u8> {
        response(self.status, self.headers, format!("{}\n", self.reason).as_bytes(), self.head_only)
    }
}

/// Answers a client's handshake.
///
/// `origins` lists the pages that may connect: an origin (`https://example.org`, with the port if it is not the
/// scheme's default), a host name, or `*` for all. `None` allows pages from the host name in the request's `Host`, with
/// any port; all names of this machine (`localhost`, 127.0.0.0/8, `[::1]`) count as equal. Clients without an `Origin`
/// are not web pages and are always allowed. No extension is accepted.
///
/// # Errors
/// The first violated rule, in the order of RFC 6455, 4.2.1.
pub fn upgrade(request: &Request<'_>, origins: Option<&[String]>) -> Result<Upgrade, Refusal> {
    if request.method != "GET" {
        let (headers, head_only) = (&[("Allow", "GET")], request.method == "HEAD");
        return Err(Refusal { headers, head_only, ..Refusal::new(405, "a WebSocket must be opened by GET") });
    }
    if request.minor_version == 0 {
        return Err(Refusal::new(400, "a WebSocket must be opened with HTTP/1.1"));
    }
    let host = request.field("host").unwrap_or_default();
    if host_name(host).is_none() {
        return Err(Refusal::new(400, "Host is missing or malformed"));
    }
    if !request.wants_websocket() {
        let headers = &[("Upgrade", "websocket")];
        return Err(Refusal { headers, ..Refusal::new(426, "Upgrade: websocket is missing") });
    }
    if !request.has_token("connection", "upgrade") {
        return Err(Refusal::new(400, "Connection: Upgrade is missing"));
    }
    if request.fields("transfer-encoding").next().is_some()
        || request.fields("content-length").any(|length| length != b"0")
    {
        return Err(Refusal::new(400, "a WebSocket must be opened by a request without a body"));
    }
    let key = single(request, "sec-websocket-key").filter(|key| is_key(key));
    let Some(key) = key else {
        return Err(Refusal::new(400, "Sec-WebSocket-Key is not 16 bytes in base64"));
    };
    if single(request, "sec-websocket-version") != Some(b"13") {
        let headers = &[("Upgrade", "websocket"), ("Sec-WebSocket-Version", "13")];
        return Err(Refusal { headers, ..Refusal::new(426, "Sec-WebSocket-Version must be 13") });
    }
    if !origin_allowed(request, host, origins) {
        return Err(Refusal::new(403, "this Origin is not allowed (setting ws_origins)"));
    }
    Ok(accept(request, key))
}

/// Builds the 101 response (RFC 6455, 4.2.2).
fn accept(request: &Request<'_>, key: &[u8]) -> Upgrade {
    let offered = |name: &str| request.list("sec-websocket-protocol").any(|offer| offer == name.as_bytes());
    let chosen = SUBPROTOCOLS.into_iter().find(|(name, _)| offered(name));
    let mut response = String::from(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ",
    );
    response.push_str(&derive_accept_key(key));
    if let Some((name, _)) = chosen {
        response.push_str("\r\nSec-WebSocket-Protocol: ");
        response.push_str(name);
    }
    response.push_str("\r\n\r\n");
    Upgrade { response: response.into_bytes(), subprotocol: chosen.map(|(_, version)| version) }
}

/// The value of a field that must occur exactly once.
fn single<'a>(request: &Request<'a>, name: &str) -> Option<&'a [u8]> {
    let mut values = request.fields(name);
    let value = values.next()?.trim_ascii();
    values.next().is_none().then_some(value)
}

fn is_key(key: &[u8]) -> bool {
    let mut decoded = [0; 18];
    matches!(KEY_BASE64.decode_slice(key, &mut decoded), Ok(16))
}

fn origin_allowed(request: &Request<'_>, host: &str, origins: Option<&[String]>) -> bool {
    if request.fields("origin").next().is_none() {
        return true;
    }
    if origins.is_some_and(|allowed| allowed.iter().any(|entry| entry == "*")) {
        return true;
    }
    let Some(text) = single(request, "origin").and_then(|origin| std::str::from_utf8(origin).ok()) else {
        return false;
    };
    let origin = Origin::parse(text);
    match origins {
        None => match (origin, host_name(host)) {
            (Some(origin), Some(ours)) => same_host(origin.host, ours),
            _ => false,
        },
        Some(allowed) => allowed.iter().any(|entry| {
            entry.eq_ignore_ascii_case(text) || origin.as_ref().is_some_and(|origin| origin.matches(entry))
        }),
    }
}

/// A serialised origin (RFC 6454, 6.2): scheme, host and port; a missing port is the scheme's default.
struct Origin<'a> {
    scheme: &'a str,
    host: &'a str,
    port: Option<u16>,
}

impl<'a> Origin<'a> {
    /// `None` for `null` and anything else that does not have this form.
    fn parse(text: &'a str) -> Option<Self> {
        let (scheme, authority) = text.split_once("://")?;
        let (host, port) = split_authority(authority)?;
        let port = port.or(if scheme.eq_ignore_ascii_case("http") {
            Some(80)
        } else {
            scheme.eq_ignore_ascii_case("https").then_some(443)
        });
        Some(Origin { scheme, host, port })
    }

    /// Whether an entry of `ws_origins`, an origin or a host name, matches this origin.
    fn matches(&self, entry: &str) -> bool {
        if let Some(entry) = Origin::parse(entry) {
            return self.scheme.eq_ignore_ascii_case(entry.scheme)
                && same_name(self.host, entry.host)
                && self.port == entry.port;
        }
        split_authority(entry)
            .is_some_and(|(host, port)| same_name(self.host, host) && (port.is_none() || port == self.port))
    }
}

/// The host of a `Host` field.
fn host_name(host: &str) -> Option<&str> {
    split_authority(host.trim_ascii()).map(|(name, _)| name)
}

/// Splits `name`, `name:port`, `[v6]` or `[v6]:port`; removes the brackets.
fn split_authority(authority: &str) -> Option<(&str, Option<u16>)> {
    let (host, rest) = match authority.strip_prefix('[') {
        Some(bracketed) => bracketed.split_once(']').filter(|(host, _)| host.parse::<Ipv6Addr>().is_ok())?,
        None => authority.split_at(authority.find(':').unwrap_or(authority.len())),
    };
    let plain = !host.is_empty() && !host.contains(['/', '?', '#', '@', '\\', ' ', ',', '"', '<', '>']);
    let port = match rest.strip_prefix(':') {
        None if rest.is_empty() => None,
        Some("") => None,
        Some(digits) => Some(digits.parse().ok()?),
        None => return None,
    };
    plain.then_some((host, port))
}

/// Whether two names mean the same host: equal names, or both this machine.
fn same_host(one: &str, other: &str) -> bool {
    same_name(one, other) || (is_loopback(one) && is_loopback(other))
}

fn same_name(one: &str, other: &str) -> bool {
    match (one.parse::<IpAddr>(), other.parse::<IpAddr>()) {
        (Ok(one), Ok(other)) => one == other,
        _ => undotted(one).eq_ignore_ascii_case(undotted(other)),
    }
}

fn is_loopback(name: &str) -> bool {
    name.parse::<IpAddr>()
        .map_or_else(|_| undotted(name).eq_ignore_ascii_case("localhost"), |address| address.is_loopback())
}

/// A name without the trailing dot of an absolute name.
fn undotted(name: &str) -> &str {
    name.strip_suffix('.').unwrap_or(name)
}

#[cfg(test)]
#[path = "handshake_tests.rs"]
mod tests;
