//! Messages that a home keeps besides queues until they expire: stale (`TTL`) and retained (`retain`) messages.

use stompica_proto::ProtocolError;
use stompica_proto::error::Code;

use super::Owners;
use super::mail::HomeNote;
use super::notes::Local;
use crate::door::planted;
use crate::ids::NO_RECORD;
use crate::message::OwnedMessage;
use crate::requester::Requester;
use crate::router::Destination;
use crate::store::RETAINED;
use crate::timer::Due;

/// The maximum number of messages that expire at a time.
const EXPIRED_AT_ONCE: usize = 500;

fn too_many_retained(max: usize) -> ProtocolError {
    ProtocolError::new(Code::RetainedCount, format!("max_retained is {max}"))
}

impl Owners<'_> {
    /// Whether any home may have messages for a new subscription.
    pub(crate) fn may_replay(&self) -> bool {
        self.turn.config.ttl_ms > 0 || self.queues.stale.is_any_held() || self.queues.retained.has_been_used()
    }

    /// Whether a message to a topic has to be kept at its home until a subscription comes.
    #[inline]
    pub(crate) fn waits_for_subscriber(&self, destination: Destination) -> bool {
        self.turn.config.ttl_ms > 0 && self.router.filter_count(destination) == 0
    }

    /// Handles a message that found no subscription where it was sent: one may exist by now. It is kept for a new
    /// subscription to its topic until the sender's shard has reported that it knows that, because it must precede live
    /// messages. New subscriptions to other topics would not bring it to those that exist.
    pub(super) fn place_stale(&mut self, message: OwnedMessage) {
        let Ok(destination) = self.router.destination_of(self.turn, message.destination()) else { return };
        if message.is_expired(self.turn.now_ms) {
            self.turn.counters.expired += 1; // it was returned by a subscription that has ended
        } else if self.router.filter_count(destination) > 0 && !self.is_awaited(message.destination()) {
            self.notes.leave(Local::Publish(message));
        } else {
            self.hold_stale(message);
        }
    }

    /// Keeps a message until a subscription comes, or it expires.
    pub(crate) fn hold_stale(&mut self, message: OwnedMessage) {
        if self.turn.config.ttl_ms == 0 {
            self.turn.counters.unmatched += 1;
            return;
        }
        self.hold_stale_until(self.turn.now_ms.saturating_add(self.turn.config.ttl_ms), message);
    }

    /// Keeps a message until this time.
    pub(super) fn hold_stale_until(&mut self, end_ms: u64, message: OwnedMessage) {
        self.turn.counters.stale += 1;
        let queue = self.worker_queue(message.destination());
        let oldest = self.queues.stale.hold(message, end_ms, self.turn.config.max_stale_queue_size);
        queue.into_iter().for_each(|queue| self.hold_behind_stale(queue));
        if let Some(oldest) = oldest {
            self.tell(oldest, HomeNote::DropStale);
        }
        self.rearm_waiting();
    }

    /// Drops the oldest stale message, because there are too many. If this home has none, another home has the oldest.
    pub(super) fn drop_stale(&mut self) {
        if let Some(dropped) = self.queues.stale.take_oldest() {
            self.turn.counters.dropped += 1;
            self.left_stale(&dropped);
        } else if let Some(oldest) =
            self.queues.stale.over(self.turn.config.max_stale_queue_size).filter(|at| *at != self.turn.id)
        {
            self.tell(oldest, HomeNote::DropStale);
        }
    }

    /// Sets or removes the retained message of a topic. There is room: a COMMIT holds it, and a SEND by itself, for which
    /// somebody waits, has reserved it.
    pub(super) fn retain(&mut self, mut message: OwnedMessage, set: bool, requester: Option<Requester>) {
        let retained = &mut self.queues.retained;
        let before = retained.record_of(message.destination());
        if set {
            if requester.is_some() {
                retained.arrives(message.destination());
            }
            self.queues.home.store.keep(RETAINED, &mut message);
            retained.set(message);
            self.queues.home.store.forget(before);
        } else if !planted!("removal-forgotten") {
            retained.remove(message.destination());
            self.queues.home.store.forget(before);
            if before == NO_RECORD {
                // Somebody else's removal may not be safe: without it the value would return.
                self.queues.home.store.began_before();
            }
        }
        self.rearm_waiting();
        if let Some(requester) = requester {
            self.answer(requester, Ok(()));
        }
    }

    /// Holds room for the retained message of a topic.
    ///
    /// # Errors
    /// `E-RETAINED-COUNT`.
    pub(super) fn claim_retained(&mut self, name: &[u8]) -> Result<(), ProtocolError> {
        let max = self.turn.config.max_retained;
        if self.queues.retained.claim(name, max) { Ok(()) } else { Err(too_many_retained(max)) }
    }

    /// Sets the timer for the next expiry, unless an earlier one is set.
    pub(super) fn rearm_waiting(&mut self) {
        let next_ms = self.queues.stale.next_ms().into_iter().chain(self.queues.retained.next_ms()).min();
        // Messages that have expired already do not precede all other passed deadlines.
        let next_ms = next_ms.map(|at_ms| at_ms.max(self.turn.now_ms));
        if let Some(at_ms) = next_ms.filter(|at_ms| *at_ms < self.queues.next_expiry_ms) {
            self.queues.next_expiry_ms = at_ms;
            self.turn.timers.set(at_ms, Due::Waiting);
        }
    }

    /// Drops some of the expired messages; the rest is due at once, and is not delivered until then.
    pub(crate) fn expire_waiting(&mut self) {
        self.queues.next_expiry_ms = u64::MAX;
        let mut gone = 0;
        while gone < EXPIRED_AT_ONCE
            && let Some(expired) = self.queues.stale.take_expired(self.turn.now_ms)
        {
            self.left_stale(&expired);
            gone += 1;
        }
        while gone < EXPIRED_AT_ONCE
            && let Some(record) = self.queues.retained.expire(self.turn.now_ms)
        {
            self.queues.home.store.forget(record);
            gone += 1;
        }
        self.turn.budget.visit(gone);
        self.turn.counters.expired += gone as u64;
        self.rearm_waiting();
    }
}
