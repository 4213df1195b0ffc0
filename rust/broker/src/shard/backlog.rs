//! What a new subscription gets of the past: stale messages (`TTL`) and last values (`retain`).
//!
//! Each destination's are kept at its home. Every home that hears of a new subscription sends what matches, ahead of
//! its answer, so that all of it is in the outbox before the RECEIPT.

use std::sync::atomic::Ordering;

use stompica_proto::ProtocolError;
use stompica_proto::encode::Offender;
use stompica_proto::error::Code;
use stompica_proto::session::AckMode;

use super::Shard;
use super::timer::Due;
use crate::ids::ShardId;
use crate::queue::mail::{Asker, QueueMail};
use crate::queue::stored::Stored;
use crate::queue::{Subscriber, SubscriptionKey};
use crate::router::destination::Kind;
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
            self.home.enqueue_first(queue, stored);
            return self.dispatch_at_once(queue);
        }
        self.tails.begin();
        let member = Member { conn: conn.index, subscription: key.index };
        self.deliver_to_one(&stored.message(), group, member);
    }

    /// One more home has sent all that it holds for a new subscription. After the last one its live messages, which have
    /// waited in a queue of its own, follow; then it needs that queue no more.
    pub(super) fn backlog_ended(&mut self, key: SubscriptionKey) {
        let Some(found) = self.router.subscription_mut(key) else { return };
        let (ack, place) = (found.ack, found.place);
        let Some(receiver) = found.receiver.as_deref_mut() else { return self.durable_backlog_ended(place) };
        let (Some(catching_up), Some(queue)) = (&mut receiver.catching_up, receiver.own_queue) else {
            return;
        };
        catching_up.waiting -= 1;
        if catching_up.waiting > 0 {
            return;
        }
        let credit = catching_up.credit;
        receiver.catching_up = None;
        let subscriber = Subscriber { shard: self.id, key };
        self.home.attach(queue, subscriber, credit);
        self.dispatch_at_once(queue);
        let Place::Topic { entry, .. } = place else { return };
        let ordinary = self.router.kind(self.router.entry_name(entry)) == Kind::Topic;
        let is_through = self.home.queue(queue).is_some_and(|queue| queue.waiting_bytes() == 0);
        if ack == AckMode::Auto && ordinary && is_through {
            self.hand_out();
            self.router.leave_queue(key);
            self.home.detach(subscriber);
            self.home.delete(queue);
        }
    }

    /// The same for the queue of a durable subscription: one more answer for the RECEIPT of its holder.
    fn durable_backlog_ended(&mut self, place: Place) {
        let Place::Topic { group, .. } = place else { return };
        let binding = self.router.groups[group as usize].sink.and_then(|queue| self.bindings.get(&queue));
        if let Some(asker) = binding.map(|binding| binding.asker) {
            self.dispatch_queues();
            self.answer(asker, Ok(()));
        }
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

    /// Keeps or forgets a topic's last value. Where its sender did not know of a subscription that this home knows of,
    /// and that has got the value before, it is passed on.
    pub(super) fn retain_here(&mut self, stored: Stored, set: bool, sent_to: u64, asker: Option<Asker>) {
        self.pass_on(&stored, sent_to);
        let mut kept = Ok(false);
        if set {
            kept = self.reserve_retained(stored.destination());
            if let Ok(reserved) = &kept {
                self.retained.reserve(-i64::from(*reserved), 0);
                self.retained.set(stored);
            }
        } else {
            self.retained.remove(stored.destination());
        }
        self.rearm_waiting();
        if let Some(asker) = asker {
            self.answer(asker, kept.map(|_| ()).map_err(|error| (error, Offender::default())));
        }
    }

    fn pass_on(&mut self, stored: &Stored, sent_to: u64) {
        let Ok(destination) = self.router.destination(stored.destination()) else { return };
        let missed = self.router.remote(destination) & !sent_to;
        if missed != 0 {
            self.mail_message(&stored.message(), missed);
        }
        if sent_to & self.id.bit() == 0 {
            self.deliver(&stored.message(), destination);
        }
    }

    /// Whether `max_retained` is reached.
    pub(crate) fn is_full_of_retained(&self) -> bool {
        self.shared.retained.load(Ordering::Relaxed) >= self.config.max_retained
    }

    /// Keeps room for a topic's last value, unless it has one: returns whether that was needed.
    ///
    /// # Errors
    /// `E-RETAINED-COUNT`.
    pub(super) fn reserve_retained(&mut self, name: &[u8]) -> Result<bool, ProtocolError> {
        let max = self.config.max_retained;
        let known = self.retained.has(name);
        if known || self.retained.reserve(1, max) {
            return Ok(!known);
        }
        Err(ProtocolError::new(Code::RetainedCount, format!("max_retained is {max}")))
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
