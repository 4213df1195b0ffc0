//! A client of a broker that is run by hand: it says what it is error_body, and checks whatever it hears.

use std::collections::{HashMap, VecDeque};
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;

/// Longer bodies are not remembered.
const BODY_BYTES_MAX: usize = 16;

/// One end of a connection, and what the client remembers of its dialogue.
#[derive(Debug)]
pub struct Client {
    stream: UnixStream,
    /// What the socket has not taken yet.
    unsent: Vec<u8>,
    /// What is no whole frame yet.
    received: Vec<u8>,
    /// Receipts expected_receipts for and not there yet, in the order of their frames.
    expected_receipts: VecDeque<u64>,
    last_receipt: u64,
    /// Values of `ack` (or `message-id`, and `subscription` with it, before 1.2) that came and were not used.
    pub deliveries: VecDeque<(String, String)>,
    /// It sent what is no STOMP, or left: nobody owes it an answer.
    sent_invalid: bool,
    /// Bodies of MESSAGEs that came, as far as they are short.
    pub bodies: Vec<String>,
    /// Rows of the answers to DIAG that came.
    pub rows: usize,
    has_error: bool,
    is_closed: bool,
    /// What was sent and heard, shown if the test fails.
    transcript: Vec<String>,
}

impl Drop for Client {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- a client (wild: {}, ended: {})", self.sent_invalid, self.is_closed);
            self.transcript.iter().for_each(|line| eprintln!("{line}"));
        }
    }
}

impl Client {
    /// A client that has sent nothing yet.
    #[must_use]
    pub fn new(stream: UnixStream) -> Self {
        Client {
            stream,
            unsent: Vec::new(),
            received: Vec::new(),
            expected_receipts: VecDeque::new(),
            last_receipt: 0,
            deliveries: VecDeque::new(),
            sent_invalid: false,
            bodies: Vec::new(),
            rows: 0,
            has_error: false,
            is_closed: false,
            transcript: Vec::new(),
        }
    }

    /// A number for a receipt that is to come behind all that were expected_receipts for before.
    pub fn expect_receipt(&mut self) -> u64 {
        self.last_receipt += 1;
        self.expected_receipts.push_back(self.last_receipt);
        self.last_receipt
    }

    /// Says something, as far as the socket takes it; the rest is sent before anything else.
    pub fn send(&mut self, bytes: &[u8]) {
        self.log("> ", bytes);
        self.unsent.extend_from_slice(bytes);
        self.flush(self.unsent.len());
    }

    /// Says all but the last `held` bytes of something; they follow with whatever is sent next.
    pub fn send_partially(&mut self, bytes: &[u8], held: usize) {
        self.log("> (in part) ", bytes);
        self.unsent.extend_from_slice(bytes);
        self.flush(self.unsent.len().saturating_sub(held));
    }

    /// Says something that may not be STOMP.
    pub fn send_invalid(&mut self, bytes: &[u8]) {
        self.sent_invalid = true;
        self.send(bytes);
    }

    fn log(&mut self, who: &str, bytes: &[u8]) {
        let text = String::from_utf8_lossy(bytes).replace("\n", " | ").replace("xxx", "");
        self.transcript.push(format!("{who}{text}"));
    }

    fn flush(&mut self, len: usize) {
        let mut sent = 0;
        while sent < len {
            match self.stream.write(&self.unsent[sent..len]) {
                Ok(taken) => sent += taken,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => {
                    sent = self.unsent.len(); // the broker has closed: what it sent before is still to be read
                    break;
                }
            }
        }
        self.unsent.drain(..sent.min(self.unsent.len()));
    }

    /// Says no more.
    pub fn half_close(&mut self) {
        self.flush(self.unsent.len());
        self.sent_invalid |= !self.unsent.is_empty();
        self.unsent.clear();
        _ = self.stream.shutdown(Shutdown::Write);
    }

    /// Whether the broker has closed the connection.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Says what is left to say and reads what has come, up to `bytes_max`. Whether there was anything of either.
    ///
    /// # Panics
    /// If the broker says what it must not.
    pub fn read(&mut self, bytes_max: usize) -> bool {
        let unsent = self.unsent.len();
        self.flush(unsent);
        let mut moved = self.unsent.len() < unsent;
        let mut left = bytes_max;
        let mut buffer = [0; 4096];
        while left > 0 && !self.is_closed {
            let wanted = left.min(buffer.len());
            match self.stream.read(&mut buffer[..wanted]) {
                Ok(0) => self.is_closed = true,
                Ok(len) => {
                    left -= len;
                    self.received.extend_from_slice(&buffer[..len]);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => self.is_closed = true,
            }
            moved = true;
        }
        while let Some(len) = self.take_frame() {
            self.received.drain(..len);
        }
        moved
    }

    /// The heads of the frames that came, line ends as ` | `, in their order; ERRORs with their body.
    pub fn received_frames(&self) -> impl Iterator<Item = &str> {
        self.transcript.iter().filter_map(|line| line.strip_prefix("< "))
    }

    /// Whether every receipt that was expected_receipts for has come.
    #[must_use]
    pub fn has_all_receipts(&self) -> bool {
        self.expected_receipts.is_empty()
    }

    /// Every receipt that was expected_receipts for has come, or the connection has ended.
    ///
    /// # Panics
    /// If it is not so.
    pub fn check_receipts(&self) {
        let is_owed = !self.sent_invalid && !self.is_closed && self.unsent.is_empty();
        assert!(
            self.expected_receipts.is_empty() || !is_owed,
            "RECEIPTs {:?} never came",
            self.expected_receipts
        );
        assert!(!self.has_error || self.is_closed, "an ERROR, and the connection stays");
    }

    /// Looks at the frame in front of what was received; its length, or `None` if there is no whole one.
    fn take_frame(&mut self) -> Option<usize> {
        let eols = self.received.iter().take_while(|byte| **byte == b'\n').count();
        if eols > 0 {
            return Some(eols);
        }
        let head_len = self.received.windows(2).position(|pair| pair == b"\n\n")? + 1;
        let head = String::from_utf8_lossy(&self.received[..head_len]).into_owned();
        let mut lines = head.lines();
        let command = lines.next().unwrap_or_default().to_owned();
        let mut headers = HashMap::new();
        for (name, value) in lines.filter_map(|line| line.split_once(':')) {
            headers.entry(name).or_insert(value);
        }
        let body = &self.received[head_len + 1..];
        let body_len = match headers.get("content-length") {
            Some(len) => len.parse().expect("a length"),
            None => body.iter().position(|byte| *byte == 0)?,
        };
        assert_eq!(*body.get(body_len)?, 0, "a frame ends in NUL: {head}");
        let error_body =
            if command == "ERROR" { String::from_utf8_lossy(&body[..body_len]) } else { "".into() };
        self.transcript.push(format!("< {}", format!("{head}{error_body}").replace('\n', " | ")));
        if command == "DIAG" {
            self.rows += body[..body_len].split(|byte| *byte == b'{').skip(1).count();
        }
        if command == "MESSAGE" && body_len <= BODY_BYTES_MAX {
            self.bodies.push(String::from_utf8_lossy(&body[..body_len]).into_owned());
        }
        self.handle(&command, &headers);
        Some(head_len + 1 + body_len + 1)
    }

    fn handle(&mut self, command: &str, headers: &HashMap<&str, &str>) {
        assert!(!self.has_error, "{command} came behind an ERROR");
        match command {
            "RECEIPT" if !self.sent_invalid => {
                let number = headers.get("receipt-id").and_then(|id| id.parse().ok());
                assert_eq!(
                    number,
                    self.expected_receipts.pop_front(),
                    "RECEIPTs come in the order of frames"
                );
            }
            "MESSAGE" => {
                let subscription = (*headers.get("subscription").unwrap_or(&"")).to_owned();
                if let Some(id) = headers.get("ack").or_else(|| headers.get("message-id")) {
                    self.deliveries.push_back(((*id).to_owned(), subscription));
                    self.deliveries.truncate(64);
                }
            }
            "ERROR" => self.has_error = true,
            "CONNECTED" | "RECEIPT" | "DIAG" => {}
            other => panic!("a broker does not say {other:?}"),
        }
    }
}
