//! What a connection is told of its frames: RECEIPTs in their order, and ERROR in the place of the frame it is about.
//!
//! What takes effect elsewhere is answered by the shards concerned: each holds an [`Requester`] until it has said what
//! became of it. A frame without a RECEIPT waits for nobody; so whoever says that it has no more to send (DISCONNECT,
//! the end of its stream) waits until all shards that may still refuse something have answered an echo.

use stompica_proto::decode::head_value;
use stompica_proto::encode::{self, Offender};
use stompica_proto::{ProtocolError, escape, header};

use super::Shard;
use super::close::NORMAL;
use crate::connection::answers::Answer;
use crate::connection::conn::{Conn, Phase};
use crate::ids::{ConnKey, ShardId};
use crate::log::Level;
use crate::queue::mail::AnswerNote;
use crate::queue::types::Progress;
use crate::requester::{self, AnswerTo};

impl Shard {
    pub(super) fn next_token(&mut self) -> u64 {
        self.connections.next_token += 1;
        self.connections.next_token
    }

    /// Sends a RECEIPT, if one is wanted, once those before it have left.
    pub(crate) fn receipt(&mut self, key: ConnKey, id: Option<&[u8]>) {
        let token = self.next_token();
        let (Some(conn), Some(id)) = (self.listening(key), id) else { return };
        if conn.answers.is_empty() {
            let version = conn.session.version();
            self.control(key, |out| encode::receipt(out, id, version));
        } else {
            self.push_answer_of(key, token, Answer::Receipt(id.into()), 0);
        }
    }

    /// A frame takes effect at these shards, each of which is to answer. The RECEIPT, if one is wanted, waits for them;
    /// if not, they answer only what they refuse.
    pub(crate) fn ask(&mut self, key: ConnKey, receipt: Option<&[u8]>, shards: u64) -> AnswerTo {
        if shards == 0 {
            self.receipt(key, receipt);
        }
        let token = self.next_token();
        match receipt.filter(|_| shards != 0) {
            Some(id) => self.push_answer_of(key, token, Answer::Receipt(id.into()), shards.count_ones()),
            None => {
                let others = shards & !self.turn.id.bit();
                if let Some(conn) = self.connections.table.get_mut(key) {
                    conn.sent_to |= others;
                }
            }
        }
        AnswerTo { shard: self.turn.id, conn: key, token, awaited: receipt.is_some() }
    }

    /// The same for a frame behind which the answers to all others wait, whether it wants a RECEIPT or not.
    pub(crate) fn ask_in_any_case(&mut self, key: ConnKey, receipt: Option<&[u8]>, shards: u64) -> AnswerTo {
        if shards == 0 {
            self.receipt(key, receipt);
        }
        let token = self.next_token();
        let answer = receipt.map_or(Answer::Silence, |id| Answer::Receipt(id.into()));
        if shards != 0 {
            self.push_answer_of(key, token, answer, shards.count_ones());
        }
        AnswerTo { shard: self.turn.id, conn: key, token, awaited: true }
    }

    /// All shards, this one included.
    pub(crate) fn all_shards(&self) -> u64 {
        (0..self.shared_len()).fold(0, |bits, at| bits | ShardId(at as u8).bit())
    }

    /// Sends a frame once all answers before it have left.
    pub(super) fn answer_with(&mut self, key: ConnKey, frame: Vec<u8>) {
        let token = self.next_token();
        let Some(conn) = self.listening(key) else { return };
        if conn.answers.is_empty() {
            self.control(key, |out| out.extend_from_slice(&frame));
        } else {
            self.push_answer_of(key, token, Answer::Frame(frame), 0);
        }
    }

    fn push_answer_of(&mut self, key: ConnKey, token: u64, answer: Answer, waiting: u32) {
        if let Some(conn) = self.listening(key) {
            conn.answers.push(token, answer, waiting);
        }
        self.count_input(key);
    }

    /// A connection that is still to be told something. One that is closing has had its last word, although its COMMIT
    /// may take effect only now.
    fn listening(&mut self, key: ConnKey) -> Option<&mut Conn> {
        self.connections.table.get_mut(key).filter(|conn| conn.phase == Phase::Open)
    }

    /// What a connection asked for took effect at one more place.
    pub(super) fn applied(&mut self, key: ConnKey, token: u64) {
        if self.is_deciding(key, token) {
            return self.prepare_answered(key, None);
        }
        if let Some(conn) = self.connections.table.get_mut(key) {
            conn.answers.note(token);
            self.send_answers(key);
        }
    }

    /// Gives a durable subscription its credit, once the RECEIPT of its SUBSCRIBE has left.
    pub(super) fn open_behind(&mut self, key: ConnKey, token: u64, home: ShardId, credit: Progress) {
        let Some(conn) = self.connections.table.get_mut(key) else { return };
        if !conn.answers.open_behind(token, home, credit) {
            self.report(home, credit);
        }
    }

    /// What a connection asked for was refused elsewhere; frames behind it may have taken effect.
    pub(super) fn refused(
        &mut self,
        key: ConnKey,
        token: u64,
        (error, mut offender): (ProtocolError, Offender),
    ) {
        if self.is_deciding(key, token) {
            return self.prepare_answered(key, Some(error));
        }
        let Some(conn) = self.connections.table.get_mut(key).filter(|conn| conn.phase == Phase::Open) else {
            return;
        };
        if conn.answers.is_refused_before(token) {
            return; // a frame before it was refused already, and its ERROR is the last word
        }
        if let Some(id) = conn.answers.cut_from(token) {
            if head_value(&offender.head, header::RECEIPT).is_none() {
                offender.head.extend_from_slice(b"receipt:");
                escape::escape_into(&mut offender.head, &id, conn.session.version());
                offender.head.push(b'\n');
            }
            offender.receipt = Some(id.into());
        }
        self.end_with(key, token, error, &offender);
    }

    /// Answers a mistake of the peer in a frame that was read just now with ERROR, and closes.
    pub(super) fn fail_with(&mut self, key: ConnKey, error: ProtocolError, offender: &Offender) {
        let token = self.next_token();
        if self.connections.table.get(key).is_some_and(|conn| conn.phase == Phase::Open && !conn.ending) {
            self.end_with(key, token, error, offender);
        }
    }

    /// ERROR is a connection's last word: once the RECEIPTs of earlier frames have left, it leaves and the connection
    /// closes. Nothing that waits takes effect any more.
    fn end_with(&mut self, key: ConnKey, token: u64, error: ProtocolError, offender: &Offender) {
        self.abandon_commit(key);
        self.end_wait(key);
        self.turn.counters.errors += 1;
        self.turn.budget.end_connection();
        self.log_conn(Level::Info, key, || format!("ERROR {error}"));
        let Some(conn) = self.connections.table.get_mut(key) else { return };
        let (close_code, reason) = (error.code.websocket_close(), error.code.message());
        conn.ending = true;
        let mut frame = Vec::new();
        encode::error(&mut frame, &error, offender, conn.session.version());
        conn.answers.push(token, Answer::Error { frame, close_code, reason }, 0);
        self.send_answers(key);
    }

    /// Sends the answers that wait for nothing any more.
    fn send_answers(&mut self, key: ConnKey) {
        while let Some(conn) = self.connections.table.get_mut(key)
            && let Some(answer) = conn.answers.pop_ready()
        {
            let version = conn.session.version();
            match answer {
                Answer::Receipt(id) => self.control(key, |out| encode::receipt(out, &id, version)),
                Answer::Frame(frame) => self.control(key, |out| out.extend_from_slice(&frame)),
                Answer::Error { frame, close_code, reason } => {
                    self.control(key, |out| out.extend_from_slice(&frame));
                    self.begin_close(key, close_code, reason);
                }
                Answer::Silence => {}
                Answer::Opening(id, home, credit) => {
                    self.control(key, |out| encode::receipt(out, &id, version));
                    self.report(home, credit);
                }
            }
        }
        self.count_input(key);
        self.connections.note_answers_taken(&mut self.turn, key); // those that say nothing leave without a write
        self.end_if_done(key);
    }

    /// DISCONNECT: its RECEIPT says that all earlier frames took effect, also at other shards.
    pub(crate) fn disconnect(&mut self, key: ConnKey, receipt: Option<&[u8]>) {
        let Some(conn) = self.connections.table.get_mut(key) else { return };
        conn.ending = true;
        if receipt.is_some() {
            self.await_round_trips(key, receipt);
        }
        self.end_if_done(key);
    }

    /// Lets a RECEIPT, or nothing, wait until no shard can refuse any more what was asked of it before.
    fn await_round_trips(&mut self, key: ConnKey, receipt: Option<&[u8]>) {
        let Some(conn) = self.connections.table.get_mut(key) else { return };
        let shards = std::mem::take(&mut conn.sent_to);
        if shards == 0 {
            return self.receipt(key, receipt);
        }
        let to = self.ask_in_any_case(key, receipt, shards);
        for shard in (0..self.shared_len()).map(|at| ShardId(at as u8)).filter(|at| shards & at.bit() != 0) {
            self.tell(shard, AnswerNote::RoundTrip(to.requester()));
        }
    }

    /// Closes a connection that has said its last word, once everything due to it is in its outbox.
    pub(crate) fn end_if_done(&mut self, key: ConnKey) {
        let Some(conn) = self.connections.table.get(key).filter(|conn| conn.phase == Phase::Open) else {
            return;
        };
        if !(conn.ending || conn.input.eof) || conn.input.has_unparsed || conn.wait.is_on() {
            return;
        }
        if conn.answers.is_empty() && conn.sent_to != 0 {
            self.await_round_trips(key, None);
        }
        let Some(conn) = self.connections.table.get_mut(key).filter(|conn| conn.answers.is_empty()) else {
            return self.rearm(key);
        };
        let close_code = conn.websocket().and_then(|state| state.peer_code).unwrap_or(NORMAL);
        self.begin_close(key, close_code, "");
    }

    /// An answer never came.
    pub(super) fn give_up_answers(&mut self, key: ConnKey) {
        if self.connections.table.get(key).is_some_and(Conn::has_more_to_take) {
            return self.drop_connection(key, "it does not take what is ahead of its last answers");
        }
        let missing = self.connections.table.get(key).map_or(0, |conn| conn.answers.len());
        self.turn.counters.lost_answers += missing as u64;
        self.log_conn(Level::Error, key, || {
            format!("{missing} answers never came, and the connection is given up (a bug in stompica)")
        });
        self.drop_connection(key, "its answers never came");
    }

    /// Counts answers that this turn has dropped.
    pub(super) fn note_lost_answers(&mut self) {
        let lost = requester::take_lost();
        if lost > 0 {
            self.turn.counters.lost_answers += lost;
            self.turn.log(Level::Error, || format!("{lost} answers were dropped (a bug in stompica)"));
        }
        debug_assert_eq!(lost, 0, "whoever waits is answered");
    }
}
