//! A connection whose own answers fill its outbox: RECEIPTs, pongs, diagnostics.
//!
//! It is not read until they have drained, so that nobody is owed more than `outbox_limit`. If it takes no byte of them
//! for as long as a slow consumer may take, it is cut off like one.

use super::Shard;
use super::deadline::millis;
use super::parking::Pause;
use crate::config::SlowConsumer;
use crate::ids::ConnKey;
use crate::io::conn::Conn;

/// Under policies that do not block, answers may stand still for so long.
const PATIENCE_MS: u64 = 5000;

/// Whether most of a full outbox are answers.
fn are_too_many(conn: &Conn, limit: usize) -> bool {
    let waiting = conn.answers.bytes();
    let own = conn.outbox.control_bytes() + waiting;
    own >= limit.div_ceil(2) && conn.outbox.bytes() + waiting >= limit
}

impl Shard {
    /// Stops reading a connection that is owed too much; true if it is so.
    pub(super) fn hold_for_answers(&mut self, key: ConnKey) -> bool {
        let limit = self.config.outbox_limit;
        let hold = self.conns.get(key).is_some_and(|conn| are_too_many(conn, limit));
        if hold {
            self.park(key, Pause::Answers);
            self.stop_clock(key);
        }
        hold
    }

    /// Some of what waited for a connection was written: reads it again if that was enough.
    pub(super) fn note_answers_taken(&mut self, key: ConnKey) {
        let limit = self.config.outbox_limit;
        let is_relieved = self.conns.get(key).is_some_and(|conn| {
            conn.wait.pause() == Some(Pause::Answers)
                && (conn.outbox.bytes() + conn.answers.bytes() < limit / 2
                    || conn.outbox.control_bytes() + conn.answers.bytes() < limit / 4)
        });
        if is_relieved {
            self.unpark(key);
            if let Some(conn) = self.conns.get_mut(key) {
                conn.wait.passed();
            }
            self.rearm(key);
        }
    }

    /// When a connection is cut off that waits for its own answers, unless it takes some of them.
    pub(super) fn untaken_deadline(&self, conn: &Conn) -> Option<u64> {
        let since_ms = conn.wait.since_ms().filter(|_| conn.wait.pause() == Some(Pause::Answers))?;
        let patience_ms = match self.config.slow_consumer {
            SlowConsumer::Block(patience) => millis(patience),
            _ => PATIENCE_MS,
        };
        Some(conn.written_ms.max(since_ms).saturating_add(patience_ms.min(conn.patience_ms)))
    }
}
