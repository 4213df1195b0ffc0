//! Hot path: checks and acknowledges what one consumer gets from a work queue.
//!
//! Any consumer may get any message, so no number is due. All consumers share [`Arrivals`], which knows what has arrived:
//! nothing may arrive twice, and at the end nothing may be missing. On one consumer the sequence numbers of each publisher
//! must ascend; on a sole consumer they must have no gap. As in the receiver, a frame that looks like the last one is
//! accepted without parsing, and every 64th is parsed and compared in full.
//!
//! ACK frames are appended to one buffer, which the connection writes once per read.
//! Budget: 25 ns and no allocation per message, including its ACK.

use std::cell::RefCell;
use std::rc::Rc;

use super::{Feed, Layout, SAMPLE};
use crate::arrivals::Arrivals;
use crate::fault::Fault;
use crate::stomp::Head;
use crate::ws;

/// A publisher, from one consumer's view.
#[derive(Debug)]
struct Source {
    feed: Rc<Feed>,
    /// Lowest sequence number that may arrive.
    next: u64,
}

/// A consumer of a work queue.
#[derive(Debug)]
pub struct QueueConsumer {
    /// `subscription:ID`; empty for the relay, which sends no such header.
    line: Box<[u8]>,
    sources: Vec<Source>,
    arrivals: Rc<RefCell<Arrivals>>,
    /// There is no other consumer, so sequence numbers have no gaps.
    sole: bool,
    acks: Option<Acks>,
    layout: Layout,
    /// Place and length of the value of `ack` in the last frame.
    ack_at: usize,
    ack_len: usize,
    /// Publisher of the last message.
    last: usize,
    /// Messages accepted.
    pub taken: u64,
    /// Publisher and number of every 64th message, for its latency. The owner drains it.
    pub sampled: Vec<(usize, u64)>,
}

impl QueueConsumer {
    /// A consumer that has no messages yet; with `acks` each message is acknowledged.
    pub fn new(
        id: Option<&str>,
        feeds: &[Rc<Feed>],
        arrivals: Rc<RefCell<Arrivals>>,
        sole: bool,
        acks: Option<Acks>,
    ) -> QueueConsumer {
        let line = id.map(|id| format!("subscription:{id}").into_bytes()).unwrap_or_default();
        let sources = feeds.iter().map(|feed| Source { feed: Rc::clone(feed), next: 0 }).collect();
        let line = line.into_boxed_slice();
        QueueConsumer {
            line,
            sources,
            arrivals,
            sole,
            acks,
            layout: Layout::default(),
            ack_at: 0,
            ack_len: 0,
            last: 0,
            taken: 0,
            sampled: Vec::new(),
        }
    }

    /// Lowest sequence number of a publisher that may still arrive here.
    pub fn next(&self, publisher: usize) -> u64 {
        self.sources[publisher].next
    }

    /// ACK frames to write.
    pub fn acks(&mut self) -> Option<&mut Vec<u8>> {
        self.acks.as_mut().map(|acks| &mut acks.out).filter(|out| !out.is_empty())
    }

    /// Accepts frames from the start of `bytes` while they look like the last one; returns their octets and number.
    #[inline]
    pub fn take_alike(&mut self, bytes: &[u8], magic: u64) -> Result<(usize, u64), Fault> {
        let arrivals = Rc::clone(&self.arrivals);
        let mut arrivals = arrivals.borrow_mut();
        let (mut at, before) = (0, self.taken);
        while let Some((head, body)) = self.alike(&bytes[at..], magic) {
            self.note(body, &mut arrivals)?;
            if let Some(acks) = &mut self.acks {
                acks.push(&head[self.ack_at..self.ack_at + self.ack_len]);
            }
            at += self.layout.frame_len;
        }
        Ok((at, self.taken - before))
    }

    /// Head and body of the next frame, if it has the layout of the last one.
    #[inline]
    fn alike<'a>(&self, bytes: &'a [u8], magic: u64) -> Option<(&'a [u8], &'a [u8])> {
        if self.taken.is_multiple_of(SAMPLE) {
            return None;
        }
        let (head, body) = self.layout.split(bytes, magic, &self.line)?;
        let has_ack = self.acks.is_none()
            || (head.get(self.ack_at - 5..self.ack_at) == Some(b"\nack:")
                && head.get(self.ack_at + self.ack_len) == Some(&b'\n'));
        has_ack.then_some((head, body))
    }

    /// Accepts one parsed message and returns its octets; 0 if it is incomplete.
    pub fn take(&mut self, head: &Head<'_>, bytes: &[u8]) -> Result<usize, Fault> {
        let (line_at, line) = head.subscription.unwrap_or_default();
        if *line != *self.line {
            return Err(Fault::malformed("message for an unknown subscription", bytes));
        }
        let body = &bytes[head.body_at..];
        // Every publisher of a queue sends bodies of the same size.
        let size = self.sources[0].feed.body.size();
        if body.len() <= size {
            return Ok(0);
        }
        if body[size] != 0 {
            return Err(Fault::malformed("no NUL after the body", bytes));
        }
        let arrivals = Rc::clone(&self.arrivals);
        let (publisher, sequence) = self.note(body, &mut arrivals.borrow_mut())?;
        self.check(publisher, sequence, head, &body[..size])?;
        self.sampled.push((publisher, sequence));
        let frame_len = head.body_at + size + 1;
        self.layout = Layout { frame_len, body_at: head.body_at, line_at };
        if let Some(acks) = &mut self.acks {
            let Some((ack_at, ack)) = head.ack else {
                return Err(Fault::malformed("no ack header", bytes));
            };
            acks.push(ack);
            (self.ack_at, self.ack_len) = (ack_at, ack.len());
        }
        Ok(frame_len)
    }

    /// Checks headers and fill, which are not checked for every message.
    fn check(&self, publisher: usize, sequence: u64, head: &Head<'_>, body: &[u8]) -> Result<(), Fault> {
        let feed = &self.sources[publisher].feed;
        let altered = |what: String| {
            Err(Fault::Altered(format!(
                "{}: message {sequence} of publisher {publisher}: {what}",
                self.name()
            )))
        };
        if let Some(length) = head.content_length
            && length != body.len()
        {
            return altered(format!("content-length {length}"));
        }
        if head.destination != Some(feed.destinations[0].as_bytes()) {
            let got = String::from_utf8_lossy(head.destination.unwrap_or_default());
            return altered(format!("destination {got}, not {}", feed.destinations[0]));
        }
        if !feed.body.fill_is_intact(0, body) {
            return altered("its body".to_owned());
        }
        Ok(())
    }

    /// Records a message; returns its publisher and number.
    #[inline]
    fn note(&mut self, body: &[u8], arrivals: &mut Arrivals) -> Result<(usize, u64), Fault> {
        let last = self.sources[self.last].feed.body.sequence(body);
        let found = last.map(|sequence| (self.last, sequence)).or_else(|| self.search(body));
        let Some((publisher, sequence)) = found else {
            return Err(Fault::Altered(format!("{}: not a body of any publisher", self.name())));
        };
        let due = self.sources[publisher].next;
        if !arrivals.note(publisher, sequence) {
            return Err(Fault::Doubled { subscription: self.name(), publisher, sequence });
        }
        if sequence < due || (self.sole && sequence > due) {
            return Err(self.out_of_order(sequence, due));
        }
        self.sources[publisher].next = sequence + 1;
        self.last = publisher;
        self.taken += 1;
        Ok((publisher, sequence))
    }

    fn search(&self, body: &[u8]) -> Option<(usize, u64)> {
        let mut numbered = self.sources.iter().enumerate();
        numbered.find_map(|(publisher, source)| Some((publisher, source.feed.body.sequence(body)?)))
    }

    #[cold]
    fn out_of_order(&self, got: u64, expected: u64) -> Fault {
        let subscription = self.name();
        if got > expected {
            Fault::Gap { subscription, expected, got }
        } else {
            Fault::Repeat { subscription, expected, got }
        }
    }

    fn name(&self) -> String {
        if self.line.is_empty() {
            return "the relay's connection".to_owned();
        }
        String::from_utf8_lossy(&self.line).into_owned()
    }
}

/// ACK frames of STOMP 1.2, one for each message.
#[derive(Debug)]
pub struct Acks {
    out: Vec<u8>,
    /// Masking key over WebSocket, where each ACK is a frame of its own; always the same, as for SEND.
    key: Option<[u8; 4]>,
}

impl Acks {
    /// Starts without frames.
    pub fn new(websocket: bool) -> Acks {
        Acks { out: Vec::new(), key: websocket.then(rand::random) }
    }

    /// Appends an ACK. `id` is sent back escaped, as it arrived.
    #[inline]
    fn push(&mut self, id: &[u8]) {
        const COMMAND: &[u8] = b"ACK\nid:";
        const END: &[u8] = b"\n\n\0";
        if let Some(key) = self.key {
            ws::write_header(&mut self.out, ws::TEXT, COMMAND.len() + id.len() + END.len(), Some(key));
        }
        let at = self.out.len();
        self.out.extend_from_slice(COMMAND);
        self.out.extend_from_slice(id);
        self.out.extend_from_slice(END);
        if let Some(key) = self.key {
            ws::mask(&mut self.out[at..], key, 0);
        }
    }
}

#[cfg(test)]
mod tests;
