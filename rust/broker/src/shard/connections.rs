//! What connections leave for the shard to do, and short names for what they do themselves.

use super::Shard;
use crate::connection::Effect;
use crate::connection::pausing::Pause;
use crate::ids::{ConnKey, ShardId};
use crate::queue::mail::AnswerNote;

impl Shard {
    /// Carries out what a connection has left to do.
    pub(super) fn carry_out_for_connection(&mut self, effect: Effect) {
        match effect {
            Effect::RetriesCommit => self.begin_jobs(),
            Effect::StopsWaiting(key) => self.deliveries.passing.leave(key),
            Effect::AbandonsCommit(commit) => self.command().forget_commit(*commit),
            Effect::DiscardsTransactions(open) => self.command().discard_transactions(Some(open)),
            Effect::Leaves(key) => self.proceed_with_leaving(key),
            Effect::AsksForRoundTrips(to, shards) => {
                let asked = (0..self.shared_len()).map(|at| ShardId(at as u8));
                for shard in asked.filter(|shard| shards & shard.bit() != 0) {
                    self.tell(shard, AnswerNote::RoundTrip(to.requester()));
                }
            }
            Effect::Credits(home, credit) => self.report(home, credit),
        }
    }

    /// Remembers that a connection's socket, or its own input, has something to look at.
    pub(super) fn queue_for_reading(&mut self, key: ConnKey) {
        self.connections.queue_for_reading(key);
    }

    /// Leaves a connection's next frame, and all behind it, unread until there is room.
    pub(crate) fn park(&mut self, key: ConnKey, pause: Pause) {
        self.connections.park(&mut self.turn, key, pause);
    }

    /// Lets those try again that wait for this kind of room, some in each turn.
    pub(super) fn retry_parked(&mut self, pauses: &[Pause]) {
        self.connections.retry_parked(pauses);
    }

    /// The same for all that wait for room.
    pub(super) fn retry_all_parked(&mut self) {
        self.connections.retry_parked(&Pause::ALL);
    }

    /// Puts a connection's next deadline into the timers, unless an earlier one is there.
    pub(crate) fn rearm(&mut self, key: ConnKey) {
        self.connections.rearm(&mut self.turn, key);
    }

    /// Reads those again that are to try again, as many as one turn allows.
    pub(super) fn resume_parked(&mut self) {
        self.connections.resume_parked(&mut self.turn);
        self.settle();
        self.peers.busy.sends_first = false;
    }
}
