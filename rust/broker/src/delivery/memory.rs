//! Reactions to memory usage: pauses publishers near `memory_limit`, and counts the memory of this shard.
//!
//! From 80 % of the limit, SENDs wait if their messages would be kept, until usage is under 70 %; from 95 %, all
//! others wait too ([`super::admission`]). Meanwhile the consumers that most waits for are acted on
//! ([`super::largest`]). A connection with unacknowledged deliveries waits only from 95 % on; one that gets some while it
//! waits is tried again within 100 ms.

use super::{Deliveries, Owners};
use crate::connection::Connections;
use crate::held;
use crate::ids::ConnKey;
use crate::log::Level;
use crate::queue::queues::Queues;
use crate::router::Router;
use crate::turn::Turn;

/// The bytes from which an outbox or a private queue is large while less than 95 % of `memory_limit` is held.
pub(super) const LARGE_OUTBOX: usize = 64 << 10;
/// The share of `memory_limit` that output may take when 95 % of it is held; a part of the last 5 %. Above it fan-outs
/// wait ([`must_wait_for_memory`]), so the consumers that most waits for are acted on, however little it is: else those of
/// clients that never read would let fan-outs wait for ever.
const LAST_SHARE: u64 = 32;

/// The bytes of output that a shard may hold when memory is used up.
pub(crate) fn last_share(turn: &Turn) -> usize {
    usize::try_from(turn.config.memory_limit / LAST_SHARE / turn.shards as u64).unwrap_or(usize::MAX)
}

/// The bytes that this shard owes to consumers: in outboxes, and messages that wait for its subscriptions to topics, or for
/// their ACKs. Those that subscriptions of several shards share count at any of them.
fn output_bytes(connections: &Connections) -> i64 {
    connections.chunks.held_bytes() as i64 + held::owed()
}

/// The bytes that all shards owe to consumers.
pub(super) fn all_output_bytes(turn: &Turn, connections: &Connections) -> i64 {
    turn.output_with(output_bytes(connections))
}

/// Whether fan-outs have to wait for memory. While all shards owe little to consumers, these free what it adds to them, and
/// nobody may free the rest: queues without consumers, or input that waits for the end of the fan-out.
pub(crate) fn must_wait_for_memory(turn: &Turn, connections: &Connections) -> bool {
    turn.is_out_of_memory() && all_output_bytes(turn, connections) >= turn.memory_limit() / LAST_SHARE as i64
}

/// Whether the queues of subscriptions to topics have to wait for memory. Their messages are in memory already, and outboxes
/// that hold little are written soon. They wait only while consumers are acted on, too: else a client that never reads would
/// let them wait for ever.
pub(crate) fn must_wait_for_outboxes(turn: &Turn, connections: &Connections) -> bool {
    must_wait_for_memory(turn, connections) && connections.chunks.held_bytes() >= last_share(turn)
}

impl Deliveries {
    /// Bytes that these owners hold, besides messages and texts, which count themselves.
    #[must_use]
    pub fn held_bytes(&self, connections: &Connections, router: &Router, queues: &Queues) -> usize {
        connections.chunks.held_bytes()
            + connections.input_bytes
            + self.admission.held_bytes()
            + self.growing_queues.held_bytes()
            + router.held_bytes()
            + queues.home.held_bytes()
            + queues.consumers.held_bytes()
            + queues.stale.held_bytes()
            + queues.retained.held_bytes()
            + queues.recorded.held_bytes()
            + self.fan_outs.held_bytes()
            + queues.replays.held_bytes()
    }
}

impl Owners<'_> {
    /// Updates the share of this shard in the broker's total.
    pub fn count_memory(&mut self) {
        let held = self.deliveries.held_bytes(self.connections, self.router, self.queues)
            + self.turn.timers.held_bytes();
        let held = i64::try_from(held).unwrap_or(i64::MAX);
        self.turn.count_memory(held.saturating_add(held::bytes()));
        self.turn.count_output(output_bytes(self.connections));
    }

    /// Whether a connection may send although memory is short: it has deliveries in flight, and their ACKs may follow
    /// its SENDs.
    pub fn may_exceed(&self, key: ConnKey) -> bool {
        let holds = self
            .connections
            .table
            .get(key)
            .and_then(|conn| conn.pending_writes.as_ref())
            .is_some_and(|it| it.unacked > 0);
        holds && !self.turn.is_out_of_memory()
    }

    /// Lets queues of subscriptions to topics deliver as much as memory permits.
    pub fn allow_copies(&mut self) {
        if self.queues.home.holds_copies_back() {
            self.count_memory(); // it has grown since the last time
        }
        let must_wait = must_wait_for_outboxes(self.turn, self.connections);
        self.queues.home.allow_copies(if must_wait { 0 } else { last_share(self.turn).max(1) });
    }

    /// Compares usage with `memory_limit`, and pauses or resumes publishers.
    pub fn check_memory(&mut self) {
        let (held, limit) = (self.turn.held_bytes(), self.turn.memory_limit());
        let was_short = self.turn.memory.is_short;
        self.turn.memory.compare(held, limit, &self.turn.totals.memory_is_short);
        if self.turn.memory.takes_large_retry(self.turn.now_ms) || (was_short && !self.turn.memory.is_short) {
            self.admit_all();
        }
        if self.deliveries.growing_queues.len() > 0 {
            self.check_growing_queues();
        }
        if self.turn.memory.is_short {
            self.request_allowances();
        }
        if was_short && !self.turn.memory.is_short {
            self.deliveries.round.relieve();
        }
        if !self.turn.memory.is_short {
            self.turn.totals.largest.note_free(self.turn.id);
        }
        if !was_short && self.turn.memory.is_short {
            self.turn.totals.largest.expect_all();
            self.deliveries.round.begin_shortage(self.turn.now_ms);
            self.peers.wake_others(); // they may hold what takes the memory, and have nothing else to do
        }
        if self.turn.memory.is_short || self.deliveries.round.is_going() {
            if !was_short && self.turn.memory.is_short {
                self.turn.log(Level::Warn, || {
                    format!("{held} bytes are held, memory_limit is {limit}: publishers pause")
                });
            }
            self.proceed_with_round();
        }
    }
}
