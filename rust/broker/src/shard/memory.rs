//! What a shard does about memory: it holds publishers back near `memory_limit`, and gives back what is free.
//!
//! Publishers pause at 80 % of the limit and go on under 70 %. What is held decides who makes room. Outboxes: the largest
//! count as full, so their consumers read or go. Input, that is SENDs which wait or have arrived in part: pausing all of
//! their senders would keep it for ever, so they go on one at a time, until its SEND has passed or its turn is over.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::Shard;
use super::parking::Pause;
use crate::config::SlowConsumer;
use crate::ids::ConnKey;
use crate::io::conn::Phase;
use crate::log::Level;

/// How often the outboxes are compared while memory is short.
const OUTBOX_CHECK_MS: u64 = 100;
/// How long one connection may go on while the others wait.
const EXEMPTION_MS: u64 = 100;
/// Its turn is over, too, when nothing has come from it for this long.
const SILENCE_MS: u64 = 10;
/// Memory is given back to the system once this many bytes less are held than at the peak…
const RECLAIM_BYTES: i64 = 16 << 20;
/// …for this long: what the next burst wants again is better kept.
const RECLAIM_MS: u64 = 2000;

/// What a shard knows of memory: its own and the broker's.
#[derive(Debug, Default)]
pub(super) struct MemoryState {
    /// Publishers pause.
    pub is_short: bool,
    /// The connection that may go on all the same, and since when.
    exempt: Option<(ConnKey, u64)>,
    next_outbox_check_ms: u64,
    /// Most that all shards held since this one last gave memory back.
    peak: i64,
    /// Most that they held since it last thought of that.
    recent_peak: i64,
    next_reclaim_ms: u64,
}

impl Shard {
    /// Whether a connection may send although memory is short: it holds deliveries, and what it sends may be what lets
    /// it acknowledge them; or it is the one whose turn it is.
    pub(super) fn may_exceed(&self, key: ConnKey) -> bool {
        let holds =
            self.conns.get(key).and_then(|conn| conn.flight.as_ref()).is_some_and(|it| it.unacked > 0);
        let limit = i64::try_from(self.config.memory_limit).unwrap_or(i64::MAX);
        (holds || self.has_turn(key)) && self.shared.memory.load(Ordering::Relaxed) < limit / 100 * 95
    }

    /// Whether this is the connection that may go on while memory is short.
    pub(super) fn has_turn(&self, key: ConnKey) -> bool {
        self.memory.exempt.is_some_and(|(exempt, _)| exempt == key)
    }

    /// Whether a large message fits below `memory_limit` now: each interested shard will hold a copy. Where little is
    /// held it is let through in any case, or it would wait for ever.
    pub(super) fn has_memory_for(&mut self, message_bytes: usize, shards: u64) -> bool {
        self.count_memory();
        let copies = i64::from(shards.count_ones()) + 2;
        let limit = i64::try_from(self.config.memory_limit).unwrap_or(i64::MAX);
        let held = self.shared.memory.load(Ordering::Relaxed);
        let wanted = i64::try_from(message_bytes).unwrap_or(i64::MAX).saturating_mul(copies);
        let fits = held < limit / 4 || held.saturating_add(wanted) < limit / 10 * 9;
        self.memory.is_short |= !fits; // so that it is looked at again soon
        fits
    }

    /// Compares what is held with `memory_limit`.
    pub(super) fn look_at_memory(&mut self) {
        let limit = i64::try_from(self.config.memory_limit).unwrap_or(i64::MAX);
        let held = self.shared.memory.load(Ordering::Relaxed);
        let was_short = self.memory.is_short;
        // Paused at 80 %, on again at 70 %, so that it does not flap.
        self.memory.is_short = held >= limit / 10 * if was_short { 7 } else { 8 };
        if was_short && !self.memory.is_short {
            self.memory.exempt = None;
            self.retry_parked(&[Pause::Memory, Pause::Arriving]);
        }
        if self.memory.is_short && self.now_ms >= self.memory.next_outbox_check_ms {
            if !was_short {
                self.log(Level::Warn, || {
                    format!("{held} bytes are held, memory_limit is {limit}: publishers pause")
                });
            }
            self.memory.next_outbox_check_ms = self.now_ms + OUTBOX_CHECK_MS;
            self.fill_largest_outboxes();
        }
        if self.memory.is_short {
            self.let_one_go_on();
        }
    }

    /// Gives memory back to the system when there is nothing else to do and much less was held for a while than before.
    /// Whoever reads a message frees it, but only the thread that allocated it can give its page back.
    pub(super) fn reclaim_if_idle(&mut self) {
        let held = self.shared.memory.load(Ordering::Relaxed);
        let memory = &mut self.memory;
        memory.recent_peak = memory.recent_peak.max(held);
        memory.peak = memory.peak.max(held);
        if self.now_ms < memory.next_reclaim_ms {
            return;
        }
        let unused = memory.peak - memory.recent_peak;
        if unused < RECLAIM_BYTES {
            memory.next_reclaim_ms = self.now_ms + RECLAIM_MS;
            memory.recent_peak = held;
        } else if !self.has_work() {
            self.memory.peak = held;
            (self.shared.reclaim)();
        }
    }

    /// When to look again: others may free what this shard allocated without a word to it.
    pub(super) fn reclaim_timeout(&self) -> Option<Duration> {
        (self.memory.peak >= RECLAIM_BYTES).then_some(Duration::from_millis(RECLAIM_MS))
    }

    /// Gives the next connection its turn, where most of what this shard holds is input.
    fn let_one_go_on(&mut self) {
        if let Some((key, since_ms)) = self.memory.exempt {
            let conn = self.conns.get(key).filter(|conn| conn.phase == Phase::Open && !conn.wait.is_on());
            if let Some(conn) = conn.filter(|conn| conn.wait.has_held()) {
                let silent_ms = self.now_ms - conn.read_ms.max(since_ms);
                if self.now_ms - since_ms < EXEMPTION_MS && silent_ms < SILENCE_MS {
                    return;
                }
                self.park(key, Pause::Arriving); // behind the others
            }
            self.memory.exempt = None;
        }
        if self.input_bytes as i64 * 2 < self.counted_bytes {
            return;
        }
        if let Some(key) = self.parking.first_of(&[Pause::Memory, Pause::Arriving]) {
            self.memory.exempt = Some((key, self.now_ms));
            self.unpark(key);
        }
    }

    /// The largest outboxes count as full while memory is short.
    fn fill_largest_outboxes(&mut self) {
        let largest = self.conns.iter().map(|(_, conn)| conn.outbox.bytes()).max().unwrap_or(0);
        if largest < 64 << 10 {
            return;
        }
        let chosen: Vec<ConnKey> = self
            .conns
            .iter()
            .filter(|(_, conn)| conn.phase == Phase::Open && conn.outbox.bytes() > largest / 2)
            .map(|(key, _)| key)
            .collect();
        for key in chosen {
            match self.config.slow_consumer {
                SlowConsumer::Block(_) => self.mark_full(key),
                SlowConsumer::Disconnect => self.cut_off(key),
                SlowConsumer::DropOldest | SlowConsumer::DropNewest => {
                    if let Some(conn) = self.conns.get_mut(key) {
                        let dropped = conn.outbox.drop_oldest(&mut self.chunks, largest / 2);
                        self.counters.dropped += dropped as u64;
                    }
                }
            }
        }
    }
}
