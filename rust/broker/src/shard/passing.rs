//! What goes on while memory is short: messages that pass straight through, until 95 % of `memory_limit` is held.
//!
//! ```text
//! SEND ─► topic: passes; but not to a subscription that keeps what comes (keepers.rs)
//!      ─► queue: does a consumer have credit? ── its home is here ──► look
//!                                             └─ elsewhere ─► MayPass ─► home ─► Passes: so many messages
//! ```
//! A SEND to a queue that keeps it waits ([`Pause::Kept`]); its name is asked for again until it passes, or memory is
//! free again. So a queue that nobody reads costs its own publishers only.

use std::hash::BuildHasher as _;

use super::Shard;
use crate::connection::pausing::Pause;
use crate::delivery::passing::{LARGE_BODY, Load};
use crate::destination::Kind;
use crate::ids::ConnKey;
use crate::queue::mail::MemoryNote;
use crate::queue::passing::Allowance;
use crate::router::Destination;

impl Shard {
    /// Why a SEND has to wait for memory, if it has to.
    #[cold]
    pub(crate) fn pause_for_memory(&mut self, key: ConnKey, load: &Load<'_>) -> Option<Pause> {
        let large = load.bytes >= LARGE_BODY;
        let mut wanted = 0;
        if large {
            self.count_memory();
            // Each interested shard will hold a copy.
            let copies = i64::from(load.shards.count_ones()) + 2;
            wanted = i64::try_from(load.bytes).unwrap_or(i64::MAX).saturating_mul(copies);
        }
        let limit = self.turn.memory_limit();
        let held = self.turn.held_bytes();
        // Where little is held a large message is let through in any case, or it would wait for ever.
        let fits = !large || held < limit / 4 || held.saturating_add(wanted) < limit / 10 * 9;
        if !self.turn.memory.is_short && fits {
            return None;
        }
        let pause = if held >= limit / 100 * 95 {
            Some(Pause::Memory)
        } else if self.may_exceed(key) {
            None
        } else if !load.kept && self.passes_straight(key, load) {
            (!fits).then_some(Pause::Memory)
        } else {
            Some(Pause::Kept)
        };
        self.turn.memory.is_short |= pause.is_some(); // so that it is looked at again soon
        pause
    }

    /// Whether nothing of a message will stay; if it has to wait for that, its connection is remembered.
    fn passes_straight(&mut self, key: ConnKey, load: &Load<'_>) -> bool {
        let Destination { kind, home, .. } = load.destination;
        match kind {
            Kind::Queue | Kind::WorkerTopic | Kind::TemporaryQueue => {}
            _ => {
                let destination = load.destination;
                return !self.waits_for_subscriber(destination) && !self.router.has_keeper(destination);
            }
        }
        let hash = self.turn.hasher.hash_one(load.name);
        let passes = match home == self.turn.id {
            true => self.queue().allowance_of(load.name).is_some(),
            false => self.deliveries.passing.take(hash, load.bytes),
        };
        if passes {
            self.deliveries.passing.leave(key);
        } else if self.deliveries.passing.wait(hash, load.name, home, key) && home != self.turn.id {
            self.tell(home, MemoryNote::MayPass(load.name.into()));
        }
        passes
    }

    /// A name may be sent to: those that wait for it try again, as many as may pass.
    pub(super) fn let_pass(&mut self, hash: u64, allowance: Allowance, remember: bool) {
        for key in self.deliveries.passing.allow(hash, allowance, remember) {
            if self.connections.table.get(key).is_some_and(|conn| conn.wait.pause() == Some(Pause::Kept)) {
                self.unpark(key);
            }
        }
    }

    /// Asks again for the names that SENDs wait for.
    pub(super) fn ask_who_may_pass(&mut self) {
        for (hash, name, home) in self.deliveries.passing.next_round(self.turn.now_ms) {
            self.turn.budget.visit(1);
            if home != self.turn.id {
                self.tell(home, MemoryNote::MayPass(name));
            } else if let Some(allowance) = self.queue().allowance_of(&name) {
                self.let_pass(hash, allowance, false);
            }
        }
    }

    /// Memory is free again.
    pub(super) fn let_all_pass(&mut self) {
        self.deliveries.passing.clear();
        self.retry_parked(&[Pause::Memory, Pause::Kept]);
    }
}
