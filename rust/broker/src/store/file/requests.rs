//! Requests for messages that the log does not have: a shard may request what another one is about to hand over.

use std::collections::VecDeque;
use std::time::Duration;

use crate::door::Instant;
use crate::ids::RecordId;

/// The most requests that wait. If there are more, the oldest one is refused.
const WAITING_MAX: usize = 4096;
/// How long a request waits: a shard hands over at the end of each turn.
const PATIENCE: Duration = Duration::from_secs(30);

/// A request that waits.
#[derive(Clone, Copy, Debug)]
pub struct Early {
    /// The shard that wants the message.
    pub shard: usize,
    /// Its record.
    pub record: RecordId,
    since: Instant,
}

/// Requests that wait for their messages, oldest first.
#[derive(Debug, Default)]
pub struct Requests(VecDeque<Early>);

impl Requests {
    /// Adds a request. Returns one that has to be refused, if there are too many.
    pub fn push(&mut self, shard: usize, record: RecordId) -> Option<Early> {
        self.0.push_back(Early { shard, record, since: Instant::now() });
        if self.0.len() > WAITING_MAX { self.0.pop_front() } else { None }
    }

    /// Whether none waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether one waits for this record.
    #[must_use]
    pub fn has(&self, record: RecordId) -> bool {
        self.0.iter().any(|early| early.record == record)
    }

    /// Takes those that are chosen.
    pub fn take(&mut self, is_chosen: impl Fn(&Early) -> bool) -> Vec<Early> {
        let mut taken = Vec::new();
        self.0.retain(|early| {
            let is_taken = is_chosen(early);
            if is_taken {
                taken.push(*early);
            }
            !is_taken
        });
        taken
    }

    /// Takes those that have waited too long.
    pub fn take_old(&mut self) -> Vec<Early> {
        let count = self.0.iter().take_while(|early| early.since.elapsed() > PATIENCE).count();
        self.0.drain(..count).collect()
    }
}
