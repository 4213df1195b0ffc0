//! STOMP frames as the generator needs them: built for sending, and split into head and body for checking.
//!
//! It shares no code with the broker's codec on purpose, so that a mistake there is not repeated here.

use crate::fault::Fault;

/// A longer head is a fault of the peer, not a frame that is still arriving.
pub const HEAD_MAX: usize = 16 * 1024;

/// The head of one frame: its command, and the headers that are checked.
#[derive(Debug, Default)]
pub struct Head<'a> {
    /// First line.
    pub command: &'a [u8],
    /// Octet at which the body begins.
    pub body_at: usize,
    /// `content-length`, if the frame has one.
    pub content_length: Option<usize>,
    /// Octet at which the line `subscription:ID` begins, and that line.
    pub subscription: Option<(usize, &'a [u8])>,
    /// Octet at which the value of `ack` begins, and that value, still escaped.
    pub ack: Option<(usize, &'a [u8])>,
    /// Value of `destination`.
    pub destination: Option<&'a [u8]>,
    /// Value of `receipt-id`.
    pub receipt_id: Option<&'a [u8]>,
    /// Value of `message` (of an ERROR).
    pub message: Option<&'a [u8]>,
}

/// Splits the frame that starts at the first octet; `None` if its head is incomplete.
pub fn head(bytes: &[u8]) -> Result<Option<Head<'_>>, Fault> {
    let mut head = Head::default();
    let mut at = 0;
    loop {
        let Some(length) = memchr::memchr(b'\n', &bytes[at..]) else {
            return if bytes.len() > HEAD_MAX {
                Err(Fault::malformed("head too long", bytes))
            } else {
                Ok(None)
            };
        };
        let line = &bytes[at..at + length];
        if at == 0 {
            head.command = line;
        } else if line.is_empty() {
            head.body_at = at + 1;
            return Ok(Some(head));
        } else {
            take_header(&mut head, at, line)?;
        }
        at += length + 1;
    }
}

fn take_header<'a>(head: &mut Head<'a>, at: usize, line: &'a [u8]) -> Result<(), Fault> {
    let Some(colon) = memchr::memchr(b':', line) else {
        return Err(Fault::malformed("header without colon", line));
    };
    let value = &line[colon + 1..];
    match &line[..colon] {
        b"subscription" if head.subscription.is_none() => head.subscription = Some((at, line)),
        b"ack" if head.ack.is_none() => head.ack = Some((at + colon + 1, value)),
        b"destination" if head.destination.is_none() => head.destination = Some(value),
        b"content-length" if head.content_length.is_none() => {
            let digits = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
            head.content_length =
                Some(digits.ok_or_else(|| Fault::malformed("content-length is no number", line))?);
        }
        b"receipt-id" => head.receipt_id = Some(value),
        b"message" => head.message = Some(value),
        _ => {}
    }
    Ok(())
}

/// SUBSCRIBE with a receipt; `headers` are further header lines, each with its line end.
pub fn subscribe(id: &str, destination: &str, headers: &str, receipt: &str) -> Vec<u8> {
    format!("SUBSCRIBE\nid:{id}\ndestination:{destination}\n{headers}receipt:{receipt}\n\n\0").into_bytes()
}

/// UNSUBSCRIBE with a receipt.
pub fn unsubscribe(id: &str, receipt: &str) -> Vec<u8> {
    format!("UNSUBSCRIBE\nid:{id}\nreceipt:{receipt}\n\n\0").into_bytes()
}

/// Header line that asks for a receipt.
pub fn receipt(id: &str) -> String {
    format!("receipt:{id}\n")
}

/// DIAG: a query of the broker itself.
pub fn diag(query: &str) -> Vec<u8> {
    format!("DIAG\n\n{query}\0").into_bytes()
}

/// DISCONNECT with a receipt.
pub fn disconnect(receipt: &str) -> Vec<u8> {
    format!("DISCONNECT\nreceipt:{receipt}\n\n\0").into_bytes()
}

/// SEND with its `content-length`; `headers` are further header lines, each with its line end.
pub fn send(destination: &str, body: &[u8], headers: &str) -> Vec<u8> {
    let mut frame =
        format!("SEND\ndestination:{destination}\ncontent-length:{}\n{headers}\n", body.len()).into_bytes();
    frame.extend_from_slice(body);
    frame.push(0);
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn head_of_a_message_is_split() {
        let frame =
            b"MESSAGE\nmessage-id:1:2\nsubscription:sub-7\nack:9\ndestination:/topic/a\ncontent-length:3\n\nabc\0";
        let head = head(frame).expect("legal frame").expect("complete head");
        assert_eq!(head.command, b"MESSAGE");
        assert_eq!(head.subscription, Some((23, &b"subscription:sub-7"[..])));
        assert_eq!(head.ack, Some((46, &b"9"[..])));
        assert_eq!(head.destination, Some(&b"/topic/a"[..]));
        assert_eq!(head.content_length, Some(3));
        assert_eq!(&frame[head.body_at..], b"abc\0");
    }

    #[test]
    fn head_cut_anywhere_is_incomplete() {
        let frame = b"RECEIPT\nreceipt-id:r\n\n\0";
        for cut in 0..frame.len() - 1 {
            assert!(head(&frame[..cut]).expect("a prefix is no fault").is_none(), "cut at {cut}");
        }
    }

    #[test]
    fn head_without_colon_or_end_is_a_fault() {
        assert!(head(b"MESSAGE\nbroken\n\n\0").is_err());
        assert!(head(&vec![b'x'; HEAD_MAX + 1]).is_err());
    }
}
