//! Counters: plain numbers inside a shard, published once per turn for other threads.

use crate::door::sync::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[doc = $doc:literal])* $name:ident,)*) => {
        /// The counters of one shard.
        #[derive(Clone, Copy, Debug, Default)]
        pub struct Counters { $($(#[doc = $doc])* pub $name: u64,)* }

        /// The counters of a shard as other threads see them: as of its last turn.
        #[derive(Debug, Default)]
        pub struct Published { $($name: AtomicU64,)* }

        impl Published {
            /// Makes the counters visible to other threads.
            pub fn publish(&self, counters: &Counters) {
                $(self.$name.store(counters.$name, Ordering::Relaxed);)*
            }
        }

        /// The sums over all shards, by name.
        #[must_use]
        pub fn sum(all: &[Published]) -> Vec<(&'static str, u64)> {
            vec![$((stringify!($name), all.iter().map(|one| one.$name.load(Ordering::Relaxed)).sum()),)*]
        }
    };
}

counters! {
    /// Open connections.
    connections,
    /// Active subscriptions.
    subscriptions,
    /// Names and patterns with a subscription, counted once for each shard that knows them.
    destinations,
    /// Connections accepted.
    accepted,
    /// Connections refused by `max_connections` or for lack of descriptors.
    refused,
    /// Failed attempts to accept.
    accept_errors,
    /// Connections that ended.
    closed,
    /// STOMP sessions started.
    sessions,
    /// WebSocket upgrades.
    upgrades,
    /// Other HTTP requests answered.
    http_requests,
    /// STOMP frames received.
    frames_in,
    /// Messages published.
    messages_in,
    /// Messages received from other shards.
    frames_mailed,
    /// Messages delivered to subscriptions.
    deliveries,
    /// Queues with a name, durable subscriptions included.
    queues,
    /// Messages put into queues.
    enqueued,
    /// Messages consumed from queues.
    dequeued,
    /// Redeliveries.
    redelivered,
    /// Messages moved to dead-letter queues.
    dead_lettered,
    /// Messages that expired in queues.
    queue_expired,
    /// Messages of queues that were dropped: they came from a dead-letter queue, or their queue was removed.
    queue_dropped,
    /// Deliveries acknowledged by ACK.
    acked,
    /// Deliveries refused by NACK.
    nacked,
    /// Deliveries requeued because of `ack_timeout`.
    timed_out,
    /// ACKs and NACKs of deliveries that had been requeued; they have no effect.
    late_acks,
    /// Messages kept because they had no subscriber (`TTL`).
    stale,
    /// Other messages that expired.
    expired,
    /// Messages without a subscriber that were not kept.
    unmatched,
    /// Messages dropped by `drop-oldest` and `drop-newest`.
    dropped,
    /// Headers omitted because the receiver's version cannot encode them.
    headers_left_out,
    /// ERROR frames, and WebSocket connections closed because of violations.
    errors,
    /// Answers for a connection that another shard never sent: always 0.
    lost_answers,
    /// How often a SEND was parked.
    parked,
    /// How often an outbox was full.
    full_outboxes,
    /// Consumers cut off by `slow_consumer`.
    slow_consumers,
    /// Bytes received.
    bytes_in,
    /// Bytes written.
    bytes_out,
    /// Reads that returned bytes.
    reads,
    /// Writes that accepted bytes.
    writes,
    /// Turns of the shard's loop.
    turns,
}
