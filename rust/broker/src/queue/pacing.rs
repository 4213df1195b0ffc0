//! Pacing: consumers on a home's own shard get about as many messages as consumers on other shards.
//!
//! The ACK of a consumer returns its credit to the home. On the home's own shard this happens in the turn that reads
//! the ACK. For a consumer on another shard, the ACK and the next message have to be mailed first. So if a queue always
//! had messages, consumers on the own shard would get up to twice as many. Each queue therefore counts how many
//! messages they are ahead. While they have got more than 11/10 of what the others have, a consumer on the own shard that
//! gets credit again waits for up to twelve turns. A home without other work begins these turns at once. Exact equality
//! would cost more, because the home would need more and smaller turns.
//!
//! Nobody waits for consumers that got nothing for a while: they are slow themselves, or stuck, and messages for them
//! are not on the way.

use std::collections::VecDeque;

use super::home::Home;
use super::types::{Consumed, Queue, Taker};
use crate::ids::{ConsumerKey, ShardId};

/// The maximum number of turns for which a consumer waits.
const TURNS_MAX: u64 = 12;
/// The time after which nobody waits for consumers that have got nothing meanwhile. Mail takes a few turns, and so less.
const SLOW_MS: u64 = 5;
/// A consumer on the own shard may get `SHARE_OWN` messages for every `SHARE_OTHERS` messages of any other consumer.
const SHARE_OWN: i64 = 11;
const SHARE_OTHERS: i64 = 10;
/// The maximum lead of either side that is counted, in messages for each consumer. So a consumer that was slow for a
/// long time does not have precedence for a long time afterwards.
const LEAD_MAX: i64 = 1000;

/// The consumers that wait for those on other shards.
#[derive(Debug, Default)]
pub(super) struct Pacing {
    /// The shard of the home.
    pub(super) own: Option<ShardId>,
    /// The number of the turn.
    turn: u64,
    /// A consumer without credit has got some in this turn.
    has_regained: bool,
    /// Consumers on the own shard, each with the turn in which its wait ends at the latest.
    pub(super) waiting: VecDeque<(u64, ConsumerKey)>,
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

/// The lead of a queue's consumers on the home's own shard over its other consumers.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lead {
    /// The number of consumers on the home's own shard.
    pub(super) own: u32,
    /// The number of messages that they got beyond their share, in the unit of [`Queue::count_delivery`].
    ahead: i64,
    /// The time at which one of the others got a message last.
    others_got_ms: u64,
}

impl Queue {
    /// Counts a new consumer on the home's own shard.
    pub(super) fn add_own(&mut self) {
        self.lead.own += 1;
    }

    /// Counts the removal of a consumer on the home's own shard.
    pub(super) fn remove_own(&mut self) {
        self.lead.own -= 1;
    }

    /// Counts a delivery at this time, and how it changes the lead. The shares are multiplied by the numbers of consumers, so that
    /// the lead is an integer. Consumers of patterns are not paced.
    pub(super) fn count_delivery(&mut self, taker: Taker, is_own: bool, now_ms: u64) {
        self.in_flight += 1;
        if let Taker::Pattern(_) = taker {
            return;
        }
        if self.lead.own == self.exact {
            self.lead.ahead = 0; // there are no others
            return;
        }
        if !is_own {
            self.lead.others_got_ms = now_ms;
        }
        let (own, others) = (i64::from(self.lead.own), i64::from(self.exact - self.lead.own));
        let max = LEAD_MAX * SHARE_OTHERS * own * others;
        let step = if is_own { SHARE_OTHERS * others } else { -SHARE_OWN * own };
        let ahead = self.lead.ahead + step;
        self.lead.ahead = ahead.clamp(-max, max);
    }

    /// Whether consumers on the home's own shard have to wait for others.
    fn is_paced(&self, now_ms: u64) -> bool {
        let Lead { own, ahead, others_got_ms } = self.lead;
        ahead > 0 && own < self.exact && now_ms < others_got_ms + SLOW_MS && self.pending.has_next()
    }
}

impl Home {
    /// This home on a shard, whose consumers wait for those on other shards.
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

    /// Makes a consumer that has credit again wait if it is ahead of those on other shards. Returns whether it waits.
    pub(super) fn pace(&mut self, key: ConsumerKey) -> bool {
        let Some(consumer) = self.consumers.get_mut(key) else { return false };
        if let Consumed::Queue(at) = consumer.consumed
            && self.pacing.is_own(consumer.subscriber.shard)
            && self.queues.get(at).is_some_and(|queue| queue.is_paced(self.now_ms))
        {
            consumer.is_suspended = true;
            self.pacing.waiting.push_back((self.pacing.turn + TURNS_MAX, key));
            return true;
        }
        false
    }

    /// Whether the wait of the consumer that has waited longest is over.
    pub(super) fn ends_wait(&self) -> bool {
        self.pacing.waiting.front().is_some_and(|(until, key)| {
            let queue = self.consumers.get(*key).and_then(|consumer| match consumer.consumed {
                Consumed::Queue(at) => self.queues.get(at),
                Consumed::Pattern(_) => None,
            });
            *until <= self.pacing.turn || !queue.is_some_and(|queue| queue.is_paced(self.now_ms))
        })
    }

    /// Puts the consumer that has waited longest back into its ring if its wait is over. Returns whether it was over.
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
