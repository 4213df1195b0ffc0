//! HTTP request heads and responses (RFC 9112), as far as the broker's port needs them: there is one request for each
//! connection, and request bodies are not read.

use std::io::Write;

use smallvec::SmallVec;

use crate::Limits;

/// Maximum number of header fields of one request.
const FIELDS_MAX: usize = 100;

/// Number of fields that a request stores without an allocation; browsers send about 15.
const FIELDS_INLINE: usize = 16;

/// A refused request: the status of the response, after which the connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// 400, 414, 431 or 505.
    pub code: u16,
    /// One sentence for the body of the response.
    pub detail: &'static str,
}

impl Status {
    const fn new(code: u16, detail: &'static str) -> Self {
        Status { code, detail }
    }

    /// The response with this status.
    #[must_use]
    pub fn response(&self) -> Vec<u8> {
        response(self.code, &[], format!("{}\n", self.detail).as_bytes(), false)
    }
}

/// The head of a request, borrowed from the input.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// The method as sent; methods are case-sensitive.
    pub method: &'a str,
    /// The target up to its `?`, without scheme and authority; not percent-decoded.
    pub path: &'a str,
    /// The part of the target after the `?`.
    pub query: Option<&'a str>,
    /// The `x` of `HTTP/1.x`: 0 or 1.
    pub minor_version: u8,
    fields: SmallVec<[httparse::Header<'a>; FIELDS_INLINE]>,
}

impl<'a> Request<'a> {
    /// The values of all fields with this name, in order. Names are case-insensitive.
    pub fn fields<'n>(&self, name: &'n str) -> impl Iterator<Item = &'a [u8]> + use<'a, 'n, '_> {
        self.fields.iter().filter(move |field| field.name.eq_ignore_ascii_case(name)).map(|field| field.value)
    }

    /// The value of the first field with this name, if it is text.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&'a str> {
        self.fields(name).next().and_then(|value| std::str::from_utf8(value).ok())
    }

    /// The elements of a comma-separated list, over all fields with this name (RFC 9110, 5.6.1).
    pub fn list<'n>(&self, name: &'n str) -> impl Iterator<Item = &'a [u8]> + use<'a, 'n, '_> {
        let elements = self.fields(name).flat_map(|value| value.split(|&byte| byte == b','));
        elements.map(<[u8]>::trim_ascii).filter(|element| !element.is_empty())
    }

    /// Whether a list contains this token; tokens are case-insensitive.
    #[must_use]
    pub fn has_token(&self, name: &str, token: &str) -> bool {
        self.list(name).any(|element| element.eq_ignore_ascii_case(token.as_bytes()))
    }

    /// Whether the client requests a WebSocket; pass the request to [`super::upgrade`] then.
    #[must_use]
    pub fn wants_websocket(&self) -> bool {
        self.has_token("upgrade", "websocket")
    }
}

/// Parses the request head at the start of `input`; returns it with its length.
///
/// `None`: it is incomplete; call again with more input appended. Empty lines before it are skipped.
///
/// # Errors
/// 400 for input that is not HTTP, or HTTP/1.1 without exactly one `Host`; 414 and 431 beyond the limits; 505 for
/// versions other than 1.0 and 1.1.
pub fn parse_request<'a>(input: &'a [u8], limits: &Limits) -> Result<Option<(Request<'a>, usize)>, Status> {
    let bounded = &input[..input.len().min(limits.http_head_bytes_max)];
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut parsed = httparse::Request::new(&mut fields);
    let len = match parsed.parse(bounded) {
        Ok(httparse::Status::Complete(len)) => len,
        Ok(httparse::Status::Partial) if input.len() <= limits.http_head_bytes_max => return Ok(None),
        Ok(httparse::Status::Partial) => return Err(too_long(bounded)),
        Err(error) => return Err(malformed(error, bounded)),
    };
    let (Some(method), Some(target), Some(minor_version)) = (parsed.method, parsed.path, parsed.version)
    else {
        return Err(Status::new(400, "malformed request line"));
    };
    let target = origin_form(target);
    let (path, query) = target.split_once('?').map_or((target, None), |(path, query)| (path, Some(query)));
    let path = if path.is_empty() { "/" } else { path };
    let fields = SmallVec::from_slice(parsed.headers);
    let request = Request { method, path, query, minor_version, fields };
    let hosts = request.fields("host").count();
    if hosts > 1 || (hosts == 0 && minor_version == 1) {
        return Err(Status::new(400, "a request must have exactly one Host header"));
    }
    Ok(Some((request, len)))
}

/// The path of a target that may be absolute (RFC 9112, 3.2.2).
fn origin_form(target: &str) -> &str {
    let Some((_, behind)) = target.split_once("://").filter(|_| !target.starts_with('/')) else {
        return target;
    };
    behind.find(['/', '?']).map_or("/", |at| &behind[at..])
}

#[cold]
fn too_long(head: &[u8]) -> Status {
    if head.trim_ascii_start().contains(&b'\n') {
        Status::new(431, "request head too long")
    } else {
        Status::new(414, "request target too long")
    }
}

#[cold]
fn malformed(error: httparse::Error, head: &[u8]) -> Status {
    match error {
        httparse::Error::Version if names_http_version(head) => {
            Status::new(505, "HTTP version not supported, use HTTP/1.1")
        }
        httparse::Error::TooManyHeaders => Status::new(431, "too many header fields"),
        httparse::Error::HeaderName | httparse::Error::HeaderValue => {
            Status::new(400, "malformed header field")
        }
        _ => Status::new(400, "malformed request"),
    }
}

/// Whether the request line ends with an HTTP version, which is then an unsupported one.
fn names_http_version(head: &[u8]) -> bool {
    let line = head.trim_ascii_start().split(|&byte| byte == b'\n').next().unwrap_or_default();
    let last = line.trim_ascii_end().rsplit(|&byte| byte == b' ').next().unwrap_or_default();
    // The parser refuses another version at its first digit: what follows may not have arrived.
    matches!(last.strip_prefix(b"HTTP/"), Some([b'0' | b'2'..=b'9', ..] | [b'1'] | [b'1', b'.', b'0'..=b'9']))
}

/// Builds a response with `Connection: close` (plus `upgrade` if the headers have an `Upgrade`), `Content-Length` and,
/// unless the headers have one, `Content-Type: text/plain; charset=utf-8`.
///
/// `head_only` omits the body but keeps its length, as required in the answer to HEAD (RFC 9110, 9.3.2). The headers
/// come from the server and are not checked for line ends.
#[must_use]
pub fn response(status: u16, headers: &[(&str, &str)], body: &[u8], head_only: bool) -> Vec<u8> {
    let has = |wanted: &str| headers.iter().any(|(name, _)| name.eq_ignore_ascii_case(wanted));
    let mut out = Vec::with_capacity(192 + body.len());
    let connection = if has("upgrade") { "close, upgrade" } else { "close" };
    let length = body.len();
    let _ = write!(
        out,
        "HTTP/1.1 {status} {}\r\nConnection: {connection}\r\nContent-Length: {length}\r\n",
        reason(status)
    );
    if !has("content-type") {
        out.extend_from_slice(b"Content-Type: text/plain; charset=utf-8\r\n");
    }
    for (name, value) in headers {
        let _ = write!(out, "{name}: {value}\r\n");
    }
    out.extend_from_slice(b"\r\n");
    if !head_only {
        out.extend_from_slice(body);
    }
    out
}

/// The reason phrase of a status (RFC 9110, section 15; RFC 6585 for 431).
#[must_use]
pub fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        413 => "Content Too Large",
        414 => "URI Too Long",
        426 => "Upgrade Required",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        503 => "Service Unavailable",
        505 => "HTTP Version Not Supported",
        _ => "Unknown",
    }
}

#[cfg(test)]
mod tests {
    use super::{Status, parse_request, response};
    use crate::Limits;

    fn refusal(head: &str) -> u16 {
        parse_request(head.as_bytes(), &Limits::default()).expect_err("refused").code
    }

    #[test]
    fn parts_of_a_request() {
        let input = b"\r\nGET /ws?a=b HTTP/1.1\r\nhOST: x\r\nConnection: keep-alive,  Upgrade\r\nconnection: z\r\n\r\nrest";
        let parsed = parse_request(input, &Limits::default());
        let (request, len) = parsed.expect("valid").expect("complete");
        assert_eq!((request.method, request.path, request.query), ("GET", "/ws", Some("a=b")));
        assert_eq!((request.minor_version, &input[len..]), (1, &b"rest"[..]));
        assert_eq!(request.field("Host"), Some("x"));
        assert!(request.has_token("CONNECTION", "upgrade") && request.has_token("connection", "Z"));
        assert!(!request.has_token("connection", "keep") && !request.wants_websocket());
        assert_eq!(request.list("connection").count(), 3);
        for end in 0..len {
            assert!(matches!(parse_request(&input[..end], &Limits::default()), Ok(None)), "{end} bytes");
        }
    }

    #[test]
    fn the_path_of_an_absolute_target_is_found() {
        for (target, path) in
            [("http://x:1/a?q", "/a"), ("http://x", "/"), ("http://x?q", "/"), ("*", "*"), ("/://a", "/://a")]
        {
            let head = format!("GET {target} HTTP/1.0\r\n\r\n");
            let (request, _) =
                parse_request(head.as_bytes(), &Limits::default()).expect("valid").expect("whole");
            assert_eq!(request.path, path, "{target}");
        }
    }

    #[test]
    fn invalid_requests_are_refused() {
        assert_eq!(refusal("GET / HTTP/2.0\r\n\r\n"), 505);
        assert_eq!(refusal("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), 505);
        assert_eq!(refusal("GET / HTTP/1.9\r\nHost: x\r\n\r\n"), 505);
        assert_eq!(refusal("GET / HTTP/2"), 505, "in any pieces");
        assert_eq!(refusal("GET / HTTP/2."), 505);
        assert_eq!(refusal("GET / FTP/1.1\r\n\r\n"), 400);
        assert_eq!(refusal("GET /\r\n\r\n"), 400);
        assert_eq!(refusal("GET / HTTP/1.1\r\n\r\n"), 400);
        assert_eq!(refusal("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"), 400);
        assert_eq!(refusal("GET / HTTP/1.1\r\nHost : a\r\n\r\n"), 400);
        assert_eq!(refusal("GET / HTTP/1.1\r\nHost: a\r\n folded\r\n\r\n"), 400);
        assert_eq!(refusal(&format!("GET / HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(101))), 431);
    }

    #[test]
    fn the_length_of_a_head_is_limited() {
        let limits = Limits { http_head_bytes_max: 64, ..Limits::default() };
        let fits = format!("GET / HTTP/1.0\r\nA: {}\r\n\r\n", "b".repeat(41));
        assert_eq!(fits.len(), 64);
        assert!(matches!(parse_request(format!("{fits}body").as_bytes(), &limits), Ok(Some((_, 64)))));
        let long = format!("GET / HTTP/1.0\r\nA: {}\r\n\r\n", "b".repeat(42));
        assert!(matches!(parse_request(&long.as_bytes()[..64], &limits), Ok(None)));
        assert!(matches!(parse_request(long.as_bytes(), &limits), Err(Status { code: 431, .. })));
        let target = format!("\r\nGET /{}", "a".repeat(64));
        assert!(matches!(parse_request(target.as_bytes(), &limits), Err(Status { code: 414, .. })));
    }

    #[test]
    fn responses() {
        let plain = String::from_utf8(response(200, &[], b"ok\n", false)).expect("text");
        assert_eq!(
            plain,
            "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 3\r\n\
             Content-Type: text/plain; charset=utf-8\r\n\r\nok\n"
        );
        let head =
            String::from_utf8(response(200, &[("content-type", "text/html")], b"<p>", true)).expect("text");
        assert_eq!(
            head,
            "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 3\r\ncontent-type: text/html\r\n\r\n"
        );
        let upgrade = response(426, &[("Upgrade", "websocket")], b"", false);
        assert!(upgrade.starts_with(b"HTTP/1.1 426 Upgrade Required\r\nConnection: close, upgrade\r\n"));
    }
}
