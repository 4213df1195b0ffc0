//! Reads what the broker sends to a rogue: an HTTP response, WebSocket frames, STOMP frames. What is not allowed there
//! is an error.

use std::time::Duration;

use super::deeds::Heard;
use crate::frames::{Frame, Version, shown, take_frame};
use crate::websocket;

/// `Sec-WebSocket-Accept` for the key of [`websocket::HANDSHAKE`].
const ACCEPT: &str = "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";
/// A TLS alert: handshake_failure.
const ALERT: &[u8] = &[0x15, 3, 1, 0, 2, 2, 40];

/// What the broker sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Kind {
    /// Nothing has come.
    #[default]
    Unknown,
    Stomp,
    WebSocket,
    /// The body of an HTTP response, which is the last one; or an alert has come.
    Response,
}

/// The state of one stream.
#[derive(Debug)]
pub struct Reader {
    /// The version of the session.
    pub version: Version,
    kind: Kind,
    bytes: Vec<u8>,
    /// Payloads of WebSocket messages.
    payloads: Vec<u8>,
    /// Bytes that may come of the body of an HTTP response.
    body: usize,
    /// A Close frame has come.
    is_closed: bool,
    /// The broker encoded the last bytes then or later.
    encoded_from: Duration,
    /// Where an ACK of the last deliveries would go: subscription and id.
    pub held: Vec<(String, String)>,
}

impl Reader {
    /// The state before anything has come, for a session of this version.
    pub fn new(version: Version) -> Self {
        let (kind, bytes, payloads) = (Kind::Unknown, Vec::new(), Vec::new());
        let encoded_from = Duration::ZERO;
        Reader { version, kind, bytes, payloads, body: 0, is_closed: false, encoded_from, held: Vec::new() }
    }

    /// What has come of something incomplete.
    pub fn part(&self) -> &[u8] {
        if self.bytes.is_empty() { &self.payloads } else { &self.bytes }
    }

    /// Takes bytes that the broker encoded then or later, and returns what is complete.
    pub fn read(&mut self, bytes: &[u8], encoded_from: Duration) -> Result<Vec<Heard>, String> {
        let mut heard = Vec::new();
        self.encoded_from = encoded_from;
        self.bytes.extend_from_slice(bytes);
        if self.kind == Kind::Unknown && !self.begin(&mut heard)? {
            return Ok(heard);
        }
        match self.kind {
            Kind::Stomp => self.payloads.append(&mut self.bytes),
            Kind::WebSocket => self.take_websocket_frames(&mut heard)?,
            _ => {
                self.body = self
                    .body
                    .checked_sub(self.bytes.len())
                    .ok_or_else(|| format!("bytes after the last answer: {}", shown(&self.bytes)))?;
                self.bytes.clear();
            }
        }
        self.take_stomp_frames(&mut heard)?;
        Ok(heard)
    }

    /// Finds out what the stream is. Returns whether it is known.
    fn begin(&mut self, heard: &mut Vec<Heard>) -> Result<bool, String> {
        if ALERT.starts_with(&self.bytes[..self.bytes.len().min(ALERT.len())]) {
            if self.bytes.len() < ALERT.len() {
                return Ok(false);
            }
            self.bytes.drain(..ALERT.len());
            self.kind = Kind::Response;
            heard.push(Heard::Alert);
            return Ok(true);
        }
        if !self.bytes.starts_with(b"HTTP/") {
            self.kind = if self.bytes.len() < 5 { Kind::Unknown } else { Kind::Stomp };
            return Ok(self.kind == Kind::Stomp);
        }
        let Some(end) = self.bytes.windows(4).position(|four| four == b"\r\n\r\n") else { return Ok(false) };
        let head = String::from_utf8_lossy(&self.bytes[..end]).into_owned();
        let status = head.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)?.parse().ok());
        let status: u16 = status.ok_or_else(|| format!("not a status line: {head}"))?;
        if status == 101 {
            if !head.contains(ACCEPT) {
                return Err(format!("an upgrade without its key: {head}"));
            }
            self.bytes.drain(..end + 4);
            self.kind = Kind::WebSocket;
            heard.push(Heard::Status(status));
            return Ok(true);
        }
        let field = |name: &str| head.lines().find_map(|line| line.strip_prefix(name).map(str::trim));
        let len = field("Content-Length:").and_then(|len| len.parse::<usize>().ok());
        let len = len.ok_or_else(|| format!("a response without a length: {head}"))?;
        if !field("Connection:").is_some_and(|value| value.starts_with("close")) {
            return Err(format!("a response that does not say that it is the last one: {head}"));
        }
        self.bytes.drain(..end + 4);
        (self.kind, self.body) = (Kind::Response, len); // no body comes after HEAD
        heard.push(Heard::Status(status));
        Ok(true)
    }

    fn take_websocket_frames(&mut self, heard: &mut Vec<Heard>) -> Result<(), String> {
        while let Some((opcode, payload)) = websocket::take_frame(&mut self.bytes)? {
            if self.is_closed {
                return Err(format!("opcode {opcode} after a Close frame"));
            }
            match opcode {
                1 if std::str::from_utf8(&payload).is_err() => {
                    return Err("a text message that is not UTF-8".to_owned());
                }
                1 | 2 => {
                    self.payloads.extend_from_slice(&payload);
                    self.take_stomp_frames(heard)?;
                    if !self.payloads.is_empty() {
                        return Err(format!("a message that is not a whole frame: {}", shown(&payload)));
                    }
                }
                8 => {
                    let code =
                        payload.get(..2).map_or(0, |code| u16::from(code[0]) << 8 | u16::from(code[1]));
                    self.is_closed = true;
                    heard.push(Heard::Close(code));
                }
                9 => {} // a rogue may leave a ping unanswered
                10 => heard.push(Heard::Pong(payload)),
                _ => return Err(format!("opcode {opcode}")),
            }
        }
        Ok(())
    }

    fn take_stomp_frames(&mut self, heard: &mut Vec<Heard>) -> Result<(), String> {
        while let Some(frame) = take_frame(&mut self.payloads, self.version)? {
            heard.push(self.heard(&frame)?);
        }
        Ok(())
    }

    fn heard(&mut self, frame: &Frame) -> Result<Heard, String> {
        Ok(match frame.command.as_str() {
            "CONNECTED" => Heard::Connected,
            "RECEIPT" => Heard::Receipt(frame.expect("receipt-id")?.to_owned()),
            "MESSAGE" => {
                let name = if self.version == Version::V12 { "ack" } else { "message-id" };
                if let (Some(subscription), Some(id)) = (frame.header("subscription"), frame.header(name)) {
                    self.held.push((subscription.to_owned(), id.to_owned()));
                }
                Heard::Message
            }
            _ => {
                let code = frame.expect("code")?.to_owned();
                frame.expect("message")?;
                if code == "E-VERSION" && frame.header("version") != Some("1.0,1.1,1.2") {
                    return Err("E-VERSION without the versions".to_owned());
                }
                if frame.body.is_empty() {
                    return Err(format!("an ERROR {code} that says nothing"));
                }
                let receipt = frame.header("receipt-id").map(str::to_owned);
                Heard::Error { code, receipt, encoded_from: self.encoded_from }
            }
        })
    }
}
