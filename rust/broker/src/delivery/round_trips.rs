//! Answers to frames of other shards that wait until the effects of their earlier mail are complete here: their
//! messages to topics are routed, and the store has the resulting records.

use std::collections::VecDeque;

use super::Owners;
use crate::door::planted;
use crate::mail::peers::Peers;
use crate::requester::Requester;
use crate::router::fan_out::{FanOutKey, FanOuts};

/// A request for an answer.
#[derive(Debug)]
struct RoundTrip {
    /// The round of mail in which it arrived.
    round: u64,
    /// The last incomplete fan-out when the messages of that round had been routed.
    behind: Option<Option<FanOutKey>>,
    /// The shards to ask before the answer, as bits; `None`: those that dead letters were sent to.
    next: Option<u64>,
    requester: Requester,
}

impl RoundTrip {
    /// Whether the effects of the mail before it are complete.
    fn is_ready(&self, peers: &Peers, fan_outs: &FanOuts) -> bool {
        let behind = self.behind.unwrap_or_else(|| fan_outs.last());
        peers.have_routed_mail_of(self.round) && behind.is_none_or(|behind| !fan_outs.is_going(behind))
    }
}

/// Requests for answers, in order of arrival.
#[derive(Debug, Default)]
pub struct RoundTrips {
    waiting: VecDeque<RoundTrip>,
}

impl RoundTrips {
    /// Whether there are no requests.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether a request can be answered. One that came after the answers of a turn causes no event.
    #[must_use]
    pub fn has_ready(&self, peers: &Peers, fan_outs: &FanOuts) -> bool {
        self.waiting.front().is_some_and(|first| first.is_ready(peers, fan_outs))
    }

    /// Visits the answers.
    #[cfg(any(test, simulated))]
    pub fn audit(&self, audit: &mut crate::audit::Audit) {
        self.waiting.iter().for_each(|round_trip| audit.answer(round_trip.requester.to()));
    }

    /// Drops all requests, because the shard ends.
    pub fn abandon(&mut self) {
        self.waiting.drain(..).for_each(|round_trip| _ = round_trip.requester.answered());
    }
}

impl Owners<'_> {
    /// Answers a round trip: at once if the store is not durable.
    pub fn answer_round_trip(&mut self, requester: Requester, next: Option<u64>) {
        if !self.queues.home.store.is_durable() || planted!("round-trip-too-short") {
            return self.notes.answer(requester, Ok(()));
        }
        let (round, _) = self.peers.incoming.round();
        self.deliveries.round_trips.waiting.push_back(RoundTrip { round, behind: None, next, requester });
    }

    /// Answers the requests whose conditions are met, or passes them to the store.
    pub fn answer_round_trips(&mut self) {
        while let Some(first) = self.deliveries.round_trips.waiting.front_mut() {
            if !self.peers.have_routed_mail_of(first.round) {
                return;
            }
            first.behind.get_or_insert_with(|| self.deliveries.fan_outs.last());
            if !first.is_ready(self.peers, &self.deliveries.fan_outs) {
                return;
            }
            if let Some(RoundTrip { requester, next, .. }) = self.deliveries.round_trips.waiting.pop_front() {
                let next = next.unwrap_or(self.queues.home.store.moved());
                self.queue().answer_when_all_is_safe(requester, next);
            }
        }
    }
}
