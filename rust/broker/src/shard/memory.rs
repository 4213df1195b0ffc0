//! What a shard does about memory: it holds publishers back near `memory_limit`, and gives back what is free.
//!
//! From 80 % of the limit on, SENDs wait that would be kept, until it is under 70 %; from 95 % on, all others too
//! ([`super::passing`]). Meanwhile the largest outboxes count as full, so their consumers read or go. Input has a bound
//! of its own ([`crate::connection::unfinished`]).

use std::time::Duration;

use super::Shard;
use crate::config::SlowConsumer;
use crate::connection::pausing::Pause;
use crate::ids::ConnKey;
use crate::log::Level;

/// How often a shard that waits for memory looks again.
const MEMORY_POLL: Duration = Duration::from_millis(10);
/// How often the outboxes are compared while memory is short.
const OUTBOX_CHECK_MS: u64 = 100;
/// Outboxes are acted on from this share of `memory_limit` on.
const OUTBOX_SHARE: u64 = 8;
/// Memory is given back to the system once this many bytes less are held than at the peak…
const RECLAIM_BYTES: i64 = 16 << 20;
/// …for this long: what the next burst wants again is better kept.
const RECLAIM_MS: u64 = 2000;

/// What a shard knows of memory: its own and the broker's.
#[derive(Debug, Default)]
pub(super) struct MemoryState {
    next_outbox_check_ms: u64,
    /// Most that all shards held since this one last gave memory back.
    peak: i64,
    /// Most that they held since it last thought of that.
    recent_peak: i64,
    next_reclaim_ms: u64,
}

impl Shard {
    /// Whether a connection may send although memory is short: it holds deliveries, and its ACKs may be behind what it
    /// sends.
    pub(super) fn may_exceed(&self, key: ConnKey) -> bool {
        let holds = self
            .connections
            .table
            .get(key)
            .and_then(|conn| conn.pending_writes.as_ref())
            .is_some_and(|it| it.unacked > 0);
        holds && !self.turn.is_out_of_memory()
    }

    /// Compares what is held with `memory_limit`.
    pub(super) fn look_at_memory(&mut self) {
        let (held, limit) = (self.turn.held_bytes(), self.turn.memory_limit());
        let was_short = self.turn.memory.is_short;
        self.turn.memory.compare(held, limit);
        if was_short && !self.turn.memory.is_short {
            self.let_all_pass();
        }
        if self.deliveries.keepers.len() > 0 {
            self.delivery().look_at_keepers();
        }
        if self.turn.memory.is_short {
            self.ask_who_may_pass();
        }
        if self.turn.memory.is_short && self.turn.now_ms >= self.memory.next_outbox_check_ms {
            if !was_short {
                self.turn.log(Level::Warn, || {
                    format!("{held} bytes are held, memory_limit is {limit}: publishers pause")
                });
            }
            self.memory.next_outbox_check_ms = self.turn.now_ms + OUTBOX_CHECK_MS;
            self.fill_largest_outboxes();
            if held < limit / 100 * 95 {
                self.retry_parked(&[Pause::Memory]);
            }
        }
    }

    /// The shard ends: what it has counted is held no more.
    pub(super) fn forget_memory(&mut self) {
        self.turn.count_memory(0);
        self.connections.unfinished.forget(&self.turn.totals.unfinished);
    }

    /// Gives memory back to the system when there is nothing else to do and much less was held for a while than before.
    /// Whoever reads a message frees it, but only the thread that allocated it can give its page back.
    pub(super) fn reclaim_if_idle(&mut self) {
        let held = self.turn.held_bytes();
        let memory = &mut self.memory;
        memory.recent_peak = memory.recent_peak.max(held);
        memory.peak = memory.peak.max(held);
        if self.turn.now_ms < memory.next_reclaim_ms {
            return;
        }
        let unused = memory.peak - memory.recent_peak;
        if unused < RECLAIM_BYTES {
            memory.next_reclaim_ms = self.turn.now_ms + RECLAIM_MS;
            memory.recent_peak = held;
        } else if !self.has_work() {
            self.memory.peak = held;
            (self.shared.reclaim)();
        }
    }

    /// When to look again while others may make room without a word to this shard.
    pub(super) fn memory_timeout(&self) -> Option<Duration> {
        let waits = self.turn.memory.is_short
            || self.connections.unfinished.is_over()
            || self.connections.has_arriving();
        // It may have run out since the turn began.
        (waits || self.turn.is_out_of_memory()).then_some(MEMORY_POLL)
    }

    /// When to look again: others may free what this shard allocated without a word to it.
    pub(super) fn reclaim_timeout(&self) -> Option<Duration> {
        (self.memory.peak >= RECLAIM_BYTES).then_some(Duration::from_millis(RECLAIM_MS))
    }

    /// The largest outboxes count as full while memory is short, where outboxes hold a relevant part of it.
    fn fill_largest_outboxes(&mut self) {
        let in_outboxes =
            (self.connections.chunks.held_bytes() as u64).saturating_mul(self.turn.shards as u64);
        if in_outboxes < self.turn.config.memory_limit / OUTBOX_SHARE {
            return; // others fill it, and their consumers can't help that
        }
        let largest =
            self.connections.table.iter().map(|(_, conn)| conn.output.outbox.bytes()).max().unwrap_or(0);
        if largest < 64 << 10 {
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
