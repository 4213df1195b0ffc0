//! Pending answers of a connection, in the order of its frames.

use std::collections::VecDeque;

use crate::ids::ShardId;
use crate::queue::types::Progress;

/// One answer, which is sent after all earlier answers.
#[derive(Debug)]
pub enum Answer {
    /// RECEIPT with this `receipt-id`, unescaped.
    Receipt(Box<[u8]>),
    /// An encoded frame.
    Frame(Vec<u8>),
    /// An encoded ERROR, and the close that follows it.
    Error {
        /// The frame.
        frame: Vec<u8>,
        /// The WebSocket close code.
        close_code: u16,
        /// The WebSocket close reason.
        reason: &'static str,
    },
    /// Nothing is sent; later answers wait until this frame is known to have succeeded.
    Silence,
    /// A RECEIPT, followed by the credit of a durable subscription for its home.
    Opening(Box<[u8]>, ShardId, Progress),
    /// The same for a replay on this shard; whether it has everything that its reader wants.
    Replaying(Box<[u8]>, bool, ShardId, Progress),
}

impl Answer {
    pub(super) fn bytes(&self) -> usize {
        size_of::<Pending>()
            + match self {
                Answer::Receipt(id) | Answer::Opening(id, ..) | Answer::Replaying(id, ..) => id.len(),
                Answer::Frame(frame) | Answer::Error { frame, .. } => frame.capacity(),
                Answer::Silence => 0,
            }
    }
}

#[derive(Debug)]
pub(super) struct Pending {
    pub(super) token: u64,
    pub(super) answer: Answer,
    /// The number of shards that have not answered yet.
    pub(super) waiting: u32,
}

/// Answers that wait for earlier ones or for other shards. Tokens ascend.
#[derive(Debug, Default)]
pub struct Answers {
    pub(super) pending: VecDeque<Pending>,
    pub(super) bytes: usize,
    /// The set of other shards that process a request without a RECEIPT and may still refuse it, one bit each.
    refusing: u64,
}

impl Answers {
    /// Whether no answer is pending.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// The number of pending answers.
    #[must_use]
    pub fn len(&self) -> usize {
        self.pending.len()
    }

    /// The memory that they use, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds an answer after all others; `waiting` shards have to answer first.
    pub fn push(&mut self, token: u64, answer: Answer, waiting: u32) {
        debug_assert!(self.pending.back().is_none_or(|last| last.token < token), "tokens ascend");
        self.bytes += answer.bytes();
        self.pending.push_back(Pending { token, answer, waiting });
    }

    /// Lets an answer wait for `count` more shards.
    pub fn await_more(&mut self, token: u64, count: u32) {
        if let Ok(at) = self.pending.binary_search_by_key(&token, |pending| pending.token) {
            self.pending[at].waiting += count;
        }
    }

    /// Adds credit to be sent after a pending RECEIPT. Returns false if the RECEIPT was sent already. Drops the credit of a
    /// frame behind a refused one: its RECEIPT is never sent, and the connection ends.
    pub fn open_behind(&mut self, token: u64, home: ShardId, credit: Progress) -> bool {
        if self.is_refused_before(token) {
            return true;
        }
        let Ok(at) = self.pending.binary_search_by_key(&token, |pending| pending.token) else { return false };
        let answer = &mut self.pending[at].answer;
        if let Answer::Receipt(id) = answer {
            *answer = Answer::Opening(std::mem::take(id), home, credit);
        }
        true
    }

    /// Does the same for a replay, whose RECEIPT says whether it has `recovered`.
    pub fn replay_behind(&mut self, token: u64, recovered: bool, home: ShardId, credit: Progress) -> bool {
        let is_pending = self.open_behind(token, home, credit);
        if let Ok(at) = self.pending.binary_search_by_key(&token, |pending| pending.token) {
            let answer = &mut self.pending[at].answer;
            if let Answer::Opening(id, ..) = answer {
                *answer = Answer::Replaying(std::mem::take(id), recovered, home, credit);
            }
        }
        is_pending
    }

    /// Counts the answer of one more shard. Returns whether it was the last one that the frame waits for.
    pub fn note(&mut self, token: u64) -> bool {
        let Ok(at) = self.pending.binary_search_by_key(&token, |pending| pending.token) else { return false };
        self.pending[at].waiting = self.pending[at].waiting.saturating_sub(1);
        self.pending[at].waiting == 0
    }

    /// Whether a frame still waits for the answer of a shard.
    #[cfg(any(test, simulated))]
    pub fn is_awaited(&self, token: u64) -> bool {
        self.pending.iter().any(|pending| pending.token == token && pending.waiting > 0)
    }

    /// The next answer, if it is ready.
    pub fn pop_ready(&mut self) -> Option<Answer> {
        if self.pending.front()?.waiting > 0 {
            return None;
        }
        let answer = self.pending.pop_front()?.answer;
        self.bytes -= answer.bytes();
        if self.pending.is_empty() {
            self.pending = VecDeque::new(); // an idle connection keeps no buffer
        }
        Some(answer)
    }

    /// Whether an ERROR is pending for an earlier frame; the connection ends with it.
    #[must_use]
    pub fn is_refused_before(&self, token: u64) -> bool {
        let error = |pending: &Pending| matches!(pending.answer, Answer::Error { .. });
        self.pending.back().is_some_and(|last| last.token < token && error(last))
    }

    /// Drops the answers to a frame and to all later ones. Returns the `receipt-id` that the frame itself requested.
    pub fn cut_from(&mut self, token: u64) -> Option<Box<[u8]>> {
        let mut own = None;
        while self.pending.back().is_some_and(|last| last.token >= token)
            && let Some(last) = self.pending.pop_back()
        {
            self.bytes -= last.answer.bytes();
            if let Answer::Receipt(id) | Answer::Opening(id, ..) | Answer::Replaying(id, ..) = last.answer
                && last.token == token
            {
                own = Some(id);
            }
        }
        own
    }

    /// Records that these shards process a request without a RECEIPT.
    pub fn may_be_refused_by(&mut self, shards: u64) {
        self.refusing |= shards;
    }

    /// Whether a shard may still refuse a request without a RECEIPT.
    #[must_use]
    pub fn may_be_refused(&self) -> bool {
        self.refusing != 0
    }

    /// Takes the set of shards that may still refuse a request, one bit each.
    pub fn take_refusing(&mut self) -> u64 {
        std::mem::take(&mut self.refusing)
    }

    /// Drops all pending answers.
    pub fn clear(&mut self) {
        *self = Answers::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn receipt(id: &str) -> Answer {
        Answer::Receipt(id.as_bytes().into())
    }

    fn ready(answers: &mut Answers) -> Vec<String> {
        std::iter::from_fn(|| answers.pop_ready())
            .map(|answer| match answer {
                Answer::Receipt(id) => String::from_utf8_lossy(&id).into_owned(),
                other => format!("{other:?}"),
            })
            .collect()
    }

    #[test]
    fn answers_leave_in_the_order_of_frames() {
        let mut answers = Answers::default();
        answers.push(3, receipt("a"), 2);
        answers.push(5, receipt("b"), 1);
        answers.push(8, Answer::Silence, 0);
        let notes = [5, 4, 3].map(|token| answers.note(token)); // 4 is an unknown token
        assert_eq!(notes, [true, false, false]);
        assert!(ready(&mut answers).is_empty());
        assert!(answers.note(3));
        assert_eq!(ready(&mut answers), ["a", "b", "Silence"]);
        assert_eq!((answers.is_empty(), answers.bytes()), (true, 0));
    }

    #[test]
    fn credit_follows_the_receipt_that_it_waits_for() {
        let key = crate::collections::keyed::Key { index: 0, generation: 0 };
        let credit = crate::queue::types::Credit { messages: 1, bytes: 1 };
        let progress = Progress { queue: key, consumer: key, settled: 0, settled_bytes: 0, credit };
        let mut answers = Answers::default();
        answers.push(3, receipt("a"), 1);
        answers.push(4, Answer::Silence, 0);
        assert!(answers.open_behind(3, ShardId(1), progress));
        assert!(answers.open_behind(4, ShardId(1), progress), "no RECEIPT is requested");
        assert!(!answers.open_behind(2, ShardId(1), progress), "its RECEIPT has left");
        answers.note(3);
        assert!(matches!(answers.pop_ready(), Some(Answer::Opening(id, ShardId(1), _)) if *id == *b"a"));
        assert!(matches!(answers.pop_ready(), Some(Answer::Silence)));
    }

    #[test]
    fn a_frame_behind_a_refused_one_gets_no_credit() {
        let key = crate::collections::keyed::Key { index: 0, generation: 0 };
        let credit = crate::queue::types::Credit { messages: 1, bytes: 1 };
        let progress = Progress { queue: key, consumer: key, settled: 0, settled_bytes: 0, credit };
        let mut answers = Answers::default();
        answers.push(2, receipt("a"), 1);
        answers.push(4, receipt("b"), 1);
        answers.cut_from(3);
        answers.push(3, Answer::Error { frame: Vec::new(), close_code: 1002, reason: "" }, 0);
        assert!(answers.open_behind(4, ShardId(1), progress), "its RECEIPT has not left, and never will");
        answers.note(2);
        assert_eq!(answers.len(), 2);
        assert!(matches!(answers.pop_ready(), Some(Answer::Receipt(_))));
        assert!(matches!(answers.pop_ready(), Some(Answer::Error { .. })));
    }

    #[test]
    fn an_answer_may_have_to_wait_for_more_shards() {
        let mut answers = Answers::default();
        answers.push(3, receipt("a"), 1);
        answers.await_more(3, 1);
        answers.await_more(9, 1); // an unknown token
        answers.note(3);
        assert!(ready(&mut answers).is_empty());
        answers.note(3);
        assert_eq!(ready(&mut answers), ["a"]);
    }

    #[test]
    fn a_refusal_replaces_the_answers_to_its_frame_and_to_all_later_ones() {
        let mut answers = Answers::default();
        answers.push(3, receipt("a"), 1);
        answers.push(6, receipt("b"), 1);
        answers.push(7, receipt("c"), 0);
        let error = || Answer::Error { frame: vec![0; 9], close_code: 1002, reason: "" };
        assert_eq!(answers.cut_from(7).as_deref(), Some(&b"c"[..]));
        answers.push(7, error(), 0);
        assert!(answers.is_refused_before(8) && !answers.is_refused_before(5));
        // An earlier frame, which requested no RECEIPT, was refused as well.
        assert_eq!(answers.cut_from(5), None);
        answers.push(5, error(), 0);
        assert_eq!(answers.len(), 2);
        answers.clear();
        assert_eq!((answers.len(), answers.bytes()), (0, 0));
    }
}
