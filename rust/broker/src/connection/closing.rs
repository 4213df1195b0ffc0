//! The end of a connection.
//!
//! ```text
//! open ──ERROR, DISCONNECT, EOF──► leaving ──no subscription left──► closing ──outbox empty──► lingering ──EOF or 2 s──► gone
//!   └──────────────────────── reset, write error, second deadline: no subscription left ─────────────────────────────┘
//! ```
//! In the phase `leaving` and later, nothing is delivered to it. Its subscriptions are removed by the layer that
//! knows them ([`Effect::Leaves`]), over several turns if they are many; then its last frames are written, or it is
//! removed.
//! Closing a socket with unread input resets the connection and can lose the last frame on its way; hence the linger
//! (STOMP 1.2, "Connection Lingering").

use std::mem::take;

use stompica_proto::encode::Offender;
use stompica_proto::ws;

use super::conn::{Conn, Phase, Transport};
use super::leaving::Leaving;
use super::outbox::Kind;
use super::transaction::{Commit, Committing};
use super::{Connections, Effect};
use crate::door::planted;
use crate::ids::ConnKey;
use crate::log::Level;
use crate::timer::Due;
use crate::turn::Turn;

/// WebSocket close codes (RFC 6455, 7.4.1).
pub(crate) const NORMAL: u16 = 1000;
/// The server goes away.
pub(crate) const GOING_AWAY: u16 = 1001;

impl Connections {
    /// Closes a connection after its pending output; `close_code` is for WebSocket.
    pub fn begin_close(&mut self, turn: &mut Turn, key: ConnKey, close_code: u16, reason: &str) {
        if self.table.get(key).is_none_or(|conn| !conn.life.is_open()) {
            return;
        }
        self.abandon_commit(key);
        self.end_wait(key);
        self.begin_leaving(turn, key);
        self.close_websocket(key, close_code, reason);
        let Some(conn) = self.table.get_mut(key) else { return };
        conn.life.phase = Phase::Leaving;
        conn.discard_input();
        conn.answers.clear();
        if let Some(open) = conn.transactions.take() {
            self.effects.push_back(Effect::DiscardsTransactions(open));
        }
        self.count_input(turn, key);
        self.queue_for_reading(key);
    }

    /// Ends all delivery to a connection, and starts to remove its subscriptions.
    pub fn begin_leaving(&mut self, turn: &mut Turn, key: ConnKey) {
        self.distribute(turn); // messages routed before are delivered
        let Some(conn) = self.table.get_mut(key) else { return };
        conn.pulls = None;
        if conn.life.leaving.is_none() {
            let subscriptions = take(&mut conn.subscriptions).into_iter().collect();
            let full = conn.output.full.take().is_some();
            conn.life.leaving = Some(Box::new(Leaving { subscriptions, full, is_lost: false }));
            self.effects.push_back(Effect::Leaves(key));
        }
    }

    /// Writes the pending output after the subscriptions are removed.
    pub fn write_last(&mut self, turn: &mut Turn, key: ConnKey) {
        let Some(conn) = self.table.get_mut(key) else { return };
        conn.life.go_on_to(Phase::Closing, turn.now_ms);
        conn.output.full = None;
        conn.output.written_ms = turn.now_ms;
        conn.check_socket(turn.now_ms);
        self.queue_for_flushing(key);
        self.rearm(turn, key);
    }

    /// Sends the Close frame once.
    fn close_websocket(&mut self, key: ConnKey, code: u16, reason: &str) {
        let code = if planted!("close-code-lost") { NORMAL } else { code };
        let Some(conn) = self.table.get_mut(key) else { return };
        if let Transport::WebSocket(state) = &mut conn.protocol.transport
            && !state.close_sent
        {
            state.close_sent = true;
            conn.output
                .outbox
                .append(&mut self.chunks, Kind::Answer, |out| ws::encode::close(out, code, reason));
        }
    }

    /// Shuts the write side of a closing connection whose outbox is empty, and waits for the peer.
    pub(super) fn begin_linger(&mut self, turn: &mut Turn, key: ConnKey) {
        let Some(conn) = self.table.get_mut(key) else { return };
        if conn.input.eof || conn.socket.shut_write().is_err() {
            return self.remove(turn, key);
        }
        conn.life.go_on_to(Phase::Lingering, turn.now_ms);
        self.queue_for_reading(key);
        self.rearm(turn, key);
    }

    /// Ends a connection at once; nothing more can be sent to the peer.
    pub fn drop_connection(&mut self, turn: &mut Turn, key: ConnKey, why: &str) {
        self.log(turn, Level::Debug, key, || format!("closed: {why}"));
        self.remove(turn, key);
    }

    /// Ends a connection: it is removed with all its state after its subscriptions.
    pub fn remove(&mut self, turn: &mut Turn, key: ConnKey) {
        self.abandon_commit(key);
        self.begin_leaving(turn, key);
        self.end_wait(key);
        if let Some(conn) = self.table.get_mut(key) {
            conn.life.is_lost();
            conn.answers.clear(); // nobody can be told any more
        }
        self.count_input(turn, key);
    }

    /// Removes a connection whose subscriptions are removed.
    pub fn take_out(&mut self, turn: &mut Turn, key: ConnKey) -> Option<Box<Conn>> {
        let mut conn = self.table.remove(key)?;
        turn.budget.end_connection();
        if !planted!("deadline-outlives-connection") {
            turn.timers.cancel(Due::Conn(key));
        }
        turn.counters.closed += 1;
        conn.output.outbox.clear(&mut self.chunks);
        self.discount_input(turn, &conn);
        Some(conn)
    }

    /// Abandons a COMMIT that is not decided: none of it takes effect. Returns its description for an ERROR.
    pub fn abandon_commit(&mut self, key: ConnKey) -> Option<Offender> {
        let mut commit = self.take_commit(key)?;
        if planted!("commit-not-cancelled") {
            return Some(take(&mut commit.offender));
        }
        let offender = take(&mut commit.offender);
        self.effects.push_back(Effect::AbandonsCommit(commit));
        Some(offender)
    }

    /// Removes a COMMIT that is not decided.
    pub fn take_commit(&mut self, key: ConnKey) -> Option<Box<Commit>> {
        let conn = self.table.get_mut(key)?;
        match conn.committing.take()? {
            Committing::Deciding(commit) => Some(commit),
            applying @ Committing::Applying { .. } => {
                conn.committing = Some(applying);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use stompica_proto::ProtocolError;
    use stompica_proto::error::Code;

    use super::*;
    use crate::config::Config;
    use crate::connection::conn::WebSocket;
    use crate::connection::fixtures::{connections, told, turn};

    fn phase(connections: &Connections, key: ConnKey) -> Option<Phase> {
        connections.table.get(key).map(|conn| conn.life.phase)
    }

    #[test]
    fn a_connection_leaves_once_then_writes_its_last_frames_lingers_and_is_removed() {
        let ((mut connections, keys), mut turn) = (connections(1), turn(Config::default()));
        let key = keys[0];
        connections.table.get_mut(key).expect("an open connection").input.keep(b"SEND\n");
        connections.control(&mut turn, key, |out| out.extend_from_slice(b"last"));
        connections.begin_close(&mut turn, key, NORMAL, "");
        connections.begin_close(&mut turn, key, NORMAL, "");
        let leaves = |effect: &Effect| matches!(effect, Effect::Leaves(leaving) if *leaving == key);
        assert_eq!(connections.effects.iter().filter(|effect| leaves(effect)).count(), 1);
        assert_eq!((phase(&connections, key), connections.input_bytes), (Some(Phase::Leaving), 0));
        assert_eq!(told(&mut connections, &mut turn, key), "", "its subscriptions are removed first");
        connections.write_last(&mut turn, key);
        assert_eq!(told(&mut connections, &mut turn, key), "last");
        assert_eq!(phase(&connections, key), Some(Phase::Lingering));
        assert!(connections.table.get_mut(key).expect("an open connection").socket.script().is_shut);
        connections.remove(&mut turn, key);
        assert!(connections.take_out(&mut turn, key).is_some() && connections.table.is_empty());
        assert_eq!((connections.chunks.in_use(), turn.counters.closed), (0, 1));
    }

    #[test]
    fn a_lost_connection_waits_for_no_answers_while_its_subscriptions_are_removed() {
        let ((mut connections, keys), mut turn) = (connections(1), turn(Config::default()));
        let key = keys[0];
        let to = connections.ask(&mut turn, key, Some(b"1"), 0b10);
        assert!(connections.input_bytes > 0);
        connections.drop_connection(&mut turn, key, "reset");
        let refusal = ProtocolError::new(Code::Memory, "no room".to_owned());
        connections.refused(&mut turn, key, to.token, (refusal, Offender::default()));
        let conn = connections.table.get(key).expect("its subscriptions are removed first");
        assert!(conn.answers.is_empty() && !conn.life.is_open());
        assert_eq!(connections.input_bytes, 0);
    }

    #[test]
    fn a_closing_connection_does_not_linger_before_the_socket_has_passed_everything_on() {
        let ((mut connections, keys), mut turn) = (connections(1), turn(Config::default()));
        let key = keys[0];
        let held_back = |connections: &mut Connections, is_held| {
            connections.table.get_mut(key).expect("an open connection").socket.script().holds_back = is_held;
        };
        held_back(&mut connections, true);
        connections.control(&mut turn, key, |out| out.extend_from_slice(b"last"));
        connections.begin_close(&mut turn, key, NORMAL, "");
        connections.write_last(&mut turn, key);
        told(&mut connections, &mut turn, key);
        assert_eq!(phase(&connections, key), Some(Phase::Closing));
        held_back(&mut connections, false);
        connections.flush_one(&mut turn, key);
        assert_eq!(phase(&connections, key), Some(Phase::Lingering));
    }

    #[test]
    fn a_lost_connection_is_removed_with_its_last_subscription() {
        let ((mut connections, keys), mut turn) = (connections(1), turn(Config::default()));
        connections.begin_close(&mut turn, keys[0], NORMAL, "");
        connections.drop_connection(&mut turn, keys[0], "it was reset");
        let conn = connections.table.get(keys[0]).expect("its subscriptions are still there");
        assert!(conn.life.leaving.as_ref().is_some_and(|leaving| leaving.is_lost));
        assert_eq!(conn.next_deadline(&turn), crate::timer::NEVER);
    }

    #[test]
    fn transactions_end_with_their_connection_unless_their_commit_was_decided() {
        let ((mut connections, keys), mut turn) = (connections(1), turn(Config::default()));
        let conn = connections.table.get_mut(keys[0]).expect("an open connection");
        conn.transactions.get_or_insert_default().begin(b"t", 1).expect("the first transaction");
        conn.committing = Some(Committing::Applying { has_acks: true });
        connections.begin_close(&mut turn, keys[0], NORMAL, "");
        let discards = |effect: &Effect| matches!(effect, Effect::DiscardsTransactions(_));
        assert!(connections.effects.iter().any(discards));
        assert!(connections.take_commit(keys[0]).is_none(), "a decided COMMIT takes effect");
    }

    #[test]
    fn a_websocket_is_sent_one_close_frame_and_nothing_after_it() {
        let ((mut connections, keys), mut turn) = (connections(1), turn(Config::default()));
        let conn = connections.table.get_mut(keys[0]).expect("an open connection");
        conn.protocol.transport = Transport::WebSocket(Box::new(WebSocket::new(0)));
        connections.begin_close(&mut turn, keys[0], GOING_AWAY, "");
        connections.control(&mut turn, keys[0], |out| out.extend_from_slice(b"late"));
        connections.write_last(&mut turn, keys[0]);
        let sent = told(&mut connections, &mut turn, keys[0]);
        assert_eq!(sent.chars().map(u32::from).collect::<Vec<_>>(), [0x88, 2, 3, 0xe9]);
    }
}
