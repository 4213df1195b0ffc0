//! Stale messages: messages to topics and worker topics that found no subscriber while `TTL` > 0, as in C stompica.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use super::replay::{Cursor, Search, Visits};
use super::types::FIRST_SEQ;
use crate::door::planted_in_loom;
use crate::door::sync::{AtomicU64, AtomicUsize, Ordering};
use crate::ids::{NOBODY, ShardId};
use crate::message::OwnedMessage;
use crate::text::Text;

/// The approximate memory of a stale message besides its own: its entries in three trees, whose nodes are not full.
const ENTRY_BYTES: usize = (size_of::<OwnedMessage>() + size_of::<[u64; 4]>()) * 3 / 2;
/// The approximate memory of a name besides its text: its entry, and a tree with one node.
const NAME_BYTES: usize = 2 * (size_of::<Text>() + size_of::<BTreeSet<u64>>()) + size_of::<[u64; 13]>();

/// The state of stale messages that all homes share.
#[derive(Debug)]
pub struct StaleCounts {
    /// The number of stale messages, for `max_stale_queue_size`.
    pub count: AtomicUsize,
    /// The highest arrival number of a stale message.
    arrivals: AtomicU64,
    /// The arrival number of each home's oldest message.
    oldest: Vec<AtomicU64>,
}

impl StaleCounts {
    /// The counts of this many homes.
    #[must_use]
    pub fn new(homes: usize) -> Self {
        let oldest = (0..homes).map(|_| AtomicU64::new(u64::MAX)).collect();
        StaleCounts { count: AtomicUsize::new(0), arrivals: AtomicU64::new(FIRST_SEQ), oldest }
    }

    /// The home of the oldest message.
    fn oldest_home(&self) -> Option<ShardId> {
        let ages = self.oldest.iter().map(|oldest| oldest.load(Ordering::Relaxed)).enumerate();
        ages.min_by_key(|(_, age)| *age).map(|(home, _)| ShardId(home as u8))
    }
}

/// The position of a search by name and arrival.
#[derive(Debug, Default)]
pub struct Place {
    name: Cursor,
    /// Messages of that name up to this one were visited.
    arrival: u64,
}

/// The stale messages of one home, in the order of arrival.
#[derive(Debug)]
pub struct Stale {
    home: ShardId,
    pub(super) by_arrival: BTreeMap<u64, OwnedMessage>,
    pub(super) by_name: BTreeMap<Text, BTreeSet<u64>>,
    pub(super) expiring: BTreeSet<(u64, u64)>,
    counts: Arc<StaleCounts>,
    /// The last arrival number that was assigned here.
    last: u64,
}

impl Stale {
    /// An empty store; all homes share `counts`.
    #[must_use]
    pub fn new(home: ShardId, counts: Arc<StaleCounts>) -> Self {
        Stale {
            home,
            by_arrival: BTreeMap::new(),
            by_name: BTreeMap::new(),
            expiring: BTreeSet::new(),
            counts,
            last: 0,
        }
    }

    /// A new arrival number, higher than all that were assigned here and all stale messages of any home. A message to a
    /// worker topic keeps its number in its queue and among stale messages, so that it keeps its place in both.
    pub fn next_arrival(&mut self) -> u64 {
        self.last = self.last.max(self.counts.arrivals.load(Ordering::Relaxed)) + 1;
        self.last
    }

    /// Keeps a message until its expiry, which is set; a message with an arrival number keeps that. If there are more
    /// than `messages_max`, the oldest one has to be dropped: returns its home.
    #[must_use]
    pub fn hold(&mut self, message: OwnedMessage, messages_max: usize) -> Option<ShardId> {
        let arrival = match message.seq {
            old if old != 0 && !self.by_arrival.contains_key(&old) => old,
            _ => self.next_arrival(),
        };
        if planted_in_loom!("arrival-torn") {
            let last = self.counts.arrivals.load(Ordering::Relaxed).max(arrival);
            self.counts.arrivals.store(last, Ordering::Relaxed);
        } else {
            self.counts.arrivals.fetch_max(arrival, Ordering::Relaxed);
        }
        self.by_name.entry(message.destination().into()).or_default().insert(arrival);
        self.expiring.insert((message.expires_ms, arrival));
        self.by_arrival.insert(arrival, message);
        self.publish_oldest();
        let over = self.counts.count.fetch_add(1, Ordering::Relaxed) >= messages_max;
        if over { self.counts.oldest_home() } else { None }
    }

    /// Removes the oldest message, if there is one.
    pub fn take_oldest(&mut self) -> Option<OwnedMessage> {
        let oldest = self.by_arrival.keys().next().copied()?;
        self.remove(oldest)
    }

    /// The home of the oldest message, if there are more than `messages_max` in total.
    #[must_use]
    pub fn over(&self, messages_max: usize) -> Option<ShardId> {
        let over = self.counts.count.load(Ordering::Relaxed) > messages_max;
        if over { self.counts.oldest_home() } else { None }
    }

    fn publish_oldest(&self) {
        let oldest = self.by_arrival.keys().next().copied().unwrap_or(u64::MAX);
        if let Some(own) = self.counts.oldest.get(usize::from(self.home.0)) {
            own.store(oldest, Ordering::Relaxed);
        }
    }

    fn remove(&mut self, arrival: u64) -> Option<OwnedMessage> {
        let mut message = self.by_arrival.remove(&arrival)?;
        message.seq = arrival;
        self.counts.count.fetch_sub(1, Ordering::Relaxed);
        self.publish_oldest();
        self.expiring.remove(&(message.expires_ms, arrival));
        if let Some(same) = self.by_name.get_mut(message.destination()) {
            same.remove(&arrival);
            if same.is_empty() {
                self.by_name.remove(message.destination());
            }
        }
        Some(message)
    }

    /// The number of stale messages of all homes.
    #[must_use]
    pub fn everywhere(&self) -> usize {
        self.counts.count.load(Ordering::Relaxed)
    }

    /// Whether any home has one.
    #[must_use]
    pub fn is_any_held(&self) -> bool {
        self.counts.count.load(Ordering::Relaxed) > 0
    }

    /// The approximate memory in bytes, besides messages and names, which count themselves.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.by_arrival.len() * ENTRY_BYTES + self.by_name.len() * NAME_BYTES
    }

    /// Whether this home has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_arrival.is_empty()
    }

    /// The number of the oldest message to this destination.
    #[must_use]
    pub fn first_to(&self, name: &[u8]) -> Option<u64> {
        self.by_name.get(name)?.first().copied()
    }

    /// The first message after a position that matches the search, by name, then by arrival; the position moves there.
    /// `None`: there is none, or `visits` are exhausted.
    pub fn next_behind(
        &self,
        search: &Search<'_>,
        behind: &mut Place,
        matches: impl Fn(&[u8]) -> bool,
        visits: &mut Visits,
    ) -> Option<u64> {
        visits.count += 1;
        let same = behind.name.0.as_deref().and_then(|name| self.by_name.get(name));
        if let Some(next) =
            same.and_then(|same| same.range((Bound::Excluded(behind.arrival), Bound::Unbounded)).next())
        {
            behind.arrival = *next;
            return Some(*next);
        }
        let mut passed = None;
        for (name, same) in self.by_name.range::<[u8], _>(search.range(&behind.name)) {
            if !search.may_reach(name) {
                return None;
            }
            if visits.is_exhausted() {
                break;
            }
            visits.count += 1;
            passed = Some((name, u64::MAX));
            if search.is_for(name, &matches) {
                passed = same.first().map(|first| (name, *first));
                break;
            }
        }
        let (name, arrival) = passed?;
        *behind = Place { name: Cursor(Some((**name).into())), arrival };
        (arrival != u64::MAX).then_some(arrival)
    }

    /// The first message after an arrival number that matches the search, in the order of arrival. `None`: there is
    /// none, or `visits` are exhausted; then `behind` has moved.
    pub fn next_arrived(
        &self,
        search: &Search<'_>,
        behind: &mut u64,
        matches: impl Fn(&[u8]) -> bool,
        visits: &mut Visits,
    ) -> Option<u64> {
        let later = |behind: u64| (Bound::Excluded(behind), Bound::Unbounded);
        if let Some(name) = search.plain_name() {
            visits.count += 1;
            return self.by_name.get(name)?.range(later(*behind)).next().copied();
        }
        for (arrival, message) in self.by_arrival.range(later(*behind)) {
            if visits.is_exhausted() {
                break;
            }
            visits.count += 1;
            let name = message.destination();
            if search.may_reach(name) && search.is_for(name, &matches) {
                return Some(*arrival);
            }
            *behind = *arrival;
        }
        None
    }

    /// Whether a message that was found is still here, has not expired, and was not sent by the connection `without`.
    #[must_use]
    pub fn holds_for(&self, arrival: u64, without: u64, now_ms: u64) -> bool {
        let found = self.by_arrival.get(&arrival).filter(|message| !message.is_expired(now_ms));
        found.is_some_and(|message| without == NOBODY || message.message().sender != without)
    }

    /// Removes a message that was found, if it is still here; it keeps its arrival number.
    pub fn take_one(&mut self, arrival: u64) -> Option<OwnedMessage> {
        self.remove(arrival)
    }

    /// The time at which the next message expires.
    #[must_use]
    pub fn next_ms(&self) -> Option<u64> {
        self.expiring.first().map(|(at_ms, _)| *at_ms)
    }

    /// Removes one expired message.
    pub fn take_expired(&mut self, now_ms: u64) -> Option<OwnedMessage> {
        let &(at_ms, arrival) = self.expiring.first()?;
        if at_ms <= now_ms { self.remove(arrival) } else { None }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use stompica_proto::encode::Message;

    use super::*;

    pub(in crate::queue) fn message(destination: &[u8], body: &[u8], expires_ms: u64) -> OwnedMessage {
        let mut message = OwnedMessage::new(&Message {
            destination,
            id: b"i",
            sender: 0,
            headers: b"",
            plain: true,
            expires_ms: 0,
            body,
        });
        message.expires_ms = expires_ms;
        message
    }

    /// Takes all messages that match, with at most two visits at a time. Returns their bodies.
    fn take(stale: &mut Stale, matches: impl Fn(&[u8]) -> bool) -> Vec<u8> {
        let search = Search::new(b"/", true);
        let (mut place, mut bodies) = (Place::default(), Vec::new());
        loop {
            let mut visits = Visits { count: 0, max: 2 };
            match stale.next_behind(&search, &mut place, &matches, &mut visits) {
                Some(arrival) => bodies.push(stale.take_one(arrival).expect("found").message().body[0]),
                None if visits.is_exhausted() => {}
                None => return bodies,
            }
        }
    }

    #[test]
    fn messages_are_taken_once_in_order_of_arrival_until_they_expire() {
        let counts = Arc::new(StaleCounts::new(2));
        let mut stale = Stale::new(ShardId(0), Arc::clone(&counts));
        let mut other = Stale::new(ShardId(1), Arc::clone(&counts));
        for (number, name) in [b"/b", b"/a", b"/c", b"/a"].into_iter().enumerate() {
            assert!(stale.hold(message(name, &[number as u8], 10 + number as u64), 4).is_none());
        }
        assert_eq!(
            other.hold(message(b"/d", &[9], 14), 4),
            Some(ShardId(0)),
            "the home of the oldest message"
        );
        assert!(stale.take_oldest().is_some() && other.take_oldest().is_some());
        assert!(other.take_oldest().is_none());
        assert!(stale.hold(message(b"/b", &[4], 14), 4).is_none());
        assert_eq!((counts.count.load(Ordering::Relaxed), stale.next_ms()), (4, Some(11)));
        assert_eq!(take(&mut stale, |name| name != b"/c"), [1, 3, 4]);
        assert!(stale.first_to(b"/c").is_some() && stale.first_to(b"/a").is_none());
        assert!(stale.take_expired(11).is_none() && stale.take_expired(12).is_some() && stale.is_empty());
        assert_eq!(
            (counts.count.load(Ordering::Relaxed), stale.next_ms(), stale.by_name.len()),
            (0, None, 0)
        );
    }

    #[test]
    fn expired_messages_are_removed_and_not_found() {
        let mut stale = Stale::new(ShardId(0), Arc::new(StaleCounts::new(1)));
        for number in 0..5 {
            assert!(stale.hold(message(b"/a", &[number], 10), 9).is_none());
        }
        let first = stale.first_to(b"/a").expect("five are held");
        assert!(stale.holds_for(first, NOBODY, 9) && !stale.holds_for(first, NOBODY, 10));
        let gone = std::iter::from_fn(|| stale.take_expired(10)).map(|message| message.message().body[0]);
        assert!(gone.eq(0..5) && stale.is_empty() && stale.next_ms().is_none());
    }

    #[test]
    fn what_is_held_is_counted_as_memory() {
        let mut stale = Stale::new(ShardId(0), Arc::new(StaleCounts::new(1)));
        assert_eq!(stale.held_bytes(), 0);
        for at in 0..10_u8 {
            _ = stale.hold(message(&[b'/', at % 2], b"x", 10), 10);
        }
        assert_eq!(stale.held_bytes(), 10 * ENTRY_BYTES + 2 * NAME_BYTES);
        while stale.take_oldest().is_some() {}
        assert_eq!(stale.held_bytes(), 0);
    }

    #[test]
    fn a_new_arrival_number_is_higher_than_those_of_all_homes() {
        let counts = Arc::new(StaleCounts::new(2));
        let [mut one, mut two] = [0, 1].map(|home| Stale::new(ShardId(home), Arc::clone(&counts)));
        let numbers = [one.next_arrival(), one.next_arrival()];
        assert!(numbers[0] > FIRST_SEQ && numbers[1] > numbers[0]);
        let mut placed = message(b"#w", b"x", 10);
        placed.seq = one.next_arrival();
        assert!(one.hold(placed, 2).is_none() && two.hold(message(b"/a", b"x", 10), 2).is_none());
        assert!(two.first_to(b"/a") > one.first_to(b"#w"));
        assert_eq!(
            one.hold(message(b"/a", b"x", 10), 2),
            Some(ShardId(0)),
            "the one with its own number is older"
        );
        assert!(one.first_to(b"/a") > two.first_to(b"/a"));
    }

    #[test]
    fn a_requeued_message_has_its_old_place() {
        let mut stale = Stale::new(ShardId(0), Arc::new(StaleCounts::new(1)));
        for number in 0..3 {
            assert!(stale.hold(message(b"/a", &[number], 10), 4).is_none());
        }
        let mut taken: Vec<OwnedMessage> = std::iter::from_fn(|| stale.take_oldest()).collect();
        let later = stale.next_arrival();
        assert!(stale.is_empty() && taken.iter().all(|message| message.seq < later));
        for _ in 0..3 {
            assert!(stale.hold(taken.pop().expect("three were held"), 4).is_none());
        }
        assert_eq!(take(&mut stale, |_| true), [0, 1, 2]);
    }
}
