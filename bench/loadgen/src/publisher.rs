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
    websocket: bool,
}

/// One frame with sequence number 0, over WebSocket inside its masked frame.
#[derive(Debug)]
struct Template {
    bytes: Vec<u8>,
    digits_at: usize,
    /// Mask of the digits; zero over TCP.
    mask: [u8; DIGITS],
}

impl Publisher {
    /// A publisher that starts at message 0.
    pub fn new(connection: usize, feed: Rc<Feed>, websocket: bool) -> Publisher {
        let send = |destination: &String| {
            let frame = stomp::send(destination, feed.body.template(), None);
            Template::new(&frame, frame.len() - 1 - feed.body.size() + feed.body.sequence_at(), websocket)
        };
        let templates = feed.destinations.iter().map(send).collect();
        Publisher { connection, next: 0, goal: 0, digits: body::digits(0), templates, feed, websocket }
    }

    /// Approximate octets of a frame.
    pub fn frame_len(&self) -> usize {
        self.templates[0].bytes.len()
    }

    /// Appends the next `count` frames.
    pub fn fill(&mut self, out: &mut Vec<u8>, count: u64) {
        let turns = self.templates.len() as u64;
        for _ in 0..count {
            let turn = if turns == 1 { 0 } else { self.next % turns };
            let template = &self.templates[usize::try_from(turn).expect("an index")];
            let at = out.len() + template.digits_at;
            out.extend_from_slice(&template.bytes);
            let digits = u64::from_ne_bytes(self.digits) ^ u64::from_ne_bytes(template.mask);
            out[at..at + DIGITS].copy_from_slice(&digits.to_ne_bytes());
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
        let frame = stomp::send(&self.feed.destinations[turn], &body, Some(receipt));
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
    fn new(frame: &[u8], digits_at: usize, websocket: bool) -> Template {
        if !websocket {
            return Template { bytes: frame.to_vec(), digits_at, mask: [0; DIGITS] };
        }
        let bytes = ws::client_frame(ws::TEXT, frame);
        let header = bytes.len() - frame.len();
        let key = &bytes[header - 4..header];
        let mask = std::array::from_fn(|digit| key[(digits_at + digit) % 4]);
        Template { digits_at: header + digits_at, mask, bytes }
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

    #[test]
    fn frames_are_numbered_and_destinations_take_turns() {
        let mut publisher = Publisher::new(0, feed(), false);
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
        Publisher::new(0, feed(), false).fill(&mut plain, 12);
        Publisher::new(0, feed(), true).fill(&mut masked, 12);
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
