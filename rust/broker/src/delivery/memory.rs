//! Reactions to memory usage: pauses publishers near `memory_limit`, and counts the memory of this shard.
//!
//! From 80 % of the limit, SENDs wait if their messages would be kept, until usage is under 70 %; from 95 %, all
//! others wait too ([`super::admission`]). Meanwhile the largest outboxes count as full, so that their consumers read
//! or are cut off. A connection with unacknowledged deliveries waits only from 95 % on; one that gets some while it
//! waits is tried again within 100 ms.

use super::{Deliveries, Owners};
use crate::config::SlowConsumer;
use crate::connection::Connections;
use crate::connection::pausing::Pause;
use crate::door::planted;
use crate::held;
use crate::ids::ConnKey;
use crate::log::Level;
use crate::queue::queues::Queues;
use crate::router::Router;
use crate::turn::Turn;

/// The interval of checks of outboxes while memory is short.
const OUTBOX_CHECK_MS: u64 = 100;
/// The share of `memory_limit` from which the largest outboxes are treated as full, if they have [`LARGE_OUTBOX`].
const OUTBOX_SHARE: u64 = 8;
/// The bytes from which an outbox is large while less than 95 % of `memory_limit` is held.
pub(super) const LARGE_OUTBOX: usize = 64 << 10;
/// The share of `memory_limit` that outboxes may take when 95 % of it is held; a part of the last 5 %. Above it fan-outs
/// wait ([`must_wait_for_memory`]), so the largest outboxes are treated as full, however small they are: else those of
/// clients that never read would let fan-outs wait for ever.
const LAST_SHARE: u64 = 32;

/// Whether fan-outs have to wait for memory. While outboxes here hold little, their receivers free what it adds to them, and
/// nobody may free the rest: queues without consumers, or input that waits for the end of the fan-out.
pub(crate) fn must_wait_for_memory(turn: &Turn, connections: &Connections) -> bool {
    let share = turn.config.memory_limit / LAST_SHARE / turn.shards as u64;
    turn.is_out_of_memory() && connections.chunks.held_bytes() as u64 >= share
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

    /// Compares usage with `memory_limit`, and pauses or resumes publishers.
    pub fn check_memory(&mut self) {
        let (held, limit) = (self.turn.held_bytes(), self.turn.memory_limit());
        let was_short = self.turn.memory.is_short;
        self.turn.memory.compare(held, limit);
        if self.turn.memory.takes_large_retry(self.turn.now_ms) || (was_short && !self.turn.memory.is_short) {
            self.admit_all();
        }
        if self.deliveries.growing_queues.len() > 0 {
            self.check_growing_queues();
        }
        if self.turn.memory.is_short {
            self.request_allowances();
        }
        if self.turn.memory.is_short && self.turn.now_ms >= self.deliveries.next_outbox_check_ms {
            if !was_short {
                self.turn.log(Level::Warn, || {
                    format!("{held} bytes are held, memory_limit is {limit}: publishers pause")
                });
            }
            self.deliveries.next_outbox_check_ms = self.turn.now_ms + OUTBOX_CHECK_MS;
            self.fill_largest_outboxes();
            if held < limit / 100 * 95 {
                self.connections.retry_parked(&[Pause::Memory]);
                self.resume_holders();
            }
        }
    }

    /// Resumes connections that have got deliveries since they began to wait: their ACKs may follow the SEND that waits.
    fn resume_holders(&mut self) {
        let parking = &self.connections.parking;
        let waiting = [Pause::Kept, Pause::Arriving].into_iter().flat_map(|pause| parking.waiting_for(pause));
        let waiting: Vec<ConnKey> = waiting.collect();
        self.turn.budget.visit(waiting.len() / 16);
        for key in waiting {
            if self.may_exceed(key) && !planted!("waiting-consumer-forgotten") {
                self.deliveries.admission.leave(key);
                self.connections.unpark(self.turn, key);
            }
        }
    }

    /// Treats the largest outboxes as full while memory is short, if outboxes hold a relevant part of it.
    fn fill_largest_outboxes(&mut self) {
        let in_outboxes =
            (self.connections.chunks.held_bytes() as u64).saturating_mul(self.turn.shards as u64);
        let fan_outs_wait = must_wait_for_memory(self.turn, self.connections);
        if !fan_outs_wait && in_outboxes < self.turn.config.memory_limit / OUTBOX_SHARE {
            return; // other uses take most of it
        }
        let largest =
            self.connections.table.iter().map(|(_, conn)| conn.output.outbox.bytes()).max().unwrap_or(0);
        if largest < if fan_outs_wait { 1 } else { LARGE_OUTBOX } {
            return;
        }
        let chosen: Vec<ConnKey> = self
            .connections
            .table
            .iter()
            .filter(|(_, conn)| conn.life.is_open() && conn.output.outbox.bytes() > largest / 2)
            .map(|(key, _)| key)
            .collect();
        for key in chosen {
            match self.turn.config.slow_consumer {
                SlowConsumer::Block(_) => self.connections.newly_full.push(key),
                SlowConsumer::Disconnect => self.connections.too_slow.push(key),
                SlowConsumer::DropOldest | SlowConsumer::DropNewest => {
                    if let Some(conn) = self.connections.table.get_mut(key) {
                        let dropped =
                            conn.output.outbox.drop_oldest(&mut self.connections.chunks, largest / 2);
                        self.turn.counters.dropped += dropped as u64;
                    }
                }
            }
        }
    }
}
