//! Publishes messages to topics that do not come from a SEND: messages of transactions, stale messages, and messages of
//! other shards.

use super::Owners;
use super::memory::must_wait_for_memory;
use crate::connection::pausing::Pause;
use crate::ids::ShardId;
use crate::mail::inbound::Inbound;
use crate::message::OwnedMessage;
use crate::queue::mail::HomeNote;
use crate::report::stages::Stage;
use crate::router::Destination;
use crate::router::fan_out::FanOutKey;

impl Owners<'_> {
    /// Publishes a message of a transaction to its topic.
    pub fn publish_owned(
        &mut self,
        message: OwnedMessage,
        destination: Destination,
        home: ShardId,
        retained: bool,
    ) -> Option<FanOutKey> {
        if message.is_expired(self.turn.now_ms) {
            self.turn.counters.expired += 1;
            return None;
        }
        let reach = self.router.reach(destination);
        let going = self.publish(&message.message(), destination, &reach);
        if !retained && self.queue().waits_for_subscriber(destination) {
            self.queue().tell(home, HomeNote::Stale(message));
        }
        going
    }

    /// Publishes a message that was held as stale.
    pub fn publish_late(&mut self, message: &OwnedMessage) {
        let Ok(destination) = self.router.destination_of(self.turn, message.destination()) else { return };
        // The same publisher may have a fan-out that is not complete.
        self.deliveries.fan_outs.in_order = true;
        let reach = self.router.reach(destination);
        self.publish(&message.message(), destination, &reach);
        self.deliveries.fan_outs.in_order = false;
    }

    /// Routes messages of other shards, as far as the turn allows.
    pub fn route_inbound(&mut self) {
        while !self.turn.budget.is_exhausted()
            && self.peers.inbound.can_go_on(&self.deliveries.fan_outs)
            && let Some(inbound) = self.peers.inbound.batches.pop_front()
        {
            let Inbound { batch, round, newest, mut next, mut behind } = inbound;
            self.peers.inbound.routes_for = Some(newest);
            let mut routed = 0;
            let mut more = true;
            // The previous message is no longer being routed.
            let mut work = behind.take().map_or(0, |_| batch.work_before(next));
            let began = self.turn.stages.begin(Stage::Encode);
            while more && behind.is_none() && !self.turn.budget.is_exhausted() {
                match batch.next_for(self.turn.id, next) {
                    None => more = false,
                    Some((message, rest)) => {
                        next = rest;
                        routed += 1;
                        // The sending shard has checked the name.
                        if let Ok(destination) = self.router.destination_of(self.turn, message.destination) {
                            let reach = self.router.reach(destination);
                            let going = self.deliver(&message, destination, &reach);
                            behind = going.filter(|going| self.deliveries.fan_outs.is_going(*going));
                        }
                        work += if behind.is_none() { batch.work_before(next) } else { 0 };
                    }
                }
            }
            self.turn.stages.end(Stage::Encode, began);
            self.turn.counters.frames_mailed += routed as u64;
            self.peers.have_taken(routed, self.turn);
            self.peers.have_routed(work);
            if more {
                self.peers.inbound.batches.push_front(Inbound { batch, round, newest, next, behind });
            }
        }
        self.peers.inbound.routes_for = None;
        if !self.mail_waits_for_memory() {
            self.connections.retry_parked(&[Pause::Mail]);
        }
    }

    /// Whether messages of other shards wait for a fan-out that waits for memory.
    pub fn mail_waits_for_memory(&self) -> bool {
        !self.peers.inbound.is_empty()
            && !self.peers.inbound.can_go_on(&self.deliveries.fan_outs)
            && must_wait_for_memory(self.turn, self.connections)
    }
}
