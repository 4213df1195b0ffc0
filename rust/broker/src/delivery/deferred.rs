//! Drops or requeues deferred deliveries that were not sent.

use super::Owners;
use crate::connection::deferred::{Deferred, Waiting};
use crate::connection::pausing::Pause;
use crate::door::planted;
use crate::ids::SubscriptionKey;
use crate::ids::{ConnKey, ShardId};
use crate::queue::types::{Delivery, GivenBack};
use crate::queue::unacked::Origin;
use crate::router::group::SubscriptionIndex;
use crate::turn::jobs::Job;

impl Owners<'_> {
    /// Lets a frame that waits for messages that its connection is owed continue if none is left.
    pub fn resume_after_deferred(&mut self, key: ConnKey) {
        let Some(conn) = self.connections.table.get(key) else { return };
        let waits = conn.wait.pause() == Some(Pause::Deferred);
        if waits
            && !self.connections.has_accepted_deferred(key)
            && !conn.wait.awaited().is_some_and(|awaited| self.is_owed(awaited))
        {
            self.connections.unpark(self.turn, key);
        }
    }

    /// Whether a subscription is owed messages ([`Conn::owes`]).
    pub fn is_owed(&self, index: SubscriptionIndex) -> bool {
        let consumer = self.queues.consumers.at(index);
        let conn = consumer.and_then(|consumer| self.connections.table.get(consumer.conn));
        conn.is_some_and(|conn| conn.owes(self.queues, index))
    }

    /// The first subscription of a connection that is owed messages; the connection is about to end. What is added to the
    /// private queues of its subscriptions from now on is not owed to it.
    pub fn first_owed(&mut self, key: ConnKey) -> Option<SubscriptionIndex> {
        let conn = self.connections.table.get(key)?;
        self.turn.budget.visit(conn.subscriptions.len());
        let first = conn.subscriptions.iter().copied().find(|index| self.is_owed(*index))?;
        for index in &conn.subscriptions {
            self.queues.consumers.at_mut(*index).into_iter().for_each(|consumer| consumer.close_queue());
        }
        Some(first)
    }

    /// Does the same for one subscription that is about to end. Returns whether it is owed messages.
    pub fn is_owed_at_its_end(&mut self, index: SubscriptionIndex) -> bool {
        let is_owed = self.is_owed(index);
        if is_owed && let Some(consumer) = self.queues.consumers.at_mut(index) {
            consumer.close_queue();
        }
        is_owed
    }

    /// Drops all deferred deliveries of a connection that ends.
    pub fn forget_deferred(&mut self, key: ConnKey) {
        if let Some(deferred) =
            self.connections.table.get_mut(key).and_then(|conn| conn.output.deferred.take())
        {
            self.drop_deferred(deferred);
        }
    }

    /// Drops the deferred messages of topics of a connection, and counts them as dropped.
    pub fn drop_deferred_topics(&mut self, key: ConnKey) {
        let Some(conn) = self.connections.table.get_mut(key) else { return };
        let Some(deferred) = &mut conn.output.deferred else { return };
        let topics = deferred.take_topics();
        if deferred.is_empty() {
            conn.output.deferred = None;
        }
        conn.output.dropped = conn.output.dropped.saturating_add(topics.len() as u32);
        self.turn.counters.dropped += topics.len() as u64;
        self.drop_deferred(Box::new(topics));
        self.resume_after_deferred(key);
    }

    /// Drops deferred messages over as many turns as it takes: they may be millions of copies.
    pub fn drop_deferred(&mut self, mut deferred: Box<Deferred>) {
        while let Some(waiting) = deferred.pop() {
            self.turn.budget.visit(1);
            match waiting {
                Waiting::Copy(fan_out, _) => {
                    if !planted!("forgotten-copy-still-counted") {
                        self.deliveries.fan_outs.arrived(fan_out);
                    }
                    self.end_fan_out(fan_out);
                }
                Waiting::Range(chunk, ..) => self.connections.chunks.release(chunk),
                Waiting::Queued(queued) => self.give_back_waiting(queued.0, queued.1),
            }
            if self.turn.budget.is_exhausted() && !deferred.is_empty() {
                self.deliveries.forgotten.push_back(deferred);
                return self.turn.jobs.push(Job::Forget);
            }
        }
    }

    /// Continues to drop the first of them.
    pub fn proceed_with_forgetting(&mut self) {
        if let Some(deferred) = self.deliveries.forgotten.pop_front() {
            self.drop_deferred(deferred);
        }
    }

    /// Requeues the deferred messages of queues for a subscription that ends.
    pub fn forget_deferred_of(&mut self, conn: ConnKey, key: SubscriptionKey) {
        let Some(deferred) =
            self.connections.table.get_mut(conn).and_then(|conn| conn.output.deferred.as_mut())
        else {
            return;
        };
        let (taken, looked_at) = deferred.take_queued(key);
        self.turn.budget.visit(looked_at);
        for (_, queued) in taken {
            if planted!("deferred-not-returned") {
                continue;
            }
            self.give_back_waiting(queued.0, queued.1);
        }
    }

    fn give_back_waiting(&mut self, home: ShardId, delivery: Delivery) {
        let Delivery { queue, consumer, message, .. } = delivery;
        let origin = Origin { home, queue, consumer };
        self.give_back(origin, message, GivenBack::Lost);
    }
}
