//! Server frames to bytes.
//!
//! A MESSAGE is written in two parts: a *prefix* that a group of subscriptions shares over time
//! (`MESSAGE`, `subscription`) and a *tail* that all groups of one version share for one message.
//! Hot path: appends to the caller's buffer, copies each byte once, allocates nothing itself.

use crate::error::ProtocolError;
use crate::escape::{can_carry, escape_into, unescape};
use crate::{Command, Version};

/// One message on its way to its subscribers, in the form every version is encoded from.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// The SEND's destination, unescaped.
    pub destination: &'a [u8],
    /// The `message-id`: ASCII without anything to escape.
    pub id: &'a [u8],
    /// Who sent it, by a number of the broker's own; not written.
    pub sender: u64,
    /// The sender's own header lines, each escaped as in 1.2 and ended by LF, in the sender's order.
    pub headers: &'a [u8],
    /// `destination` and `headers` hold nothing that any version would write in another way.
    pub plain: bool,
    /// The body.
    pub body: &'a [u8],
}

/// Appends `number` in decimal.
pub fn decimal(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// Appends `name:value` and LF, escaped for `version`; `value` is unescaped.
pub fn header(out: &mut Vec<u8>, name: &[u8], value: &[u8], version: Version) {
    out.extend_from_slice(name);
    out.push(b':');
    escape_into(out, value, version);
    out.push(b'\n');
}

/// Appends the start of every MESSAGE to one subscription; 1.0 subscriptions without id have no `subscription` header.
pub fn message_prefix(out: &mut Vec<u8>, subscription: Option<&[u8]>, version: Version) {
    out.extend_from_slice(b"MESSAGE\n");
    if let Some(id) = subscription {
        header(out, b"subscription", id, version);
    }
}

/// Appends MESSAGE's `ack` header of 1.2: the two numbers by which an ACK names the delivery.
pub fn ack_id(out: &mut Vec<u8>, [subscription, number]: [u64; 2]) {
    out.extend_from_slice(b"ack:");
    decimal(out, subscription);
    out.push(b'-');
    decimal(out, number);
    out.push(b'\n');
}

/// Appends everything of a MESSAGE that follows the prefix: head, body and NUL. Returns how many of the sender's headers
/// `version` cannot carry and were left out.
pub fn message_suffix(out: &mut Vec<u8>, message: &Message<'_>, version: Version) -> usize {
    let left_out = message_head(out, message, version);
    out.extend_from_slice(message.body);
    out.push(0);
    left_out
}

/// Appends the rest of a MESSAGE's head, up to and including the blank line. Returns how many of the sender's headers
/// `version` cannot carry and were left out.
pub fn message_head(out: &mut Vec<u8>, message: &Message<'_>, version: Version) -> usize {
    out.reserve(message.destination.len() + message.headers.len() + 96);
    out.extend_from_slice(b"message-id:");
    out.extend_from_slice(message.id);
    out.extend_from_slice(b"\ndestination:");
    let left_out = if message.plain {
        out.extend_from_slice(message.destination);
        out.push(b'\n');
        out.extend_from_slice(message.headers);
        0
    } else {
        destination(out, message.destination, version);
        out.push(b'\n');
        convert_headers(out, message.headers, version)
    };
    out.extend_from_slice(b"content-length:");
    decimal(out, message.body.len() as u64);
    out.extend_from_slice(b"\n\n");
    left_out
}

/// Appends a destination, which has to be there whatever it is. A version without the escape gets `?` for a line end:
/// what follows would be a header of the sender's choice.
fn destination(out: &mut Vec<u8>, name: &[u8], version: Version) {
    if can_carry(b"destination", name, version) {
        escape_into(out, name, version);
    } else {
        let said: Vec<u8> =
            name.iter().map(|byte| if matches!(byte, b'\n' | b'\r') { b'?' } else { *byte }).collect();
        escape_into(out, &said, version);
    }
}

/// Rewrites header lines from 1.2's escapes to those of `version`.
fn convert_headers(out: &mut Vec<u8>, lines: &[u8], version: Version) -> usize {
    if version == Version::V1_2 {
        out.extend_from_slice(lines);
        return 0;
    }
    let mut left_out = 0;
    for line in lines.split_inclusive(|&byte| byte == b'\n') {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let colon = memchr::memchr(b':', line).unwrap_or(line.len());
        let (name, value) = (&line[..colon], line.get(colon + 1..).unwrap_or_default());
        let (name, value) = (unescape(name, Version::V1_2), unescape(value, Version::V1_2));
        if can_carry(&name, &value, version) {
            escape_into(out, &name, version);
            out.push(b':');
            escape_into(out, &value, version);
            out.push(b'\n');
        } else {
            left_out += 1;
        }
    }
    left_out
}

/// Appends CONNECTED (STOMP 1.2, "Connecting"); never escaped. `heart_beat_ms` is what the server offers, `response_id`
/// CONNECT's `request-id` as on the wire.
pub fn connected(
    out: &mut Vec<u8>,
    version: Version,
    session: &str,
    heart_beat_ms: (u32, u32),
    response_id: Option<&[u8]>,
) {
    out.extend_from_slice(b"CONNECTED\nversion:");
    out.extend_from_slice(version.as_str().as_bytes());
    out.extend_from_slice(b"\nsession:");
    out.extend_from_slice(session.as_bytes());
    out.extend_from_slice(
        concat!("\nserver:stompica/", env!("CARGO_PKG_VERSION"), "\nheart-beat:").as_bytes(),
    );
    decimal(out, u64::from(heart_beat_ms.0));
    out.push(b',');
    decimal(out, u64::from(heart_beat_ms.1));
    if let Some(id) = response_id {
        out.extend_from_slice(b"\nresponse-id:");
        out.extend_from_slice(id);
    }
    out.extend_from_slice(b"\n\n\0");
}

/// Appends RECEIPT (STOMP 1.2, "RECEIPT"); `id` is unescaped.
pub fn receipt(out: &mut Vec<u8>, id: &[u8], version: Version) {
    out.extend_from_slice(b"RECEIPT\n");
    header(out, b"receipt-id", id, version);
    out.extend_from_slice(b"\n\0");
}

/// What an ERROR tells about the frame that caused it.
#[derive(Clone, Debug, Default)]
pub struct Offender {
    /// The frame's `receipt`, unescaped.
    pub receipt: Option<Vec<u8>>,
    /// The subscription it was about, unescaped.
    pub subscription: Option<Vec<u8>>,
    /// Its command and headers as received, passcodes masked.
    pub head: Vec<u8>,
}

/// Appends ERROR (STOMP 1.2, "ERROR"): the code, a short message, and a body that explains and echoes the offender.
pub fn error(out: &mut Vec<u8>, error: &ProtocolError, offender: &Offender, version: Version) {
    let mut body = error.detail.clone().into_bytes();
    body.push(b'\n');
    if !offender.head.is_empty() {
        body.extend_from_slice(b"\nThe frame was:\n");
        body.extend(offender.head.iter().map(|&byte| if byte == 0 { b'?' } else { byte }));
    }
    out.extend_from_slice(Command::Error.as_str().as_bytes());
    out.push(b'\n');
    header(out, b"message", error.code.message().as_bytes(), version);
    header(out, b"code", error.code.as_str().as_bytes(), version);
    if error.code == crate::error::Code::Version {
        header(out, b"version", Version::SUPPORTED.as_bytes(), version);
    }
    for (name, value) in
        [(&b"receipt-id"[..], &offender.receipt), (&b"subscription"[..], &offender.subscription)]
    {
        if let Some(value) = value.as_deref().filter(|value| can_carry(name, value, version)) {
            header(out, name, value, version);
        }
    }
    out.extend_from_slice(b"content-type:text/plain\ncontent-length:");
    decimal(out, body.len() as u64);
    out.extend_from_slice(b"\n\n");
    out.extend_from_slice(&body);
    out.push(0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Code;

    fn tail(message: &Message<'_>, version: Version) -> (String, usize) {
        let mut out = Vec::new();
        let left_out = message_suffix(&mut out, message, version);
        (String::from_utf8(out).expect("test data is UTF-8"), left_out)
    }

    #[test]
    fn a_message_is_written_in_the_receivers_version() {
        let headers = b"a\\cb:1\ncr:x\\ry\nlf:x\\ny\nback:\\\\\n";
        let message =
            Message { destination: b"/t:1", id: b"7", sender: 0, headers, plain: false, body: b"hi" };
        let (v12, left_out) = tail(&message, Version::V1_2);
        assert_eq!(
            v12,
            "message-id:7\ndestination:/t\\c1\na\\cb:1\ncr:x\\ry\nlf:x\\ny\nback:\\\\\ncontent-length:2\n\nhi\0"
        );
        assert_eq!(left_out, 0);
        let (v11, left_out) = tail(&message, Version::V1_1);
        assert_eq!(
            v11,
            "message-id:7\ndestination:/t\\c1\na\\cb:1\ncr:x\ry\nlf:x\\ny\nback:\\\\\ncontent-length:2\n\nhi\0"
        );
        assert_eq!(left_out, 0);
        let (v10, left_out) = tail(&message, Version::V1_0);
        assert_eq!(v10, "message-id:7\ndestination:/t:1\ncr:x\ry\nback:\\\ncontent-length:2\n\nhi\0");
        assert_eq!(left_out, 2, "a colon in a name and a line feed have no form in 1.0");
    }

    #[test]
    fn a_line_end_in_a_destination_makes_no_header() {
        let message =
            Message { destination: b"/a\nx:1", id: b"1", sender: 0, headers: b"", plain: false, body: b"" };
        let lines = |version| tail(&message, version).0.split_once("\n\n").expect("a head").0.to_owned();
        assert_eq!(lines(Version::V1_0), "message-id:1\ndestination:/a?x:1\ncontent-length:0");
        for version in [Version::V1_1, Version::V1_2] {
            assert_eq!(lines(version), "message-id:1\ndestination:/a\\nx\\c1\ncontent-length:0");
        }
    }

    #[test]
    fn an_error_names_code_receipt_and_offender() {
        let mut out = Vec::new();
        let offender =
            Offender { receipt: Some(b"r:1".to_vec()), subscription: None, head: b"SEND\n".to_vec() };
        let cause = ProtocolError::new(Code::DestinationMissing, "SEND needs a destination");
        error(&mut out, &cause, &offender, Version::V1_2);
        let text = String::from_utf8(out).expect("ASCII");
        assert!(
            text.starts_with("ERROR\nmessage:destination missing\ncode:E-DEST-MISSING\nreceipt-id:r\\c1\n")
        );
        assert!(text.ends_with("\n\nSEND needs a destination\n\nThe frame was:\nSEND\n\0"));
    }
}
