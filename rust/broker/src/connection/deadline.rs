//! The deadlines of a connection: log-in, heart-beats, slow consumers, frames that wait or arrive, the end of a
//! linger. An overdue deadline is a value; the shard acts on it.

use std::time::Duration;

use super::Connections;
use super::arrival::Arrival;
use super::conn::{Conn, Phase};
use super::pausing::{Pause, Question};
use super::transaction::Committing;
use crate::config::{Config, SlowConsumer};
use crate::door::planted;
use crate::ids::ConnKey;
use crate::timer::{Due, NEVER};
use crate::turn::Turn;

/// The time in which a refused connection has to show whether it speaks HTTP.
const REFUSAL_MS: u64 = 1000;
/// The longest wait for the peer to close after the write side was shut.
const LINGER_MS: u64 = 2000;
/// The interval at which a closing connection is checked: it is dropped if its peer has taken no byte since the last one.
const CLOSING_STALL_MS: u64 = 5000;
/// The longest wait for the last answers to a connection since it sends no more, while it takes nothing that precedes
/// them. If nothing precedes them, such a delay is a bug, and is logged as one.
pub(crate) const ANSWERS_MS: u64 = 60_000;
/// The longest delay of a deadline for input while there is always more to read.
const BEHIND_MS: u64 = 1000;
/// The time that answers may stay unread under policies that do not block; while memory is short, also deliveries of queues
/// and the last frames.
pub(crate) const PATIENCE_MS: u64 = 5000;

/// A duration of the settings, in milliseconds.
#[must_use]
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(NEVER)
}

/// How long a connection may take too little of what waits for it. Policies that do not block have no time of their own.
pub(crate) fn patience_ms(config: &Config) -> u64 {
    match config.slow_consumer {
        SlowConsumer::Block(patience) => millis(patience),
        _ => PATIENCE_MS,
    }
}

/// An overdue deadline of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overdue {
    /// The peer did not close in time.
    Close,
    /// It is refused, and has had time to show its protocol.
    Refusal,
    /// No CONNECT came, or no complete HTTP request.
    Login,
    /// Its consumer is too slow.
    SlowConsumer,
    /// The last answers to it never came, or it does not take the output that precedes them.
    Answers,
    /// It has to be sent a heart-beat; another deadline may be overdue, too.
    HeartBeat,
    /// It does not read its own answers.
    Untaken,
    /// Its next frame has waited for `publish_timeout`, as far as the connection knows.
    Held,
    /// A frame is incomplete after this many milliseconds.
    Frame(u64),
    /// It has been silent for too long.
    Silence,
}

impl Conn {
    /// The next deadline; [`NEVER`] if there is none.
    #[must_use]
    pub fn next_deadline(&self, turn: &Turn) -> u64 {
        let config = &turn.config;
        match self.life.phase {
            Phase::Leaving => return NEVER,
            // What it has not taken yet is delivered within `drain`, or counted when that is over.
            Phase::Closing if turn.is_draining && self.life.since_ms >= turn.draining_since_ms => {
                return NEVER;
            }
            Phase::Closing => {
                let stalled_ms = self.moved_ms() + CLOSING_STALL_MS;
                return self.closing_deadline(config).map_or(stalled_ms, |at_ms| at_ms.min(stalled_ms));
            }
            Phase::Lingering if planted!("linger-forever") => return NEVER,
            Phase::Lingering => return self.life.since_ms + LINGER_MS,
            Phase::Open => {}
        }
        if self.life.refused {
            return self.life.since_ms + REFUSAL_MS;
        }
        if !self.has_logged_in() {
            return self.expected_ms(turn);
        }
        let heartbeat = self.protocol.session.heartbeat();
        let mut next_ms = self.slow_deadline(config).unwrap_or(NEVER);
        next_ms = next_ms.min(self.answers_deadline(turn.now_ms).unwrap_or(NEVER));
        if let Some(due_ms) = heartbeat.next_send_due(self.output.written_ms) {
            // A heart-beat that cannot be written now is tried again later.
            let due_ms = due_ms + if planted!("heart-beat-late") { u64::from(heartbeat.send_ms) } else { 0 };
            let again_ms = turn.now_ms + u64::from(heartbeat.send_ms / 4).max(1);
            next_ms = next_ms.min(if self.output.outbox.is_empty() { due_ms } else { due_ms.max(again_ms) });
        }
        next_ms = next_ms.min(self.untaken_deadline(config).unwrap_or(NEVER));
        if self.life.ending {
            return next_ms; // what the client sends, or does not send, takes no effect any more
        }
        next_ms.min(self.held_deadline(config).unwrap_or_else(|| self.expected_ms(turn)))
    }

    /// What has to come from the client, and by when: CONNECT, the rest of a frame, a sign of life.
    fn expected(&self, config: &Config) -> Option<(u64, Overdue)> {
        if !self.has_logged_in() {
            return Some((self.life.since_ms.saturating_add(millis(config.login_timeout)), Overdue::Login));
        }
        // A client that has closed its direction cannot beat any more; it gets its answers.
        if self.life.ending || self.wait.is_on() || self.input.eof {
            return None;
        }
        let frame =
            self.frame_deadline(config).map(|(at_ms, allowed_ms)| (at_ms, Overdue::Frame(allowed_ms)));
        let silence = (self.protocol.silence_deadline(self.input.read_ms), Overdue::Silence);
        frame.filter(|(at_ms, _)| *at_ms <= silence.0).or(Some(silence))
    }

    /// The time at which something that is expected has not come.
    fn expected_ms(&self, turn: &Turn) -> u64 {
        let at_ms = self.expected(&turn.config).map_or(NEVER, |(at_ms, _)| at_ms);
        match self.may_have_come(at_ms, turn) {
            true if turn.is_draining => NEVER, // nothing more is read
            // The deadline was noticed, and waits for the read that ends this state.
            true if self.input.behind_since_ms.is_set() => at_ms.max(turn.now_ms + 1),
            _ => at_ms,
        }
    }

    /// What is expected and has not come in time.
    fn missed(&self, turn: &Turn) -> Option<Overdue> {
        let is_missed = |at_ms: u64| turn.now_ms >= at_ms && !self.may_have_come(at_ms, turn);
        self.expected(&turn.config).filter(|(at_ms, _)| is_missed(*at_ms)).map(|(_, overdue)| overdue)
    }

    /// Whether something that is expected by this time may have come, but was not read: the shard may have had no
    /// turn since.
    fn may_have_come(&self, at_ms: u64, turn: &Turn) -> bool {
        let is_read = self.wait.is_on() // for the check of its login
            || self.input.drained_ms >= at_ms
            || self.input.behind_since_ms.get().is_some_and(|since_ms| turn.now_ms >= since_ms + BEHIND_MS);
        !is_read
    }

    /// Whether it has sent CONNECT and got the answer.
    fn has_logged_in(&self) -> bool {
        self.protocol.session.was_connected() && !matches!(self.wait.question(), Some(Question::Login(_)))
    }

    /// The deadline that is overdue now, if any.
    #[must_use]
    pub fn overdue(&self, turn: &Turn) -> Option<Overdue> {
        let (now_ms, config) = (turn.now_ms, &turn.config);
        let has_passed = |deadline_ms: Option<u64>| deadline_ms.is_some_and(|at_ms| now_ms >= at_ms);
        match self.life.phase {
            // The output that it has not taken yet takes the memory that others wait for.
            Phase::Closing if has_passed(self.closing_deadline(config)) => {
                return Some(Overdue::SlowConsumer);
            }
            Phase::Closing | Phase::Lingering => return Some(Overdue::Close),
            Phase::Leaving => return None,
            Phase::Open => {}
        }
        if self.life.refused {
            Some(Overdue::Refusal)
        } else if !self.has_logged_in() {
            self.missed(turn)
        } else if has_passed(self.slow_deadline(config)) {
            Some(Overdue::SlowConsumer)
        } else if has_passed(self.answers_deadline(now_ms)) {
            Some(Overdue::Answers)
        } else if self.protocol.session.heartbeat().send_due(now_ms, self.output.written_ms)
            && self.output.outbox.is_empty()
        {
            Some(Overdue::HeartBeat)
        } else if has_passed(self.untaken_deadline(config)) && !self.awaits_output() {
            Some(Overdue::Untaken)
        } else if self.life.ending {
            None
        } else if self.wait.is_on() {
            has_passed(self.held_deadline(config)).then_some(Overdue::Held)
        } else {
            self.missed(turn)
        }
    }

    fn slow_deadline(&self, config: &Config) -> Option<u64> {
        self.output.slow_deadline(self.moved_ms(), patience_ms(config))
    }

    /// The time by which a connection that is closing has to take enough of its last frames, while memory is short.
    fn closing_deadline(&self, config: &Config) -> Option<u64> {
        let patience_ms = patience_ms(config).max(PATIENCE_MS);
        self.output.full.as_ref().map(|full| full.deadline_ms(patience_ms))
    }

    /// The time at which a connection is ended that sends no more and only waits for answers.
    fn answers_deadline(&self, now_ms: u64) -> Option<u64> {
        // A COMMIT that is being applied waits for the receivers of its messages, however long that takes.
        let is_applied_still = matches!(self.committing, Some(Committing::Applying { .. }));
        if !(self.input.eof || self.life.ending) || self.answers.is_empty() || is_applied_still {
            return None;
        }
        // A lack of memory is not its fault: its time begins when it can be sent something.
        let is_held_up =
            self.output.outbox.is_empty() && self.pulls.as_ref().is_some_and(|it| it.is_listed());
        let moved_ms = match self.has_more_to_take() {
            true if is_held_up => now_ms,
            // A heart-beat counts as written, too, but not while the connection has other output to take.
            true => self.input.read_ms.max(self.moved_ms()).max(self.output.stuck_since_ms),
            false => self.input.read_ms,
        };
        Some(moved_ms.saturating_add(ANSWERS_MS))
    }

    /// The time at which a connection is cut off that does not read its own answers, or the messages that its next frame
    /// waits for.
    fn untaken_deadline(&self, config: &Config) -> Option<u64> {
        let since_ms = match self.wait.pause()? {
            Pause::Answers => self.wait.since_ms()?,
            Pause::Deferred if self.wait.awaited().is_none() => return None, // it has the deadline of a full outbox
            Pause::Deferred => self.wait.since_ms()?.max(self.output.stuck_since_ms),
            _ => return None,
        };
        Some(self.moved_ms().max(since_ms).saturating_add(self.output.patience(patience_ms(config))))
    }

    /// Whether its next frame waits for messages that it cannot take yet.
    fn awaits_output(&self) -> bool {
        self.wait.pause() == Some(Pause::Deferred) && self.output.outbox.is_empty()
    }

    /// The time at which the wait of the next frame times out.
    fn held_deadline(&self, config: &Config) -> Option<u64> {
        Some(self.wait.bounded_since_ms()?.saturating_add(millis(config.publish_timeout)))
    }

    /// The time at which the arriving frame must be complete, and the duration that it may take.
    fn frame_deadline(&self, config: &Config) -> Option<(u64, u64)> {
        let timeout_ms = millis(config.frame_timeout);
        let came = self.input.bytes.len();
        let deadline = |arrival: &Arrival| {
            Some((arrival.deadline_ms(came, timeout_ms)?, arrival.allowed_ms(came, timeout_ms)))
        };
        let message = self.protocol.message_arrival().and_then(deadline);
        deadline(&self.input.arrival).into_iter().chain(message).min()
    }
}

impl Connections {
    /// Sets a connection's next deadline in the timers, unless an earlier one is set.
    pub fn rearm(&mut self, turn: &mut Turn, key: ConnKey) {
        let Some(conn) = self.table.get_mut(key) else { return };
        let next_ms = conn.next_deadline(turn);
        if next_ms < conn.life.deadline_ms {
            turn.timers.set(next_ms, Due::Conn(key));
            conn.life.deadline_ms = next_ms;
        }
    }

    /// Handles a passed deadline. Returns whether it was the connection's current one, not one that was replaced.
    pub fn take_deadline(&mut self, key: ConnKey, at_ms: u64) -> bool {
        let Some(conn) = self.table.get_mut(key).filter(|conn| conn.life.deadline_ms == at_ms) else {
            return false;
        };
        conn.life.deadline_ms = NEVER;
        true
    }

    /// Whether a connection has to be read before a deadline for its input may take effect.
    pub fn has_to_be_read_first(&mut self, turn: &Turn, key: ConnKey) -> bool {
        let Some(conn) = self.table.get_mut(key).filter(|conn| conn.life.is_open() && !conn.life.refused)
        else {
            return false;
        };
        let at_ms = conn.expected(&turn.config).map_or(NEVER, |(at_ms, _)| at_ms);
        if turn.is_draining || turn.now_ms < at_ms || !conn.may_have_come(at_ms, turn) {
            return false;
        }
        conn.input.behind_since_ms.get_or_set(turn.now_ms);
        true
    }

    /// The deadline of a connection that is overdue now, unless its peer has taken bytes meanwhile.
    pub fn overdue(&mut self, turn: &Turn, key: ConnKey) -> Option<Overdue> {
        let conn = self.table.get_mut(key).filter(|conn| turn.now_ms >= conn.next_deadline(turn))?;
        if conn.awaits_output() {
            conn.output.stuck_since_ms = turn.now_ms; // its time begins anew
        } else if !conn.output.outbox.is_empty() {
            conn.check_socket(turn.now_ms);
            if turn.now_ms < conn.next_deadline(turn) {
                return None;
            }
        }
        conn.overdue(turn)
    }

    /// Updates the time since which memory stops the fan-out that a connection waits for; `None` if outboxes stop it.
    /// Returns whether this has lasted longer than `publish_timeout`.
    pub fn note_stopped(&mut self, turn: &Turn, key: ConnKey, since_ms: Option<u64>) -> bool {
        let Some(conn) = self.table.get_mut(key) else { return false };
        conn.wait.note_stopped(since_ms);
        conn.overdue(turn) == Some(Overdue::Held)
    }
}

#[cfg(test)]
#[path = "deadline_tests.rs"]
mod tests;
