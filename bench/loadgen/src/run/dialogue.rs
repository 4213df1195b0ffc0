//! A connection that waits for each answer, for what need not be fast.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::connections::STALL;
use crate::fault::Fault;
use crate::stomp;
use crate::target::Target;

/// A frame from the peer.
#[derive(Debug, PartialEq, Eq)]
pub enum Reply {
    /// CONNECTED.
    Connected,
    /// RECEIPT with its `receipt-id`.
    Receipt(String),
    /// MESSAGE.
    Message {
        /// Id of the subscription.
        subscription: String,
        /// Its body.
        body: Vec<u8>,
    },
    /// DIAG with its body.
    Diag(Vec<u8>),
}

/// A STOMP connection over TCP.
pub struct Dialogue {
    stream: TcpStream,
    /// Bytes that arrived; from `at` on they are not parsed yet.
    buffer: Vec<u8>,
    at: usize,
}

impl Dialogue {
    /// Connects and logs in.
    pub fn connect(target: &Target) -> Result<Dialogue, Fault> {
        let stream = TcpStream::connect(target.address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(STALL))?;
        let mut dialogue = Dialogue { stream, buffer: Vec::new(), at: 0 };
        dialogue.write(&target.login.connect())?;
        match dialogue.reply()? {
            Reply::Connected => Ok(dialogue),
            other => Err(Fault::Malformed(format!("{other:?} for CONNECT"))),
        }
    }

    /// Asks the broker about itself; the answer is JSON.
    pub fn diag(&mut self, query: &str) -> Result<serde_json::Value, Fault> {
        self.write(&stomp::diag(query))?;
        match self.reply()? {
            Reply::Diag(body) => serde_json::from_slice(&body)
                .map_err(|error| Fault::Malformed(format!("DIAG {query}: {error}"))),
            other => Err(Fault::Malformed(format!("{other:?} for DIAG {query}"))),
        }
    }

    /// Writes frames.
    pub fn write(&mut self, frames: &[u8]) -> Result<(), Fault> {
        Ok(self.stream.write_all(frames)?)
    }

    /// Waits for the next frame; ERROR is a fault.
    pub fn reply(&mut self) -> Result<Reply, Fault> {
        loop {
            if let Some((reply, used)) = parse(&self.buffer[self.at..])? {
                self.at += used;
                return Ok(reply);
            }
            self.buffer.drain(..self.at);
            self.at = 0;
            let end = self.buffer.len();
            self.buffer.resize(end + 256 * 1024, 0);
            let size = self.stream.read(&mut self.buffer[end..])?;
            self.buffer.truncate(end + size);
            if size == 0 {
                return Err(Fault::Closed("while a frame was awaited".to_owned()));
            }
        }
    }
}

/// The first frame and its octets; `None` if it is incomplete.
fn parse(bytes: &[u8]) -> Result<Option<(Reply, usize)>, Fault> {
    let blank = bytes.iter().take_while(|octet| matches!(octet, b'\n' | b'\r')).count();
    let Some(head) = stomp::head(&bytes[blank..])? else { return Ok(None) };
    let body = &bytes[blank + head.body_at..];
    let Some(end) = head.content_length.or_else(|| memchr::memchr(0, body)) else { return Ok(None) };
    match body.get(end) {
        None => return Ok(None),
        Some(0) => {}
        Some(_) => return Err(Fault::malformed("no NUL after the body", bytes)),
    }
    let text = |value: Option<&[u8]>| String::from_utf8_lossy(value.unwrap_or_default()).into_owned();
    let reply = match head.command {
        b"CONNECTED" => Reply::Connected,
        b"RECEIPT" => Reply::Receipt(text(head.receipt_id)),
        b"MESSAGE" => {
            let line = head.subscription.map(|(_, line)| line);
            let subscription = text(line.and_then(|line| line.strip_prefix(b"subscription:")));
            Reply::Message { subscription, body: body[..end].to_vec() }
        }
        b"DIAG" => Reply::Diag(body[..end].to_vec()),
        b"ERROR" => return Err(Fault::Refused(text(head.message))),
        _ => return Err(Fault::malformed("unknown command", bytes)),
    };
    Ok(Some((reply, blank + head.body_at + end + 1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_parsed_when_they_are_complete() {
        let receipt = b"RECEIPT\nreceipt-id:r\n\n\0";
        let message = b"\n\nMESSAGE\nsubscription:7\ncontent-length:3\n\na\0b\0";
        let (first, message) = (message.len(), [&message[..], receipt].concat());
        for cut in 0..first {
            assert_eq!(parse(&message[..cut]), Ok(None), "cut at {cut}");
        }
        let expected = Reply::Message { subscription: "7".into(), body: b"a\0b".to_vec() };
        assert_eq!(parse(&message), Ok(Some((expected, first))));
        assert_eq!(parse(&message[first..]), Ok(Some((Reply::Receipt("r".into()), receipt.len()))));
        assert_eq!(parse(b"ERROR\nmessage:no\n\n\0"), Err(Fault::Refused("no".into())));
    }
}
