//! The pending messages of one queue, in order.
//!
//! New messages are in `fresh`, in order of arrival. A message that has an earlier place, because it was requeued or
//! belongs to a transaction, is in `returned`. While its redelivery is delayed it is in `delayed`, where it does not
//! block others. The next message is the one with the lower place. A store may hold a part of the line (`paged.rs`).

use std::collections::{BTreeMap, BTreeSet};

use super::paged::Paged;
use crate::collections::paged_deque::PagedDeque;
use crate::door::planted;
use crate::ids::NO_RECORD;
use crate::message::OwnedMessage;

/// The visits that the growth of a list counts as.
const GROWTH_VISITS: usize = 3;
/// Growth by this many bytes counts as one more visit: the system has to provide the memory, and a short list is
/// copied.
const VISIT_BYTES: usize = 1024;

/// The pending messages of a queue; every list is sorted by `seq`.
#[derive(Debug, Default)]
pub struct Pending {
    pub(super) fresh: PagedDeque<OwnedMessage>,
    pub(super) returned: BTreeMap<u64, OwnedMessage>,
    /// Delayed messages by the time of the next check: the end of the delay, or the expiry.
    pub(super) delayed: BTreeMap<(u64, u64), OwnedMessage>,
    /// The expiry of each message, except those in `delayed`.
    pub(super) expiring: BTreeSet<(u64, u64)>,
    pub(super) bytes: usize,
    /// The part of the line before `fresh`, if not all of it is loaded.
    pub(super) paged: Option<Box<Paged>>,
}

impl Pending {
    /// The number of pending messages, including delayed ones.
    #[must_use]
    pub fn len(&self) -> usize {
        let paged = self.paged.as_ref().map_or(0, |paged| paged.len());
        self.fresh.len() + self.returned.len() + self.delayed.len() + paged
    }

    /// The number of messages that the store does not keep.
    #[must_use]
    pub fn not_kept(&self) -> u64 {
        let head = self.paged.iter().flat_map(|paged| paged.head.iter());
        let all = self.fresh.iter().chain(self.returned.values()).chain(self.delayed.values()).chain(head);
        all.filter(|message| message.record == NO_RECORD).count() as u64
    }

    /// Whether a message can be delivered now, or as soon as it is loaded.
    #[must_use]
    pub fn has_next(&self) -> bool {
        !(self.fresh.is_empty() && self.returned.is_empty()) || self.paged.is_some()
    }

    /// The bytes of pending messages.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds a message, which nearly always follows all others. Returns the number of visits besides the one of the
    /// message itself: the list may have to grow.
    #[inline(always)]
    pub fn push(&mut self, message: OwnedMessage) -> usize {
        if self.fresh.back().is_some_and(|last| last.seq > message.seq) {
            self.put_back(message);
            return 0;
        }
        self.note(&message);
        let before = self.fresh.capacity();
        self.fresh.push_back(message);
        let more = self.fresh.capacity().saturating_sub(before);
        if more == 0 { 0 } else { GROWTH_VISITS + more * size_of::<OwnedMessage>() / VISIT_BYTES }
    }

    /// Adds a message of a transaction at its reserved place. Returns the visits as [`Pending::push`] does.
    pub fn place(&mut self, message: OwnedMessage) -> usize {
        let is_in_front = |paged: &Paged| paged.last_place().is_some_and(|last| last > message.seq);
        if self.paged.as_deref().is_some_and(is_in_front) {
            self.put_back(message);
            return 0;
        }
        self.push(message)
    }

    /// Requeues a message at its old place.
    pub fn put_back(&mut self, message: OwnedMessage) {
        self.note(&message);
        self.returned.insert(message.seq, message);
    }

    /// Requeues a message that must not be delivered before `at_ms`.
    pub fn delay(&mut self, message: OwnedMessage, at_ms: u64) {
        self.bytes += message.size();
        let expires_ms = if message.expires_ms == 0 { u64::MAX } else { message.expires_ms };
        self.delayed.insert((at_ms.min(expires_ms), message.seq), message);
    }

    pub(super) fn note(&mut self, message: &OwnedMessage) {
        self.bytes += message.size();
        if message.expires_ms != 0 && !planted!("expiry-not-checked") {
            self.expiring.insert((message.expires_ms, message.seq));
        }
    }

    pub(super) fn forget(&mut self, message: &OwnedMessage) {
        self.bytes -= message.size();
        if message.expires_ms != 0 {
            self.expiring.remove(&(message.expires_ms, message.seq));
        }
    }

    /// The next message to deliver; `None` also if it is not loaded.
    #[must_use]
    pub fn first(&self) -> Option<&OwnedMessage> {
        if let Some(paged) = &self.paged {
            return self.first_of_paged(paged);
        }
        if self.returned_is_next() {
            return self.returned.first_key_value().map(|(_, message)| message);
        }
        self.fresh.front()
    }

    #[inline]
    fn returned_is_next(&self) -> bool {
        !self.returned.is_empty() && self.returned_is_before_fresh()
    }

    fn returned_is_before_fresh(&self) -> bool {
        match (self.returned.first_key_value(), self.fresh.front()) {
            (Some((seq, _)), Some(fresh)) => *seq < fresh.seq,
            (returned, _) => returned.is_some(),
        }
    }

    /// Removes the next message to deliver, if it is loaded.
    pub fn pop(&mut self) -> Option<OwnedMessage> {
        if self.paged.is_some() {
            return self.pop_of_paged();
        }
        let message =
            if self.returned_is_next() { self.returned.pop_first()?.1 } else { self.fresh.pop_front()? };
        self.forget(&message);
        Some(message)
    }

    /// The messages of a line that is not paged, in order, without delayed ones.
    pub(super) fn iter(&self) -> impl Iterator<Item = &OwnedMessage> {
        let (mut fresh, mut returned) = (self.fresh.iter().peekable(), self.returned.values().peekable());
        std::iter::from_fn(move || match (fresh.peek(), returned.peek()) {
            (Some(first), Some(back)) if back.seq < first.seq => returned.next(),
            (None, _) => returned.next(),
            _ => fresh.next(),
        })
    }

    /// Removes the loaded message at this place, unless it is delayed.
    pub(super) fn take(&mut self, seq: u64) -> Option<OwnedMessage> {
        let message = self.remove(seq)?;
        self.forget(&message);
        Some(message)
    }

    /// Removes the first message from this place on, of a line that is not paged; not a delayed one.
    pub(super) fn take_from(&mut self, place: u64) -> Option<OwnedMessage> {
        let returned = self.returned.range(place..).next().map(|(seq, _)| *seq);
        let fresh = self.fresh.front().map(|message| message.seq).filter(|seq| *seq >= place);
        self.take(returned.into_iter().chain(fresh).min()?)
    }

    /// Removes any loaded message, delayed ones last.
    pub fn pop_any(&mut self) -> Option<OwnedMessage> {
        self.pop().or_else(|| {
            let (_, message) = self.delayed.pop_first()?;
            self.bytes -= message.size();
            Some(message)
        })
    }

    /// Frees the memory of an empty queue.
    pub fn shrink(&mut self) {
        self.fresh.shrink();
    }

    /// The time at which the next delay ends or the next message expires.
    #[must_use]
    pub fn next_ms(&self) -> Option<u64> {
        let delayed = self.delayed.first_key_value().map(|((at_ms, _), _)| *at_ms);
        let expiring = self.expiring.first().map(|(at_ms, _)| *at_ms);
        delayed.into_iter().chain(expiring).min()
    }

    /// Ends the delays that are over, and removes expired messages; at most `messages_max`, whose number is returned.
    /// The rest is due at once.
    pub fn advance(&mut self, now_ms: u64, messages_max: usize, expired: &mut Vec<OwnedMessage>) -> usize {
        let mut done = 0;
        while done < messages_max
            && let Some(entry) = self.delayed.first_entry()
            && entry.key().0 <= now_ms
        {
            let message = entry.remove();
            self.bytes -= message.size();
            if message.is_expired(now_ms) {
                expired.push(message)
            } else {
                self.put_back(message)
            }
            done += 1;
        }
        while done < messages_max
            && let Some((at_ms, seq)) = self.expiring.first().copied()
            && at_ms <= now_ms
        {
            self.expiring.remove(&(at_ms, seq));
            if let Some(message) = self.remove(seq) {
                self.bytes -= message.size();
                expired.push(message);
            } else {
                self.expire_stub(seq);
            }
            done += 1;
        }
        done
    }

    /// Removes the loaded message at this place, unless it is delayed.
    fn remove(&mut self, seq: u64) -> Option<OwnedMessage> {
        let of_fresh = |pending: &mut Self| pending.fresh.remove_key(&seq, |message| message.seq);
        let of_head = |pending: &mut Self| pending.paged.as_deref_mut()?.remove_head(seq);
        let removed = self.returned.remove(&seq).or_else(|| of_fresh(self)).or_else(|| of_head(self));
        self.close_gap();
        removed
    }
}

#[cfg(test)]
mod tests {
    use stompica_proto::encode::Message;

    use super::*;

    fn message(seq: u64, expires_ms: u64) -> OwnedMessage {
        let message = Message {
            destination: b"/queue/a",
            id: b"i",
            sender: 0,
            headers: b"",
            plain: true,
            expires_ms: 0,
            body: b"b",
        };
        let mut owned = OwnedMessage::new(&message);
        (owned.seq, owned.expires_ms) = (seq, expires_ms);
        owned
    }

    fn drain(pending: &mut Pending) -> Vec<u64> {
        std::iter::from_fn(|| pending.pop()).map(|message| message.seq).collect()
    }

    #[test]
    fn a_requeued_message_is_at_its_old_place() {
        let mut pending = Pending::default();
        (1..=5).for_each(|seq| _ = pending.push(message(seq, 0)));
        let out: Vec<OwnedMessage> = (0..3).filter_map(|_| pending.pop()).collect();
        out.into_iter().rev().for_each(|message| pending.put_back(message));
        assert_eq!(drain(&mut pending), [1, 2, 3, 4, 5]);
        assert_eq!((pending.len(), pending.bytes()), (0, 0));
    }

    #[test]
    fn a_message_with_a_reserved_place_is_at_that_place() {
        let mut pending = Pending::default();
        [5, 6, 2, 3, 9, 7]
            .into_iter()
            .for_each(|seq| _ = pending.push(message(seq, if seq == 3 { 10 } else { 0 })));
        let mut expired = Vec::new();
        assert_eq!((pending.advance(10, 9, &mut expired), expired.len()), (1, 1));
        assert_eq!(drain(&mut pending), [2, 5, 6, 7, 9]);
        assert_eq!((pending.len(), pending.bytes()), (0, 0));
    }

    #[test]
    fn a_delayed_message_does_not_block_others() {
        let mut pending = Pending::default();
        (1..=3).for_each(|seq| _ = pending.push(message(seq, 0)));
        let first = pending.pop().expect("three wait");
        pending.delay(first, 100);
        assert_eq!(
            (pending.len(), pending.next_ms(), pending.pop().map(|it| it.seq)),
            (3, Some(100), Some(2))
        );
        let mut expired = Vec::new();
        pending.advance(100, usize::MAX, &mut expired);
        assert_eq!((drain(&mut pending), expired.len(), pending.bytes()), (vec![1, 3], 0, 0));
    }

    #[test]
    fn expired_messages_are_removed_from_every_list() {
        for count in [4_u64, 100] {
            let mut pending = Pending::default();
            (1..=count)
                .for_each(|seq| _ = pending.push(message(seq, if seq % 2 == 0 { 10 + seq } else { 0 })));
            let first = pending.pop().expect("some wait");
            pending.put_back(first);
            pending.delay(message(1000, 20), 500);
            assert_eq!(pending.next_ms(), Some(12));
            let mut expired = Vec::new();
            pending.advance(11, usize::MAX, &mut expired);
            assert!(expired.is_empty());
            while pending.next_ms().is_some_and(|at_ms| at_ms <= 1000) {
                assert!(pending.advance(1000, 7, &mut expired) <= 7, "a portion at a time");
            }
            assert_eq!(expired.len() as u64, count / 2 + 1);
            assert_eq!(drain(&mut pending), (1..=count).filter(|seq| seq % 2 == 1).collect::<Vec<_>>());
            assert_eq!((pending.len(), pending.bytes(), pending.next_ms()), (0, 0, None));
        }
    }

    #[test]
    fn many_pending_messages_reserve_at_most_one_page_more_and_do_not_move() {
        let mut pending = Pending::default();
        let page = PagedDeque::<OwnedMessage>::PAGE as u64;
        (1..=page).for_each(|seq| _ = pending.push(message(seq, 0)));
        let first: *const OwnedMessage = pending.first().expect("many wait");
        for seq in page + 1..=100 * page + 1 {
            let visits = pending.push(message(seq, 0));
            assert!(visits < 40, "{visits} visits");
            assert!(pending.fresh.capacity() <= pending.len() + page as usize);
        }
        assert_eq!(pending.first().map(|first| &raw const *first), Some(first));
        while pending.pop().is_some() {
            assert!(pending.fresh.capacity() <= pending.len() + 2 * page as usize);
        }
        pending.shrink();
        assert_eq!(pending.fresh.capacity(), 0);
    }

    #[test]
    fn the_memory_of_expired_messages_is_freed() {
        let mut pending = Pending::default();
        for seq in 1..=10_000 {
            pending.push(message(seq, if matches!(seq, 1 | 5000 | 10_000) { 0 } else { 10 + seq }));
        }
        let mut expired = Vec::new();
        while pending.next_ms().is_some() {
            pending.advance(u64::MAX, 100, &mut expired);
            assert!(pending.fresh.capacity() <= 4 * pending.len() + 4 * PagedDeque::<OwnedMessage>::PAGE);
        }
        assert_eq!((expired.len(), pending.len()), (9997, 3));
        assert!(std::iter::from_fn(|| pending.pop_any()).map(|it| it.seq).eq([1, 5000, 10_000]));
        assert_eq!((pending.len(), pending.bytes()), (0, 0));
    }
}
