//! One connection of the relay: handshakes, then unparsed bytes.

use std::io::{self, IoSlice, Read, Write};

use mio::net::TcpStream;

use crate::{stomp, ws};

/// Role of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Not known yet.
    Unknown,
    /// It sent SUBSCRIBE.
    Subscriber,
    /// It sent SEND.
    Publisher,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Transport {
    Unknown,
    Tcp,
    WebSocket,
}

/// One connection.
pub struct Peer {
    stream: TcpStream,
    /// Its role.
    pub role: Role,
    announced: bool,
    transport: Transport,
    /// Bytes of an unfinished handshake or STOMP frame, before the first SEND.
    control: Vec<u8>,
    unwrap: Unwrap,
    /// Bytes that the socket did not take, from `written` on.
    pending: Vec<u8>,
    written: usize,
}

impl Peer {
    /// A connection just accepted.
    pub fn new(stream: TcpStream) -> Peer {
        Peer {
            stream,
            role: Role::Unknown,
            announced: false,
            transport: Transport::Unknown,
            control: Vec::new(),
            unwrap: Unwrap::default(),
            pending: Vec::new(),
            written: 0,
        }
    }

    /// True once, when the connection has become a subscriber.
    pub fn became_subscriber(&mut self) -> bool {
        self.role == Role::Subscriber && !std::mem::replace(&mut self.announced, true)
    }

    /// Reads once. Appends what a publisher sent to `payload`, and answers other frames. True if the buffer was filled.
    pub fn read(&mut self, buffer: &mut [u8], payload: &mut Vec<u8>) -> io::Result<bool> {
        let size = self.stream.read(buffer)?;
        if size == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let full = size == buffer.len();
        let mut bytes = &mut buffer[..size];
        if self.transport == Transport::Unknown {
            self.control.extend_from_slice(bytes);
            if !self.sniff() {
                return Ok(full);
            }
            bytes = &mut [];
        }
        match (self.role, self.transport) {
            (Role::Publisher, Transport::WebSocket) => self.unwrap.take(bytes, payload),
            (Role::Publisher, _) => payload.extend_from_slice(bytes),
            (_, Transport::WebSocket) => self.unwrap.take(bytes, &mut self.control),
            _ => self.control.extend_from_slice(bytes),
        }
        if self.role != Role::Publisher {
            self.answer(payload);
        }
        Ok(full)
    }

    /// Distinguishes TCP from WebSocket, and answers the upgrade. False if more bytes are needed.
    fn sniff(&mut self) -> bool {
        if !self.control.starts_with(b"GET ") {
            self.transport = Transport::Tcp;
            return true;
        }
        let Some(end) = memchr::memmem::find(&self.control, b"\r\n\r\n") else { return false };
        let request = String::from_utf8_lossy(&self.control[..end]).into_owned();
        let key = request
            .lines()
            .filter_map(|line| line.split_once(": "))
            .find(|(name, _)| name.eq_ignore_ascii_case("sec-websocket-key"))
            .map(|(_, key)| key.trim())
            .unwrap_or_default();
        let accept = tungstenite::handshake::derive_accept_key(key.as_bytes());
        let response = format!(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Accept: {accept}\r\nSec-WebSocket-Protocol: v12.stomp\r\n\r\n"
        );
        self.write(&[], response.as_bytes());
        self.transport = Transport::WebSocket;
        let mut behind = self.control.split_off(end + 4);
        self.control.clear();
        self.unwrap.take(&mut behind, &mut self.control);
        true
    }

    /// Answers the frames before the first SEND. That SEND and everything after it become payload.
    fn answer(&mut self, payload: &mut Vec<u8>) {
        loop {
            let blank = self.control.iter().take_while(|octet| **octet == b'\n').count();
            self.control.drain(..blank);
            if self.control.starts_with(b"SEND\n") {
                self.role = Role::Publisher;
                payload.append(&mut self.control);
                return;
            }
            let Some(end) = memchr::memchr(0, &self.control) else { return };
            let frame: Vec<u8> = self.control.drain(..=end).collect();
            self.answer_frame(&frame);
        }
    }

    fn answer_frame(&mut self, frame: &[u8]) {
        let Ok(Some(head)) = stomp::head(frame) else { return };
        let header = |name: &str| {
            let text = String::from_utf8_lossy(frame).into_owned();
            text.lines().find_map(|line| line.strip_prefix(name).map(str::to_owned))
        };
        match head.command {
            b"CONNECT" => self.reply(b"CONNECTED\nversion:1.2\nheart-beat:0,0\n\n\0"),
            b"SUBSCRIBE" => self.role = Role::Subscriber,
            _ => {}
        }
        if let Some(receipt) = header("receipt:") {
            self.reply(format!("RECEIPT\nreceipt-id:{receipt}\n\n\0").as_bytes());
        }
    }

    fn reply(&mut self, frame: &[u8]) {
        let mut header = Vec::new();
        ws::write_header(&mut header, ws::TEXT, frame.len(), None);
        self.deliver(&header, frame);
    }

    /// Sends STOMP bytes, after `header` if this is a WebSocket.
    pub fn deliver(&mut self, header: &[u8], payload: &[u8]) {
        let header = if self.transport == Transport::WebSocket { header } else { &[] };
        self.write(header, payload);
    }

    fn write(&mut self, header: &[u8], payload: &[u8]) {
        let mut sent = 0;
        if self.pending.is_empty() {
            let result = if header.is_empty() {
                self.stream.write(payload)
            } else {
                self.stream.write_vectored(&[IoSlice::new(header), IoSlice::new(payload)])
            };
            // A failure appears again at the next read, which drops the connection.
            sent = result.unwrap_or(0);
        }
        if sent < header.len() + payload.len() {
            self.pending.extend_from_slice(&header[sent.min(header.len())..]);
            self.pending.extend_from_slice(&payload[sent.saturating_sub(header.len())..]);
        }
    }

    /// Writes pending bytes when the socket is writable again.
    pub fn flush(&mut self) {
        while self.written < self.pending.len() {
            match self.stream.write(&self.pending[self.written..]) {
                Ok(size) if size > 0 => self.written += size,
                _ => return,
            }
        }
        self.pending.clear();
        self.written = 0;
    }
}

/// Unwraps masked client frames, in any fragmentation.
#[derive(Default)]
struct Unwrap {
    header: Vec<u8>,
    key: [u8; 4],
    left: usize,
    phase: usize,
    /// The payload belongs to a control frame and is discarded.
    skip: bool,
}

impl Unwrap {
    fn take(&mut self, bytes: &mut [u8], payload: &mut Vec<u8>) {
        let mut at = 0;
        while at < bytes.len() {
            if self.left == 0 {
                at = self.take_header(bytes, at);
                continue;
            }
            let part = self.left.min(bytes.len() - at);
            if !self.skip {
                ws::mask(&mut bytes[at..at + part], self.key, self.phase);
                payload.extend_from_slice(&bytes[at..at + part]);
            }
            self.phase += part;
            self.left -= part;
            at += part;
        }
    }

    /// Collects header octets from `at` on until the header is complete; returns where it stopped.
    fn take_header(&mut self, bytes: &[u8], mut at: usize) -> usize {
        loop {
            let need = match self.header.get(1).map(|second| second & 0x7f) {
                None => 2,
                Some(126) => 8,
                Some(127) => 14,
                Some(_) => 6,
            };
            if self.header.len() == need && need > 2 {
                break;
            }
            let part = (need - self.header.len()).min(bytes.len() - at);
            if part == 0 {
                return at;
            }
            self.header.extend_from_slice(&bytes[at..at + part]);
            at += part;
        }
        let header = &self.header;
        let be = |octets: &[u8]| octets.iter().fold(0, |sum: usize, &octet| sum << 8 | usize::from(octet));
        self.left = match header[1] & 0x7f {
            126 => be(&header[2..4]),
            127 => be(&header[2..10]),
            short => usize::from(short),
        };
        self.key.copy_from_slice(&header[header.len() - 4..]);
        self.skip = header[0] & 0x0f > ws::BINARY;
        self.phase = 0;
        self.header.clear();
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_frames_are_unwrapped_in_any_fragmentation() {
        let parts: [&[u8]; 4] = [b"", b"one", &[7; 300], &[9; 70_000]];
        let stream: Vec<u8> = parts.iter().flat_map(|part| ws::client_frame(ws::TEXT, part)).collect();
        for step in [1, 2, 5, 64, 100_000] {
            let (mut unwrap, mut payload) = (Unwrap::default(), Vec::new());
            for piece in stream.chunks(step) {
                unwrap.take(&mut piece.to_vec(), &mut payload);
            }
            assert_eq!(payload, parts.concat());
        }
    }
}
