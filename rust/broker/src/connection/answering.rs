//! Sends answers to a connection: RECEIPTs in the order of its frames, and an ERROR in place of the answer to its
//! frame.
//!
//! Effects on other shards are answered by those shards, see [`crate::requester`]. A frame without a RECEIPT does not
//! wait; so a connection that sends no more (DISCONNECT, the end of its stream) waits until all shards that may still
//! refuse a request have answered a round trip.

use stompica_proto::decode::{head_value, masked_head};
use stompica_proto::encode::{self, Offender};
use stompica_proto::{Command, Frame, ProtocolError, escape, header};

use super::answers::Answer;
use super::closing::NORMAL;
use super::conn::Conn;
use super::pausing::Question;
use super::{Connections, Effect};
use crate::door::planted;
use crate::ids::ConnKey;
use crate::log::Level;
use crate::requester::AnswerTo;
use crate::turn::Turn;

impl Connections {
    /// Returns a token for a frame that is answered or may be refused; tokens ascend.
    pub fn next_token(&mut self) -> u64 {
        self.next_token += 1;
        self.next_token
    }

    /// Sends a RECEIPT, if one is requested, after those before it.
    pub fn receipt(&mut self, turn: &mut Turn, key: ConnKey, id: Option<&[u8]>) {
        let token = self.next_token();
        let (Some(conn), Some(id)) = (self.listening(key), id) else { return };
        if conn.answers.is_empty() {
            let version = conn.protocol.session.version();
            self.control(turn, key, |out| encode::receipt(out, id, version));
        } else {
            self.push_answer_of(turn, key, token, Answer::Receipt(id.into()), 0);
        }
    }

    /// Registers a frame that takes effect at these shards, each of which has to answer. A requested RECEIPT waits
    /// for them; without one they answer only refusals.
    pub fn ask(&mut self, turn: &mut Turn, key: ConnKey, receipt: Option<&[u8]>, shards: u64) -> AnswerTo {
        if shards == 0 {
            self.receipt(turn, key, receipt);
        }
        let token = self.next_token();
        match receipt.filter(|_| shards != 0) {
            Some(id) => {
                self.push_answer_of(turn, key, token, Answer::Receipt(id.into()), shards.count_ones());
            }
            None => {
                if shards & !turn.id.bit() == 0 || !planted!("refusal-not-awaited") {
                    self.may_be_refused_by(key, shards & !turn.id.bit());
                }
            }
        }
        AnswerTo { shard: turn.id, conn: key, token, awaited: receipt.is_some() }
    }

    /// Does the same for a frame that delays the answers to all later frames, whether it requests a RECEIPT or not.
    pub fn ask_in_any_case(
        &mut self,
        turn: &mut Turn,
        key: ConnKey,
        receipt: Option<&[u8]>,
        shards: u64,
    ) -> AnswerTo {
        if shards == 0 {
            self.receipt(turn, key, receipt);
        }
        let token = self.next_token();
        let answer = receipt.map_or(Answer::Silence, |id| Answer::Receipt(id.into()));
        if shards != 0 {
            self.push_answer_of(turn, key, token, answer, shards.count_ones());
        }
        AnswerTo { shard: turn.id, conn: key, token, awaited: true }
    }

    /// Makes a frame wait for additional answers.
    pub fn await_more(&mut self, to: AnswerTo, count: u32) {
        if let Some(conn) = self.table.get_mut(to.conn) {
            conn.answers.await_more(to.token, count);
        }
    }

    /// These shards may still refuse a request that a connection sent without a RECEIPT.
    pub fn may_be_refused_by(&mut self, key: ConnKey, shards: u64) {
        if let Some(conn) = self.table.get_mut(key) {
            conn.answers.may_be_refused_by(shards);
        }
    }

    /// Sends a frame after all earlier answers.
    pub fn answer_with(&mut self, turn: &mut Turn, key: ConnKey, frame: Vec<u8>) {
        let token = self.next_token();
        let Some(conn) = self.listening(key) else { return };
        if conn.answers.is_empty() || planted!("frame-overtakes-receipts") {
            self.control(turn, key, |out| out.extend_from_slice(&frame));
        } else {
            self.push_answer_of(turn, key, token, Answer::Frame(frame), 0);
        }
    }

    fn push_answer_of(&mut self, turn: &Turn, key: ConnKey, token: u64, answer: Answer, waiting: u32) {
        let waiting = if planted!("receipt-early") { 0 } else { waiting };
        if let Some(conn) = self.listening(key) {
            conn.answers.push(token, answer, waiting);
        }
        self.count_input(turn, key);
    }

    /// The connection, if it can still be sent an answer. A closing one has got its last frame, although its COMMIT
    /// may take effect only now.
    fn listening(&mut self, key: ConnKey) -> Option<&mut Conn> {
        self.table.get_mut(key).filter(|conn| conn.life.is_open())
    }

    /// Records that a request of the connection took effect at one more shard.
    pub fn applied(&mut self, turn: &mut Turn, key: ConnKey, token: u64) {
        if let Some(conn) = self.table.get_mut(key) {
            let is_last = conn.answers.note(token);
            self.send_answers(turn, key);
            if is_last {
                self.go_on_after(turn, key, Question::Turn(token));
            }
        }
    }

    /// Handles the refusal of a request by another shard; later frames may have taken effect.
    pub fn refused(
        &mut self,
        turn: &mut Turn,
        key: ConnKey,
        token: u64,
        (error, mut offender): (ProtocolError, Offender),
    ) {
        let Some(conn) = self.listening(key) else { return };
        if conn.answers.is_refused_before(token) {
            return; // an earlier frame was refused already, and the connection ends with its ERROR
        }
        let own = conn.answers.cut_from(token);
        if !conn.answers.is_empty() && planted!("error-before-receipts") {
            conn.answers.clear();
        }
        if let Some(id) = own {
            if head_value(&offender.head, header::RECEIPT).is_none() {
                offender.head.extend_from_slice(b"receipt:");
                escape::escape_into(&mut offender.head, &id, conn.protocol.session.version());
                offender.head.push(b'\n');
            }
            if !planted!("refusal-without-receipt-id") {
                offender.receipt = Some(id.into());
            }
        }
        self.end_with(turn, key, token, error, &offender);
    }

    /// Answers an error of the peer with ERROR and closes (STOMP 1.2, "ERROR").
    pub fn fail(&mut self, turn: &mut Turn, key: ConnKey, error: ProtocolError, frame: Option<&Frame<'_>>) {
        let offender = frame.map(describe).unwrap_or_default();
        self.fail_with(turn, key, error, &offender);
    }

    /// Does the same for a frame that is already described.
    pub fn fail_with(&mut self, turn: &mut Turn, key: ConnKey, error: ProtocolError, offender: &Offender) {
        let token = self.next_token();
        if self.table.get(key).is_some_and(|conn| conn.life.is_open() && !conn.life.ending) {
            self.end_with(turn, key, token, error, offender);
        }
    }

    /// Ends the connection with an ERROR: it is sent after the RECEIPTs of earlier frames, then the connection
    /// closes. Pending frames take no effect any more.
    fn end_with(
        &mut self,
        turn: &mut Turn,
        key: ConnKey,
        token: u64,
        error: ProtocolError,
        offender: &Offender,
    ) {
        self.abandon_commit(key);
        self.end_wait(key);
        turn.counters.errors += 1;
        turn.budget.end_connection();
        self.log(turn, Level::Info, key, || format!("ERROR {error}"));
        let Some(conn) = self.table.get_mut(key) else { return };
        let (close_code, reason) = (error.code.websocket_close(), error.code.message());
        conn.life.ending = true;
        conn.input.read_ms = turn.now_ms; // the time for the answers before the ERROR begins
        conn.discard_input(); // the answers may need the memory
        let mut frame = Vec::new();
        encode::error(&mut frame, &error, offender, conn.protocol.session.version());
        if planted!("error-overtakes") {
            conn.answers.clear();
        }
        conn.answers.push(token, Answer::Error { frame, close_code, reason }, 0);
        self.send_answers(turn, key);
    }

    /// Sends the answers that are ready.
    fn send_answers(&mut self, turn: &mut Turn, key: ConnKey) {
        while let Some(conn) = self.table.get_mut(key)
            && let Some(answer) = conn.answers.pop_ready()
        {
            let version = conn.protocol.session.version();
            match answer {
                Answer::Receipt(id) => self.control(turn, key, |out| encode::receipt(out, &id, version)),
                Answer::Frame(frame) => self.control(turn, key, |out| out.extend_from_slice(&frame)),
                Answer::Error { frame, close_code, reason } => {
                    self.control(turn, key, |out| out.extend_from_slice(&frame));
                    if !planted!("error-without-close") {
                        self.begin_close(turn, key, close_code, reason);
                    }
                }
                Answer::Silence => {}
                Answer::Opening(id, home, credit) => {
                    self.control(turn, key, |out| encode::receipt(out, &id, version));
                    self.effects.push_back(Effect::Credits(home, credit));
                }
                Answer::Replaying(id, recovered, home, credit) => {
                    self.control(turn, key, |out| encode::receipt_of_replay(out, &id, recovered, version));
                    self.effects.push_back(Effect::Credits(home, credit));
                }
            }
        }
        self.count_input(turn, key);
        self.note_answers_taken(turn, key); // silent answers are done without a write
        self.end_if_done(turn, key);
    }

    /// Handles DISCONNECT: its RECEIPT confirms that all earlier frames took effect, also at other shards.
    pub fn disconnect(&mut self, turn: &mut Turn, key: ConnKey, receipt: Option<&[u8]>) {
        let Some(conn) = self.table.get_mut(key) else { return };
        conn.life.ending = true;
        if receipt.is_some() {
            self.await_round_trips(turn, key, receipt);
        }
        self.end_if_done(turn, key);
    }

    /// Delays a RECEIPT, or a silent answer, until no shard can refuse an earlier request any more.
    fn await_round_trips(&mut self, turn: &mut Turn, key: ConnKey, receipt: Option<&[u8]>) {
        let Some(conn) = self.table.get_mut(key) else { return };
        let shards = conn.answers.take_refusing();
        if shards == 0 {
            return self.receipt(turn, key, receipt);
        }
        let to = self.ask_in_any_case(turn, key, receipt, shards);
        self.effects.push_back(Effect::AsksForRoundTrips(to, shards));
    }

    /// Closes a connection that sends no more, once everything pending for it is in its outbox.
    pub fn end_if_done(&mut self, turn: &mut Turn, key: ConnKey) {
        let Some(conn) = self.table.get(key).filter(|conn| conn.life.is_open()) else { return };
        if !(conn.life.ending || conn.input.eof) || conn.wait.is_on() {
            return;
        }
        // Nothing that follows DISCONNECT takes effect.
        let has_more = (conn.input.has_unparsed || conn.input.is_being_decoded) && !conn.life.ending;
        if has_more && !planted!("unread-input-dropped") {
            return;
        }
        if conn.answers.is_empty() && conn.answers.may_be_refused() {
            self.await_round_trips(turn, key, None);
        }
        let is_done = |conn: &&mut Conn| conn.answers.is_empty() || planted!("end-before-answers");
        let Some(conn) = self.table.get_mut(key).filter(is_done) else {
            return self.rearm(turn, key);
        };
        let close_code = conn.websocket().and_then(|state| state.peer_code).unwrap_or(NORMAL);
        self.begin_close(turn, key, close_code, "");
    }

    /// Ends a connection whose answers never came.
    pub fn give_up_answers(&mut self, turn: &mut Turn, key: ConnKey) {
        if self.table.get(key).is_some_and(Conn::has_more_to_take) {
            return self.drop_connection(turn, key, "the peer does not read what precedes its last answers");
        }
        let missing = self.table.get(key).map_or(0, |conn| conn.answers.len());
        turn.counters.lost_answers += missing as u64;
        self.log(turn, Level::Error, key, || {
            format!("{missing} answers never came, and the connection is given up (a bug in stompica)")
        });
        self.drop_connection(turn, key, "its answers never came");
    }
}

/// The description of a frame for an ERROR.
#[must_use]
pub fn describe(frame: &Frame<'_>) -> Offender {
    let receipt = frame.header(header::RECEIPT).map(|value| value.into_owned());
    let receipt = receipt.filter(|_| !planted!("receipt-id-forgotten"));
    let name = match frame.command {
        Command::Subscribe | Command::Unsubscribe => header::ID,
        _ => header::SUBSCRIPTION,
    };
    let subscription = match frame.command {
        Command::Send => None,
        _ => frame.header(name).map(|value| value.into_owned()),
    };
    let start = frame.spans.first().map_or(0, |span| span.start as usize);
    let end = frame.spans.last().map_or(start, |span| span.end as usize);
    let mut head = frame.command.as_str().as_bytes().to_vec();
    head.push(b'\n');
    head.extend_from_slice(frame.input.get(start..end).unwrap_or_default());
    head.push(b'\n');
    Offender { receipt, subscription, head: masked_head(&head) }
}

#[cfg(test)]
#[path = "answering_tests.rs"]
mod tests;
