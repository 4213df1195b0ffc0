//! What waits in one queue, in order.
//!
//! Messages stand in `fresh` as they come. One that has its place from before, because it was delivered and comes back
//! or belongs to a transaction, waits in `returned`, or, while its redelivery is delayed, in `delayed`, where it does not
//! hold up others. The next one is whichever has the lower place.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::stored::Stored;

/// An emptied list larger than this is given back.
const KEPT_CAPACITY_MAX: usize = 1024;
/// Up to so many messages that expire together are taken out one by one.
const SINGLE_REMOVALS_MAX: usize = 16;

/// The waiting messages of a queue; every list is sorted by `seq`.
#[derive(Debug, Default)]
pub struct Pending {
    fresh: VecDeque<Stored>,
    returned: BTreeMap<u64, Stored>,
    /// By the time at which they are to be looked at: the end of the delay, or of their life.
    delayed: BTreeMap<(u64, u64), Stored>,
    /// When which message of `fresh` and `returned` expires.
    expiring: BTreeSet<(u64, u64)>,
    bytes: usize,
}

impl Pending {
    /// How many wait, delayed ones included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.fresh.len() + self.returned.len() + self.delayed.len()
    }

    /// Whether one can be delivered now.
    #[must_use]
    pub fn has_next(&self) -> bool {
        !(self.fresh.is_empty() && self.returned.is_empty())
    }

    /// Bytes that wait.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds a message behind all others; its `seq` is higher than any before.
    pub fn push(&mut self, stored: Stored) {
        self.note(&stored);
        self.fresh.push_back(stored);
    }

    /// Puts a message at the place it has, be it one that was delivered or one of a transaction.
    pub fn put_back(&mut self, stored: Stored) {
        self.note(&stored);
        self.returned.insert(stored.seq, stored);
    }

    /// Puts a delivered message back, not to be delivered before `at_ms`.
    pub fn delay(&mut self, stored: Stored, at_ms: u64) {
        self.bytes += stored.size();
        let expires_ms = if stored.expires_ms == 0 { u64::MAX } else { stored.expires_ms };
        self.delayed.insert((at_ms.min(expires_ms), stored.seq), stored);
    }

    fn note(&mut self, stored: &Stored) {
        self.bytes += stored.size();
        if stored.expires_ms != 0 {
            self.expiring.insert((stored.expires_ms, stored.seq));
        }
    }

    fn forget(&mut self, stored: &Stored) {
        self.bytes -= stored.size();
        if stored.expires_ms != 0 {
            self.expiring.remove(&(stored.expires_ms, stored.seq));
        }
    }

    /// The message that is to be delivered next.
    #[must_use]
    pub fn first(&self) -> Option<&Stored> {
        if self.returned_is_next() {
            self.returned.first_key_value().map(|(_, stored)| stored)
        } else {
            self.fresh.front()
        }
    }

    fn returned_is_next(&self) -> bool {
        match (self.returned.first_key_value(), self.fresh.front()) {
            (Some((seq, _)), Some(fresh)) => *seq < fresh.seq,
            (returned, _) => returned.is_some(),
        }
    }

    /// Takes the first message.
    pub fn pop(&mut self) -> Option<Stored> {
        let stored =
            if self.returned_is_next() { self.returned.pop_first()?.1 } else { self.fresh.pop_front()? };
        self.forget(&stored);
        if self.fresh.is_empty() && self.fresh.capacity() > KEPT_CAPACITY_MAX {
            self.fresh = VecDeque::new();
        }
        Some(stored)
    }

    /// Gives the room of an empty queue back.
    pub fn shrink(&mut self) {
        self.fresh.shrink_to_fit();
    }

    /// Takes out everything, in order.
    pub fn take_all(&mut self) -> Vec<Stored> {
        let delayed = std::mem::take(&mut self.delayed);
        for (_, stored) in delayed {
            self.bytes -= stored.size();
            self.put_back(stored);
        }
        std::iter::from_fn(|| self.pop()).collect()
    }

    /// When something is to be done here without anybody asking.
    #[must_use]
    pub fn next_ms(&self) -> Option<u64> {
        let delayed = self.delayed.first_key_value().map(|((at_ms, _), _)| *at_ms);
        let expiring = self.expiring.first().map(|(at_ms, _)| *at_ms);
        delayed.into_iter().chain(expiring).min()
    }

    /// Ends the delays that are over, and takes out what has expired.
    pub fn advance(&mut self, now_ms: u64, expired: &mut Vec<Stored>) {
        while let Some(entry) = self.delayed.first_entry()
            && entry.key().0 <= now_ms
        {
            let stored = entry.remove();
            self.bytes -= stored.size();
            if stored.is_expired(now_ms) { expired.push(stored) } else { self.put_back(stored) }
        }
        if self.expiring.first().is_none_or(|(at_ms, _)| *at_ms > now_ms) {
            return;
        }
        let later = self.expiring.split_off(&(now_ms + 1, 0));
        let due = std::mem::replace(&mut self.expiring, later);
        let first = expired.len();
        if due.len() <= SINGLE_REMOVALS_MAX {
            for (_, seq) in &due {
                let found = self.returned.remove(seq).or_else(|| {
                    let at = self.fresh.binary_search_by_key(seq, |stored| stored.seq).ok()?;
                    self.fresh.remove(at)
                });
                expired.extend(found);
            }
        } else {
            let back: Vec<u64> =
                self.returned.values().filter(|it| it.is_expired(now_ms)).map(|it| it.seq).collect();
            expired.extend(back.iter().filter_map(|seq| self.returned.remove(seq)));
            for stored in std::mem::take(&mut self.fresh) {
                if stored.is_expired(now_ms) { expired.push(stored) } else { self.fresh.push_back(stored) }
            }
        }
        self.bytes -= expired[first..].iter().map(Stored::size).sum::<usize>();
    }
}

#[cfg(test)]
mod tests {
    use stompica_proto::encode::Message;

    use super::*;

    fn stored(seq: u64, expires_ms: u64) -> Stored {
        let message = Message { destination: b"/queue/a", id: b"i", headers: b"", plain: true, body: b"b" };
        let mut stored = Stored::new(&message);
        (stored.seq, stored.expires_ms) = (seq, expires_ms);
        stored
    }

    fn drain(pending: &mut Pending) -> Vec<u64> {
        std::iter::from_fn(|| pending.pop()).map(|stored| stored.seq).collect()
    }

    #[test]
    fn what_comes_back_stands_at_its_old_place() {
        let mut pending = Pending::default();
        (1..=5).for_each(|seq| pending.push(stored(seq, 0)));
        let out: Vec<Stored> = (0..3).filter_map(|_| pending.pop()).collect();
        out.into_iter().rev().for_each(|stored| pending.put_back(stored));
        assert_eq!(drain(&mut pending), [1, 2, 3, 4, 5]);
        assert_eq!((pending.len(), pending.bytes()), (0, 0));
    }

    #[test]
    fn a_delayed_message_holds_nobody_up() {
        let mut pending = Pending::default();
        (1..=3).for_each(|seq| pending.push(stored(seq, 0)));
        let first = pending.pop().expect("three wait");
        pending.delay(first, 100);
        assert_eq!(
            (pending.len(), pending.next_ms(), pending.pop().map(|it| it.seq)),
            (3, Some(100), Some(2))
        );
        let mut expired = Vec::new();
        pending.advance(100, &mut expired);
        assert_eq!((drain(&mut pending), expired.len(), pending.bytes()), (vec![1, 3], 0, 0));
    }

    #[test]
    fn what_expires_is_taken_out_wherever_it_stands() {
        for count in [4_u64, 100] {
            let mut pending = Pending::default();
            (1..=count).for_each(|seq| pending.push(stored(seq, if seq % 2 == 0 { 10 + seq } else { 0 })));
            let first = pending.pop().expect("some wait");
            pending.put_back(first);
            pending.delay(stored(1000, 20), 500);
            assert_eq!(pending.next_ms(), Some(12));
            let mut expired = Vec::new();
            pending.advance(11, &mut expired);
            assert!(expired.is_empty());
            pending.advance(1000, &mut expired);
            assert_eq!(expired.len() as u64, count / 2 + 1);
            assert_eq!(drain(&mut pending), (1..=count).filter(|seq| seq % 2 == 1).collect::<Vec<_>>());
            assert_eq!((pending.len(), pending.bytes(), pending.next_ms()), (0, 0, None));
        }
    }
}
