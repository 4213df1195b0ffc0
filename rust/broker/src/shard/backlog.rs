//! What a new subscription gets of the past: stale messages (`TTL`) and last values (`retain`).
//!
//! Each destination's are kept at its home. Every home that hears of a new subscription sends what matches, ahead of
//! its answer, so that all of it is in the outbox before the RECEIPT.

use std::sync::atomic::Ordering;

use stompica_proto::error::Code;
use stompica_proto::{ProtocolError, encode::Offender};

use super::Shard;
use super::timer::Due;
use crate::ids::ShardId;
use crate::queue::SubscriptionKey;
use crate::queue::mail::{Asker, QueueMail};
use crate::queue::stored::Stored;
use crate::router::group::{Member, Place};

impl Shard {
    /// Whether somebody may hold something for a new subscription.
    pub(crate) fn may_have_backlog(&self) -> bool {
        self.config.ttl_ms > 0
            || self.shared.stale.count.load(Ordering::Relaxed) > 0
            || self.shared.retained.load(Ordering::Relaxed) > 0
    }

    /// Sends a new subscription to a topic or pattern what this home holds for it.
    pub(crate) fn send_backlog(&mut self, name: &[u8], shard: ShardId, subscription: SubscriptionKey) {
        let Ok(pattern) = self.router.parse(name) else { return };
        let (stale, retained) = match pattern {
            None => (self.stale.take_named(name), self.retained.named(name)),
            Some(pattern) => {
                let router = &self.router;
                let own = router.kind(name);
                let matches = |other: &[u8]| router.kind(other) == own && pattern.matches(other);
                (self.stale.take(matches), self.retained.matching(literal(name), matches))
            }
        };
        for stored in retained {
            self.tell(shard, QueueMail::Backlog(subscription, stored, true));
        }
        for stored in stale {
            self.tell(shard, QueueMail::Backlog(subscription, stored, false));
        }
    }

    /// Hands one of them to the subscription; if that is gone, a stale message goes back.
    pub(super) fn take_backlog(&mut self, key: SubscriptionKey, stored: Stored, retained: bool) {
        let place = self.router.subscription_mut(key).map(|found| (found.place, found.conn));
        let Some((Place::Topic { group, .. }, conn)) = place else {
            if !retained {
                let home = self.router.home(stored.destination());
                self.tell(home, QueueMail::Stale(stored));
            }
            return;
        };
        self.hand_out();
        if let Some(queue) = self.router.groups[group as usize].sink {
            self.home.enqueue(queue, stored);
            return self.dispatch_at_once(queue);
        }
        self.tails.begin();
        let member = Member { conn: conn.index, subscription: key.index };
        self.deliver_to_one(&stored.message(), group, member);
    }

    /// Keeps a message to a topic without subscribers at its home, if `TTL` allows.
    pub(crate) fn hold_or_drop(&mut self, home: ShardId, stored: Stored) {
        if self.config.ttl_ms > 0 {
            self.tell(home, QueueMail::Stale(stored));
        } else {
            self.counters.unmatched += 1;
        }
    }

    /// A message that found no subscriber where it was sent: somebody may have come since.
    pub(super) fn place_stale(&mut self, stored: Stored) {
        let Ok(destination) = self.router.destination(stored.destination()) else { return };
        if self.router.entry_count(destination) > 0 {
            let shards = self.router.remote(destination);
            self.publish(&stored.message(), destination, shards);
        } else {
            self.hold_stale(stored);
        }
    }

    /// Holds a message until somebody subscribes, or its time is over.
    pub(super) fn hold_stale(&mut self, mut stored: Stored) {
        if self.config.ttl_ms == 0 {
            self.counters.unmatched += 1;
            return;
        }
        let end_ms = self.now_ms.saturating_add(self.config.ttl_ms);
        stored.expires_ms = if stored.expires_ms == 0 { end_ms } else { stored.expires_ms.min(end_ms) };
        self.counters.stale += 1;
        if let Some(oldest) = self.stale.hold(stored, self.config.max_stale_queue_size) {
            self.tell(oldest, QueueMail::DropStale);
        }
        self.rearm_waiting();
    }

    /// Keeps or forgets a topic's last value.
    pub(super) fn retain_here(&mut self, stored: Stored, set: bool, asker: Option<Asker>) {
        let mut kept = Ok(());
        if set {
            kept = self.check_retained(stored.destination());
            if kept.is_ok() {
                self.retained.set(stored);
            }
        } else {
            self.retained.remove(stored.destination());
        }
        self.rearm_waiting();
        if let Some(asker) = asker {
            self.answer(asker, kept.map_err(|error| (error, Offender::default())));
        }
    }

    /// Whether `max_retained` is reached.
    pub(crate) fn is_full_of_retained(&self) -> bool {
        self.shared.retained.load(Ordering::Relaxed) >= self.config.max_retained
    }

    /// Whether a topic's last value can be kept here.
    ///
    /// # Errors
    /// `E-RETAINED-COUNT`.
    pub(super) fn check_retained(&self, name: &[u8]) -> Result<(), ProtocolError> {
        if !self.is_full_of_retained() || self.retained.has(name) {
            return Ok(());
        }
        Err(ProtocolError::new(Code::RetainedCount, format!("max_retained is {}", self.config.max_retained)))
    }

    /// Puts the next expiry into the timers, unless an earlier one is there.
    pub(super) fn rearm_waiting(&mut self) {
        let next_ms = self.stale.next_ms().into_iter().chain(self.retained.next_ms()).min();
        if let Some(at_ms) = next_ms.filter(|at_ms| *at_ms < self.waiting_deadline_ms) {
            self.waiting_deadline_ms = at_ms;
            self.timers.add(at_ms, Due::Waiting);
        }
    }

    /// Drops what has expired.
    pub(super) fn expire_waiting(&mut self) {
        self.waiting_deadline_ms = u64::MAX;
        let gone = self.stale.expire(self.now_ms) + self.retained.expire(self.now_ms);
        self.counters.expired += gone as u64;
        self.rearm_waiting();
    }
}

/// What every match of a pattern begins with: whole segments in front of the first wildcard.
fn literal(pattern: &[u8]) -> &[u8] {
    let wild = pattern.iter().position(|byte| matches!(byte, b'*' | b'>' | b'#')).unwrap_or(pattern.len());
    let end = pattern[..wild].iter().rposition(|byte| matches!(byte, b'/' | b'.')).unwrap_or(0);
    &pattern[..end]
}
