//! Answers that a frame waits for. A frame may wait for several; each is one [`Requester`], which must be consumed.

use std::cell::Cell;

use crate::door::sync::per_thread;
use crate::ids::{ConnKey, ShardId};

per_thread! {
    static LOST: Cell<u64> = const { Cell::new(0) };
}

/// Identifies the frame that an answer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnswerTo {
    /// The shard of its connection.
    pub shard: ShardId,
    /// The connection.
    pub conn: ConnKey,
    /// The frame's token; tokens of later frames are larger.
    pub token: u64,
    /// Whether the frame waits for success too; if not, only a refusal is reported.
    pub awaited: bool,
}

impl AnswerTo {
    /// One of the answers that the frame waits for.
    pub fn requester(self) -> Requester {
        Requester { to: self }
    }
}

/// The obligation to send one answer: its holder must answer on every path. A dropped one is counted, because its
/// connection would wait forever.
#[derive(Debug)]
#[must_use]
pub struct Requester {
    to: AnswerTo,
}

impl Requester {
    /// The recipient of the answer.
    #[must_use]
    pub fn to(&self) -> AnswerTo {
        self.to
    }

    /// Consumes the obligation: the caller sends the answer.
    pub fn answered(self) -> AnswerTo {
        let to = self.to;
        std::mem::forget(self); // it owns nothing that must be freed
        to
    }
}

impl Drop for Requester {
    fn drop(&mut self) {
        if self.to.awaited {
            LOST.with(|lost| lost.set(lost.get() + 1));
        }
    }
}

/// The number of answers that were dropped on this thread since the last call.
#[must_use]
pub fn take_lost() -> u64 {
    LOST.with(Cell::take)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(awaited: bool) -> AnswerTo {
        AnswerTo { shard: ShardId(1), conn: ConnKey::NONE, token: 7, awaited }
    }

    #[test]
    fn a_consumed_requester_is_not_counted_as_lost() {
        assert_eq!(answer(true).requester().answered(), answer(true));
        assert_eq!(take_lost(), 0);
    }

    #[test]
    fn a_dropped_requester_is_counted_once() {
        drop([answer(true).requester(), answer(true).requester(), answer(false).requester()]);
        assert_eq!((take_lost(), take_lost()), (2, 0));
    }
}
