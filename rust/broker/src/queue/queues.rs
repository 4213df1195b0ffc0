//! All that has its home on one shard: queues, stale and retained messages, replays of them, room for transactions.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use super::consumer_states::ConsumerStates;
use super::durable::Binding;
use super::home::Home;
use super::initial_replay::PendingReplay;
use super::orphans::Orphans;
use super::prepared::{Prepared, PreparedCommit};
use super::replays::Replays;
use super::retained::Retained;
use super::revival::Revival;
use super::stale::{Stale, StaleCounts};
use crate::collections::spread::Map;
use crate::config::Config;
use crate::ids::{QueueKey, ShardId, Subscriber};
use crate::store::Memory;

/// What has its home on one shard.
#[derive(Debug)]
pub struct Queues {
    /// The queues.
    pub home: Home,
    /// The subscriptions of this shard that consume queues, wherever those have their home.
    pub consumers: ConsumerStates,
    /// Messages that wait for a subscriber (`TTL`).
    pub stale: Stale,
    /// Last values of topics.
    pub retained: Retained,
    /// When the first stale or retained message expires, as far as the timers know.
    pub next_expiry_ms: u64,
    /// Topics that feed the queues of durable subscriptions.
    pub bindings: Map<QueueKey, Binding>,
    /// New subscriptions that are to get what this home holds, once nothing older is on its way here.
    pub pending_replays: Map<Subscriber, PendingReplay>,
    /// What this home holds of the past, on its way to them.
    pub replays: Replays,
    /// Room that is kept for transactions.
    pub prepared: Map<Prepared, PreparedCommit>,
    /// Messages to worker topics on their way to consumers that have come.
    pub revivals: VecDeque<Box<Revival>>,
    /// Temporary queues that are to be removed.
    pub orphans: VecDeque<Orphans>,
    /// How many of its queues are in the broker's count.
    pub counted: usize,
}

impl Queues {
    /// None yet; `stale` and `retained` count those of all shards.
    #[must_use]
    pub fn new(
        id: ShardId,
        config: &Config,
        hasher: foldhash::fast::RandomState,
        stale: Arc<StaleCounts>,
        retained: Arc<AtomicUsize>,
    ) -> Self {
        Queues {
            home: Home::new(config, hasher, Box::new(Memory)),
            consumers: ConsumerStates::default(),
            stale: Stale::new(id, stale),
            retained: Retained::new(retained),
            next_expiry_ms: u64::MAX,
            bindings: Map::default(),
            pending_replays: Map::default(),
            replays: Replays::default(),
            prepared: Map::default(),
            revivals: VecDeque::new(),
            orphans: VecDeque::new(),
            counted: 0,
        }
    }
}
