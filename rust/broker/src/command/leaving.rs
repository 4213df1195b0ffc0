//! Ends subscriptions: one, or all of a connection that ends, over several turns if they are many.
//!
//! A connection that ends stays in the table until its last subscription is removed, so that each subscription always
//! has a connection. Until then it takes no more messages and writes nothing. Messages that queues deliver to it
//! meanwhile join its deferred deliveries, and are requeued with their subscription.

use std::mem::take;

use super::Owners;
use crate::connection::pending_writes::REQUEUED_MAX;
use crate::connection::transaction::Committing;
use crate::delivery::returning::Fate;
use crate::door::planted;
use crate::ids::ConnKey;
use crate::ids::{QueueKey, Subscriber, SubscriptionKey};
use crate::queue::consumer_state::{ConsumerState, Feed};
use crate::queue::mail::HomeNote;
use crate::queue::unacked::Unacked;
use crate::router::Holdup;
use crate::router::group::Place;
use crate::timer::Due;
use crate::turn::jobs::Job;

/// Subscriptions of one connection that are removed before the next job runs.
const LEAVE_AT_ONCE: usize = 256;
/// The cost of removing a consumer of a queue, where a subscription to a topic costs 1.
const CONSUMER_CHANGES: usize = 3;

impl Owners<'_> {
    /// Removes some of the subscriptions of a connection that ends; returns whether none is left.
    pub(crate) fn leave_some(&mut self, key: ConnKey) -> bool {
        for _ in 0..LEAVE_AT_ONCE {
            let leaving = self.connections.table.get_mut(key).and_then(|conn| conn.life.leaving.as_mut());
            let next = leaving.and_then(|leaving| Some((leaving.subscriptions.pop()?, leaving.full)));
            let Some((subscription, full)) = next else { break };
            self.remove_subscription(subscription, full);
            if self.turn.budget.is_exhausted() {
                break;
            }
        }
        let Some(conn) = self.connections.table.get_mut(key) else { return true };
        if conn.life.leaving.as_ref().is_some_and(|leaving| !leaving.subscriptions.is_empty()) {
            self.turn.jobs.push(Job::Leave(key));
            return false;
        }
        conn.life.leaving = None;
        self.delivery().forget_deferred(key); // after its consumers, to which queues would deliver requeued messages
        true
    }

    /// Remembers the ids of the deliveries in flight of a subscription that is about to end; its connection stays.
    pub(crate) fn remember_held(&mut self, key: ConnKey, index: u32) {
        let Some(consumer) = self.queues.consumers.at(index) else { return };
        let (subscription, held) = (consumer.key, consumer.unacked.newest(REQUEUED_MAX));
        self.turn.budget.visit(held.len() / 4); // a hash is cheap
        self.delivery().remember_requeued(key, subscription, held.into_iter());
    }

    /// Removes one subscription from the router; the caller updates the connection's own list. Deliveries that it has
    /// not acknowledged are requeued.
    pub(crate) fn remove_subscription(&mut self, index: u32, full: bool) {
        let found = &mut self.router.subscriptions[index as usize];
        let (conn, place) = (found.conn, found.place);
        let key = SubscriptionKey { index, generation: found.generation };
        let consumer = self.queues.consumers.get_mut(key);
        self.turn.budget.change(if consumer.is_some() { CONSUMER_CHANGES } else { 1 });
        let held = consumer.map(|consumer| take(&mut consumer.unacked)).unwrap_or_default();
        if let Place::Topic { group, .. } = place {
            self.delivery().close_group(group);
            if full && !planted!("full-outbox-outlives-subscription") {
                self.delivery().change_full_of(index, Holdup::Outbox, false);
            }
            self.delivery().forget_growing_queue(index);
        }
        self.delivery().end_replay(key);
        self.delivery().forget_pulls_of(conn, key);
        self.delivery().forget_deferred_of(conn, key);
        if let Some(pending_writes) =
            self.connections.table.get_mut(conn).and_then(|conn| conn.pending_writes.as_mut())
        {
            pending_writes.unacked -= held.len();
        }
        let consumer = self.queues.consumers.remove(key);
        let (_, last) = self.router.unsubscribe(index);
        self.diag().unwatch(key);
        if let Some(consumer) = consumer {
            if consumer.armed {
                self.turn.timers.cancel(Due::Subscription(key));
            }
            self.detach(&consumer, Subscriber { shard: self.turn.id, key });
            self.give_back_held(conn, consumer, held);
        }
        match (last, place) {
            (Some(name), _) => self.peers.tell_disinterest(&name),
            (None, Place::Topic { filter, .. }) => self.peers.tell_fan_out_size(self.router, filter),
            (None, Place::Queue) => {}
        }
    }

    fn detach(&mut self, consumer: &ConsumerState, subscriber: Subscriber) {
        match consumer.feed {
            _ if consumer.own_queue.is_some() => self.queues.home.detach(subscriber),
            Feed::One(home) => self.notes.tell(home, HomeNote::Detach(subscriber)),
            Feed::All => self.notes.tell_everyone(|| HomeNote::Detach(subscriber)),
        }
    }

    /// Requeues the deliveries in flight of a subscription that has ended, after the ACKs of a COMMIT that is being applied.
    fn give_back_held(&mut self, conn: ConnKey, mut consumer: Box<ConsumerState>, held: Unacked) {
        let committing = self.connections.table.get(conn).and_then(|conn| conn.committing.as_ref());
        if held.len() > 0 && matches!(committing, Some(Committing::Applying { has_acks: true })) {
            consumer.unacked = held;
            self.commits.late.entry(conn).or_default().insert(consumer.key, consumer);
        } else {
            self.give_back_rest(consumer.own_queue, held);
        }
    }

    /// Requeues these deliveries, which are no longer acknowledged.
    pub(crate) fn give_back_rest(&mut self, own_queue: Option<QueueKey>, held: Unacked) {
        let fate = match own_queue {
            Some(queue) => {
                self.queues.home.delete(queue);
                Fate::Drop
            }
            None => Fate::GiveBack,
        };
        self.delivery().return_deliveries(fate, held);
    }
}
