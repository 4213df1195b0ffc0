//! COMMITs that are being applied, and transactions that are being discarded.

use std::collections::{BTreeMap, VecDeque};
use std::mem::take;

use crate::collections::paged_deque::PagedDeque;
use crate::connection::Connections;
use crate::connection::acknowledgement::Acknowledgement;
use crate::connection::pausing::Pause;
use crate::connection::transaction::plan::Plan;
use crate::connection::transaction::{Commit, Operation};
use crate::delivery::Deliveries;
use crate::delivery::memory::must_wait_for_memory;
use crate::door::HashMap;
use crate::ids::{ConnKey, ShardId, SubscriptionKey};
use crate::mail::peers::Peers;
use crate::queue::consumer_state::ConsumerState;
use crate::queue::mail::{Placed, Places, Reservations};
use crate::requester::Requester;
use crate::router::fan_out::FanOutKey;
use crate::store::TransactionId;
use crate::text::Weight;
use crate::turn::Turn;

/// The rest of a transaction that is being discarded.
#[derive(Debug)]
pub(crate) struct Discarded {
    pub(crate) operations: PagedDeque<Operation>,
    pub(crate) reservations: Vec<Reservations>,
}

impl Discarded {
    pub(crate) fn len(&self) -> usize {
        self.operations.len() + self.reservations.iter().map(Reservations::len).sum::<usize>()
    }

    /// Drops a part of it. False if there was none.
    pub(crate) fn forget_one(&mut self) -> bool {
        if self.operations.pop_front().is_some() {
            return true;
        }
        let Some(reservations) = self.reservations.last_mut() else { return false };
        if reservations.pop_front().is_none() {
            self.reservations.pop();
        }
        true
    }
}

/// The rest of a COMMIT that was decided and is being applied.
#[derive(Debug)]
pub(crate) struct Applying {
    pub(crate) key: ConnKey,
    pub(crate) token: u64,
    /// The plan has the place of each operation.
    pub(crate) operations: PagedDeque<Operation>,
    /// The number of operations that were searched for ACKs and NACKs, before the first of them is taken. ACKs and NACKs are
    /// applied first: what they end may take the memory that the SENDs wait for.
    pub(crate) searched: usize,
    pub(crate) acks: PagedDeque<Acknowledgement>,
    pub(crate) plan: Plan,
    /// One of the answers that its RECEIPT waits for: so an ERROR for a later frame waits for it, too.
    pub(crate) requester: Requester,
    /// For each home of the plan, its messages.
    pub(crate) out: Vec<(ShardId, PagedDeque<Placed>)>,
    pub(crate) wait_reason: Option<WaitReason>,
    pub(crate) late: LateOnes,
    /// For each home of the plan, the next place that it keeps for each of its reservations.
    pub(crate) places: Vec<Places>,
    /// Its record in the store of this shard.
    pub(crate) transaction: Option<TransactionId>,
    /// Other shards whose stores have to have what it published, a bit for each.
    pub(crate) concerned: u64,
    /// A message went on to subscriptions in later turns; the calls of the store for these are not in the record.
    pub(crate) has_fanned_out: bool,
    /// Homes have no reserved places for some messages, so the next frame waits until they have all of them: they place
    /// them over several turns, and would handle the next frame at once.
    pub(crate) awaits_homes: bool,
    /// What its operations took at the beginning: it may wait for memory and for receivers without a limit.
    pub(crate) _weight: Weight,
}

/// The reason why a COMMIT waits while it is being applied.
#[derive(Clone, Copy, Debug)]
pub(crate) enum WaitReason {
    /// Its last message to a topic has not reached all recipients.
    FanOut(FanOutKey),
    /// 95 % of `memory_limit` is held, and what waits for consumers is part of it.
    Memory,
    /// It has published as much in this turn as may be added before memory is counted again.
    NextTurn,
    /// The mailboxes of these shards are over their limit.
    Mailboxes(u64),
    /// These shards have enough large fan-outs to route.
    LargeFanOut(u64),
    /// A receiver's outbox is full; the number counts how often one got room again.
    SlowConsumer(u64),
}

/// The remaining state of subscriptions that ended before the ACKs of their COMMIT were applied: their ack mode and their
/// deliveries in flight.
pub(crate) type LateOnes = BTreeMap<SubscriptionKey, Box<ConsumerState>>;

impl WaitReason {
    /// Whether the reason still holds.
    pub(crate) fn stands(
        self,
        turn: &Turn,
        connections: &Connections,
        deliveries: &Deliveries,
        peers: &Peers,
    ) -> bool {
        match self {
            WaitReason::FanOut(fan_out) => deliveries.fan_outs.is_live(fan_out),
            WaitReason::NextTurn => false,
            WaitReason::Memory => must_wait_for_memory(turn, connections),
            WaitReason::Mailboxes(shards) => peers.busy.congested & shards != 0,
            WaitReason::LargeFanOut(shards) => peers.holds_large_fan_outs(shards),
            WaitReason::SlowConsumer(retries) => connections.parking.retries(Pause::SlowConsumer) == retries,
        }
    }
}

impl Applying {
    pub(crate) fn new(
        key: ConnKey,
        commit: Commit,
        requester: Requester,
        transaction: Option<TransactionId>,
    ) -> Self {
        let weight = Weight::new(commit.applied_bytes());
        let Commit { token, operations, plan, places: mut kept, .. } = commit;
        let out = plan.homes().map(|home| (home, PagedDeque::default())).collect();
        let mut places_at = |home| Some(take(&mut kept.iter_mut().find(|(at, _)| *at == home)?.1));
        let places = plan.homes().map(|home| places_at(home).unwrap_or_default()).collect();
        let (acks, wait_reason, late) = (PagedDeque::default(), None, LateOnes::new());
        let concerned = 0;
        Applying {
            key,
            token,
            operations,
            searched: 0,
            acks,
            plan,
            requester,
            out,
            wait_reason,
            late,
            places,
            transaction,
            concerned,
            has_fanned_out: false,
            awaits_homes: false,
            _weight: weight,
        }
    }

    /// The place that a home of the plan keeps for the next message of one of its reservations; `None`: it keeps none.
    pub(crate) fn next_place(&mut self, home: u32, reservation: Option<u32>) -> Option<u64> {
        let next = self.places.get_mut(home as usize)?.get_mut(reservation? as usize)?;
        let place = Some(*next).filter(|place| *place != 0)?;
        *next += 1;
        Some(place)
    }
}

/// The COMMITs of one shard's connections that take several turns.
#[derive(Debug, Default)]
pub(crate) struct Commits {
    /// Those that are being applied, in order.
    pub(crate) applying: VecDeque<Box<Applying>>,
    /// Those that are being applied but have to wait.
    pub(crate) held: VecDeque<Box<Applying>>,
    /// Transactions that are being discarded.
    pub(crate) discarded: VecDeque<Box<Discarded>>,
    /// The remaining state of subscriptions that ended before the ACKs of their connection's COMMIT were applied.
    pub(crate) late: HashMap<ConnKey, LateOnes>,
}
