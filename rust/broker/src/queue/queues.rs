//! All state that has its home on one shard: queues, stale and retained messages, their replays, reservations.

use std::collections::VecDeque;
use std::sync::Arc;

use super::consumer_states::ConsumerStates;
use super::durable::Binding;
use super::home::Home;
use super::initial_replay::PendingReplay;
use super::orphans::Orphans;
use super::prepared::{Prepared, PreparedCommit};
use super::replays::Replays;
use super::restored::Restoration;
use super::retained::{Retained, RetainedCount};
use super::revival::Revival;
use super::stale::{Stale, StaleCounts};
use crate::collections::spread::Map;
use crate::config::Config;
use crate::ids::{QueueKey, ShardId, Subscriber};
use crate::recorded::Recorded;
use crate::store::Store;

/// The state that has its home on one shard.
#[derive(Debug)]
pub struct Queues {
    /// The queues.
    pub home: Home,
    /// The subscriptions of this shard that consume queues, whichever their homes.
    pub consumers: ConsumerStates,
    /// Stale messages (`TTL`).
    pub stale: Stale,
    /// Retained messages.
    pub retained: Retained,
    /// Recorded destinations.
    pub recorded: Recorded,
    /// The time at which the first stale or retained message expires, as set in the timers.
    pub next_expiry_ms: u64,
    /// The topics that feed the queues of durable subscriptions.
    pub bindings: Map<QueueKey, Binding>,
    /// New subscriptions whose replay begins when all shards know them.
    pub pending_replays: Map<Subscriber, PendingReplay>,
    /// Replays to new subscriptions that have begun.
    pub replays: Replays,
    /// Room that is reserved for transactions.
    pub prepared: Map<Prepared, PreparedCommit>,
    /// Stale messages to worker topics on their way to new consumers.
    pub revivals: VecDeque<Box<Revival>>,
    /// Temporary queues that have to be removed.
    pub orphans: VecDeque<Orphans>,
    /// The number of its queues that the broker's count includes.
    pub counted: usize,
    /// What the store has for this home and was not restored yet.
    pub(crate) restoration: Option<Box<Restoration>>,
}

impl Queues {
    /// No queues; `stale` and `retained` are the counts of all shards.
    #[must_use]
    pub fn new(
        id: ShardId,
        config: &Config,
        hasher: crate::door::HashState,
        stale: Arc<StaleCounts>,
        retained: Arc<RetainedCount>,
        store: Box<dyn Store>,
    ) -> Self {
        Queues {
            home: Home::new(config, hasher, store).on(id),
            consumers: ConsumerStates::default(),
            stale: Stale::new(id, stale),
            retained: Retained::new(retained),
            recorded: Recorded::new(id),
            next_expiry_ms: u64::MAX,
            bindings: Map::default(),
            pending_replays: Map::default(),
            replays: Replays::default(),
            prepared: Map::default(),
            revivals: VecDeque::new(),
            orphans: VecDeque::new(),
            counted: 0,
            restoration: None,
        }
    }

    /// Whether new subscriptions still wait for stale and retained messages of this home.
    pub fn has_replays(&self) -> bool {
        !self.replays.all.is_empty() || !self.pending_replays.is_empty()
    }
}
