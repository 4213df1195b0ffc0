//! Messages of recorded destinations at their home.

use std::sync::Arc;

use super::Owners;
use super::mail::RecordNote;
use crate::destination::Kind;
use crate::ids::ShardId;
use crate::message::OwnedMessage;
use crate::requester::Requester;

impl Owners<'_> {
    /// Whether a message has to be recorded at its home.
    pub(crate) fn is_recorded(&mut self, message: &OwnedMessage) -> bool {
        // Most brokers record nothing.
        self.queues.recorded.desk.is_some()
            && self
                .router
                .destination_of(self.turn, message.destination())
                .is_ok_and(|destination| destination.is_recorded && destination.kind != Kind::WorkerTopic)
    }

    /// Numbers and records a message whose home this is. Returns it with the headers `seq` and `epoch`.
    pub(crate) fn record(&mut self, message: OwnedMessage) -> OwnedMessage {
        let wall_ms = self.turn.wall_ms();
        let recorded = &mut self.queues.recorded;
        match &recorded.desk {
            Some(desk) => recorded.homes.record(desk, message, wall_ms),
            None => message,
        }
    }

    /// Reports success to a frame once its message is recorded, and the stores have what it has caused.
    pub(crate) fn answer_when_recorded(&mut self, requester: Requester) {
        let next = self.queues.home.store.take_concerned();
        self.queues.recorded.hold(requester, next);
    }

    /// Reports success to a frame once everything that was recorded so far is safe, and the stores have what they were told; then
    /// the stores of these other shards are asked, as bits.
    pub(crate) fn answer_when_all_is_safe(&mut self, requester: Requester, next: u64) {
        match self.queues.recorded.is_settled() {
            true => self.answer_when_saved(requester, next),
            false => self.queues.recorded.hold(requester, next),
        }
    }

    /// Hands over what was recorded in this turn, and tells shards with replays.
    pub(crate) fn end_turn_of_recording(&mut self) {
        for (shards, block) in self.queues.recorded.end_turn() {
            for shard in ShardId::of_bits(shards) {
                self.notes.tell(shard, RecordNote::Block(Arc::clone(&block)));
            }
        }
    }

    /// Answers the frames whose messages are recorded.
    pub(crate) fn answer_recorded(&mut self) {
        while let Some((requester, outcome)) = self.queues.recorded.next_answer() {
            match outcome {
                Ok(next) => self.answer_when_saved(requester, next),
                Err(error) => self.notes.answer(requester, Err((error, Default::default()))),
            }
        }
    }
}
