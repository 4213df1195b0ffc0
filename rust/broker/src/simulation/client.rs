//! A client of a simulated broker. It sends what it is told to, and checks every frame that it receives.

use std::collections::{HashMap, VecDeque};
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;

/// Longer bodies are not recorded.
const BODY_BYTES_MAX: usize = 16;

/// One end of a connection, and a record of the dialogue.
#[derive(Debug)]
pub struct Client {
    stream: UnixStream,
    /// Bytes that the socket has not accepted yet.
    unsent: Vec<u8>,
    /// An incomplete frame.
    received: Vec<u8>,
    /// Receipts requested and not yet received, in the order of their frames.
    expected_receipts: VecDeque<u64>,
    last_receipt: u64,
    /// Unused values of `ack` (before 1.2: of `message-id`) and `subscription` of received messages.
    pub deliveries: VecDeque<(String, String)>,
    /// Whether it sent invalid bytes or closed its side, so that no answer is guaranteed.
    may_lack_answers: bool,
    /// Bodies of received MESSAGEs, except long ones.
    pub bodies: Vec<String>,
    /// Number of rows in the received answers to DIAG.
    pub rows: usize,
    has_error: bool,
    is_closed: bool,
    /// The frames that were sent and received, printed if the test fails.
    transcript: Vec<String>,
}

impl Drop for Client {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- a client (wild: {}, ended: {})", self.may_lack_answers, self.is_closed);
            self.transcript.iter().for_each(|line| eprintln!("{line}"));
        }
    }
}

impl Client {
    /// A client at one end of a socket pair.
    #[must_use]
    pub fn new(stream: UnixStream) -> Self {
        Client {
            stream,
            unsent: Vec::new(),
            received: Vec::new(),
            expected_receipts: VecDeque::new(),
            last_receipt: 0,
            deliveries: VecDeque::new(),
            may_lack_answers: false,
            bodies: Vec::new(),
            rows: 0,
            has_error: false,
            is_closed: false,
            transcript: Vec::new(),
        }
    }

    /// Registers a receipt that must arrive after all registered before; returns its number for the `receipt` header.
    pub fn expect_receipt(&mut self) -> u64 {
        self.last_receipt += 1;
        self.expected_receipts.push_back(self.last_receipt);
        self.last_receipt
    }

    /// Sends bytes. Those that the socket does not accept are sent later, before anything else.
    pub fn send(&mut self, bytes: &[u8]) {
        self.log("> ", bytes);
        self.unsent.extend_from_slice(bytes);
        self.flush(self.unsent.len());
    }

    /// Sends all but the last `held` bytes, which follow with whatever is sent next.
    pub fn send_partially(&mut self, bytes: &[u8], held: usize) {
        self.log("> (in part) ", bytes);
        self.unsent.extend_from_slice(bytes);
        self.flush(self.unsent.len().saturating_sub(held));
    }

    /// Sends bytes that may not be valid STOMP.
    pub fn send_invalid(&mut self, bytes: &[u8]) {
        self.may_lack_answers = true;
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
                    sent = self.unsent.len(); // the broker has closed; its last frames can still be read
                    break;
                }
            }
        }
        self.unsent.drain(..sent.min(self.unsent.len()));
    }

    /// Closes the write side.
    pub fn half_close(&mut self) {
        self.flush(self.unsent.len());
        self.may_lack_answers |= !self.unsent.is_empty();
        self.unsent.clear();
        _ = self.stream.shutdown(Shutdown::Write);
    }

    /// Whether the broker has closed the connection.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Sends pending bytes and reads up to `bytes_max`. Returns whether anything was sent or received.
    ///
    /// # Panics
    /// If the broker violates the protocol.
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

    /// The heads of the received frames in order, with line ends as ` | `; of ERRORs also the body.
    pub fn received_frames(&self) -> impl Iterator<Item = &str> {
        self.transcript.iter().filter_map(|line| line.strip_prefix("< "))
    }

    /// Whether every requested receipt has been received.
    #[must_use]
    pub fn has_all_receipts(&self) -> bool {
        self.expected_receipts.is_empty()
    }

    /// Checks that every requested receipt has been received, or that the connection is closed.
    ///
    /// # Panics
    /// If a receipt is missing.
    pub fn check_receipts(&self) {
        let is_due = !self.may_lack_answers && !self.is_closed && self.unsent.is_empty();
        assert!(
            self.expected_receipts.is_empty() || !is_due,
            "RECEIPTs {:?} are missing",
            self.expected_receipts
        );
        assert!(!self.has_error || self.is_closed, "the connection is open after an ERROR");
    }

    /// Handles the first received frame; returns its length, or `None` if it is incomplete.
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
        assert_eq!(*body.get(body_len)?, 0, "a frame ends with NUL: {head}");
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
        assert!(!self.has_error, "{command} follows an ERROR");
        match command {
            "RECEIPT" if !self.may_lack_answers => {
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
            other => panic!("not a server command: {other:?}"),
        }
    }
}
