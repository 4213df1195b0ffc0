//! Hot path: checks every MESSAGE of one connection, in the order in which its bytes arrive.
//!
//! A [`Subscription`] knows its publisher and the sequence number due next. A frame is expected to look like the last one of
//! its subscription, with the same length and the body at the same place. If the octets that show this are there (command,
//! subscription, end of head, publisher's tag, sequence number, final NUL), it is accepted without parsing. Otherwise, and
//! for every 64th message of a subscription, the head is parsed and the whole body compared.
//! Budget: 10 ns and no allocation per message. A consumer of a work queue has a [`QueueConsumer`] instead.

mod layout;
mod queue_consumer;

use std::rc::Rc;

use crate::body::Body;
use crate::fault::Fault;
use crate::receipts;
use crate::stomp::{self, Head};

use layout::Layout;
pub use queue_consumer::{Acks, QueueConsumer};

/// Bodies of this size and more are checked as they arrive, not collected first.
pub const STREAM_MIN: usize = 4096;

/// One message in this many is parsed and compared in full.
const SAMPLE: u64 = 64;

/// What a publisher sends: its bodies, and its destinations in turn.
#[derive(Debug)]
pub struct Feed {
    /// Bodies of the publisher.
    pub body: Body,
    /// Destinations, used in turn: message `n` goes to number `n % len`.
    pub destinations: Vec<String>,
}

/// A frame that is not a MESSAGE.
#[derive(Debug, PartialEq, Eq)]
pub enum Control {
    /// CONNECTED.
    Connected,
    /// RECEIPT with its `receipt-id`.
    Receipt(String),
    /// ERROR with its `message`.
    Error(String),
}

/// One subscription and the message due on it.
#[derive(Debug)]
pub struct Subscription {
    /// Index of its publisher.
    pub publisher: usize,
    /// Index among the subscriptions of that publisher.
    pub slot: usize,
    /// Sequence number of the message due next.
    pub due: u64,
    /// `subscription:ID`; empty for the relay, which sends no such header.
    line: Box<[u8]>,
    feed: Rc<Feed>,
    /// Subscription of the message after this subscription's last one.
    successor: usize,
    layout: Layout,
}

impl Subscription {
    /// A subscription on which message `due` is next.
    pub fn new(id: Option<&str>, publisher: usize, slot: usize, feed: Rc<Feed>, due: u64) -> Subscription {
        let line = id.map(|id| format!("subscription:{id}").into_bytes()).unwrap_or_default();
        let line = line.into_boxed_slice();
        Subscription { publisher, slot, due, line, feed, successor: 0, layout: Layout::default() }
    }

    /// Octets of the frame, if it looks like the last one and carries the message that is due.
    #[inline]
    fn predict(&self, bytes: &[u8], magic: u64) -> Option<usize> {
        if self.due.is_multiple_of(SAMPLE) {
            return None;
        }
        let (_, body) = self.layout.split(bytes, magic, &self.line)?;
        (self.feed.body.sequence(body) == Some(self.due)).then_some(self.layout.frame_len)
    }

    fn name(&self) -> String {
        if self.line.is_empty() {
            return format!("the relay's connection of publisher {}", self.publisher);
        }
        String::from_utf8_lossy(&self.line).into_owned()
    }

    /// Compares the sequence number of a body with the one due.
    fn check_sequence(&self, body: &[u8]) -> Result<(), Fault> {
        let subscription = self.name();
        let expected = self.due;
        match self.feed.body.sequence(body) {
            None => {
                Err(Fault::Altered(format!("{subscription}: not a body of publisher {}", self.publisher)))
            }
            Some(got) if got > expected => Err(Fault::Gap { subscription, expected, got }),
            Some(got) if got < expected => Err(Fault::Repeat { subscription, expected, got }),
            Some(_) => Ok(()),
        }
    }

    fn check_head(&self, head: &Head<'_>) -> Result<(), Fault> {
        if let Some(length) = head.content_length
            && length != self.feed.body.size()
        {
            return Err(Fault::Altered(format!("{}: content-length {length}", self.name())));
        }
        let turn = usize::try_from(self.due).expect("64-bit") % self.feed.destinations.len();
        let destination = &self.feed.destinations[turn];
        if head.destination != Some(destination.as_bytes()) {
            let got = String::from_utf8_lossy(head.destination.unwrap_or_default());
            return Err(Fault::Altered(format!("{}: destination {got}, not {destination}", self.name())));
        }
        Ok(())
    }
}

/// A large body whose end has not arrived yet.
#[derive(Debug, Clone, Copy)]
struct Open {
    subscription: usize,
    /// Octets of the body that have arrived.
    seen: usize,
    /// Whether the fill is compared.
    compare: bool,
}

/// Checks the STOMP bytes of one connection.
#[derive(Debug)]
pub struct Receiver {
    /// Subscriptions of the connection.
    pub subscriptions: Vec<Subscription>,
    /// Messages checked so far.
    pub delivered: u64,
    /// The consumer of a work queue, if this is one; then it has no subscriptions.
    pub consumer: Option<QueueConsumer>,
    /// Frames other than MESSAGE, for the owner to handle.
    pub control: Vec<Control>,
    /// Numbers of RECEIPTs, if ids of receipts are numbers; the owner drains them.
    pub receipts: Option<Vec<u64>>,
    /// First eight octets of a message frame: MESSAGE, or SEND from the relay.
    magic: u64,
    /// Subscription of the last message, and the subscription expected next.
    last: usize,
    expected: usize,
    open: Option<Open>,
}

impl Receiver {
    /// A receiver for a broker (`MESSAGE`) or, with `relay`, for the ideal relay (`SEND`).
    pub fn new(subscriptions: Vec<Subscription>, relay: bool) -> Receiver {
        let magic = u64::from_le_bytes(if relay { *b"SEND\ndes" } else { *b"MESSAGE\n" });
        let control = Vec::new();
        Receiver {
            subscriptions,
            delivered: 0,
            consumer: None,
            control,
            receipts: None,
            magic,
            last: 0,
            expected: 0,
            open: None,
        }
    }

    /// A receiver for a consumer of a work queue.
    pub fn consuming(consumer: QueueConsumer, relay: bool) -> Receiver {
        Receiver { consumer: Some(consumer), ..Receiver::new(Vec::new(), relay) }
    }

    /// Whether messages may arrive.
    pub fn subscribes(&self) -> bool {
        self.consumer.is_some() || !self.subscriptions.is_empty()
    }

    /// Whether no large body is incomplete.
    pub fn is_between_frames(&self) -> bool {
        self.open.is_none()
    }

    /// Takes bytes and returns how many were used. The rest belongs to an incomplete frame and must be passed again,
    /// followed by more. Errors are final.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<usize, Fault> {
        if self.consumer.is_some() {
            return self.feed_consumer(bytes);
        }
        if self.receipts.is_some() {
            return self.feed_receipts(bytes);
        }
        let mut at = 0;
        if self.open.is_some() {
            at = self.feed_open(bytes)?;
        }
        while at < bytes.len() && self.open.is_none() {
            let rest = &bytes[at..];
            if let Some(subscription) = self.subscriptions.get_mut(self.expected)
                && let Some(length) = subscription.predict(rest, self.magic)
            {
                subscription.due += 1;
                self.last = self.expected;
                self.expected = subscription.successor;
                self.delivered += 1;
                at += length;
                continue;
            }
            match self.parse(rest)? {
                0 => break,
                used => at += used,
            }
        }
        Ok(at)
    }

    /// The same for a consumer of a work queue.
    fn feed_consumer(&mut self, bytes: &[u8]) -> Result<usize, Fault> {
        let mut at = 0;
        while at < bytes.len() {
            let Some(consumer) = &mut self.consumer else { break };
            let (octets, messages) = consumer.take_alike(&bytes[at..], self.magic)?;
            at += octets;
            self.delivered += messages;
            if at == bytes.len() {
                break;
            }
            match self.parse(&bytes[at..])? {
                0 => break,
                used => at += used,
            }
        }
        Ok(at)
    }

    /// The same for a publisher whose messages have numbered receipts.
    fn feed_receipts(&mut self, bytes: &[u8]) -> Result<usize, Fault> {
        let mut at = 0;
        while at < bytes.len() {
            if let (Some(numbers), Some((number, octets))) =
                (&mut self.receipts, receipts::take(&bytes[at..]))
            {
                numbers.push(number);
                at += octets;
                continue;
            }
            match self.parse(&bytes[at..])? {
                0 => break,
                used => at += used,
            }
        }
        Ok(at)
    }

    /// Parses one frame or one EOL; 0: incomplete.
    fn parse(&mut self, bytes: &[u8]) -> Result<usize, Fault> {
        if matches!(bytes[0], b'\n' | b'\r') {
            return Ok(1);
        }
        let Some(head) = stomp::head(bytes)? else { return Ok(0) };
        match head.command {
            b"MESSAGE" | b"SEND" => self.message(&head, bytes),
            _ => self.other(&head, bytes),
        }
    }

    fn other(&mut self, head: &Head<'_>, bytes: &[u8]) -> Result<usize, Fault> {
        let body = &bytes[head.body_at..];
        let end = match head.content_length {
            Some(length) => Some(length).filter(|&length| length < body.len()),
            None => memchr::memchr(0, body),
        };
        let Some(end) = end else { return Ok(0) };
        if body[end] != 0 {
            return Err(Fault::malformed("no NUL after the body", bytes));
        }
        let text = |value: Option<&[u8]>| String::from_utf8_lossy(value.unwrap_or_default()).into_owned();
        if let (Some(numbers), b"RECEIPT", Some(id)) = (&mut self.receipts, head.command, head.receipt_id)
            && let Some(number) = receipts::number(id)
        {
            numbers.push(number);
            return Ok(head.body_at + end + 1);
        }
        self.control.push(match head.command {
            b"CONNECTED" => Control::Connected,
            b"RECEIPT" => Control::Receipt(text(head.receipt_id)),
            b"ERROR" => Control::Error(text(head.message)),
            _ => return Err(Fault::malformed("unknown command", bytes)),
        });
        Ok(head.body_at + end + 1)
    }

    fn message(&mut self, head: &Head<'_>, bytes: &[u8]) -> Result<usize, Fault> {
        if let Some(consumer) = &mut self.consumer {
            let used = consumer.take(head, bytes)?;
            self.delivered += u64::from(used > 0);
            return Ok(used);
        }
        let index = self.subscription_of(head, bytes)?;
        let subscription = &mut self.subscriptions[index];
        let body = &bytes[head.body_at..];
        let size = subscription.feed.body.size();
        if body.len() < subscription.feed.body.prefix() {
            return Ok(0);
        }
        subscription.check_sequence(body)?;
        subscription.check_head(head)?;
        if body.len() <= size {
            if size < STREAM_MIN || head.content_length.is_none() {
                return Ok(0);
            }
            let compare = subscription.due.is_multiple_of(SAMPLE);
            self.open = Some(Open { subscription: index, seen: 0, compare });
            return Ok(head.body_at + self.feed_open(body)?);
        }
        if body[size] != 0 {
            return Err(Fault::malformed("no NUL after the body", bytes));
        }
        if !subscription.feed.body.fill_is_intact(0, &body[..size]) {
            return Err(Fault::Altered(format!(
                "{}: body of message {}",
                subscription.name(),
                subscription.due
            )));
        }
        let frame_len = head.body_at + size + 1;
        let line_at = head.subscription.map(|(at, _)| at).unwrap_or_default();
        subscription.layout = Layout { frame_len, body_at: head.body_at, line_at };
        self.done(index);
        Ok(frame_len)
    }

    /// Continues a large body.
    fn feed_open(&mut self, bytes: &[u8]) -> Result<usize, Fault> {
        let Some(open) = &mut self.open else { return Ok(0) };
        let subscription = &self.subscriptions[open.subscription];
        let left = subscription.feed.body.size() - open.seen;
        let part = &bytes[..left.min(bytes.len())];
        if open.compare && !subscription.feed.body.fill_is_intact(open.seen, part) {
            return Err(Fault::Altered(format!(
                "{}: body of message {}",
                subscription.name(),
                subscription.due
            )));
        }
        open.seen += part.len();
        match bytes.get(left) {
            None => Ok(part.len()),
            Some(0) => {
                let index = open.subscription;
                self.open = None;
                self.done(index);
                Ok(left + 1)
            }
            Some(_) => Err(Fault::malformed("no NUL after a large body", &bytes[left..])),
        }
    }

    fn done(&mut self, index: usize) {
        self.subscriptions[index].due += 1;
        self.delivered += 1;
        self.subscriptions[self.last].successor = index;
        self.last = index;
        self.expected = self.subscriptions[index].successor;
    }

    fn subscription_of(&self, head: &Head<'_>, bytes: &[u8]) -> Result<usize, Fault> {
        let line = head.subscription.map(|(_, line)| line).unwrap_or_default();
        let expected =
            self.subscriptions.get(self.expected).filter(|subscription| *subscription.line == *line);
        if expected.is_some() {
            return Ok(self.expected);
        }
        self.subscriptions
            .iter()
            .position(|subscription| *subscription.line == *line)
            .ok_or_else(|| Fault::malformed("message for an unknown subscription", bytes))
    }
}

#[cfg(test)]
mod tests;
