//! New subscriptions that wait for what this home holds of the past: stale messages (`TTL`) and last values (`retain`).
//!
//! Each destination's are kept at its home. A home that hears of a new subscription waits until every other shard has
//! heard of it too ([`ReplayNote::InterestAck`]): what those have sent without knowing of it has come by then, since mail
//! keeps its order. Then it sends what matches, ahead of its answer. Live messages wait meanwhile in a queue of the
//! subscription's own. So none is missed, none comes before what is older, and all of the past is in the outbox before
//! the RECEIPT; of a subscription that acknowledges, what its credit allows (`delivery/replay.rs`).

use super::Owners;
use super::mail::ReplayNote;
use super::replay::{Newcomer, Replay};
use super::replays::replay_of;
use crate::collections::spread::give_back;
use crate::ids::{ShardId, Subscriber};
use crate::requester::Requester;

/// A new subscription that waits for what this home holds.
#[derive(Debug, Default)]
pub(crate) struct PendingReplay {
    /// Other shards that know of it.
    pub(crate) seen: usize,
    /// What it is to get, once they do.
    pub(crate) asked: Option<Replay>,
}

impl Owners<'_> {
    /// Sends a new subscription what this home holds for it, once all shards know of it; then answers `reply`.
    pub(crate) fn await_replay(
        &mut self,
        name: &[u8],
        shard: ShardId,
        newcomer: Newcomer,
        reply: Option<Requester>,
    ) {
        let subscriber = Subscriber { shard, key: newcomer.key };
        for other in (0..self.turn.shards).map(|at| ShardId(at as u8)) {
            if other != self.turn.id && shard != self.turn.id {
                self.notes.tell(other, ReplayNote::InterestAck(subscriber));
            }
        }
        let replay = replay_of(self.router, name, newcomer.without, reply);
        self.queues.pending_replays.entry(subscriber).or_default().asked = Some(replay);
        self.proceed_with_pending_replay(subscriber);
    }

    /// Another shard knows of a new subscription.
    pub(super) fn interest_acknowledged(&mut self, subscriber: Subscriber) {
        self.queues.pending_replays.entry(subscriber).or_default().seen += 1;
        self.proceed_with_pending_replay(subscriber);
    }

    fn proceed_with_pending_replay(&mut self, subscriber: Subscriber) {
        // All but this one and the subscriber's own, whose news came with the question.
        let others = self.turn.shards - if subscriber.shard == self.turn.id { 1 } else { 2 };
        let complete = |pending: &&PendingReplay| pending.asked.is_some() && pending.seen >= others;
        if self.queues.pending_replays.get(&subscriber).filter(complete).is_none() {
            return;
        }
        if let Some(replay) =
            self.queues.pending_replays.remove(&subscriber).and_then(|pending| pending.asked)
        {
            give_back(&mut self.queues.pending_replays);
            self.queues.replays.put(subscriber, replay, true);
        }
    }
}
