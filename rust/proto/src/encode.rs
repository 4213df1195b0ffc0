//! Server frames to bytes.
//!
//! A MESSAGE is written in two parts: a *prefix* (`MESSAGE`, `subscription`) that is the same for all messages to a
//! group of subscriptions, and a *suffix* that is the same for all groups of one version.
//!
//! Hot path: appends to the caller's buffer, copies each byte once, and allocates nothing itself.

use crate::error::ProtocolError;
use crate::escape::{can_carry, escape_into, unescape};
use crate::{Command, Version};

/// A message to be encoded, in a form that is independent of the receiver's version.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// The SEND's destination, unescaped.
    pub destination: &'a [u8],
    /// The `message-id`: ASCII, with nothing to escape.
    pub id: &'a [u8],
    /// The sender, by a number that the broker assigned; not encoded.
    pub sender: u64,
    /// The sender's own header lines, in the sender's order, each escaped as in 1.2 and ended by LF.
    pub headers: &'a [u8],
    /// `destination` and `headers` are the same in every version.
    pub plain: bool,
    /// The time at which it expires, on the broker's clock, milliseconds; 0: never. Not encoded.
    pub expires_ms: u64,
    /// The body.
    pub body: &'a [u8],
}

/// Appends `number` in decimal.
pub fn decimal(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// Appends `name:value` and LF; `value` is escaped for `version`.
pub fn header(out: &mut Vec<u8>, name: &[u8], value: &[u8], version: Version) {
    out.extend_from_slice(name);
    out.push(b':');
    escape_into(out, value, version);
    out.push(b'\n');
}

/// Appends the start of a MESSAGE to a subscription; a 1.0 subscription without id gets no `subscription` header.
pub fn message_prefix(out: &mut Vec<u8>, subscription: Option<&[u8]>, version: Version) {
    out.extend_from_slice(b"MESSAGE\n");
    if let Some(id) = subscription {
        header(out, b"subscription", id, version);
    }
}

/// Appends the `ack` header of a 1.2 MESSAGE: the two numbers by which an ACK identifies the delivery.
pub fn ack_id(out: &mut Vec<u8>, [subscription, number]: [u64; 2]) {
    out.extend_from_slice(b"ack:");
    decimal(out, subscription);
    out.push(b'-');
    decimal(out, number);
    out.push(b'\n');
}

/// Appends everything of a MESSAGE after the prefix: headers, body and NUL. Returns the number of the sender's headers
/// that were omitted because `version` cannot represent them.
pub fn message_suffix(out: &mut Vec<u8>, message: &Message<'_>, version: Version) -> usize {
    let omitted = message_head(out, message, version);
    out.extend_from_slice(message.body);
    out.push(0);
    omitted
}

/// Appends the rest of a MESSAGE's headers, up to and including the blank line. Returns the number of the sender's
/// headers that were omitted because `version` cannot represent them.
pub fn message_head(out: &mut Vec<u8>, message: &Message<'_>, version: Version) -> usize {
    out.reserve(message.destination.len() + message.headers.len() + 96);
    out.extend_from_slice(b"message-id:");
    out.extend_from_slice(message.id);
    out.extend_from_slice(b"\ndestination:");
    let omitted = if message.plain {
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
    omitted
}

/// Appends a destination, which is required and can't be omitted. In a version without escapes a line end becomes `?`:
/// otherwise the sender could inject headers.
fn destination(out: &mut Vec<u8>, name: &[u8], version: Version) {
    if can_carry(b"destination", name, version) {
        escape_into(out, name, version);
    } else {
        let replaced: Vec<u8> =
            name.iter().map(|byte| if matches!(byte, b'\n' | b'\r') { b'?' } else { *byte }).collect();
        escape_into(out, &replaced, version);
    }
}

/// Converts header lines from 1.2's escapes to those of `version`; returns how many were omitted.
fn convert_headers(out: &mut Vec<u8>, lines: &[u8], version: Version) -> usize {
    if version == Version::V1_2 {
        out.extend_from_slice(lines);
        return 0;
    }
    let mut omitted = 0;
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
            omitted += 1;
        }
    }
    omitted
}

/// Appends CONNECTED (STOMP 1.2, "Connecting"), which is never escaped. `heart_beat_ms` is the server's offer,
/// `response_id` CONNECT's `request-id` as on the wire.
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

/// Appends the RECEIPT of a SUBSCRIBE that replays history: `recovered` tells whether nothing is missing.
pub fn receipt_of_replay(out: &mut Vec<u8>, id: &[u8], recovered: bool, version: Version) {
    out.extend_from_slice(b"RECEIPT\n");
    header(out, b"receipt-id", id, version);
    header(out, b"recovered", if recovered { b"true" } else { b"false" }, version);
    out.extend_from_slice(b"\n\0");
}

/// What an ERROR repeats of the frame that caused it.
#[derive(Clone, Debug, Default)]
pub struct Offender {
    /// The frame's `receipt`, unescaped.
    pub receipt: Option<Vec<u8>>,
    /// The subscription that the frame names, unescaped.
    pub subscription: Option<Vec<u8>>,
    /// Its command and headers as received, with passcodes masked.
    pub head: Vec<u8>,
}

impl Offender {
    /// The memory in bytes that it holds.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        let texts = [self.receipt.as_ref(), self.subscription.as_ref(), Some(&self.head)];
        texts.into_iter().flatten().map(Vec::capacity).sum()
    }
}

/// Appends ERROR (STOMP 1.2, "ERROR"): the code, a short message, and a body with the explanation and the offender.
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

    fn suffix(message: &Message<'_>, version: Version) -> (String, usize) {
        let mut out = Vec::new();
        let omitted = message_suffix(&mut out, message, version);
        (String::from_utf8(out).expect("test data is UTF-8"), omitted)
    }

    #[test]
    fn a_message_is_encoded_for_the_receivers_version() {
        let headers = b"a\\cb:1\ncr:x\\ry\nlf:x\\ny\nback:\\\\\n";
        let message = Message {
            destination: b"/t:1",
            id: b"7",
            sender: 0,
            headers,
            plain: false,
            expires_ms: 0,
            body: b"hi",
        };
        let (v12, omitted) = suffix(&message, Version::V1_2);
        assert_eq!(
            v12,
            "message-id:7\ndestination:/t\\c1\na\\cb:1\ncr:x\\ry\nlf:x\\ny\nback:\\\\\ncontent-length:2\n\nhi\0"
        );
        assert_eq!(omitted, 0);
        let (v11, omitted) = suffix(&message, Version::V1_1);
        assert_eq!(
            v11,
            "message-id:7\ndestination:/t\\c1\na\\cb:1\ncr:x\ry\nlf:x\\ny\nback:\\\\\ncontent-length:2\n\nhi\0"
        );
        assert_eq!(omitted, 0);
        let (v10, omitted) = suffix(&message, Version::V1_0);
        assert_eq!(v10, "message-id:7\ndestination:/t:1\ncr:x\ry\nback:\\\ncontent-length:2\n\nhi\0");
        assert_eq!(omitted, 2, "1.0 cannot represent a colon in a name or a line feed");
    }

    #[test]
    fn a_line_end_in_a_destination_does_not_inject_a_header() {
        let message = Message {
            destination: b"/a\nx:1",
            id: b"1",
            sender: 0,
            headers: b"",
            plain: false,
            expires_ms: 0,
            body: b"",
        };
        let lines = |version| suffix(&message, version).0.split_once("\n\n").expect("a head").0.to_owned();
        assert_eq!(lines(Version::V1_0), "message-id:1\ndestination:/a?x:1\ncontent-length:0");
        for version in [Version::V1_1, Version::V1_2] {
            assert_eq!(lines(version), "message-id:1\ndestination:/a\\nx\\c1\ncontent-length:0");
        }
    }

    #[test]
    fn an_error_contains_code_receipt_and_offender() {
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
