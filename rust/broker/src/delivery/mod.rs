//! Messages on their way to outboxes: messages of topics, deliveries of queues, and deliveries that are requeued.
//!
//! ```text
//! publish ─► deliver ─┬─► a range for a group ─► its members' outboxes       (connection)
//!                     ├─► one member's outbox
//!                     ├─► a subscription's own queue ─► receive ─► outbox    (queue)
//!                     └─► fan_out: over several turns, or as outboxes have room (deferred)
//! written, ACK, NACK ─► settled, credit ─► home          cut, lost ─► returning ─► home
//! ```
//! Operations that need several owners are methods of [`Owners`].

pub mod admission;
#[cfg(any(test, simulated))]
mod audit;
mod copies;
pub mod deferred;
pub mod deliver;
mod dispatch;
pub mod fan_out;
pub mod full;
pub mod growing_queues;
mod initial_replay;
mod largest;
pub mod memory;
mod orphans;
pub mod publish;
pub mod receive;
mod recorded;
mod replay;
pub mod returning;
pub(crate) mod revoked;
mod round_trips;

use std::collections::VecDeque;
use std::mem::take;

use self::admission::Admission;
use self::deliver::EncodedSuffixes;
use self::growing_queues::GrowingQueues;
use self::largest::Round;
use self::returning::Returning;
use self::round_trips::RoundTrips;
use crate::connection::Connections;
use crate::connection::deferred::Deferred;
use crate::ids::{ConnKey, NO_RECORD, QueueKey};
use crate::mail::peers::Peers;
use crate::message::OwnedMessage;
use crate::queue;
use crate::queue::mail::HomeNote;
use crate::queue::notes::Notes;
use crate::queue::queues::Queues;
use crate::queue::types::{Delivery, Effect, GivenBack};
use crate::queue::unacked::Origin;
use crate::router::Router;
use crate::router::fan_out::FanOuts;
use crate::router::group::GroupIndex;
use crate::turn::Turn;

/// Messages on their way to the connections of one shard.
#[derive(Debug, Default)]
pub struct Deliveries {
    /// Messages to topics that take several turns.
    pub fan_outs: FanOuts,
    /// The message that is being delivered, encoded once for each version.
    pub suffixes: EncodedSuffixes,
    /// Groups that have an open chunk.
    pub open_groups: Vec<GroupIndex>,
    /// Deliveries that are requeued over several turns.
    pub returning: Returning,
    /// Deferred deliveries that are being dropped over several turns.
    pub forgotten: VecDeque<Box<Deferred>>,
    /// Answers to frames of other shards that wait until the effects of earlier mail of those shards are complete.
    pub round_trips: RoundTrips,
    /// Admission of SENDs while memory is short.
    pub(crate) admission: Admission,
    /// Subscriptions to topics whose private queue grows while memory is short.
    pub(crate) growing_queues: GrowingQueues,
    /// The connections that are examined while memory is short.
    pub(crate) round: Round,
}

owners! {
    /// All owners that deliveries need.
    pub struct Owners {
        turn: Turn, notes: Notes, router: Router, queues: Queues,
        connections: Connections, deliveries: Deliveries, peers: Peers,
    }
}

impl Owners<'_> {
    /// The owners that queues need.
    #[inline]
    pub fn queue(&mut self) -> queue::Owners<'_> {
        lend!(self => queue::Owners { turn, notes, router, queues })
    }

    /// Requeues a message at the queue it came from.
    pub fn give_back(&mut self, origin: Origin, message: OwnedMessage, why: GivenBack) {
        if message.record != NO_RECORD && matches!(why, GivenBack::Failed { .. }) {
            self.queues.home.store.add_concerned(origin.home.bit()); // it may become a dead letter there
        }
        if origin.home != self.turn.id {
            return self.notes.tell(origin.home, HomeNote::GiveBack(origin, message, Box::new(why)));
        }
        self.queues.home.give_back(origin.queue, origin.consumer, message, why);
        self.queue().count_visits();
    }

    /// Dispatches one queue at once. All other effects of the home are left to the turn: this is called while a
    /// message is delivered to one subscription after the other, and only deliveries may happen in between.
    pub fn dispatch_at_once(&mut self, queue: QueueKey) {
        let earlier = self.queues.home.effects.len();
        self.queues.home.dispatch_at_once(queue);
        let mut effects = take(&mut self.queues.home.effects);
        for effect in effects.drain(earlier..) {
            match effect {
                Effect::Deliver(delivery) => self.carry_out(delivery),
                other => self.queues.home.effects.push(other),
            }
        }
        effects.append(&mut self.queues.home.effects);
        self.queues.home.effects = effects;
    }

    /// Sends a delivery to its consumer's shard.
    #[inline]
    pub fn carry_out(&mut self, delivery: Delivery) {
        let own = self.turn.id;
        if delivery.subscriber.shard == own {
            self.turn.budget.deliver();
            self.receive(own, delivery);
        } else {
            self.queue().send_delivery(delivery);
        }
    }

    /// Schedules a request for more initial replay after a change of a connection that causes no write.
    pub fn pull_soon(&mut self, key: ConnKey) {
        if let Some(pulls) = self.connections.table.get_mut(key).and_then(|conn| conn.pulls.as_mut()) {
            pulls.unexamined = pulls.requests.len();
            if !pulls.is_listed {
                pulls.is_listed = true;
                self.queues.replays.pulling.push_back(key);
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod fixture;
#[cfg(test)]
mod replay_tests;
#[cfg(test)]
mod tests;
