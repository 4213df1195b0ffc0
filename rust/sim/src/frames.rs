//! Frames as a client sees them: a builder, and a strict parser of its own. It shares no code with the broker, so that
//! an error in the broker's codec cannot hide itself.

use std::fmt::Write as _;

/// A version of STOMP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// STOMP 1.0: no escapes, no heart-beats, ACK by message-id.
    V10,
    /// STOMP 1.1: escapes except `\r`.
    V11,
    /// STOMP 1.2: all escapes, ACK by the MESSAGE's `ack` header.
    V12,
}

impl Version {
    /// As it is written in `accept-version`.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Version::V10 => "1.0",
            Version::V11 => "1.1",
            Version::V12 => "1.2",
        }
    }
}

/// A frame of the broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The command.
    pub command: String,
    /// Headers, without escapes, in order.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

impl Frame {
    /// The first value of a header.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    /// A header that has to be there.
    ///
    /// # Errors
    /// It is missing.
    pub fn expect(&self, name: &str) -> Result<&str, String> {
        self.header(name).ok_or_else(|| format!("{} without the header '{name}'", self.command))
    }
}

/// Builds a client's frame.
#[must_use]
pub fn frame(version: Version, command: &str, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let mut text = format!("{command}\n");
    for (name, value) in headers {
        let is_plain = version == Version::V10 || command == "CONNECT";
        let value = if is_plain { (*value).to_owned() } else { escaped(value, version) };
        _ = writeln!(text, "{name}:{value}"); // writing to a String cannot fail
    }
    text.push('\n');
    let mut bytes = text.into_bytes();
    bytes.extend_from_slice(body);
    bytes.push(0);
    bytes
}

fn escaped(value: &str, version: Version) -> String {
    let value = value.replace('\\', "\\\\").replace('\n', "\\n").replace(':', "\\c");
    if version == Version::V12 { value.replace('\r', "\\r") } else { value }
}

fn unescaped(value: &str, version: Version) -> Result<String, String> {
    let mut text = String::new();
    let mut chars = value.chars();
    while let Some(char) = chars.next() {
        if char != '\\' || version == Version::V10 {
            text.push(char);
            continue;
        }
        text.push(match (chars.next(), version) {
            (Some('n'), _) => '\n',
            (Some('c'), _) => ':',
            (Some('\\'), _) => '\\',
            (Some('r'), Version::V12) => '\r',
            (other, _) => return Err(format!("an escape of another version: \\{other:?} in '{value}'")),
        });
    }
    Ok(text)
}

/// Takes the next frame from the front of the received bytes; `None`: it is not complete yet. Heart-beats are skipped.
///
/// # Errors
/// The bytes are no frame that a broker may send.
pub fn take_frame(bytes: &mut Vec<u8>, version: Version) -> Result<Option<Frame>, String> {
    let beats = bytes.iter().take_while(|byte| **byte == b'\n').count();
    bytes.drain(..beats);
    let Some(head_len) = bytes.windows(2).position(|two| two == b"\n\n") else {
        return if bytes.contains(&0) { Err(format!("NUL in a head: {}", shown(bytes))) } else { Ok(None) };
    };
    let head =
        String::from_utf8(bytes[..head_len].to_vec()).map_err(|_| "a head that is not UTF-8".to_owned())?;
    let mut lines = head.split('\n');
    let command = lines.next().unwrap_or_default().to_owned();
    if !["CONNECTED", "MESSAGE", "RECEIPT", "ERROR", "DIAG"].contains(&command.as_str()) {
        return Err(format!("not a command of a broker: {}", shown(command.as_bytes())));
    }
    let version = if command == "CONNECTED" { Version::V10 } else { version };
    let mut headers = Vec::new();
    for line in lines {
        let (name, value) =
            line.split_once(':').ok_or_else(|| format!("a header without colon: '{line}'"))?;
        headers.push((unescaped(name, version)?, unescaped(value, version)?));
    }
    let mut frame = Frame { command, headers, body: Vec::new() };
    let start = head_len + 2;
    let end = match frame.header("content-length") {
        Some(len) => {
            let len: usize = len.parse().map_err(|_| format!("content-length:{len}"))?;
            if bytes.len() <= start + len {
                return Ok(None);
            }
            start + len
        }
        None => match bytes[start..].iter().position(|byte| *byte == 0) {
            Some(len) => start + len,
            None => return Ok(None),
        },
    };
    if bytes[end] != 0 {
        return Err(format!("no NUL behind a body of {} bytes", end - start));
    }
    frame.body = bytes[start..end].to_vec();
    bytes.drain(..=end);
    Ok(Some(frame))
}

/// Bytes as text for a message to people.
#[must_use]
pub fn shown(bytes: &[u8]) -> String {
    let end = bytes.len().min(200);
    String::from_utf8_lossy(&bytes[..end]).replace('\n', " | ").replace('\0', "^@")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_taken_when_it_is_complete_and_heart_beats_are_skipped() {
        let whole = b"\n\nMESSAGE\nx:a\\cb\\\\\ncontent-length:3\n\na\0b\0\nRECEIPT\nreceipt-id:1\n\n\0";
        let mut bytes = Vec::new();
        let mut taken = Vec::new();
        for byte in whole {
            bytes.push(*byte);
            taken.extend(take_frame(&mut bytes, Version::V12).expect("valid"));
        }
        assert_eq!(taken.len(), 2);
        assert_eq!((taken[0].header("x"), &taken[0].body[..]), (Some("a:b\\"), &b"a\0b"[..]));
        assert_eq!(taken[1].expect("receipt-id"), Ok("1"));
        assert!(taken[1].expect("other").is_err());
    }

    #[test]
    fn broken_frames_are_errors() {
        for bytes in [
            &b"SEND\n\n\0"[..],
            b"MESS\0",
            b"MESSAGE\nx\n\n\0",
            b"MESSAGE\nx:\\r\n\n\0",
            b"MESSAGE\ncontent-length:1\n\nab\0",
        ] {
            assert!(take_frame(&mut bytes.to_vec(), Version::V11).is_err(), "{}", shown(bytes));
        }
        assert!(
            take_frame(&mut b"MESSAGE\nx:\\q\n\n\0".to_vec(), Version::V10).is_ok(),
            "1.0 has no escapes"
        );
    }

    #[test]
    fn headers_are_escaped_as_the_version_says() {
        let built = frame(Version::V12, "SEND", &[("x", "a:b\n\\\r")], b"y");
        assert_eq!(built, b"SEND\nx:a\\cb\\n\\\\\\r\n\ny\0");
        assert_eq!(frame(Version::V10, "SEND", &[("x", "a:b")], b""), b"SEND\nx:a:b\n\n\0");
    }
}
