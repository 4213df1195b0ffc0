//! Messages to worker topics that waited for a consumer (`TTL`), on their way to one that has come, over as many turns
//! as that takes.
//!
//! They go name by name. Each has the number of its arrival, in the queue too; and the queue of a name delivers nothing
//! behind the first that still waits here ([`Owners::hold_behind_stale`]). So each name keeps its order, whoever comes
//! and goes while a part of its messages is here and a part in the queue. The consumer's RECEIPT comes behind all of
//! them.

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

/// Names and messages that are looked at before another job has its turn.
const VISITS_MAX: usize = 1000;
/// Deliveries to this shard that may wait before they are carried out.
const DELIVERIES_MAX: usize = 64;

/// What waited for one consumer.
#[derive(Debug)]
pub(crate) struct Revival {
    pub(crate) subscriber: Subscriber,
    /// What it consumes: a name or a pattern.
    pub(crate) name: Text,
    pub(crate) place: Place,
    pub(crate) requester: Requester,
}

impl Owners<'_> {
    /// Hands what waited for a consumer out, as far as it has credit; then answers.
    pub(super) fn revive(&mut self, name: &[u8], subscriber: Subscriber, requester: Requester) {
        self.run_effects(); // a message that just found nobody has found this one
        if self.queues.stale.is_empty() {
            return self.notes.answer(requester, Ok(()));
        }
        let revival = Revival { subscriber, name: name.into(), place: Place::default(), requester };
        self.proceed_with_revival(Box::new(revival));
    }

    /// The queue of a worker topic, if that has one.
    pub(super) fn worker_queue(&self, name: &[u8]) -> Option<QueueKey> {
        if self.router.kind(name) == Kind::WorkerTopic { self.queues.home.find(name) } else { None }
    }

    /// Tells the queue of a worker topic which is the first of its messages that wait for a consumer.
    pub(super) fn hold_behind_stale(&mut self, queue: QueueKey) {
        let older = self.queues.home.queue(queue).and_then(|queue| self.queues.stale.first_to(&queue.name));
        self.queues.home.hold_behind(queue, older);
    }

    /// A message has gone that waited for a subscriber: those behind it may be delivered.
    pub(super) fn left_stale(&mut self, stored: &OwnedMessage) {
        let queue = self.worker_queue(stored.destination());
        queue.into_iter().for_each(|queue| self.hold_behind_stale(queue));
    }

    /// Goes on with the first of them.
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
        while !is_over && !visits.is_exhausted() {
            let router = &*self.router;
            let matches = |other: &[u8]| {
                router.kind(other) == Kind::WorkerTopic
                    && pattern.as_ref().is_some_and(|pattern| pattern.matches(other))
            };
            match self.queues.stale.next_behind(&search, &mut revival.place, matches, &mut visits) {
                Some(arrival) => self.deliver_stale(arrival),
                None => is_over = !visits.is_exhausted(),
            }
            if self.turn.budget.is_half_spent() || self.notes.local_len() >= DELIVERIES_MAX {
                break;
            }
        }
        self.turn.budget.visit(visits.count);
        if is_over {
            self.notes.answer(revival.requester, Ok(()));
        } else {
            self.queues.revivals.push_back(revival);
            self.turn.jobs.push(Job::Revive);
        }
    }

    fn deliver_stale(&mut self, arrival: u64) {
        let Some(stored) = self.queues.stale.take_one(arrival) else { return };
        let name = Text::from(stored.destination());
        let outcome = self.enqueue(stored);
        self.drop_refused(outcome);
        if let Some(queue) = self.queues.home.find(&name) {
            self.dispatch_at_once(queue); // this one alone: what is behind it is still held back
            self.hold_behind_stale(queue);
        }
    }
}
