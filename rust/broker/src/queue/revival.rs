//! Delivery of stale messages of worker topics (`TTL`) to a new consumer, over as many turns as it takes.
//!
//! The messages are delivered name by name. Each keeps its arrival number in the queue, and the queue of a name
//! delivers no message that is newer than its oldest stale one ([`Owners::hold_behind_stale`]). So each name keeps its
//! order while some of its messages are stale and others are in the queue, even if consumers come and go. The RECEIPT
//! of the consumer follows all of them. A consumer whose messages would need more queues than `max_destinations` is refused.

use stompica_proto::ProtocolError;
use stompica_proto::encode::Offender;

use super::Owners;
use super::replay::{Search, Visits};
use super::replays::literal_len;
use super::stale::Place;
use crate::destination::Kind;
use crate::ids::{QueueKey, Subscriber};
use crate::message::OwnedMessage;
use crate::requester::Requester;
use crate::text::Text;
use crate::turn::jobs::Job;

/// The maximum number of visited names and messages before another job runs.
const VISITS_MAX: usize = 1000;
/// The maximum number of pending deliveries to this shard.
const DELIVERIES_MAX: usize = 64;

/// The delivery of stale messages to one consumer.
#[derive(Debug)]
pub(crate) struct Revival {
    pub(crate) subscriber: Subscriber,
    /// Its destination: a name or a pattern.
    pub(crate) name: Text,
    pub(crate) place: Place,
    pub(crate) requester: Requester,
}

impl Owners<'_> {
    /// Delivers stale messages to a new consumer as far as it has credit; then answers.
    pub(super) fn revive(&mut self, name: &[u8], subscriber: Subscriber, requester: Requester) {
        self.run_effects(); // messages without a consumer become stale first, and this consumer gets them
        if self.queues.stale.is_empty() {
            return self.notes.answer(requester, Ok(()));
        }
        let revival = Revival { subscriber, name: name.into(), place: Place::default(), requester };
        self.proceed_with_revival(Box::new(revival));
    }

    /// The queue of a worker topic, if it has one.
    pub(super) fn worker_queue(&self, name: &[u8]) -> Option<QueueKey> {
        if self.router.kind(name) == Kind::WorkerTopic { self.queues.home.find(name) } else { None }
    }

    /// Tells the queue of a worker topic the number of its oldest stale message.
    pub(super) fn hold_behind_stale(&mut self, queue: QueueKey) {
        let older = self.queues.home.queue(queue).and_then(|queue| self.queues.stale.first_to(&queue.name));
        self.queues.home.hold_behind(queue, older);
    }

    /// Updates the queue of a worker topic after a stale message was removed: later messages may be delivered now.
    pub(super) fn left_stale(&mut self, message: &OwnedMessage) {
        let queue = self.worker_queue(message.destination());
        queue.into_iter().for_each(|queue| self.hold_behind_stale(queue));
    }

    /// Continues the first of them.
    pub(crate) fn proceed_with_revivals(&mut self) {
        if let Some(revival) = self.queues.revivals.pop_front() {
            self.proceed_with_revival(revival);
        }
    }

    fn proceed_with_revival(&mut self, mut revival: Box<Revival>) {
        let mut visits = Visits { count: 0, max: VISITS_MAX };
        let name = revival.name.clone();
        let pattern = self.router.parse(&name).ok().flatten();
        let prefix_len = pattern.as_ref().map_or(name.len(), |_| literal_len(&name));
        let search = Search::new(&name[..prefix_len], pattern.is_some());
        let mut is_over = !self.queues.home.has_consumer(revival.subscriber);
        let mut outcome = Ok(());
        while !is_over && !visits.is_exhausted() {
            let router = &*self.router;
            let matches = |other: &[u8]| {
                router.kind(other) == Kind::WorkerTopic
                    && pattern.as_ref().is_some_and(|pattern| pattern.matches(other))
            };
            match self.queues.stale.next_behind(&search, &mut revival.place, matches, &mut visits) {
                Some(arrival) => {
                    outcome = self.deliver_stale(arrival);
                    is_over = outcome.is_err();
                }
                None => is_over = !visits.is_exhausted(),
            }
            if self.turn.budget.is_half_spent() || self.notes.local_len() >= DELIVERIES_MAX {
                break;
            }
        }
        self.turn.budget.visit(visits.count);
        if is_over {
            let outcome = outcome.map_err(|error| (error, Offender::default()));
            self.notes.answer(revival.requester, outcome);
        } else {
            self.queues.revivals.push_back(revival);
            self.turn.jobs.push(Job::Revive);
        }
    }

    /// Moves a stale message to its queue. It stays if it would need one queue more than there may be: it is confirmed.
    ///
    /// # Errors
    /// `E-DEST-COUNT`.
    fn deliver_stale(&mut self, arrival: u64) -> Result<(), ProtocolError> {
        let end_ms = self.queues.stale.end_of(arrival);
        let Some(message) = self.queues.stale.take_one(arrival) else { return Ok(()) };
        let name = Text::from(message.destination());
        if let Err((error, message)) = self.enqueue(message) {
            self.hold_stale_until(end_ms, message);
            return Err(error);
        }
        if let Some(queue) = self.queues.home.find(&name) {
            self.dispatch_at_once(queue); // only this queue: later messages are still held back
            self.hold_behind_stale(queue);
        }
        Ok(())
    }
}
