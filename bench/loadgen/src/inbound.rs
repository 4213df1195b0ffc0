//! Hot path: from the bytes of a socket to the receiver. Over TCP they pass as they are; over WebSocket they are unwrapped
//! in place.
//!
//! One read buffer serves all connections. The rest of a read (part of a frame) is kept by the connection and put back
//! *before* the next bytes of the stream, where there is room: [`HEADROOM`] before a read, or the octets of a parsed
//! WebSocket header. So the receiver always sees contiguous bytes, and large reads are never copied.

use std::ops::Range;

use crate::fault::Fault;
use crate::receiver::{Receiver, STREAM_MIN};
use crate::stomp::HEAD_MAX;
use crate::ws;

/// Octets kept free before every read.
pub const HEADROOM: usize = 32 * 1024;

// The rest of a read is at most a head, or a small frame with its body, and a WebSocket control frame.
const _: () = assert!(HEAD_MAX + STREAM_MIN + 256 < HEADROOM);

/// The state that a connection keeps from one read to the next.
#[derive(Debug, Default)]
pub struct Inbound {
    /// Part of a STOMP frame.
    carry: Vec<u8>,
    ws: Option<WsInbound>,
}

#[derive(Debug, Default)]
struct WsInbound {
    /// Octets of the current data frame that are still to arrive.
    left: u64,
    /// Part of a frame header or of a control frame.
    raw: Vec<u8>,
    pongs: Vec<u8>,
    close: Option<u16>,
}

impl Inbound {
    /// For a connection whose transport handshake is complete.
    pub fn new(websocket: bool) -> Inbound {
        Inbound { carry: Vec::new(), ws: websocket.then(WsInbound::default) }
    }

    /// Pongs to write, as complete client frames.
    pub fn take_pongs(&mut self) -> Vec<u8> {
        self.ws.as_mut().map(|ws| std::mem::take(&mut ws.pongs)).unwrap_or_default()
    }

    /// Code of a WebSocket close frame that arrived.
    pub fn close_code(&self) -> Option<u16> {
        self.ws.as_ref()?.close
    }

    /// Whether a ping is not answered yet.
    pub fn has_pongs(&self) -> bool {
        self.ws.as_ref().is_some_and(|ws| !ws.pongs.is_empty())
    }

    /// Whether no part of a frame is kept.
    pub fn is_between_frames(&self) -> bool {
        self.carry.is_empty() && self.ws.as_ref().is_none_or(|ws| ws.left == 0 && ws.raw.is_empty())
    }

    /// Passes a part of `buffer`, from [`HEADROOM`] or later on, to the receiver.
    pub fn take(
        &mut self,
        buffer: &mut [u8],
        part: Range<usize>,
        receiver: &mut Receiver,
    ) -> Result<(), Fault> {
        match &mut self.ws {
            None => stomp_bytes(&mut self.carry, buffer, part, receiver),
            Some(ws) => ws.take(&mut self.carry, buffer, part, receiver),
        }
    }
}

/// Passes STOMP bytes to the receiver, after what was kept.
#[inline]
fn stomp_bytes(
    carry: &mut Vec<u8>,
    buffer: &mut [u8],
    part: Range<usize>,
    receiver: &mut Receiver,
) -> Result<(), Fault> {
    let start = put_back(carry, buffer, part.start)?;
    let used = receiver.feed(&buffer[start..part.end])?;
    carry.extend_from_slice(&buffer[start + used..part.end]);
    Ok(())
}

/// Copies what was kept to the place before `from`, and returns where it begins.
#[inline]
fn put_back(carry: &mut Vec<u8>, buffer: &mut [u8], from: usize) -> Result<usize, Fault> {
    let Some(start) = from.checked_sub(carry.len()) else {
        return Err(Fault::malformed("frame too long to be kept", carry));
    };
    buffer[start..from].copy_from_slice(carry);
    carry.clear();
    Ok(start)
}

impl WsInbound {
    fn take(
        &mut self,
        carry: &mut Vec<u8>,
        buffer: &mut [u8],
        part: Range<usize>,
        receiver: &mut Receiver,
    ) -> Result<(), Fault> {
        let mut at = put_back(&mut self.raw, buffer, part.start)?;
        while at < part.end {
            if self.left > 0 {
                let length = usize::try_from(self.left).unwrap_or(usize::MAX).min(part.end - at);
                stomp_bytes(carry, buffer, at..at + length, receiver)?;
                at += length;
                self.left -= length as u64;
                continue;
            }
            let Some(header) = ws::header(&buffer[at..part.end])? else { break };
            if header.opcode <= ws::BINARY {
                self.left = header.payload;
                at += header.size;
                continue;
            }
            let end = at + header.size + usize::try_from(header.payload.min(126)).expect("at most 126");
            if header.payload > 125 {
                return Err(Fault::malformed("long WebSocket control frame", &buffer[at..part.end]));
            }
            if end > part.end {
                break;
            }
            self.control(header.opcode, &buffer[at + header.size..end])?;
            at = end;
        }
        self.raw.extend_from_slice(&buffer[at..part.end]);
        Ok(())
    }

    fn control(&mut self, opcode: u8, payload: &[u8]) -> Result<(), Fault> {
        match opcode {
            ws::PING => self.pongs.extend(ws::client_frame(ws::PONG, payload)),
            ws::PONG => {}
            ws::CLOSE => {
                self.close = Some(payload.first_chunk::<2>().map_or(1005, |code| u16::from_be_bytes(*code)));
            }
            _ => return Err(Fault::malformed("unknown WebSocket opcode", &[opcode])),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::body::{self, Body};
    use crate::receiver::{Feed, Subscription};
    use std::rc::Rc;

    fn frame(sequence: u64, feed: &Feed) -> Vec<u8> {
        let mut bytes = body::digits(sequence).to_vec();
        bytes.splice(0..0, *b"pub-0000");
        bytes.extend_from_slice(&feed.body.template()[16..]);
        let head =
            format!("MESSAGE\nsubscription:0\ndestination:/topic/a\ncontent-length:{}\n\n", bytes.len());
        [head.as_bytes(), &bytes, b"\0"].concat()
    }

    fn receiver(feed: &Rc<Feed>) -> Receiver {
        Receiver::new(vec![Subscription::new(Some("0"), 0, 0, Rc::clone(feed), 0)], false)
    }

    fn in_pieces(
        websocket: bool,
        bytes: &[u8],
        step: usize,
        receiver: &mut Receiver,
    ) -> Result<Inbound, Fault> {
        let mut inbound = Inbound::new(websocket);
        let mut buffer = vec![0; HEADROOM + step];
        for piece in bytes.chunks(step) {
            buffer[HEADROOM..HEADROOM + piece.len()].copy_from_slice(piece);
            inbound.take(&mut buffer, HEADROOM..HEADROOM + piece.len(), receiver)?;
        }
        Ok(inbound)
    }

    /// Wraps a stream in frames whose payloads have these sizes, in turn, with pings in between.
    fn wrap(stream: &[u8], sizes: &[usize]) -> Vec<u8> {
        let (mut out, mut rest, mut turn) = (Vec::new(), stream, 0);
        while !rest.is_empty() {
            let (part, after) = rest.split_at(sizes[turn % sizes.len()].min(rest.len()));
            ws::write_header(&mut out, if turn % 2 == 0 { ws::TEXT } else { ws::BINARY }, part.len(), None);
            out.extend_from_slice(part);
            ws::write_header(&mut out, ws::PING, 2, None);
            out.extend_from_slice(b"hi");
            (rest, turn) = (after, turn + 1);
        }
        out
    }

    #[test]
    fn fragmentation_of_frames_and_reads_makes_no_difference() {
        for size in [40, STREAM_MIN + 3] {
            let feed =
                Rc::new(Feed { body: Body::new("pub-0000", size), destinations: vec!["/topic/a".into()] });
            let stream: Vec<u8> = (0..70).flat_map(|sequence| frame(sequence, &feed)).collect();
            for step in [1, 2, 3, 50, 1_000, 9_000, 1_000_000] {
                let mut plain = receiver(&feed);
                in_pieces(false, &stream, step, &mut plain).expect("whole stream");
                assert_eq!(plain.delivered, 70);
                for sizes in [&[1_usize, 2, 200][..], &[frame(0, &feed).len()], &[70_000], &[130, 5, 4_000]] {
                    let mut wrapped = receiver(&feed);
                    let bytes = wrap(&stream, sizes);
                    let inbound = in_pieces(true, &bytes, step, &mut wrapped).expect("whole stream");
                    assert_eq!(wrapped.delivered, 70, "frames of {sizes:?}, reads of {step}");
                    assert!(inbound.has_pongs());
                }
            }
        }
    }

    #[test]
    fn a_lost_or_doubled_message_is_a_fault_over_websocket() {
        let feed = Rc::new(Feed { body: Body::new("pub-0000", 117), destinations: vec!["/topic/a".into()] });
        for bad in [vec![0, 1, 3], vec![0, 1, 1, 2], vec![0, 2, 1]] {
            let stream: Vec<u8> = bad.iter().flat_map(|&sequence| frame(sequence, &feed)).collect();
            let bytes = wrap(&stream, &[frame(0, &feed).len()]);
            assert!(in_pieces(true, &bytes, 4_096, &mut receiver(&feed)).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn the_code_of_a_close_frame_is_read() {
        let feed = Rc::new(Feed { body: Body::new("pub-0000", 40), destinations: vec!["/topic/a".into()] });
        let inbound = in_pieces(true, &[0x88, 2, 3, 0xf5], 1, &mut receiver(&feed)).expect("legal");
        assert_eq!(inbound.close_code(), Some(1013));
    }
}
