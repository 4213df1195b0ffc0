//! Hot path: SEND frames from templates, into which only the sequence number is written.

use std::rc::Rc;

use crate::body::{self, DIGITS};
use crate::receiver::Feed;
use crate::{stomp, ws};

/// First sequence number that does not fit into a body.
pub const SEQUENCE_END: u64 = 100_000_000;

/// Makes the frames of one publisher.
#[derive(Debug)]
pub struct Publisher {
    /// Connection that writes them.
    pub connection: usize,
    /// Sequence number of the next message.
    pub next: u64,
    /// Sequence number at which to stop.
    pub goal: u64,
    digits: [u8; DIGITS],
    templates: Vec<Template>,
    feed: Rc<Feed>,
    sending: Sending,
    websocket: bool,
}

/// One frame with sequence number 0, over WebSocket inside its masked frame.
#[derive(Debug)]
struct Template {
    bytes: Vec<u8>,
    /// The sequence number in the body.
    number: Place,
    /// The same as id of a receipt, if each message has one.
    receipt: Option<Place>,
}

/// Digits of a sequence number in a template.
#[derive(Debug)]
struct Place {
    at: usize,
    /// Their mask; zero over TCP.
    mask: [u8; DIGITS],
}

impl Place {
    /// Writes the digits into a copy of the template.
    #[inline]
    fn fill(&self, frame: &mut [u8], digits: [u8; DIGITS]) {
        let digits = u64::from_ne_bytes(digits) ^ u64::from_ne_bytes(self.mask);
        frame[self.at..self.at + DIGITS].copy_from_slice(&digits.to_ne_bytes());
    }
}

/// Further headers of every SEND.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sending {
    /// `persistent:true`.
    pub persistent: bool,
    /// `receipt`, with the sequence number as its id.
    pub receipts: bool,
}

impl Sending {
    fn persistent(self) -> &'static str {
        if self.persistent { "persistent:true\n" } else { "" }
    }

    /// Further headers of the message with sequence number 0. The receipt is the last one.
    fn headers(self) -> String {
        let receipt = if self.receipts { stomp::receipt("00000000") } else { String::new() };
        format!("{}{receipt}", self.persistent())
    }
}

impl Publisher {
    /// A publisher that starts at message 0.
    pub fn new(connection: usize, feed: Rc<Feed>, sending: Sending, websocket: bool) -> Publisher {
        let send = |destination: &String| {
            let frame = stomp::send(destination, feed.body.template(), &sending.headers());
            let body_at = frame.len() - 1 - feed.body.size();
            // Two line ends separate the receipt, which is the last header, from the body.
            let receipt_at = sending.receipts.then(|| body_at - 2 - DIGITS);
            Template::new(&frame, body_at + feed.body.sequence_at(), receipt_at, websocket)
        };
        let templates = feed.destinations.iter().map(send).collect();
        Publisher {
            connection,
            next: 0,
            goal: 0,
            digits: body::digits(0),
            templates,
            feed,
            sending,
            websocket,
        }
    }

    /// Approximate octets of a frame.
    pub fn frame_len(&self) -> usize {
        self.templates[0].bytes.len()
    }

    /// Octets of a frame over TCP without its receipt, which no broker has to store.
    pub fn stored_len(&self) -> usize {
        stomp::send(&self.feed.destinations[0], self.feed.body.template(), self.sending.persistent()).len()
    }

    /// Appends the next `count` frames.
    pub fn fill(&mut self, out: &mut Vec<u8>, count: u64) {
        let turns = self.templates.len() as u64;
        for _ in 0..count {
            let turn = if turns == 1 { 0 } else { self.next % turns };
            let template = &self.templates[usize::try_from(turn).expect("an index")];
            let at = out.len();
            out.extend_from_slice(&template.bytes);
            template.number.fill(&mut out[at..], self.digits);
            if let Some(receipt) = &template.receipt {
                receipt.fill(&mut out[at..], self.digits);
            }
            body::increment(&mut self.digits);
            self.next += 1;
        }
    }

    /// Appends the next frame, with a receipt.
    pub fn fill_with_receipt(&mut self, out: &mut Vec<u8>, receipt: &str) {
        let mut body = self.feed.body.template().to_vec();
        let at = self.feed.body.sequence_at();
        body[at..at + DIGITS].copy_from_slice(&self.digits);
        let turn = usize::try_from(self.next).expect("64-bit") % self.feed.destinations.len();
        let headers = format!("{}{}", self.sending.persistent(), stomp::receipt(receipt));
        let frame = stomp::send(&self.feed.destinations[turn], &body, &headers);
        if self.websocket {
            out.extend(ws::client_frame(ws::TEXT, &frame));
        } else {
            out.extend(frame);
        }
        body::increment(&mut self.digits);
        self.next += 1;
    }
}

impl Template {
    /// All frames of a publisher have the same masking key: drawing a key for each would measure the generator.
    fn new(frame: &[u8], number_at: usize, receipt_at: Option<usize>, websocket: bool) -> Template {
        let place = |at, mask| Place { at, mask };
        if !websocket {
            let plain = |at| place(at, [0; DIGITS]);
            return Template {
                bytes: frame.to_vec(),
                number: plain(number_at),
                receipt: receipt_at.map(plain),
            };
        }
        let bytes = ws::client_frame(ws::TEXT, frame);
        let header = bytes.len() - frame.len();
        let key: [u8; 4] = bytes[header - 4..header].try_into().expect("four octets");
        let masked = |at: usize| place(header + at, std::array::from_fn(|digit| key[(at + digit) % 4]));
        Template { number: masked(number_at), receipt: receipt_at.map(masked), bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::body::Body;

    fn feed() -> Rc<Feed> {
        let destinations = vec!["/topic/0".into(), "/topic/1".into()];
        Rc::new(Feed { body: Body::new("hello ", 14), destinations })
    }

    const NUMBERED: Sending = Sending { persistent: true, receipts: true };

    #[test]
    fn receipts_are_numbered_like_the_messages() {
        let mut publisher = Publisher::new(0, feed(), NUMBERED, false);
        let mut out = Vec::new();
        publisher.fill(&mut out, 1);
        out.clear();
        publisher.fill(&mut out, 1);
        let expected = "SEND\ndestination:/topic/1\ncontent-length:14\npersistent:true\nreceipt:00000001\n\n\
                        hello 00000001\0";
        assert_eq!(String::from_utf8(out).expect("text"), expected);
    }

    #[test]
    fn frames_are_numbered_and_destinations_take_turns() {
        let mut publisher = Publisher::new(0, feed(), Sending::default(), false);
        let mut out = Vec::new();
        publisher.fill(&mut out, 2);
        publisher.fill_with_receipt(&mut out, "r");
        let expected = "SEND\ndestination:/topic/0\ncontent-length:14\n\nhello 00000000\0\
                        SEND\ndestination:/topic/1\ncontent-length:14\n\nhello 00000001\0\
                        SEND\ndestination:/topic/0\ncontent-length:14\nreceipt:r\n\nhello 00000002\0";
        assert_eq!(String::from_utf8(out).expect("text"), expected);
        assert_eq!(publisher.next, 3);
    }

    #[test]
    fn websocket_frames_unmask_to_the_same() {
        let (mut plain, mut masked) = (Vec::new(), Vec::new());
        Publisher::new(0, feed(), NUMBERED, false).fill(&mut plain, 12);
        Publisher::new(0, feed(), NUMBERED, true).fill(&mut masked, 12);
        let mut unmasked = Vec::new();
        let frame = plain.len() / 12;
        for part in masked.chunks_mut(frame + 6) {
            let (header, payload) = part.split_at_mut(6);
            assert_eq!(header[..2], [0x81, 0x80 | u8::try_from(frame).expect("short")]);
            ws::mask(payload, header[2..].try_into().expect("four octets"), 0);
            unmasked.extend_from_slice(payload);
        }
        assert_eq!(unmasked, plain);
    }
}
