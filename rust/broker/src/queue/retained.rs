//! The last value of topics: `retain:set` keeps it, every new subscription gets it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::replay::{Cursor, Search, Visits};
use crate::message::OwnedMessage;
use crate::text::Text;

/// The retained messages of one home, by destination.
#[derive(Debug)]
pub struct Retained {
    by_name: BTreeMap<Text, OwnedMessage>,
    expiring: BTreeSet<(u64, Text)>,
    /// Retained messages in the whole broker, against `max_retained`.
    count: Arc<AtomicUsize>,
}

impl Retained {
    /// An empty store; `count` is shared by all homes.
    #[must_use]
    pub fn new(count: Arc<AtomicUsize>) -> Self {
        Retained { by_name: BTreeMap::new(), expiring: BTreeSet::new(), count }
    }

    /// How many all homes hold.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Whether a destination has a last value.
    #[must_use]
    pub fn has(&self, name: &[u8]) -> bool {
        self.by_name.contains_key(name)
    }

    /// Counts so many more values, which are still to come, or (negative) no more. False if that were more than
    /// `messages_max`; nothing has changed then.
    pub fn reserve(&mut self, count: i64, messages_max: usize) -> bool {
        if count <= 0 {
            self.count.fetch_sub(count.unsigned_abs() as usize, Ordering::Relaxed);
            return true;
        }
        let before = self.count.fetch_add(count as usize, Ordering::Relaxed);
        let fits = before + count as usize <= messages_max;
        if !fits {
            self.count.fetch_sub(count as usize, Ordering::Relaxed);
        }
        fits
    }

    /// Keeps a message as its destination's last value.
    pub fn set(&mut self, stored: OwnedMessage) {
        self.remove(stored.destination());
        self.count.fetch_add(1, Ordering::Relaxed);
        let name: Text = stored.destination().into();
        let stored = stored.as_retained();
        if stored.expires_ms != 0 {
            self.expiring.insert((stored.expires_ms, name.clone()));
        }
        self.by_name.insert(name, stored);
    }

    /// Forgets a destination's last value. Returns whether there was one.
    pub fn remove(&mut self, name: &[u8]) -> bool {
        let Some(stored) = self.by_name.remove(name) else { return false };
        self.count.fetch_sub(1, Ordering::Relaxed);
        if stored.expires_ms != 0 {
            self.expiring.remove(&(stored.expires_ms, name.into()));
        }
        true
    }

    /// A copy of one destination's last value, which shares its bytes, unless its time is over.
    #[must_use]
    pub fn copy_of(&mut self, name: &[u8], now_ms: u64) -> Option<OwnedMessage> {
        self.by_name.get_mut(name).filter(|stored| !stored.is_expired(now_ms)).map(OwnedMessage::share)
    }

    /// The first name behind a place that has a last value and that the search is for. `None`: there is none, or
    /// `visits_max` names were looked at; then the place has moved.
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

    /// When the next one expires.
    #[must_use]
    pub fn next_ms(&self) -> Option<u64> {
        self.expiring.first().map(|(at_ms, _)| *at_ms)
    }

    /// Drops what has expired, up to so many. Returns how many went.
    pub fn expire(&mut self, now_ms: u64, messages_max: usize) -> usize {
        let mut gone = 0;
        while gone < messages_max
            && let Some((at_ms, name)) = self.expiring.first()
            && *at_ms <= now_ms
        {
            let name = name.clone();
            self.remove(&name);
            gone += 1;
        }
        gone
    }
}

#[cfg(test)]
mod tests {
    use stompica_proto::encode::Message;

    use super::*;

    fn stored(destination: &[u8], body: &[u8], expires_ms: u64) -> OwnedMessage {
        let mut stored =
            OwnedMessage::new(&Message { destination, id: b"i", sender: 0, headers: b"", plain: true, body });
        stored.expires_ms = expires_ms;
        stored
    }

    #[test]
    fn the_last_value_stays_until_it_is_removed_or_expires() {
        let mut retained = Retained::new(Arc::default());
        retained.set(stored(b"/t/a", b"1", 5));
        retained.set(stored(b"/t/b", b"2", 0));
        retained.set(stored(b"/t/a", b"4", 7));
        assert_eq!(
            (retained.count.load(Ordering::Relaxed), retained.has(b"/t/a"), retained.has(b"/u")),
            (2, true, false)
        );
        let found = [b"/t/a", b"/t/b"].map(|name| retained.copy_of(name, 4).expect("it has a value"));
        let seen = found.each_ref().map(|it| (it.message().body, it.message().headers));
        assert_eq!(seen, [(&b"4"[..], &b"retained:true\n"[..]), (b"2", b"retained:true\n")]);
        assert!(retained.copy_of(b"/t/a", 7).is_none() && retained.copy_of(b"/t/b", 7).is_some());
        assert_eq!([retained.expire(6, 9), retained.expire(7, 0), retained.expire(7, 9)], [0, 0, 1]);
        assert!(!retained.has(b"/t/a") && retained.has(b"/t/b"));
        assert!(retained.remove(b"/t/b") && !retained.remove(b"/t/b") && retained.next_ms().is_none());
    }
}
