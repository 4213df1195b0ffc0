//! Who waits for an answer. A frame may wait for several; each is one [`Requester`], which has to be used up.

use std::cell::Cell;

use crate::ids::{ConnKey, ShardId};

thread_local! {
    static LOST: Cell<u64> = const { Cell::new(0) };
}

/// Names the frame that an answer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnswerTo {
    /// The shard of its connection.
    pub shard: ShardId,
    /// The connection.
    pub conn: ConnKey,
    /// The frame: those of later frames are larger.
    pub token: u64,
    /// It waits for success, too; if not, only a refusal is told.
    pub awaited: bool,
}

impl AnswerTo {
    /// One of the answers that the frame gets.
    pub fn requester(self) -> Requester {
        Requester { to: self }
    }
}

/// One answer that somebody waits for: whoever holds it gives the answer, on every path. What is dropped instead is
/// counted, as its connection would wait for ever.
#[derive(Debug)]
#[must_use]
pub struct Requester {
    to: AnswerTo,
}

impl Requester {
    /// For whom it is.
    #[must_use]
    pub fn to(&self) -> AnswerTo {
        self.to
    }

    /// The answer is given.
    pub fn answered(self) -> AnswerTo {
        let to = self.to;
        std::mem::forget(self); // nothing in it is to be freed
        to
    }
}

impl Drop for Requester {
    fn drop(&mut self) {
        if self.to.awaited {
            LOST.set(LOST.get() + 1);
        }
    }
}

/// How many answers this thread has dropped since it was asked last.
#[must_use]
pub fn take_lost() -> u64 {
    LOST.take()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(awaited: bool) -> AnswerTo {
        AnswerTo { shard: ShardId(1), conn: ConnKey::NONE, token: 7, awaited }
    }

    #[test]
    fn an_answer_that_is_given_is_not_lost() {
        assert_eq!(answer(true).requester().answered(), answer(true));
        assert_eq!(take_lost(), 0);
    }

    #[test]
    fn an_answer_that_is_dropped_is_counted_once() {
        drop([answer(true).requester(), answer(true).requester(), answer(false).requester()]);
        assert_eq!((take_lost(), take_lost()), (2, 0));
    }
}
