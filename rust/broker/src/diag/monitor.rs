//! Publishes the status text of all queues every 5 s to subscribers of `/queue/monitor` (docs/behaviour.md, section
//! 9).

use std::borrow::Cow;

use smallvec::SmallVec;
use stompica_proto::encode::Message;

use super::Owners;
use super::assembly::text_of;
use crate::destination::MONITOR;
use crate::ids::NOBODY;
use crate::report::answer::Answer;
use crate::report::merge::Report;
use crate::timer::Due;

/// The time between two texts.
const INTERVAL_MS: u64 = 5000;

impl Owners<'_> {
    /// Sets the timer for the next text, on one shard.
    pub(crate) fn arm_monitor(&mut self) {
        if self.turn.id.0 == 0 {
            self.turn.timers.set(self.turn.now_ms + INTERVAL_MS, Due::Monitor);
        }
    }

    /// Gathers the data of a text, if there are subscribers.
    pub(crate) fn begin_monitor(&mut self) {
        self.arm_monitor();
        if self.router.has_filter(MONITOR) {
            self.ask_for_monitor();
        }
    }

    /// Publishes the merged reports of all shards.
    pub(crate) fn publish_monitor(&mut self, answer: &Answer) {
        let Ok(destination) = self.router.destination_of(self.turn, MONITOR) else { return };
        let id = SmallVec::<[u8; 40]>::from_slice(self.turn.message_ids.next_id());
        let body = match answer.report() {
            Report::Queues(queues) => Cow::Owned(queues.iter().map(text_of).collect()),
            _ => answer.body(), // the text, assembled row by row
        };
        let headers = b"content-type:text/plain\n";
        let message = Message {
            destination: MONITOR,
            id: &id,
            sender: NOBODY,
            headers,
            plain: true,
            expires_ms: 0,
            body: body.as_bytes(),
        };
        let reach = self.router.reach(destination);
        self.delivery().publish(&message, destination, &reach);
    }
}
