//! A subscription as a consumer of queues: its state on its own shard.

use std::collections::VecDeque;

use stompica_proto::session::AckMode;

use crate::config::SlowConsumer;
use crate::ids::{ConnKey, ConsumerKey, QueueKey, ShardId, SubscriptionKey};
use crate::message::DELIVERY_BYTES;
use crate::queue::unacked::Unacked;
use crate::router::group::WireFormat;
use crate::text::{Text, Weight};

/// The homes that know the consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feed {
    /// The home of one queue.
    One(ShardId),
    /// All homes: it subscribed to a pattern.
    All,
}

/// The credit of a pattern's consumer that no home has. Credit for settled messages stays at their home, unless another
/// home requests it.
#[derive(Debug, Default)]
pub struct SharedCredit {
    /// The number of messages that may still be sent.
    pub available: i64,
    /// Homes that have messages and no credit, in the order of their requests.
    pub requests: VecDeque<(ShardId, ConsumerKey)>,
}

/// The rules for failed deliveries of a consumer.
#[derive(Clone, Copy, Debug)]
pub struct Retries {
    /// Its own `max-deliveries`; 0: failed messages are not delivered again.
    pub deliveries_max: u32,
    /// Its own `redelivery-delay`, in milliseconds.
    pub delay_ms: u64,
}

impl Retries {
    /// The rules that a consumer has requested.
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
    /// Its ack mode.
    pub ack: AckMode,
    /// The destination it subscribed to, as the client wrote it.
    pub destination: Text,
    /// The source of its deliveries.
    pub feed: Feed,
    /// A private queue, which feeds it from a topic and ends with it.
    pub own_queue: Option<QueueKey>,
    /// The name of the durable subscription that it holds.
    pub durable: Option<Text>,
    /// The format of its frames.
    pub wire_format: WireFormat,
    /// `MESSAGE` and `subscription`, encoded.
    pub prefix: Text,
    /// The number of its last delivery; never used again on this shard.
    pub number: u64,
    /// Its unacknowledged deliveries.
    pub unacked: Unacked,
    /// The last delivery that `ack_timeout` has taken back; earlier ones have ended, too.
    pub timed_out: u64,
    /// The timers have a deadline for its acknowledgements.
    pub armed: bool,
    /// Credit in bytes is returned with the ACK (`consumer-window-size`), not when they are written.
    pub bytes_on_ack: bool,
    /// For patterns.
    pub shared_credit: Option<SharedCredit>,
    /// Its own `slow-consumer`, if that differs from the server's: then it bounds the queue.
    pub slow_consumer: Option<SlowConsumer>,
    /// A frame that ends it waits for the messages in its private queue, and no more are added.
    pub ends: bool,
    /// Its own `max-deliveries`.
    pub deliveries_max: u32,
    /// Its own `redelivery-delay`, in milliseconds.
    pub delay_ms: u64,
    /// Set while homes send stale and retained messages; live messages wait in its private queue meanwhile.
    pub initial_replay: Option<InitialReplay>,
    /// The memory of this struct.
    pub _weight: Weight,
}

/// A new subscription to a topic that gets stale and retained messages before live ones.
#[derive(Clone, Copy, Debug)]
pub struct InitialReplay {
    /// Homes that have not finished.
    pub waiting: usize,
    /// Homes that were asked for more messages, as bits.
    pub asked: u64,
    /// Homes that have more messages, and are in the list of its connection
    /// ([`Pulls`](crate::connection::pulls::Pulls)), as bits.
    pub listed: u64,
    /// Homes that were told that the next message needs an ACK, as bits.
    pub told: u64,
    /// Credit in bytes that it returns at the end.
    pub bytes_granted: i64,
}

impl InitialReplay {
    /// An initial replay from this many homes; meanwhile the subscription has this much additional credit in bytes.
    #[must_use]
    pub fn new(homes: usize, bytes_granted: i64) -> Self {
        InitialReplay { waiting: homes, asked: 0, listed: 0, told: 0, bytes_granted }
    }
}

impl ConsumerState {
    /// Adds no more messages to its private queue, if it has one.
    pub fn close_queue(&mut self) {
        self.ends = self.own_queue.is_some();
    }

    /// How much less is owed to its client after it has acknowledged a message of so many bytes. The server's policy for
    /// slow consumers concerns only messages from topics, and only of subscriptions without a policy of their own.
    #[must_use]
    pub fn owed_bytes(&self, bytes: usize) -> usize {
        let is_owed = self.own_queue.is_some() && self.slow_consumer.is_none();
        if is_owed { bytes + DELIVERY_BYTES } else { 0 }
    }
}

#[cfg(test)]
impl ConsumerState {
    /// The consumer of a queue of the first shard, without options of its own.
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
            timed_out: 0,
            bytes_on_ack: false,
            shared_credit: None,
            deliveries_max: u32::MAX,
            delay_ms: 0,
            slow_consumer: None,
            ends: false,
            armed: false,
            initial_replay: None,
            _weight: Weight::of::<ConsumerState>(),
        }
    }
}
