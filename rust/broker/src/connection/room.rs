//! Delivery to a connection whose outbox is full: in part, later, or not at all.

use std::mem::take;

use super::Connections;
use super::conn::Conn;
use super::deferred::Waiting;
use super::outbox::Kind;
use super::outbox::drop_notice::with_drop_notice;
use crate::config::SlowConsumer;
use crate::door::planted;
use crate::ids::ConnKey;
use crate::log::Level;
use crate::message::chunk::{ChunkId, ChunkPool};
use crate::turn::Turn;

/// Makes room in an outbox at its limit for `frames` more messages; false if they are to be dropped or deferred.
pub fn make_room(conn: &mut Conn, chunks: &mut ChunkPool, turn: &mut Turn, frames: usize) -> bool {
    let limit = turn.config.outbox_limit;
    if conn.life.leaving.is_some() || matches!(turn.config.slow_consumer, SlowConsumer::Block(_)) {
        return false; // dropped, or deferred
    }
    if conn.output.outbox.bytes() < limit {
        return true; // only messages of queues are deferred, and their order relative to topics is not guaranteed
    }
    // A turn may fill an outbox that its socket would take at once; only an outbox that is full after a flush is
    // slow. But a RECEIPT must not be sent before the turn's batch is posted. An error will occur again at the
    // regular flush.
    let early = conn.output.outbox.answer_bytes() == 0 && conn.write(chunks, turn).0.is_ok();
    if early && conn.output.outbox.bytes() < limit {
        return true;
    }
    let counters = &mut turn.counters;
    match turn.config.slow_consumer {
        SlowConsumer::Block(_) | SlowConsumer::Disconnect => false,
        SlowConsumer::DropNewest => {
            if !planted!("dropped-newest-untold") {
                conn.output.dropped = conn.output.dropped.saturating_add(frames as u32);
            }
            counters.dropped += frames as u64;
            false
        }
        SlowConsumer::DropOldest => {
            let outbox = &mut conn.output.outbox;
            counters.dropped += outbox.drop_oldest(chunks, limit.saturating_sub(1)) as u64;
            true
        }
    }
}

/// Copies the frame at `start` of a shared chunk for this connection alone, with a header that counts the messages
/// dropped before it. Returns the start of the next frame.
pub fn give_drop_notice(conn: &mut Conn, chunks: &mut ChunkPool, chunk: ChunkId, start: u32) -> u32 {
    let end = chunks.frame_end_after(chunk, start);
    let copy = with_drop_notice(chunks.bytes(chunk, start, end), take(&mut conn.output.dropped));
    conn.output.outbox.append(chunks, Kind::Message, |out| out.extend_from_slice(&copy));
    end
}

impl Connections {
    /// Whether messages of topics wait for room in a connection's outbox.
    #[cfg(test)]
    pub fn has_deferred(&self, key: ConnKey) -> bool {
        self.table.get(key).is_some_and(Conn::has_deferred)
    }

    /// Whether deferred messages exist whose RECEIPT may have been sent: a connection that leaves gets them first.
    /// Those of publishers that wait for their RECEIPT are skipped.
    #[must_use]
    pub fn has_accepted_deferred(&self, key: ConnKey) -> bool {
        let deferred = self.table.get(key).and_then(|conn| conn.output.deferred.as_ref());
        deferred.is_some_and(|deferred| deferred.accepted > 0)
    }

    /// Logs something about one connection.
    pub fn log(&self, turn: &Turn, level: Level, key: ConnKey, text: impl FnOnce() -> String) {
        if !turn.log.enabled(level) {
            return;
        }
        let mut fields = vec![("shard", turn.id.0.to_string())];
        if let Some(conn) = self.table.get(key) {
            fields.push(("connection", conn.id.to_string()));
            fields.push(("peer", conn.peer.to_string()));
        }
        turn.log.push(level, text(), fields);
    }

    /// Decides about messages of a topic for a connection without room for them, as `slow_consumer` says. Returns
    /// whether the caller has to defer them; otherwise they are lost to it.
    #[cold]
    pub fn is_deferred(&mut self, turn: &Turn, key: ConnKey) -> bool {
        let Some(conn) = self.table.get(key).filter(|conn| conn.life.leaving.is_none()) else { return false };
        match turn.config.slow_consumer {
            SlowConsumer::Block(_) => return true,
            SlowConsumer::Disconnect => self.too_slow.push(key),
            SlowConsumer::DropOldest | SlowConsumer::DropNewest => {
                if conn.output.outbox.has_passed_mark() {
                    self.queue_for_flushing(key);
                }
            }
        }
        false
    }

    /// Defers a delivery until a connection's outbox has room. `is_accepted`: a RECEIPT for it may have been sent.
    pub fn defer(&mut self, outbox_limit: usize, key: ConnKey, waiting: Waiting, is_accepted: bool) {
        let Some(conn) = self.table.get_mut(key) else { return };
        let deferred = conn.output.deferred.get_or_insert_default();
        deferred.accepted += usize::from(is_accepted);
        let is_first = deferred.push(waiting);
        if conn.output.outbox.bytes() <= outbox_limit / 2 && !deferred.is_listed {
            deferred.is_listed = true;
            self.refill.push_back(key);
        }
        if is_first && !conn.output.is_full() {
            self.newly_full.push(key);
        }
    }
}
