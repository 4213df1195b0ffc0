//! Hot path: what one consumer gets of a work queue, checked and acknowledged.
//!
//! Any consumer may get any message, so no number is due. Instead the [`Arrivals`] that all consumers share knows what has
//! arrived anywhere: nothing may come twice, and at the end nothing may be missing. On one consumer the messages of one
//! publisher must ascend; on the only consumer they must do so without a gap. As in the receiver, a frame that looks
//! like the last one is taken without being parsed, and every 64th is parsed and compared in full.
//!
//! ACK frames are appended to one buffer, which the connection writes once for all that a read brought.
//! Budget: 25 ns and no allocation a message, its ACK included.

use std::cell::RefCell;
use std::rc::Rc;

use super::{Feed, SAMPLE};
use crate::arrivals::Arrivals;
use crate::fault::Fault;
use crate::stomp::Head;
use crate::ws;

/// A publisher, as one consumer sees it.
#[derive(Debug)]
struct Source {
    feed: Rc<Feed>,
    /// Least sequence number that may come.
    next: u64,
}

/// Where things are in a frame that looks like the last one.
#[derive(Debug, Clone, Copy, Default)]
struct Shape {
    /// Octets of the frame; 0: none was parsed yet.
    frame_len: usize,
    body_at: usize,
    line_at: usize,
    ack_at: usize,
    ack_len: usize,
}

/// One consumer's part of a work queue.
#[derive(Debug)]
pub struct QueueConsumer {
    /// `subscription:ID`, or nothing where the peer does not say it (the relay).
    line: Box<[u8]>,
    sources: Vec<Source>,
    arrivals: Rc<RefCell<Arrivals>>,
    /// No other consumer can have what does not come here.
    sole: bool,
    acks: Option<Acks>,
    shape: Shape,
    /// Publisher of the last message.
    last: usize,
    /// Messages taken.
    pub taken: u64,
    /// Publisher and number of every 64th message, for its latency; the owner empties it.
    pub sampled: Vec<(usize, u64)>,
}

impl QueueConsumer {
    /// A consumer that has had nothing yet; `acks` where each message is to be acknowledged.
    pub fn new(
        subscription: Option<&str>,
        feeds: &[Rc<Feed>],
        arrivals: Rc<RefCell<Arrivals>>,
        sole: bool,
        acks: Option<Acks>,
    ) -> QueueConsumer {
        let line = subscription.map(|id| format!("subscription:{id}").into_bytes()).unwrap_or_default();
        let sources = feeds.iter().map(|feed| Source { feed: Rc::clone(feed), next: 0 }).collect();
        let line = line.into_boxed_slice();
        QueueConsumer {
            line,
            sources,
            arrivals,
            sole,
            acks,
            shape: Shape::default(),
            last: 0,
            taken: 0,
            sampled: Vec::new(),
        }
    }

    /// Least sequence number of a publisher that may still come here.
    pub fn next(&self, publisher: usize) -> u64 {
        self.sources[publisher].next
    }

    /// ACK frames that wait to be written.
    pub fn acks(&mut self) -> Option<&mut Vec<u8>> {
        self.acks.as_mut().map(|acks| &mut acks.out).filter(|out| !out.is_empty())
    }

    /// Takes frames from the start of `bytes` while they look like the last one; returns octets and messages taken.
    #[inline]
    pub fn take_alike(&mut self, bytes: &[u8], magic: u64) -> Result<(usize, u64), Fault> {
        let arrivals = Rc::clone(&self.arrivals);
        let mut arrivals = arrivals.borrow_mut();
        let (mut at, before) = (0, self.taken);
        while let Some(frame) = self.alike(&bytes[at..], magic) {
            let Shape { frame_len, body_at, ack_at, ack_len, .. } = self.shape;
            self.note(&frame[body_at..], &mut arrivals)?;
            if let Some(acks) = &mut self.acks {
                acks.push(&frame[ack_at..ack_at + ack_len]);
            }
            at += frame_len;
        }
        Ok((at, self.taken - before))
    }

    /// The next frame, if all that was parsed of the last one is at its place.
    #[inline]
    fn alike<'a>(&self, bytes: &'a [u8], magic: u64) -> Option<&'a [u8]> {
        let shape = &self.shape;
        if shape.frame_len == 0 || self.taken.is_multiple_of(SAMPLE) {
            return None;
        }
        let frame = bytes.get(..shape.frame_len)?;
        let (head, body) = frame.split_at(shape.body_at);
        let begins = u64::from_le_bytes(head.get(..8)?.try_into().ok()?) == magic;
        let ends = head.ends_with(b"\n\n") && body.last() == Some(&0);
        // Comparing nothing must not call memcmp, see `Lane::predict`.
        let named = self.line.is_empty()
            || head.get(shape.line_at..shape.line_at + self.line.len()) == Some(&self.line);
        let has_ack = self.acks.is_none()
            || (head.get(shape.ack_at - 5..shape.ack_at) == Some(b"\nack:")
                && head.get(shape.ack_at + shape.ack_len) == Some(&b'\n'));
        (begins && ends && named && has_ack).then_some(frame)
    }

    /// Takes one message that was parsed; 0: incomplete.
    pub fn take(&mut self, head: &Head<'_>, bytes: &[u8]) -> Result<usize, Fault> {
        let (line_at, line) = head.subscription.unwrap_or_default();
        if *line != *self.line {
            return Err(Fault::malformed("message for a subscription that is not there", bytes));
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
        self.shape = Shape { frame_len, body_at: head.body_at, line_at, ..Shape::default() };
        if let Some(acks) = &mut self.acks {
            let Some((ack_at, ack)) = head.ack else {
                return Err(Fault::malformed("no ack header", bytes));
            };
            acks.push(ack);
            self.shape = Shape { ack_at, ack_len: ack.len(), ..self.shape };
        }
        Ok(frame_len)
    }

    /// Compares what is not compared of every message: headers and fill.
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

    /// Takes note of a message; returns its publisher and number.
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
    /// Over WebSocket each is a masked frame of its own; the key stays the same, as for SEND.
    key: Option<[u8; 4]>,
}

impl Acks {
    /// No frames yet.
    pub fn new(websocket: bool) -> Acks {
        Acks { out: Vec::new(), key: websocket.then(rand::random) }
    }

    /// Appends an ACK. `id` goes back as it came: escaped.
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
