//! RECEIPTs of numbered messages: each SEND has a receipt, whose id is the message's sequence number.

use std::collections::VecDeque;

use crate::body::DIGITS;
use crate::fault::Fault;

/// How a RECEIPT begins whose only header is its id.
const BEGIN: &[u8] = b"RECEIPT\nreceipt-id:";
/// How it ends.
const END: &[u8] = b"\n\n\0";
/// Octets of such a RECEIPT.
const LENGTH: usize = BEGIN.len() + DIGITS + END.len();

/// Hot path: the number of the RECEIPT that `bytes` begin with, and its octets. `None`: it looks different, or is incomplete.
#[inline]
pub fn take(bytes: &[u8]) -> Option<(u64, usize)> {
    let frame = bytes.get(..LENGTH)?;
    let (begin, rest) = frame.split_at(BEGIN.len());
    let (id, end) = rest.split_at(DIGITS);
    if begin != BEGIN || end != END {
        return None;
    }
    Some((number(id)?, LENGTH))
}

/// The sequence number that a receipt's id stands for.
pub fn number(id: &[u8]) -> Option<u64> {
    crate::body::number(id.try_into().ok()?)
}

/// The messages of one publisher that have no RECEIPT yet. Each must get one, and only one, in any order.
#[derive(Debug, Default)]
pub struct Unconfirmed {
    /// All messages before this one have theirs.
    first: u64,
    /// Whether the messages from there on have theirs.
    has: VecDeque<bool>,
    /// Messages that have theirs.
    pub confirmed: u64,
}

impl Unconfirmed {
    /// A RECEIPT arrived; messages before `next` were sent.
    pub fn confirm(&mut self, publisher: usize, sequence: u64, next: u64) -> Result<(), Fault> {
        let surplus = || Err(Fault::Surplus { publisher, sequence });
        if sequence >= next || sequence < self.first {
            return surplus();
        }
        let at = usize::try_from(sequence - self.first).expect("no more than a window");
        if self.has.len() <= at {
            self.has.resize(at + 1, false);
        }
        if std::mem::replace(&mut self.has[at], true) {
            return surplus();
        }
        self.confirmed += 1;
        while self.has.front() == Some(&true) {
            self.has.pop_front();
            self.first += 1;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receipt_is_split_from_what_follows() {
        let two = b"RECEIPT\nreceipt-id:00000017\n\n\0RECEIPT";
        assert_eq!(take(two), Some((17, two.len() - 7)));
        for cut in 0..two.len() - 7 {
            assert_eq!(take(&two[..cut]), None, "cut at {cut}");
        }
        assert_eq!(take(b"RECEIPT\nreceipt-id:0000001x\n\n\0"), None);
        assert_eq!(take(b"RECEIPT\nreceipt-id:00000017\na:b\n\n\0"), None);
    }

    #[test]
    fn each_message_has_one_receipt_in_any_order() {
        let mut unconfirmed = Unconfirmed::default();
        let surplus = |sequence| Err(Fault::Surplus { publisher: 3, sequence });
        assert_eq!(unconfirmed.confirm(3, 2, 3), Ok(()));
        assert_eq!(unconfirmed.confirm(3, 2, 3), surplus(2), "twice");
        assert_eq!(unconfirmed.confirm(3, 3, 3), surplus(3), "not sent");
        assert_eq!(unconfirmed.confirm(3, 0, 3), Ok(()));
        assert_eq!(unconfirmed.confirm(3, 0, 3), surplus(0), "twice");
        assert_eq!(unconfirmed.confirm(3, 1, 3), Ok(()));
        assert_eq!((unconfirmed.confirmed, unconfirmed.first), (3, 3));
        assert_eq!(unconfirmed.confirm(3, 1, 3), surplus(1));
    }
}
