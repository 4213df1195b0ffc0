//! Retained messages: `retain:set` sets the last value of a topic, which every new subscription gets.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::replay::{Cursor, Search, Visits};
use crate::door::sync::{AtomicBool, AtomicUsize, Ordering};
use crate::door::{planted, planted_in_loom};
use crate::ids::{NO_RECORD, RecordId};
use crate::message::OwnedMessage;
use crate::text::Text;

/// Room for so many messages is plenty.
const PLENTY: usize = 100;

/// The retained messages of all homes.
#[derive(Debug, Default)]
pub struct RetainedCount {
    messages: AtomicUsize,
    has_been_used: AtomicBool,
}

impl RetainedCount {
    /// The number of messages, on their way to their homes also, and of topics for which COMMITs hold room.
    #[must_use]
    pub fn get(&self) -> usize {
        self.messages.load(Ordering::Relaxed)
    }
}

/// The retained messages of one home, by destination.
#[derive(Debug)]
pub struct Retained {
    pub(super) by_name: BTreeMap<Text, OwnedMessage>,
    pub(super) expiring: BTreeSet<(u64, Text)>,
    /// How many COMMITs hold room for the message of a destination, whether it has one or not: others may remove it
    /// before they set it.
    pub(super) claims: BTreeMap<Text, usize>,
    /// Those of the whole broker, for `max_retained`.
    count: Arc<RetainedCount>,
}

impl Retained {
    /// An empty store; all homes share `count`.
    #[must_use]
    pub fn new(count: Arc<RetainedCount>) -> Self {
        Retained { by_name: BTreeMap::new(), expiring: BTreeSet::new(), claims: BTreeMap::new(), count }
    }

    /// The approximate memory in bytes, besides messages and names, which count themselves.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.by_name.len() * size_of::<(Text, OwnedMessage)>()
            + self.expiring.len() * 2 * size_of::<(u64, Text)>()
            + self.claims.len() * size_of::<(Text, usize)>()
    }

    /// The number of retained messages of all homes.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count.get()
    }

    /// Reserves room for a message that leaves for its home, if there is plenty: only the home knows whether its destination
    /// has room already. If there was little left, others would be refused although there is room.
    #[must_use]
    pub fn reserve_ahead(&self, messages_max: usize) -> bool {
        self.count.has_been_used.store(true, Ordering::Relaxed);
        let reserve = |count| (count + PLENTY <= messages_max).then_some(count + 1);
        self.count.messages.fetch_update(Ordering::Relaxed, Ordering::Relaxed, reserve).is_ok()
    }

    /// A message has arrived for which room was reserved ahead: it is released if the destination has some.
    pub fn arrives(&self, name: &[u8]) {
        if self.has(name) || self.claims.contains_key(name) {
            self.count.messages.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Whether a message has ever been retained. A value that is set while a SUBSCRIBE is under way reaches it for
    /// certain if the subscription waits for the homes, so subscriptions do, even while there is no value.
    #[must_use]
    pub fn has_been_used(&self) -> bool {
        self.count.has_been_used.load(Ordering::Relaxed)
    }

    /// Whether a destination has a retained message.
    #[must_use]
    pub fn has(&self, name: &[u8]) -> bool {
        self.by_name.contains_key(name)
    }

    /// Reserves room for the message of a destination, unless it has room. Returns whether room was reserved; `None`:
    /// `messages_max` is reached.
    pub fn reserve_for(&mut self, name: &[u8], messages_max: usize) -> Option<bool> {
        if self.has(name) || self.claims.contains_key(name) {
            return Some(false);
        }
        if planted_in_loom!("room-checked-before") {
            let fits = self.count() < messages_max;
            return fits.then(|| self.count.messages.fetch_add(1, Ordering::Relaxed)).map(|_| true);
        }
        self.count.has_been_used.store(true, Ordering::Relaxed);
        // One step: a count that is taken back would make another home refuse what fits.
        let reserve = |count| (count < messages_max).then_some(count + 1);
        self.count.messages.fetch_update(Ordering::Relaxed, Ordering::Relaxed, reserve).ok().map(|_| true)
    }

    /// Holds room for the message of a destination until [`Retained::unclaim`]. Returns false if `messages_max` is reached.
    pub fn claim(&mut self, name: &[u8], messages_max: usize) -> bool {
        let has_room = self.reserve_for(name, messages_max).is_some();
        if has_room {
            *self.claims.entry(name.into()).or_default() += 1;
        }
        has_room
    }

    /// Releases the room that a claim holds, unless another one holds it, or the destination has a message.
    pub fn unclaim(&mut self, name: &[u8]) {
        let Some(count) = self.claims.get_mut(name) else { return };
        *count -= 1;
        if *count == 0 {
            self.claims.remove(name);
            self.release_for(name);
        }
    }

    /// Releases the room of a destination that needs it no more.
    fn release_for(&mut self, name: &[u8]) {
        if !self.has(name) && (!self.claims.contains_key(name) || planted!("claimed-room-released")) {
            self.count.messages.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Sets the retained message of its destination, in the room that was reserved or claimed for it, or in place of the
    /// one that it replaces: in between, no other home can take the room.
    pub fn set(&mut self, message: OwnedMessage) {
        if planted_in_loom!("room-given-up-meanwhile") && self.remove(message.destination()) {
            self.count.messages.fetch_add(1, Ordering::Relaxed);
        }
        if self.has(message.destination()) && planted!("value-not-replaced") {
            return;
        }
        self.take_out(message.destination());
        let name: Text = message.destination().into();
        let record = message.record;
        let mut message = message.as_retained();
        message.record = record;
        if message.expires_ms != 0 {
            self.expiring.insert((message.expires_ms, name.clone()));
        }
        self.by_name.insert(name, message);
    }

    /// Adds a message that the store has kept, which has its record.
    pub fn restore(&mut self, message: OwnedMessage) {
        self.count.has_been_used.store(true, Ordering::Relaxed);
        self.count.messages.fetch_add(1, Ordering::Relaxed);
        self.set(message);
    }

    /// The record of a destination's message in the store.
    #[must_use]
    pub fn record_of(&self, name: &[u8]) -> RecordId {
        self.by_name.get(name).map_or(NO_RECORD, |message| message.record)
    }

    /// Removes the retained message of a destination. Returns whether there was one.
    pub fn remove(&mut self, name: &[u8]) -> bool {
        let was_there = self.take_out(name);
        if was_there {
            self.release_for(name);
        }
        was_there
    }

    /// Removes a message whose room stays counted.
    fn take_out(&mut self, name: &[u8]) -> bool {
        let Some(message) = self.by_name.remove(name) else { return false };
        if message.expires_ms != 0 {
            self.expiring.remove(&(message.expires_ms, name.into()));
        }
        true
    }

    /// A copy of a destination's retained message, which shares its bytes, unless it has expired.
    #[must_use]
    pub fn copy_of(&mut self, name: &[u8], now_ms: u64) -> Option<OwnedMessage> {
        let message = self.by_name.get_mut(name).filter(|message| !message.is_expired(now_ms))?;
        let mut copy = message.share();
        copy.record = NO_RECORD;
        Some(copy)
    }

    /// The first name after `behind` that has a retained message and matches the search. `None`: there is none, or
    /// `visits_max` names were visited; then `behind` has moved.
    pub fn next_behind(
        &self,
        search: &Search<'_>,
        behind: &mut Cursor,
        matches: impl Fn(&[u8]) -> bool,
        visits: &mut Visits,
    ) -> Option<Box<[u8]>> {
        let mut last = None;
        for (name, _) in self.by_name.range::<[u8], _>(search.range(behind)) {
            if !search.may_reach(name) {
                return None;
            }
            visits.count += 1;
            if search.is_for(name, &matches) {
                return Some((**name).into());
            }
            last = Some(name);
            if visits.is_exhausted() {
                break;
            }
        }
        if let Some(last) = last {
            behind.0 = Some((**last).into());
        }
        None
    }

    /// The time at which the next message expires.
    #[must_use]
    pub fn next_ms(&self) -> Option<u64> {
        self.expiring.first().map(|(at_ms, _)| *at_ms)
    }

    /// Drops an expired message, if there is one. Returns its record.
    pub fn expire(&mut self, now_ms: u64) -> Option<RecordId> {
        let (_, name) = self.expiring.first().filter(|(at_ms, _)| *at_ms <= now_ms)?;
        let (name, record) = (name.clone(), self.record_of(name));
        self.remove(&name);
        Some(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::stale::tests::message;

    #[test]
    fn a_claim_keeps_the_room_of_a_message_that_is_removed_meanwhile() {
        let count: Arc<RetainedCount> = Arc::default();
        let [mut own, mut other] = [(); 2].map(|()| Retained::new(Arc::clone(&count)));
        assert!(own.claim(b"/t/a", 1) && own.claim(b"/t/a", 1), "both are for one message");
        own.set(message(b"/t/a", b"1", 0));
        assert!(own.remove(b"/t/a") && !other.claim(b"/t/b", 1) && own.held_bytes() > 0);
        own.set(message(b"/t/a", b"2", 0));
        own.unclaim(b"/t/a");
        own.unclaim(b"/t/a");
        assert_eq!((own.count(), other.reserve_for(b"/t/b", 1)), (1, None));
        assert!(own.claim(b"/t/a", 1) && own.remove(b"/t/a") && own.count() == 1);
        own.unclaim(b"/t/a");
        assert_eq!((own.count(), own.held_bytes(), other.claim(b"/t/b", 1)), (0, 0, true));
    }

    #[test]
    fn a_retained_message_stays_until_it_is_removed_or_expires() {
        let mut retained = Retained::new(Arc::default());
        assert!([b"/t/a", b"/t/b"].iter().all(|name| retained.reserve_for(*name, 2) == Some(true)));
        retained.set(message(b"/t/a", b"1", 5));
        retained.set(message(b"/t/b", b"2", 0));
        retained.set(message(b"/t/a", b"4", 7));
        assert_eq!((retained.count(), retained.has(b"/t/a"), retained.has(b"/u")), (2, true, false));
        let found = [b"/t/a", b"/t/b"].map(|name| retained.copy_of(name, 4).expect("it has a value"));
        let seen = found.each_ref().map(|it| (it.message().body, it.message().headers));
        assert_eq!(seen, [(&b"4"[..], &b"retained:true\n"[..]), (b"2", b"retained:true\n")]);
        assert!(retained.copy_of(b"/t/a", 7).is_none() && retained.copy_of(b"/t/b", 7).is_some());
        assert_eq!([6, 7, 7].map(|at_ms| retained.expire(at_ms).is_some()), [false, true, false]);
        assert!(!retained.has(b"/t/a") && retained.has(b"/t/b") && retained.held_bytes() > 0);
        assert!(retained.remove(b"/t/b") && !retained.remove(b"/t/b") && retained.next_ms().is_none());
        assert_eq!(retained.held_bytes(), 0);
    }
}
