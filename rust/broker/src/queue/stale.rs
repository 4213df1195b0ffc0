//! Stale messages: messages to topics and worker topics that found no subscriber while `TTL` > 0, as in C stompica.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use super::replay::{Cursor, Search, Visits};
use super::types::FIRST_SEQ;
use crate::door::sync::{AtomicU64, AtomicUsize, Ordering};
use crate::door::{planted, planted_in_loom};
use crate::ids::{NOBODY, ShardId};
use crate::message::OwnedMessage;
use crate::text::Text;

/// The approximate memory of a stale message besides its own: its entries in three trees, whose nodes are not full.
const ENTRY_BYTES: usize = (size_of::<Waiting>() + size_of::<[u64; 4]>()) * 3 / 2;
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

/// A stale message.
#[derive(Debug)]
pub(super) struct Waiting {
    /// It expires when its wait ends, if not before.
    pub(super) message: OwnedMessage,
    /// The expiry that it has again once it has found a subscriber: then `TTL` does not concern it any more.
    own_expires_ms: u64,
}

/// The stale messages of one home, in the order of arrival.
#[derive(Debug)]
pub struct Stale {
    home: ShardId,
    pub(super) by_arrival: BTreeMap<u64, Waiting>,
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

    /// Keeps a message until it expires, or until this time; a message with an arrival number keeps that. If there are
    /// more than `messages_max`, the oldest one has to be dropped: returns its home.
    #[must_use]
    pub fn hold(&mut self, mut message: OwnedMessage, until_ms: u64, messages_max: usize) -> Option<ShardId> {
        let own_expires_ms = message.expires_ms;
        message.expires_ms = if own_expires_ms == 0 { until_ms } else { own_expires_ms.min(until_ms) };
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
        self.by_arrival.insert(arrival, Waiting { message, own_expires_ms });
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
        let Waiting { mut message, own_expires_ms } = self.by_arrival.remove(&arrival)?;
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
        if !planted!("wait-ends-message") {
            message.expires_ms = own_expires_ms;
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
        for (arrival, Waiting { message, .. }) in self.by_arrival.range(later(*behind)) {
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
        let found = self
            .by_arrival
            .get(&arrival)
            .map(|waiting| &waiting.message)
            .filter(|message| !message.is_expired(now_ms));
        found.is_some_and(|message| without == NOBODY || message.message().sender != without)
    }

    /// The time until which a message is kept.
    #[must_use]
    pub fn end_of(&self, arrival: u64) -> u64 {
        self.by_arrival.get(&arrival).map_or(0, |waiting| waiting.message.expires_ms)
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
#[path = "stale_tests.rs"]
pub(super) mod tests;
