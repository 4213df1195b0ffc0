//! New subscriptions that wait for stale (`TTL`) and retained (`retain`) messages of this home.
//!
//! The home of a destination keeps its stale and retained messages. A home that learns of a new subscription waits
//! until every other shard knows it too ([`ReplayNote::InterestAck`]): since mail keeps its order, it then has every
//! message that those shards sent before. Then it sends the matching messages, followed by its answer. Meanwhile, live
//! messages wait in a private queue of the subscription. So no message is missed, none overtakes an older one, and the
//! whole replay is in the outbox before the RECEIPT; for a subscription that acknowledges, only as much as its credit
//! allows (`delivery/replay.rs`).

use super::Owners;
use super::mail::ReplayNote;
use super::replay::{Newcomer, Replay};
use super::replays::replay_of;
use crate::collections::spread::give_back;
use crate::door::planted;
use crate::ids::{ShardId, Subscriber};
use crate::requester::Requester;

/// If more new subscriptions wait, their names are not compared with the destination of a message.
const LOOKS_MAX: usize = 64;

/// A new subscription that waits for stale and retained messages of this home.
#[derive(Debug, Default)]
pub(crate) struct PendingReplay {
    /// The number of other shards that know it.
    pub(crate) seen: usize,
    /// The replay that begins when all of them do.
    pub(crate) asked: Option<Replay>,
}

impl Owners<'_> {
    /// Starts the replay for a new subscription once all shards know it; then answers `reply`.
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
        let reply = match reply {
            Some(requester) if planted!("receipt-before-replay") => {
                self.notes.answer(requester, Ok(()));
                None
            }
            reply => reply,
        };
        let replay = replay_of(self.router, name, newcomer.without, reply);
        self.queues.pending_replays.entry(subscriber).or_default().asked = Some(replay);
        self.proceed_with_pending_replay(subscriber);
    }

    /// Whether the replay of a new subscription, which has not begun, may bring it a message to this destination.
    pub(super) fn is_awaited(&mut self, destination: &[u8]) -> bool {
        let pending = &self.queues.pending_replays;
        self.turn.budget.visit(pending.len().min(LOOKS_MAX));
        let may_match = |name: &[u8]| match self.router.parse(name) {
            Ok(Some(pattern)) => pattern.matches(destination),
            _ => *name == *destination,
        };
        // Only acknowledgements have come for those whose names are not known.
        let is_for =
            |pending: &PendingReplay| pending.asked.as_ref().is_none_or(|replay| may_match(&replay.name));
        pending.len() > LOOKS_MAX || pending.values().any(is_for)
    }

    /// Records that another shard knows a new subscription.
    pub(super) fn interest_acknowledged(&mut self, subscriber: Subscriber) {
        self.queues.pending_replays.entry(subscriber).or_default().seen += 1;
        self.proceed_with_pending_replay(subscriber);
    }

    fn proceed_with_pending_replay(&mut self, subscriber: Subscriber) {
        // All shards but this one and the subscriber's own, whose request tells that it knows.
        let others = self.turn.shards - if subscriber.shard == self.turn.id { 1 } else { 2 };
        let complete = |pending: &&PendingReplay| {
            pending.asked.is_some() && (pending.seen >= others || planted!("replay-not-awaited"))
        };
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
