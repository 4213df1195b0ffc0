//! Initial replay of a new subscription, on the subscription's side.

use stompica_proto::session::AckMode;

use super::Owners;
use crate::destination::Kind;
use crate::ids::{ConnKey, QueueKey, ShardId, Subscriber, SubscriptionKey};
use crate::message::OwnedMessage;
use crate::queue::mail::HomeNote;
use crate::queue::types::Credit;
use crate::router::group::{Member, Place};

impl Owners<'_> {
    /// Delivers a stale or retained message to a new subscription; if that has ended, a stale one is requeued.
    pub(super) fn take_replayed(&mut self, key: SubscriptionKey, mut message: OwnedMessage, retained: bool) {
        let place = self.router.subscription_mut(key).map(|found| (found.place, found.conn));
        let Some((Place::Topic { group, .. }, conn)) = place else {
            if !retained {
                let home = self.router.home(message.destination());
                self.queue().tell(home, HomeNote::Stale(message));
            }
            return;
        };
        if !self.router.groups[group as usize].wire_format.takes_from(message.message().sender) {
            return; // its own retained message
        }
        self.connections.distribute(self.turn);
        if let Some(queue) = self.router.groups[group as usize].target_queue {
            if conn != ConnKey::NONE {
                message.owe(); // what a durable subscription keeps is owed to nobody
            }
            self.queues.home.enqueue_first(queue, message);
            return self.dispatch_at_once(queue);
        }
        self.deliveries.suffixes.begin();
        let member = Member { conn: conn.index, subscription: key };
        self.deliver_to_one(&message.message(), group, member);
    }

    /// Records that one more home has sent all its messages for a new subscription. After the last one, live messages
    /// follow, which have waited in a private queue; then that queue is removed.
    pub(super) fn replay_ended(&mut self, home: ShardId, key: SubscriptionKey) {
        self.window_has_come(home, key);
        let Some(found) = self.router.subscription_mut(key) else { return };
        let (ack, place, conn) = (found.ack, found.place, found.conn);
        let Some(consumer) = self.queues.consumers.get_mut(key) else {
            return self.durable_replay_ended(place);
        };
        let (Some(initial_replay), Some(queue)) = (&mut consumer.initial_replay, consumer.own_queue) else {
            return;
        };
        initial_replay.waiting -= 1;
        if initial_replay.waiting > 0 {
            return self.pull_replay(conn); // its window is free, although other consumers took the messages
        }
        let lent = Credit { messages: 0, bytes: -initial_replay.bytes_granted };
        consumer.initial_replay = None;
        let needs_queue = ack != AckMode::Auto || consumer.slow_consumer.is_some();
        self.queues.home.add_credit_of(Subscriber { shard: self.turn.id, key }, lent);
        self.pull_replay(conn); // another subscription may need the window
        self.queues.home.let_live_pass(queue);
        self.dispatch_at_once(queue);
        if !needs_queue {
            self.leave_own_queue(key, place, queue);
        }
        self.resume_after_deferred(conn);
    }

    /// Removes the private queue of a subscription if nothing waits in it and nothing else needs it.
    fn leave_own_queue(&mut self, key: SubscriptionKey, place: Place, queue: QueueKey) {
        let conn = self.router.subscription_mut(key).map(|found| found.conn);
        let (Place::Topic { filter, .. }, Some(conn)) = (place, conn) else { return };
        let ordinary = self.router.kind(self.router.filter_name(filter)) == Kind::Topic;
        let is_through = self.queues.home.queue(queue).is_some_and(|queue| queue.waiting_bytes() == 0)
            && self.connections.table.get(conn).is_some_and(|conn| conn.output.deferred.is_none())
            && self.deliveries.fan_outs.is_empty(); // fan-outs refer to its group
        if ordinary && is_through {
            self.connections.distribute(self.turn);
            self.queues.consumers.remove(key);
            self.router.leave_queue(key);
            self.peers.tell_fan_out_size(self.router, filter); // it had a group of its own
            self.queues.home.detach(Subscriber { shard: self.turn.id, key });
            self.queues.home.delete(queue);
        }
    }

    /// Does the same for the queue of a durable subscription.
    fn durable_replay_ended(&mut self, place: Place) {
        let Place::Topic { group, .. } = place else { return };
        if let Some(queue) = self.router.groups[group as usize].target_queue {
            self.queue().durable_replay_ended(queue);
        }
    }
}
