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
use crate::ids::{ConnKey, ShardId};
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
            true => self.allowance_of(load.name).is_some(),
            false => self.memory.passing.take(hash, load.bytes),
        };
        if passes {
            self.memory.passing.leave(key);
        } else if self.memory.passing.wait(hash, load.name, home, key) && home != self.turn.id {
            self.tell(home, MemoryNote::MayPass(load.name.into()));
        }
        passes
    }

    /// What may be sent to a name whose home is here, while memory is short.
    pub(super) fn allowance_of(&mut self, name: &[u8]) -> Option<Allowance> {
        let drops_unmatched = self.turn.config.ttl_ms == 0;
        let allowance = match (self.queues.home.find(name), self.router.kind(name)) {
            (Some(queue), Kind::WorkerTopic)
                if drops_unmatched
                    && self
                        .queues
                        .home
                        .queue(queue)
                        .is_some_and(|queue| self.queues.home.consumers_of(queue) == 0) =>
            {
                Some(Allowance::MOST)
            }
            (Some(queue), _) => self.queues.home.allowance(queue),
            // It has gone with its owner, and what is sent to it is dropped.
            (None, Kind::TemporaryQueue) => Some(Allowance::MOST),
            (None, Kind::WorkerTopic) if drops_unmatched && !self.queues.home.has_patterns() => {
                Some(Allowance::MOST)
            }
            (None, _) => self.queues.home.allowance_of_new(name),
        };
        self.count_visits();
        allowance
    }

    /// Another shard has SENDs for a queue of this home that wait.
    pub(super) fn tell_allowance(&mut self, from: ShardId, name: &[u8]) {
        self.turn.budget.visit(1);
        if let Some(allowance) = self.allowance_of(name) {
            let hash = self.turn.hasher.hash_one(name);
            self.tell(from, MemoryNote::Passes(hash, allowance));
        }
    }

    /// A name may be sent to: those that wait for it try again, as many as may pass.
    pub(super) fn let_pass(&mut self, hash: u64, allowance: Allowance, remember: bool) {
        for key in self.memory.passing.allow(hash, allowance, remember) {
            if self.connections.table.get(key).is_some_and(|conn| conn.wait.pause() == Some(Pause::Kept)) {
                self.unpark(key);
            }
        }
    }

    /// Asks again for the names that SENDs wait for.
    pub(super) fn ask_who_may_pass(&mut self) {
        for (hash, name, home) in self.memory.passing.next_round(self.turn.now_ms) {
            self.turn.budget.visit(1);
            if home != self.turn.id {
                self.tell(home, MemoryNote::MayPass(name));
            } else if let Some(allowance) = self.allowance_of(&name) {
                self.let_pass(hash, allowance, false);
            }
        }
    }

    /// Memory is free again.
    pub(super) fn let_all_pass(&mut self) {
        self.memory.passing.clear();
        self.retry_parked(&[Pause::Memory, Pause::Kept]);
    }
}
