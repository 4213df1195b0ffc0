//! A connection whose own answers fill its outbox: RECEIPTs, pongs, diagnostics.
//!
//! It is not read until they have drained, so that nobody is owed more than `outbox_limit`, and no more than a bite while
//! half of `memory_limit` is held: answers that nobody reads stop no publisher. If it takes no byte of them for as long
//! as a slow consumer may take, it is cut off like one.

use super::Shard;
use super::deadline::millis;
use crate::config::SlowConsumer;
use crate::connection::conn::Conn;
use crate::connection::pausing::Pause;
use crate::ids::ConnKey;

/// Under policies that do not block, answers may stand still for so long.
const PATIENCE_MS: u64 = 5000;

/// How much a connection may be owed.
#[derive(Clone, Copy)]
struct Limits {
    /// Of anything, where most of it are answers.
    all: usize,
    /// Of answers.
    own: usize,
}

/// Bytes of answers that wait for a connection, and those of all that waits.
fn owed(conn: &Conn) -> (usize, usize) {
    let waiting = conn.answers.bytes();
    (conn.outbox.answer_bytes() + waiting, conn.outbox.bytes() + waiting)
}

fn are_too_many(conn: &Conn, limits: Limits) -> bool {
    let (own, all) = owed(conn);
    own >= limits.own || (own >= limits.all.div_ceil(2) && all >= limits.all)
}

impl Shard {
    fn limits_of_answers(&self) -> Limits {
        let own = if self.turn.memory.is_half_used { self.memory.unfinished.bite() } else { usize::MAX };
        Limits { all: self.turn.config.outbox_limit, own }
    }

    /// Stops reading a connection that is owed too much; true if it is so.
    pub(super) fn hold_for_answers(&mut self, key: ConnKey) -> bool {
        let limits = self.limits_of_answers();
        let hold = self.connections.table.get(key).is_some_and(|conn| are_too_many(conn, limits));
        if hold {
            self.park(key, Pause::Answers);
            self.stop_clock(key);
        }
        hold
    }

    /// Some of what waited for a connection was written: reads it again if that was enough.
    pub(super) fn note_answers_taken(&mut self, key: ConnKey) {
        let limits = self.limits_of_answers();
        let is_relieved = self.connections.table.get(key).is_some_and(|conn| {
            let (own, all) = owed(conn);
            conn.wait.pause() == Some(Pause::Answers)
                && own < limits.own / 2
                && (all < limits.all / 2 || own < limits.all / 4)
        });
        if is_relieved {
            self.unpark(key);
            if let Some(conn) = self.connections.table.get_mut(key) {
                conn.wait.passed();
            }
            self.rearm(key);
        }
    }

    /// When a connection is cut off that waits for its own answers, unless it takes some of them.
    pub(super) fn untaken_deadline(&self, conn: &Conn) -> Option<u64> {
        let since_ms = conn.wait.since_ms().filter(|_| conn.wait.pause() == Some(Pause::Answers))?;
        let patience_ms = match self.turn.config.slow_consumer {
            SlowConsumer::Block(patience) => millis(patience),
            _ => PATIENCE_MS,
        };
        Some(conn.moved_ms().max(since_ms).saturating_add(patience_ms.min(conn.patience_ms)))
    }
}
