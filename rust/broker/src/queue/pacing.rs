//! Pacing: consumers on a home's own shard get no more than those on other shards.
//!
//! A consumer's credit comes back to the home with its ACK. On the home's own shard that is the turn that reads the ACK. The
//! ACK of a consumer on another shard, and the message that follows, have to be mailed first. So where a queue always has
//! messages, the own shard's consumers would complete up to twice as many rounds. Each queue therefore counts how far they
//! are ahead. While they have got more than 6/5 of what the others have, one of them whose credit comes back waits for
//! the next turns. A home without other work runs these at once. Full equality would cost more: it takes the home more and
//! smaller turns.

use std::collections::VecDeque;

use super::home::Home;
use super::types::{Consumed, Queue, Taker};
use crate::ids::{ConsumerKey, ShardId};

/// The number of turns for which a consumer waits at most.
const TURNS_MAX: u64 = 2;
/// The own shard's consumers may get `SHARE_OWN` messages for each `SHARE_OTHERS` of the others.
const SHARE_OWN: i64 = 6;
const SHARE_OTHERS: i64 = 5;
/// How far either side may be ahead, in messages to each consumer. What goes beyond is forgotten, so that a consumer
/// that was slow for long does not have precedence for long.
const LEAD_MAX: i64 = 1000;

/// The consumers that wait.
#[derive(Debug, Default)]
pub(super) struct Pacing {
    /// The shard of the home.
    own: Option<ShardId>,
    /// The number of the turn.
    turn: u64,
    /// A consumer without credit has got some in this turn.
    has_regained: bool,
    /// Consumers of the own shard, each with the turn at which it waits no longer.
    waiting: VecDeque<(u64, ConsumerKey)>,
}

impl Pacing {
    /// Begins a turn.
    pub(super) fn begin_turn(&mut self) {
        self.turn += 1;
        self.has_regained = false;
    }

    /// Records that a consumer without credit has got some.
    pub(super) fn note_regained(&mut self) {
        self.has_regained = true;
    }

    /// Whether a shard is the home's own.
    pub(super) fn is_own(&self, shard: ShardId) -> bool {
        self.own == Some(shard)
    }

    /// Whether any consumer waits.
    pub(super) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }
}

/// How far the consumers on the home's own shard are ahead of the others of a queue.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lead {
    /// The number of consumers on the home's own shard.
    own: u32,
    /// The messages that one of them got beyond its share, in units: see [`Queue::count_delivery`].
    ahead: i64,
}

impl Queue {
    /// Adds a consumer of the home's own shard.
    pub(super) fn add_own(&mut self) {
        self.lead.own += 1;
    }

    /// Removes a consumer of the home's own shard.
    pub(super) fn remove_own(&mut self) {
        self.lead.own -= 1;
    }

    /// Counts a delivery; consumers of patterns are not paced.
    pub(super) fn count_delivery(&mut self, taker: Taker, is_own: bool) {
        self.in_flight += 1;
        if let Taker::Pattern(_) = taker {
            return;
        }
        let (own, others) = (i64::from(self.lead.own), i64::from(self.exact - self.lead.own));
        let max = LEAD_MAX * SHARE_OTHERS * own * others;
        let step = if is_own { SHARE_OTHERS * others } else { -SHARE_OWN * own };
        let ahead = self.lead.ahead + step;
        self.lead.ahead = ahead.clamp(-max, max);
    }

    /// Whether consumers of the home's own shard have to wait for others.
    fn is_paced(&self) -> bool {
        self.lead.ahead > 0 && self.lead.own < self.exact && self.pending.has_next()
    }
}

impl Home {
    /// This home on a shard, with whose consumers the others have to keep up.
    #[must_use]
    pub fn on(mut self, shard: ShardId) -> Self {
        self.pacing.own = Some(shard);
        self
    }

    /// Whether a consumer that lacked credit has got some since the turn began.
    #[must_use]
    pub fn has_regained_credit(&self) -> bool {
        self.pacing.has_regained
    }

    /// Lets a consumer that has credit again wait if it is ahead of those on other shards. Returns whether it waits.
    pub(super) fn pace(&mut self, key: ConsumerKey) -> bool {
        let Some(consumer) = self.consumers.get_mut(key) else { return false };
        if let Consumed::Queue(at) = consumer.consumed
            && self.pacing.is_own(consumer.subscriber.shard)
            && self.queues.get(at).is_some_and(Queue::is_paced)
        {
            consumer.is_suspended = true;
            self.pacing.waiting.push_back((self.pacing.turn + TURNS_MAX, key));
            return true;
        }
        false
    }

    /// Whether the consumer that has waited longest waits no longer.
    pub(super) fn ends_wait(&self) -> bool {
        self.pacing.waiting.front().is_some_and(|(until, key)| {
            let queue = self.consumers.get(*key).and_then(|consumer| match consumer.consumed {
                Consumed::Queue(at) => self.queues.get(at),
                Consumed::Pattern(_) => None,
            });
            *until <= self.pacing.turn || !queue.is_some_and(Queue::is_paced)
        })
    }

    /// Puts the consumer that has waited longest back into its ring, if it waits no longer. Returns whether it does so.
    pub(super) fn end_wait(&mut self) -> bool {
        if !self.ends_wait() {
            return false;
        }
        self.visited += 1;
        if let Some((_, key)) = self.pacing.waiting.pop_front()
            && let Some(consumer) = self.consumers.get_mut(key)
        {
            consumer.is_suspended = false;
            self.rejoin(key);
        }
        true
    }
}

#[cfg(test)]
#[path = "pacing_tests.rs"]
mod tests;
