//! COMMITs that were decided, and what is left of transactions of which nothing comes.

use std::collections::{BTreeMap, HashMap, VecDeque};

use crate::collections::paged_deque::PagedDeque;
use crate::connection::Connections;
use crate::connection::pausing::Pause;
use crate::connection::transaction::plan::Plan;
use crate::connection::transaction::{Commit, Operation};
use crate::delivery::Deliveries;
use crate::ids::{ConnKey, ShardId, SubscriptionKey};
use crate::mail::peers::Peers;
use crate::message::options::Verdict;
use crate::queue::consumer_state::ConsumerState;
use crate::queue::mail::{Placed, Reservations};
use crate::router::fan_out::FanOutKey;
use crate::turn::Turn;

/// What is left of a transaction of which nothing comes.
#[derive(Debug)]
pub(crate) struct Discarded {
    pub(crate) operations: PagedDeque<Operation>,
    pub(crate) reservations: Vec<Reservations>,
}

impl Discarded {
    pub(crate) fn len(&self) -> usize {
        self.operations.len() + self.reservations.iter().map(Reservations::len).sum::<usize>()
    }

    /// Forgets a part of it. False if there was none.
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

/// A COMMIT that was decided, as far as it has not taken effect.
#[derive(Debug)]
pub(crate) struct Applying {
    pub(crate) key: ConnKey,
    pub(crate) token: u64,
    /// The plan has the place of each.
    pub(crate) operations: PagedDeque<Operation>,
    /// ACKs and NACKs take effect last, since one may cover very many deliveries.
    pub(crate) acks: PagedDeque<(SubscriptionKey, u64, Verdict)>,
    pub(crate) plan: Plan,
    pub(crate) receipt: Option<Box<[u8]>>,
    /// For each home of the plan, what goes there.
    pub(crate) out: Vec<(ShardId, PagedDeque<Placed>)>,
    pub(crate) obstacle: Option<Obstacle>,
    pub(crate) late: LateOnes,
}

/// What a COMMIT waits for before it goes on.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Obstacle {
    /// Its last message to a topic is on its way to its receivers.
    FanOut(FanOutKey),
    /// 95 % of `memory_limit` is held.
    Memory,
    /// Mailboxes of these shards are over their mark.
    Mailboxes(u64),
    /// These shards have enough messages to route that very many want there.
    Wide(u64),
    /// A receiver's outbox is full; how often one had room again.
    SlowConsumer(u64),
}

/// What is left of subscriptions that went while a COMMIT of theirs takes effect: how they acknowledge, and what they held.
pub(crate) type LateOnes = BTreeMap<SubscriptionKey, Box<ConsumerState>>;

impl Obstacle {
    /// Whether it is still in the way.
    pub(crate) fn stands(
        self,
        turn: &Turn,
        connections: &Connections,
        deliveries: &Deliveries,
        peers: &Peers,
    ) -> bool {
        match self {
            Obstacle::FanOut(fan_out) => deliveries.fan_outs.is_live(fan_out),
            Obstacle::Memory => turn.is_out_of_memory(),
            Obstacle::Mailboxes(shards) => peers.busy.congested & shards != 0,
            Obstacle::Wide(shards) => peers.holds_wide(shards),
            Obstacle::SlowConsumer(retries) => connections.parking.retries(Pause::SlowConsumer) == retries,
        }
    }
}

impl Applying {
    pub(crate) fn new(key: ConnKey, commit: Commit) -> Self {
        let Commit { token, operations, plan, receipt, .. } = commit;
        let out = plan.homes().map(|home| (home, PagedDeque::default())).collect();
        let (acks, obstacle, late) = (PagedDeque::default(), None, LateOnes::new());
        Applying { key, token, operations, acks, plan, receipt, out, obstacle, late }
    }
}

/// The COMMITs of one shard's connections that go on over several turns.
#[derive(Debug, Default)]
pub(crate) struct Commits {
    /// Those that were decided and go on, in their order.
    pub(crate) applying: VecDeque<Box<Applying>>,
    /// Those that were decided and wait for something.
    pub(crate) held: VecDeque<Box<Applying>>,
    /// Transactions of which nothing comes, to be forgotten.
    pub(crate) discarded: VecDeque<Box<Discarded>>,
    /// What is left of subscriptions whose connection has lost them while its COMMIT takes effect.
    pub(crate) late: HashMap<ConnKey, LateOnes>,
}
