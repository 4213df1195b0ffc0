//! Makes connections stop and resume reading: changes of [`super::pausing::Parking`], and their consequences for
//! deadlines and for the list of connections to read.

use super::conn::Conn;
use super::pausing::{Parking, Pause, Question};
use super::transaction::Committing;
use super::{Connections, Effect};
use crate::door::planted;
use crate::ids::ConnKey;
use crate::router::group::SubscriptionIndex;
use crate::turn::Turn;
use crate::turn::jobs::Job;

/// Connections that retry in one turn.
const TURN_RETRIES_MAX: usize = 256;
/// Bytes of a frame that count as one visit.
const VISIT_BYTES: usize = 4 << 10;

impl Connections {
    /// Puts a connection on the list of those to read: its socket, or its kept input, may have more.
    pub fn queue_for_reading(&mut self, key: ConnKey) {
        if let Some(conn) = self.table.get_mut(key)
            && !conn.input.is_listed
        {
            conn.input.is_listed = true;
            self.undrained.push_back(key);
        }
    }

    /// Leaves a connection's next frame and all later frames unread until there is room.
    pub fn park(&mut self, turn: &mut Turn, key: ConnKey, pause: Pause) {
        self.park_for(turn, key, pause, None);
    }

    /// Does the same for a frame that waits for one subscription.
    pub fn park_for(
        &mut self,
        turn: &mut Turn,
        key: ConnKey,
        pause: Pause,
        awaited: Option<SubscriptionIndex>,
    ) {
        if self.parking.hold(&mut self.table, key, pause, turn.now_ms) {
            turn.counters.parked += 1;
        }
        self.note_wait(turn, key);
        if let (Some(conn), Some(awaited)) = (self.table.get_mut(key), awaited) {
            conn.wait.awaits(awaited);
        }
        if !planted!("publish-timeout-not-armed") {
            self.rearm(turn, key);
        }
    }

    /// Leaves a connection unread until an answer has come.
    pub fn wait_for(&mut self, turn: &mut Turn, key: ConnKey, question: Question) {
        self.parking.ask(&mut self.table, key, question, turn.now_ms);
        self.note_wait(turn, key);
        self.rearm(turn, key);
    }

    /// Ends any wait of a connection that is about to end.
    pub fn end_wait(&mut self, key: ConnKey) {
        self.parking.end(&mut self.table, key);
        self.logins.forget(key);
        self.effects.push_back(Effect::StopsWaiting(key));
    }

    /// Ends the wait for an answer that has come, without reading the connection yet. Returns false if the connection
    /// did not wait for it.
    pub fn end_wait_for(&mut self, key: ConnKey, question: Question) -> bool {
        Parking::answered(&mut self.table, key, question)
    }

    /// Resumes reading a connection whose answer has come.
    pub fn go_on_after(&mut self, turn: &mut Turn, key: ConnKey, question: Question) {
        if Parking::answered(&mut self.table, key, question) {
            self.note_wait(turn, key);
            self.go_on(turn, key);
        }
    }

    /// Resumes reading one connection that waits for room.
    pub fn unpark(&mut self, turn: &mut Turn, key: ConnKey) {
        if self.parking.end_wait(&mut self.table, key) {
            self.try_again(turn, key);
        }
    }

    /// Retries the COMMIT or the frame that waited for room.
    fn try_again(&mut self, turn: &mut Turn, key: ConnKey) {
        self.note_wait(turn, key);
        let committing = self.table.get(key).and_then(|conn| conn.committing.as_ref());
        let Some(Committing::Deciding(commit)) = committing else { return self.go_on(turn, key) };
        let token = commit.token;
        self.wait_for(turn, key, Question::Commit(token));
        turn.jobs.push(Job::Check(key, token));
        self.effects.push_back(Effect::RetriesCommit);
    }

    /// Notes that a connection has begun or ended to wait, since its ACKs may wait, too.
    fn note_wait(&mut self, turn: &Turn, key: ConnKey) {
        if let Some(conn) = self.table.get_mut(key)
            && let Some(full) = &mut conn.output.full
        {
            full.note_wait(conn.wait.delays_acks(), turn.now_ms);
        }
    }

    fn go_on(&mut self, turn: &mut Turn, key: ConnKey) {
        let Some(conn) = self.table.get_mut(key).filter(|conn| conn.life.is_open()) else { return };
        conn.input.has_unparsed = true;
        conn.expect_again(turn.now_ms);
        turn.budget.visit(1 + conn.input.bytes.len() / VISIT_BYTES);
        self.rearm(turn, key); // silence has no deadline during a wait
        self.queue_for_reading(key);
    }

    /// Makes connections retry that wait for these kinds of room, some of them in each turn.
    pub fn retry_parked(&mut self, pauses: &[Pause]) {
        pauses.iter().for_each(|pause| self.parking.retry(*pause));
    }

    /// Resumes reading connections that are to retry, as many as one turn allows: alternately before and after those
    /// with new input, so that neither group always takes all the room.
    pub fn resume_parked(&mut self, turn: &mut Turn) {
        let ready = self.undrained.len();
        for _ in 0..TURN_RETRIES_MAX {
            if turn.budget.is_exhausted() {
                break;
            }
            let Some(key) = self.parking.next_to_retry(&mut self.table) else { break };
            self.try_again(turn, key);
        }
        if self.undrained.len() > ready && self.parking.go_first_by_turns() {
            self.undrained.rotate_left(ready);
        }
    }

    /// Stops the deadline of an arriving frame while its connection is not read.
    pub fn stop_clock(&mut self, turn: &Turn, key: ConnKey) {
        if let Some(conn) = self.table.get_mut(key) {
            conn.stop_clock(turn.now_ms);
        }
    }

    /// Stops reading a connection whose own answers fill its outbox. Returns whether it did. One that ends is not read
    /// anyway, and a pause would let messages follow its last RECEIPT.
    pub fn hold_for_answers(&mut self, turn: &mut Turn, key: ConnKey) -> bool {
        let limits = self.limits_of_answers(turn);
        let hold = self.table.get(key).is_some_and(|conn| !conn.life.ending && limits.are_exceeded(conn));
        if hold && !planted!("answers-without-end") {
            self.park(turn, key, Pause::Answers);
            self.stop_clock(turn, key);
            return true;
        }
        false
    }

    /// Resumes reading a connection after enough of its answers were written.
    pub fn note_answers_taken(&mut self, turn: &mut Turn, key: ConnKey) {
        let limits = self.limits_of_answers(turn);
        let is_relieved = self
            .table
            .get(key)
            .is_some_and(|conn| conn.wait.pause() == Some(Pause::Answers) && limits.are_relieved(conn));
        if is_relieved {
            self.unpark(turn, key);
            if let Some(conn) = self.table.get_mut(key) {
                conn.wait.passed();
            }
            self.rearm(turn, key);
        }
    }

    fn limits_of_answers(&self, turn: &Turn) -> OwnAnswers {
        let own = if turn.memory.is_half_used { self.unfinished.portion() } else { usize::MAX };
        OwnAnswers { all: turn.config.outbox_limit, own }
    }
}

/// The limits on the answers that wait in a connection's outbox: RECEIPTs, pongs and diagnostics.
///
/// A connection is not read while it exceeds them: the limit is `outbox_limit`, or one portion (`unfinished.rs`) while
/// half of `memory_limit` is used, so that unread answers stop no publisher. A connection that reads none of them for
/// as long as a slow consumer may stall is cut off like one.
#[derive(Clone, Copy)]
struct OwnAnswers {
    /// Limit of all bytes in the outbox, if most of them are answers.
    all: usize,
    /// Limit of bytes of answers.
    own: usize,
}

impl OwnAnswers {
    fn are_exceeded(self, conn: &Conn) -> bool {
        let (own, all) = pending_bytes(conn);
        own >= self.own || (own >= self.all.div_ceil(2) && all >= self.all)
    }

    fn are_relieved(self, conn: &Conn) -> bool {
        let (own, all) = pending_bytes(conn);
        own < self.own / 2 && (all < self.all / 2 || own < self.all / 4)
    }
}

/// Bytes of answers that wait for a connection, and all bytes that wait.
fn pending_bytes(conn: &Conn) -> (usize, usize) {
    let waiting = conn.answers.bytes();
    (conn.output.outbox.answer_bytes() + waiting, conn.output.outbox.bytes() + waiting)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::connection::fixtures::{connections, turn};
    use crate::connection::transaction::Commit;
    use crate::connection::transaction::plan::Plan;
    use crate::message::chunk::Kind;
    use crate::timer::NEVER;

    fn conn(connections: &mut Connections, key: ConnKey) -> &mut Conn {
        connections.table.get_mut(key).expect("an open connection")
    }

    fn add_answers(connections: &mut Connections, key: ConnKey, bytes: usize) {
        let conn = connections.table.get_mut(key).expect("an open connection");
        conn.output
            .outbox
            .append(&mut connections.chunks, Kind::Answer, |out| out.resize(out.len() + bytes, 0));
    }

    #[test]
    fn a_connection_whose_wait_is_over_is_read_again() {
        let ((mut connections, keys), mut turn) = (connections(2), turn(Config::default()));
        connections.park(&mut turn, keys[0], Pause::Mailbox);
        connections.wait_for(&mut turn, keys[1], Question::Query(4));
        connections.retry_parked(&[Pause::Mailbox]);
        connections.resume_parked(&mut turn);
        connections.go_on_after(&mut turn, keys[1], Question::Query(3));
        assert_eq!(connections.undrained, [keys[0]]);
        connections.go_on_after(&mut turn, keys[1], Question::Query(4));
        assert_eq!(connections.undrained, [keys[0], keys[1]]);
        assert!(conn(&mut connections, keys[1]).input.has_unparsed && connections.effects.is_empty());
    }

    #[test]
    fn a_silent_client_is_timed_out_after_a_wait_that_was_longer_than_its_deadline() {
        let (mut connections, mut turn) = (Connections::default(), turn(Config::default()));
        let key = connections.table.insert(Conn::connected(1, "10000,0"));
        connections.rearm(&mut turn, key);
        let deadline_ms = |connections: &mut Connections| conn(connections, key).life.deadline_ms;
        turn.now_ms = deadline_ms(&mut connections);
        connections.park(&mut turn, key, Pause::Mail);
        assert!(connections.take_deadline(key, turn.now_ms));
        assert_eq!(connections.handle_deadline(&mut turn, key), None, "it is not read");
        connections.rearm(&mut turn, key);
        assert_eq!(deadline_ms(&mut connections), NEVER);
        connections.unpark(&mut turn, key);
        assert_eq!(deadline_ms(&mut connections), 2 * turn.now_ms);
    }

    #[test]
    fn a_commit_that_waited_for_room_is_checked_again_at_once() {
        let ((mut connections, keys), mut turn) = (connections(1), turn(Config::default()));
        let commit = Commit {
            token: 7,
            operations: Default::default(),
            plan: Plan::new(turn.hasher.clone()),
            receipt: None,
            offender: Default::default(),
            asked: Vec::new(),
            waiting: 0,
            places: Vec::new(),
            refusal: None,
        };
        conn(&mut connections, keys[0]).committing = Some(Committing::Deciding(Box::new(commit)));
        connections.park(&mut turn, keys[0], Pause::Memory);
        connections.unpark(&mut turn, keys[0]);
        assert_eq!(turn.jobs.pop(), Some(Job::Check(keys[0], 7)));
        assert!(matches!(connections.effects.make_contiguous(), [Effect::RetriesCommit]));
        assert_eq!(conn(&mut connections, keys[0]).wait.question(), Some(Question::Commit(7)));
        assert!(connections.undrained.is_empty(), "its next frame still waits");
    }

    #[test]
    fn retries_go_first_every_other_turn() {
        let ((mut connections, keys), mut turn) = (connections(2), turn(Config::default()));
        let mut order = || {
            connections.undrained.clear();
            keys.iter().for_each(|key| conn(&mut connections, *key).input.is_listed = false);
            connections.queue_for_reading(keys[0]);
            connections.park(&mut turn, keys[1], Pause::Mailbox);
            connections.retry_parked(&[Pause::Mailbox]);
            connections.resume_parked(&mut turn);
            Vec::from(connections.undrained.clone())
        };
        assert_eq!([order(), order()], [vec![keys[1], keys[0]], vec![keys[0], keys[1]]]);
    }

    #[test]
    fn a_connection_that_does_not_read_its_answers_is_not_read() {
        let config = Config { outbox_limit: 1000, ..Config::default() };
        let ((mut connections, keys), mut turn) = (connections(1), turn(config));
        add_answers(&mut connections, keys[0], 999);
        assert!(!connections.hold_for_answers(&mut turn, keys[0]));
        add_answers(&mut connections, keys[0], 1);
        assert!(connections.hold_for_answers(&mut turn, keys[0]));
        connections.note_answers_taken(&mut turn, keys[0]);
        assert_eq!(conn(&mut connections, keys[0]).wait.pause(), Some(Pause::Answers));
        let one = connections.table.get_mut(keys[0]).expect("an open connection");
        one.socket.script().room = 501;
        one.output.outbox.flush(&mut connections.chunks, &mut one.socket).expect("takes some");
        connections.note_answers_taken(&mut turn, keys[0]);
        assert!(!conn(&mut connections, keys[0]).wait.is_on() && connections.undrained == [keys[0]]);
    }

    #[test]
    fn a_connection_that_ends_does_not_wait_for_its_answers_to_be_read() {
        let config = Config { outbox_limit: 1000, ..Config::default() };
        let ((mut connections, keys), mut turn) = (connections(1), turn(config));
        add_answers(&mut connections, keys[0], 2000);
        conn(&mut connections, keys[0]).life.ending = true;
        assert!(!connections.hold_for_answers(&mut turn, keys[0]));
        assert!(!conn(&mut connections, keys[0]).wait.is_on());
    }

    #[test]
    fn while_half_of_memory_is_used_a_connection_may_have_a_portion_of_unread_answers() {
        let ((mut connections, keys), mut turn) = (connections(1), turn(Config::default()));
        connections.check_unfinished(&mut turn);
        let portion = connections.unfinished.portion();
        add_answers(&mut connections, keys[0], portion);
        assert!(!connections.hold_for_answers(&mut turn, keys[0]));
        turn.memory.is_half_used = true;
        assert!(connections.hold_for_answers(&mut turn, keys[0]));
    }
}
