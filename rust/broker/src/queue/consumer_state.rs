//! A subscription as the consumer of queues: what its own shard knows of it.

use std::collections::VecDeque;

use stompica_proto::session::AckMode;

use crate::config::SlowConsumer;
use crate::ids::{ConnKey, ConsumerKey, QueueKey, ShardId, SubscriptionKey};
use crate::queue::unacked::Unacked;
use crate::router::group::WireFormat;
use crate::text::{Text, Weight};

/// Which homes know the consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feed {
    /// The home of one queue.
    One(ShardId),
    /// All: it subscribed to a pattern.
    All,
}

/// Credit of a consumer of a pattern that no home has: what one has settled stays there, unless another one wants it.
#[derive(Debug, Default)]
pub struct SharedCredit {
    /// Messages that may still be sent.
    pub available: i64,
    /// Homes that have messages and no credit, in turn.
    pub wanting: VecDeque<(ShardId, ConsumerKey)>,
}

/// What becomes of the deliveries of a consumer that fail.
#[derive(Clone, Copy, Debug)]
pub struct Retries {
    /// Its own `max-deliveries`; 0: they are not delivered again.
    pub deliveries_max: u32,
    /// Its own `redelivery-delay`, in milliseconds.
    pub delay_ms: u64,
}

impl Retries {
    /// As a consumer has asked for them.
    #[must_use]
    pub fn of(consumer_state: &ConsumerState) -> Self {
        Retries { deliveries_max: consumer_state.deliveries_max, delay_ms: consumer_state.delay_ms }
    }
}

/// The state of a consumer at its own shard.
#[derive(Debug)]
pub struct ConsumerState {
    /// Its subscription.
    pub key: SubscriptionKey,
    /// The connection that subscribed.
    pub conn: ConnKey,
    /// How it acknowledges.
    pub ack: AckMode,
    /// What it subscribed to, in its own words.
    pub destination: Text,
    /// Where its deliveries come from.
    pub feed: Feed,
    /// A queue of its own, which feeds it from a topic and ends with it.
    pub own_queue: Option<QueueKey>,
    /// The name of the durable subscription that it holds.
    pub durable: Option<Box<[u8]>>,
    /// How it is written to.
    pub wire_format: WireFormat,
    /// `MESSAGE` and `subscription`, encoded.
    pub prefix: Text,
    /// The number of its last delivery; never used again on this shard.
    pub number: u64,
    /// What it has not acknowledged.
    pub unacked: Unacked,
    /// Credit in bytes comes back with the ACK (`consumer-window-size`), not when they are written.
    pub bytes_on_ack: bool,
    /// For patterns.
    pub shared_credit: Option<SharedCredit>,
    /// Its own `max-deliveries`.
    pub deliveries_max: u32,
    /// Its own `redelivery-delay`, in milliseconds.
    pub delay_ms: u64,
    /// Its own `slow-consumer`, where that is not the server's: then its queue is bounded by it.
    pub slow_consumer: Option<SlowConsumer>,
    /// A deadline for its acknowledgements is in the timers.
    pub armed: bool,
    /// Homes still send it what they hold of the past; live messages wait in its own queue meanwhile.
    pub initial_replay: Option<InitialReplay>,
    /// What it occupies itself.
    pub _weight: Weight,
}

/// A new subscription to a topic that is to get stale and retained messages before live ones.
#[derive(Clone, Copy, Debug)]
pub struct InitialReplay {
    /// Homes that have not finished.
    pub waiting: usize,
    /// Homes that were asked for more, as bits.
    pub asked: u64,
    /// Homes that have more, and for which its connection has it on its list, as bits.
    pub wanting: u64,
    /// Homes that were told that nothing more goes before an ACK, as bits.
    pub told: u64,
    /// Credit in bytes that it gives back at the end.
    pub bytes_granted: i64,
}

impl InitialReplay {
    /// One from so many homes, for which the subscription has this much more credit in bytes meanwhile.
    #[must_use]
    pub fn new(homes: usize, bytes_granted: i64) -> Self {
        InitialReplay { waiting: homes, asked: 0, wanting: 0, told: 0, bytes_granted }
    }
}

#[cfg(test)]
impl ConsumerState {
    /// The consumer of a queue of the first shard, without wishes of its own.
    pub fn for_tests(key: SubscriptionKey, conn: ConnKey, ack: AckMode) -> Self {
        let without = crate::ids::NOBODY;
        let version = stompica_proto::Version::V1_2;
        ConsumerState {
            key,
            conn,
            ack,
            destination: b"/queue/a"[..].into(),
            feed: Feed::One(ShardId(0)),
            own_queue: None,
            durable: None,
            wire_format: WireFormat { framing: crate::router::group::Framing::Stomp, version, without },
            prefix: b"MESSAGE\nsubscription:0\n"[..].into(),
            number: 0,
            unacked: Unacked::default(),
            bytes_on_ack: false,
            shared_credit: None,
            deliveries_max: u32::MAX,
            delay_ms: 0,
            slow_consumer: None,
            armed: false,
            initial_replay: None,
            _weight: Weight::of::<ConsumerState>(),
        }
    }
}
