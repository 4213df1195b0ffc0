//! Connections that stop and resume reading: changes of [`super::pausing::Parking`], with what follows from them for
//! deadlines and for the list of connections to read.

use super::conn::Conn;
use super::pausing::{Parking, Pause, Question};
use super::transaction::Committing;
use super::{Connections, Effect};
use crate::ids::ConnKey;
use crate::turn::Turn;
use crate::turn::jobs::Job;

/// Connections that try again in one turn.
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

    /// Leaves a connection's next frame, and all behind it, unread until there is room.
    pub fn park(&mut self, turn: &mut Turn, key: ConnKey, pause: Pause) {
        if self.parking.hold(&mut self.table, key, pause, turn.now_ms) {
            turn.counters.parked += 1;
        }
        self.rearm(turn, key);
    }

    /// Leaves a connection unread until an answer has come.
    pub fn wait_for(&mut self, turn: &mut Turn, key: ConnKey, question: Question) {
        self.parking.ask(&mut self.table, key, question, turn.now_ms);
        self.rearm(turn, key);
    }

    /// Ends the wait of a connection that is about to end, whatever it waits for.
    pub fn end_wait(&mut self, key: ConnKey) {
        self.parking.end(&mut self.table, key);
        self.logins.forget(key);
        self.effects.push_back(Effect::StopsWaiting(key));
    }

    /// An answer has come: a connection that waits for it is not read yet, but does not wait any more. Returns false if it
    /// did not wait for that.
    pub fn end_wait_for(&mut self, key: ConnKey, question: Question) -> bool {
        Parking::answered(&mut self.table, key, question)
    }

    /// An answer has come: a connection that waits for it is read again.
    pub fn go_on_after(&mut self, turn: &mut Turn, key: ConnKey, question: Question) {
        if Parking::answered(&mut self.table, key, question) {
            self.go_on(turn, key);
        }
    }

    /// Resumes reading one connection that waits for room.
    pub fn unpark(&mut self, turn: &mut Turn, key: ConnKey) {
        if self.parking.let_go(&mut self.table, key) {
            self.try_again(turn, key);
        }
    }

    /// What waited for room was a COMMIT, or the next frame.
    fn try_again(&mut self, turn: &mut Turn, key: ConnKey) {
        let committing = self.table.get(key).and_then(|conn| conn.committing.as_ref());
        let Some(Committing::Deciding(commit)) = committing else { return self.go_on(turn, key) };
        let token = commit.token;
        self.wait_for(turn, key, Question::Commit(token));
        turn.jobs.push(Job::Check(key, token));
        self.effects.push_back(Effect::RetriesCommit);
    }

    fn go_on(&mut self, turn: &mut Turn, key: ConnKey) {
        let Some(conn) = self.table.get_mut(key).filter(|conn| conn.life.is_open()) else { return };
        conn.input.has_unparsed = true;
        conn.expect_again(turn.now_ms);
        turn.budget.visit(1 + conn.input.bytes.len() / VISIT_BYTES);
        self.queue_for_reading(key);
    }

    /// Lets connections try again that wait for these kinds of room, some of them in each turn.
    pub fn retry_parked(&mut self, pauses: &[Pause]) {
        pauses.iter().for_each(|pause| self.parking.retry(*pause));
    }

    /// Resumes reading connections that are to try again, as many as one turn allows: alternately before and behind those
    /// with new input, so that neither always find all room taken by the others.
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

    /// A connection is not read: its frame has more time.
    pub fn stop_clock(&mut self, turn: &Turn, key: ConnKey) {
        if let Some(conn) = self.table.get_mut(key) {
            conn.stop_clock(turn.now_ms);
        }
    }

    /// Stops reading a connection whose own answers fill its outbox. Returns whether it did.
    pub fn hold_for_answers(&mut self, turn: &mut Turn, key: ConnKey) -> bool {
        let limits = self.limits_of_answers(turn);
        let hold = self.table.get(key).is_some_and(|conn| limits.are_exceeded(conn));
        if hold {
            self.park(turn, key, Pause::Answers);
            self.stop_clock(turn, key);
        }
        hold
    }

    /// Some of what waited for a connection was written: resumes reading it if that was enough.
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
        let own = if turn.memory.is_half_used { self.unfinished.bite() } else { usize::MAX };
        OwnAnswers { all: turn.config.outbox_limit, own }
    }
}

/// How much a connection may be owed of RECEIPTs, pongs and diagnostics.
///
/// It is not read while it is owed more: the limit is `outbox_limit`, and a bite while half of `memory_limit` is held, so
/// that answers that nobody reads stop no publisher. A connection that takes no byte of them for as long as a slow
/// consumer may stand still is cut off like one.
#[derive(Clone, Copy)]
struct OwnAnswers {
    /// Bytes of anything, if most of them are answers.
    all: usize,
    /// Bytes of answers.
    own: usize,
}

impl OwnAnswers {
    fn are_exceeded(self, conn: &Conn) -> bool {
        let (own, all) = owed(conn);
        own >= self.own || (own >= self.all.div_ceil(2) && all >= self.all)
    }

    fn are_relieved(self, conn: &Conn) -> bool {
        let (own, all) = owed(conn);
        own < self.own / 2 && (all < self.all / 2 || own < self.all / 4)
    }
}

/// Bytes of answers that wait for a connection, and bytes of everything that waits.
fn owed(conn: &Conn) -> (usize, usize) {
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

    fn conn(connections: &mut Connections, key: ConnKey) -> &mut Conn {
        connections.table.get_mut(key).expect("it is there")
    }

    fn owe(connections: &mut Connections, key: ConnKey, bytes: usize) {
        let conn = connections.table.get_mut(key).expect("it is there");
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
        assert!(connections.undrained.is_empty(), "its next frame waits");
    }

    #[test]
    fn those_that_try_again_go_before_the_others_every_other_time() {
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
        owe(&mut connections, keys[0], 999);
        assert!(!connections.hold_for_answers(&mut turn, keys[0]));
        owe(&mut connections, keys[0], 1);
        assert!(connections.hold_for_answers(&mut turn, keys[0]));
        connections.note_answers_taken(&mut turn, keys[0]);
        assert_eq!(conn(&mut connections, keys[0]).wait.pause(), Some(Pause::Answers));
        let one = connections.table.get_mut(keys[0]).expect("it is there");
        one.socket.script().room = 501;
        one.output.outbox.flush(&mut connections.chunks, &mut one.socket).expect("takes some");
        connections.note_answers_taken(&mut turn, keys[0]);
        assert!(!conn(&mut connections, keys[0]).wait.is_on() && connections.undrained == [keys[0]]);
    }

    #[test]
    fn while_half_of_the_memory_is_held_a_connection_is_owed_a_bite_of_answers() {
        let ((mut connections, keys), mut turn) = (connections(1), turn(Config::default()));
        connections.look_at_unfinished(&mut turn);
        let bite = connections.unfinished.bite();
        owe(&mut connections, keys[0], bite);
        assert!(!connections.hold_for_answers(&mut turn, keys[0]));
        turn.memory.is_half_used = true;
        assert!(connections.hold_for_answers(&mut turn, keys[0]));
    }
}
