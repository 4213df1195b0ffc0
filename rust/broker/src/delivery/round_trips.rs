//! Answers to frames of other shards that have to know that what they sent before has taken effect here: their messages
//! to topics are routed, and the store has what followed from them.

use std::collections::VecDeque;

use super::Owners;
use crate::requester::Requester;
use crate::router::fan_out::FanOutKey;

/// One of them.
#[derive(Debug)]
struct RoundTrip {
    /// The round of mail in which it came.
    round: u64,
    /// The last message that was on its way to its receivers when those of that round had been routed.
    behind: Option<Option<FanOutKey>>,
    /// The shards to ask before the answer, a bit for each; `None`: those that dead letters were sent to.
    next: Option<u64>,
    requester: Requester,
}

/// Those that wait, in the order in which they came.
#[derive(Debug, Default)]
pub struct RoundTrips {
    waiting: VecDeque<RoundTrip>,
}

impl RoundTrips {
    /// Whether none waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The shard ends: nobody is left to be answered.
    pub fn abandon(&mut self) {
        self.waiting.drain(..).for_each(|round_trip| _ = round_trip.requester.answered());
    }
}

impl Owners<'_> {
    /// Answers a round trip: at once, if nothing survives the end of the process.
    pub fn answer_round_trip(&mut self, requester: Requester, next: Option<u64>) {
        if !self.queues.home.store.is_durable() {
            return self.notes.answer(requester, Ok(()));
        }
        let (round, _) = self.peers.incoming.round();
        self.deliveries.round_trips.waiting.push_back(RoundTrip { round, behind: None, next, requester });
    }

    /// Answers those that need not wait any more, or leaves them to the store.
    pub fn answer_round_trips(&mut self) {
        while let Some(first) = self.deliveries.round_trips.waiting.front_mut() {
            if !self.peers.inbound.is_behind(first.round + 1) {
                return;
            }
            let behind = *first.behind.get_or_insert_with(|| self.deliveries.fan_outs.last());
            if behind.is_some_and(|behind| self.deliveries.fan_outs.is_going(behind)) {
                return;
            }
            if let Some(RoundTrip { requester, next, .. }) = self.deliveries.round_trips.waiting.pop_front() {
                let next = next.unwrap_or(self.queues.home.store.moved());
                self.queue().answer_when_saved(requester, next);
            }
        }
    }
}
