//! Admission of SENDs while memory is short: messages that no queue keeps are admitted until 95 % of `memory_limit`
//! is used.
//!
//! ```text
//! SEND ─► topic: admitted, unless a subscription's private queue would keep it
//!      ─► queue: does a consumer have credit? ── its home is here ──► check
//!                                             └─ elsewhere ─► AllowanceRequest ─► home ─► AllowanceGrant: number of messages
//! ```
//! A SEND to a queue that would keep it waits ([`Pause::Kept`]); its home is asked again until the SEND is admitted,
//! or memory is free again. So a queue without consumers stops only its own publishers.

use std::hash::BuildHasher as _;

use super::Owners;
use crate::collections::line::Line;
use crate::connection::pausing::Pause;
use crate::destination::Kind;
use crate::door::HashMap;
use crate::door::planted;
use crate::ids::{ConnKey, ShardId};
use crate::mail::peers::Peers;
use crate::queue::allowance::Allowance;
use crate::queue::mail::MemoryNote;
use crate::router::Destination;
use crate::text::{BLOCK_BYTES, Text};
use crate::turn::Turn;

/// A body of this size is compared with `memory_limit` separately; smaller ones together, once per turn.
pub(crate) const LARGE_BODY: usize = 64 << 10;

/// The interval at which homes are asked again.
pub(crate) const ROUND_MS: u64 = 10;

/// The number of names that are asked for at a time.
pub(crate) const ROUND_MAX: usize = 64;

/// The number of names with an allowance that a shard remembers.
pub(crate) const GRANTS_MAX: usize = 1024;

/// The properties of a SEND that decide whether it has to wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load<'a> {
    /// The full name of its destination.
    pub name: &'a [u8],
    /// Its destination.
    pub destination: Destination,
    /// The other shards that receive it.
    pub shards: u64,
    /// The maximum of deliveries at each of them; 0: few.
    pub fan_out_size: usize,
    /// Whether one of its receivers' outboxes is full.
    pub is_full: bool,
    /// The size of its body.
    pub bytes: usize,
    /// It is kept in any case: in a transaction, or as a retained message.
    pub kept: bool,
}

impl Load<'_> {
    /// Whether the SEND is admitted without a closer look, as most are.
    #[inline]
    pub(crate) fn is_admitted(&self, turn: &Turn, peers: &Peers) -> bool {
        let busy = &peers.busy;
        self.shards & (busy.congested | busy.saturated) == 0
            && !self.is_full
            && !turn.memory.is_short
            && self.bytes < LARGE_BODY
    }
}

/// SENDs to one name that wait until its queue delivers new messages.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) name: Text,
    pub(crate) home: ShardId,
    pub(crate) conns: Line<ConnKey>,
    /// The place of the name in the list of names.
    pub(crate) place: u64,
}

/// Names that may be sent to while memory is short, and the SENDs that wait; by the hash of the name. A connection
/// waits for at most one name, and a name is removed with the last connection that waits for it.
#[derive(Debug, Default)]
pub(crate) struct Admission {
    pub(crate) grants: HashMap<u64, Allowance>,
    pub(crate) waiting: HashMap<u64, Waiting>,
    /// The name that each connection waits for, and its place there.
    pub(crate) wanted: HashMap<ConnKey, (u64, u64)>,
    /// The order in which homes are asked.
    pub(crate) round: Line<u64>,
    pub(crate) next_round_ms: u64,
}

impl Admission {
    /// Takes one message from the allowance of a home; false if it is used up.
    pub(crate) fn take(&mut self, hash: u64, bytes: usize) -> bool {
        let Some(grant) = self.grants.get_mut(&hash) else { return false };
        grant.messages -= 1;
        grant.bytes -= i64::try_from(bytes).unwrap_or(i64::MAX);
        if grant.messages <= 0 || grant.bytes <= 0 {
            self.grants.remove(&hash);
        }
        true
    }

    /// Makes a connection wait for a name, at its old place if it has one; true if it is the first one.
    pub(crate) fn wait(&mut self, hash: u64, name: &[u8], home: ShardId, key: ConnKey) -> bool {
        if self.wanted.get(&key).is_some_and(|(wanted, _)| *wanted == hash) {
            return false;
        }
        self.leave(key);
        let is_first = !self.waiting.contains_key(&hash);
        let round = &mut self.round;
        let waiting = self.waiting.entry(hash).or_insert_with(|| Waiting {
            name: name.into(),
            home,
            conns: Line::default(),
            place: round.push(hash),
        });
        self.wanted.insert(key, (hash, waiting.conns.push(key)));
        is_first
    }

    /// Ends the wait of a connection; the name is removed with the last one.
    pub(crate) fn leave(&mut self, key: ConnKey) {
        let Some((hash, place)) = self.wanted.remove(&key) else { return };
        if let Some(waiting) = self.waiting.get_mut(&hash) {
            waiting.conns.leave(place);
            self.forget_if_unwanted(hash);
        }
    }

    pub(crate) fn forget_if_unwanted(&mut self, hash: u64) {
        if self.waiting.get(&hash).is_some_and(|waiting| waiting.conns.is_empty())
            && let Some(gone) = self.waiting.remove(&hash)
        {
            self.round.leave(gone.place);
        }
    }

    /// Adds an allowance for a name; returns the connections that retry.
    pub(crate) fn allow(&mut self, hash: u64, allowance: Allowance, remember: bool) -> Vec<ConnKey> {
        if remember {
            if self.grants.len() >= GRANTS_MAX {
                self.grants.clear();
            }
            self.grants.insert(hash, allowance);
        }
        let Some(waiting) = self.waiting.get_mut(&hash) else { return Vec::new() };
        let count = waiting.conns.len().min(usize::try_from(allowance.messages).unwrap_or(0));
        let chosen: Vec<ConnKey> = (0..count).filter_map(|_| waiting.conns.pop()).collect();
        for key in &chosen {
            self.wanted.remove(key);
        }
        self.forget_if_unwanted(hash);
        chosen
    }

    /// The names to ask for now.
    pub(crate) fn next_round(&mut self, now_ms: u64) -> Vec<(u64, Box<[u8]>, ShardId)> {
        if now_ms < self.next_round_ms {
            return Vec::new();
        }
        self.next_round_ms = now_ms + ROUND_MS;
        let mut names = Vec::new();
        for _ in 0..self.round.len().min(ROUND_MAX) {
            let Some(hash) = self.round.pop() else { break };
            if let Some(waiting) = self.waiting.get_mut(&hash) {
                names.push((hash, waiting.name[..].into(), waiting.home));
                waiting.place = self.round.push(hash);
            }
        }
        names
    }

    /// Ends all waits when memory is free again.
    pub(crate) fn clear(&mut self) {
        *self = Admission::default();
    }

    /// The approximate memory of its tables; the names are counted separately.
    pub(crate) fn held_bytes(&self) -> usize {
        const NAME_BYTES: usize = size_of::<(u64, Waiting)>() + Line::<u64>::bytes_of_one() + BLOCK_BYTES;
        const CONN_BYTES: usize = size_of::<(ConnKey, (u64, u64))>() + Line::<ConnKey>::bytes_of_one();
        self.waiting.len() * NAME_BYTES
            + self.wanted.len() * CONN_BYTES
            + self.grants.len() * size_of::<(u64, Allowance)>()
    }
}

impl Owners<'_> {
    /// The reason why a SEND has to wait, if there is one.
    pub fn pause_for(&mut self, key: ConnKey, load: &Load<'_>) -> Option<Pause> {
        if load.shards & self.peers.busy.congested != 0 {
            Some(Pause::Mailbox)
        } else if load.fan_out_size > 0 && load.shards & self.peers.busy.saturated != 0 {
            Some(Pause::LargeFanOut)
        } else if load.is_full {
            Some(Pause::SlowConsumer)
        } else if self.turn.memory.is_short || load.bytes >= LARGE_BODY {
            self.pause_for_memory(key, load)
        } else {
            None
        }
    }

    /// The reason why a SEND has to wait for memory, if there is one.
    #[cold]
    pub fn pause_for_memory(&mut self, key: ConnKey, load: &Load<'_>) -> Option<Pause> {
        let large = load.bytes >= LARGE_BODY;
        let mut wanted = 0;
        if large {
            self.count_memory();
            // Each interested shard will hold a copy.
            let copies = i64::from(load.shards.count_ones()) + 2;
            wanted = i64::try_from(load.bytes).unwrap_or(i64::MAX).saturating_mul(copies);
        }
        if planted!("memory-without-end") {
            return None;
        }
        let limit = self.turn.memory_limit();
        let held = self.turn.held_bytes();
        // While usage is low a large message is admitted in any case; otherwise it would wait forever.
        let fits = !large || held < limit / 4 || held.saturating_add(wanted) < limit / 10 * 9;
        if !self.turn.memory.is_short && fits {
            return None;
        }
        let pause = if held >= limit / 100 * 95 {
            Some(Pause::Memory)
        } else if self.may_exceed(key) {
            None
        } else if !load.kept && self.is_admitted(key, load) && !(fits && planted!("passing-sends-wait")) {
            (!fits).then_some(Pause::Memory)
        } else {
            Some(Pause::Kept)
        };
        if pause.is_some() && !self.turn.memory.is_short {
            self.turn.memory.lacks_room(self.turn.now_ms);
        }
        pause
    }

    /// Whether no shard will keep the message; if it has to wait for that, its connection is remembered.
    fn is_admitted(&mut self, key: ConnKey, load: &Load<'_>) -> bool {
        let Destination { kind, home, .. } = load.destination;
        match kind {
            Kind::Queue | Kind::WorkerTopic | Kind::TemporaryQueue => {}
            _ => {
                let destination = load.destination;
                return !self.queue().waits_for_subscriber(destination)
                    && !self.router.has_growing_queue(destination);
            }
        }
        let hash = self.turn.hasher.hash_one(load.name);
        let passes = match home == self.turn.id {
            true => self.queue().allowance_of(load.name).is_some(),
            false => self.deliveries.admission.take(hash, load.bytes),
        };
        if passes {
            self.deliveries.admission.leave(key);
        } else if self.deliveries.admission.wait(hash, load.name, home, key) && home != self.turn.id {
            self.notes.tell(home, MemoryNote::AllowanceRequest(load.name.into()));
        }
        passes
    }

    /// Makes connections that wait for a name retry, as many as the allowance permits.
    pub fn admit(&mut self, hash: u64, allowance: Allowance, remember: bool) {
        for key in self.deliveries.admission.allow(hash, allowance, remember) {
            if self.connections.table.get(key).is_some_and(|conn| conn.wait.pause() == Some(Pause::Kept)) {
                self.connections.unpark(self.turn, key);
            }
        }
    }

    /// Asks homes again for the names that SENDs wait for.
    pub fn request_allowances(&mut self) {
        for (hash, name, home) in self.deliveries.admission.next_round(self.turn.now_ms) {
            self.turn.budget.visit(1);
            if home != self.turn.id {
                self.notes.tell(home, MemoryNote::AllowanceRequest(name));
            } else if let Some(allowance) = self.queue().allowance_of(&name) {
                self.admit(hash, allowance, false);
            }
        }
    }

    /// Lets all SENDs that wait for memory continue, since it is free again.
    pub fn admit_all(&mut self) {
        self.deliveries.admission.clear();
        if planted!("kept-sends-not-retried", if self.connections.parking.first_of(&[Pause::Kept]).is_some())
        {
            return self.connections.retry_parked(&[Pause::Memory]);
        }
        self.connections.retry_parked(&[Pause::Memory, Pause::Kept]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::held;

    fn conn(index: u32) -> ConnKey {
        ConnKey { index, generation: 1 }
    }

    #[test]
    fn no_more_are_admitted_than_allowed() {
        let mut admission = Admission::default();
        assert!(!admission.take(1, 10));
        admission.allow(1, Allowance { messages: 2, bytes: 100 }, true);
        assert!(admission.take(1, 10) && admission.take(1, 10) && !admission.take(1, 10));
        admission.allow(1, Allowance { messages: 9, bytes: 100 }, true);
        assert!(
            admission.take(1, 99) && admission.take(1, 99) && !admission.take(1, 1),
            "the last one may exceed the bytes"
        );
    }

    #[test]
    fn waiting_connections_retry_in_order_within_the_allowance() {
        let mut admission = Admission::default();
        assert!(admission.wait(1, b"/queue/a", ShardId(0), conn(1)));
        assert!(!admission.wait(1, b"/queue/a", ShardId(0), conn(2)));
        assert!(admission.wait(2, b"/queue/b", ShardId(1), conn(3)));
        let allowance = Allowance { messages: 1, bytes: 1 };
        assert_eq!(admission.allow(1, allowance, false), [conn(1)]);
        let asked: Vec<_> = admission.next_round(5).into_iter().map(|(hash, ..)| hash).collect();
        assert_eq!(asked, [1, 2]);
        assert!(admission.next_round(6).is_empty(), "the interval is not over");
        assert_eq!(admission.allow(1, allowance, false), [conn(2)]);
        let asked: Vec<_> = admission.next_round(50).into_iter().map(|(hash, ..)| hash).collect();
        assert_eq!(asked, [2]);
    }

    #[test]
    fn connections_that_leave_repeatedly_leave_nothing_behind() {
        let mut admission = Admission::default();
        let names_bytes = held::bytes();
        for at in 0..100 {
            let name = format!("/queue/{at}");
            assert!(
                admission.wait(at, name.as_bytes(), ShardId(1), conn(1)),
                "it waits for one name at a time"
            );
            assert!(!admission.wait(at, name.as_bytes(), ShardId(1), conn(1)), "a retry keeps its place");
            assert_eq!((admission.waiting.len(), admission.wanted.len(), admission.round.len()), (1, 1, 1));
        }
        assert!(!admission.wait(99, b"/queue/99", ShardId(1), conn(2)));
        admission.leave(conn(1));
        let asked = admission.next_round(5);
        assert_eq!((asked.len(), admission.waiting[&99].conns.len()), (1, 1));
        assert!(admission.held_bytes() > 0 && held::bytes() > names_bytes);
        admission.leave(conn(2));
        admission.leave(conn(2));
        assert!(admission.waiting.is_empty() && admission.wanted.is_empty() && admission.round.is_empty());
        assert_eq!((admission.held_bytes(), held::bytes()), (0, names_bytes));
    }
}
