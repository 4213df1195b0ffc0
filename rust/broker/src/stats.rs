//! Counters: plain numbers inside a shard, published once per turn for whoever asks.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[doc = $doc:literal])* $name:ident,)*) => {
        /// What one shard has counted.
        #[derive(Clone, Copy, Debug, Default)]
        pub struct Counters { $($(#[doc = $doc])* pub $name: u64,)* }

        /// A shard's counters as others see them: as of its last turn.
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
    /// Connections open.
    connections,
    /// Subscriptions alive.
    subscriptions,
    /// Names and patterns with a subscription, counted once per shard that knows of them.
    destinations,
    /// Connections taken over.
    accepted,
    /// Connections refused by `max_connections` or for lack of descriptors.
    refused,
    /// Failed attempts to accept.
    accept_errors,
    /// Connections that ended.
    closed,
    /// STOMP sessions begun.
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
    /// Messages handed to subscriptions.
    deliveries,
    /// Queues with a name, durable subscriptions included.
    queues,
    /// Messages put into queues.
    enqueued,
    /// Messages of queues that were consumed.
    dequeued,
    /// Deliveries of messages that had been delivered before.
    redelivered,
    /// Messages moved to dead-letter queues.
    dead_lettered,
    /// Messages of queues whose time was over.
    queue_expired,
    /// Messages of queues dropped: dead already, or with their queue.
    queue_dropped,
    /// Deliveries acknowledged by ACK.
    acked,
    /// Deliveries refused by NACK.
    nacked,
    /// Deliveries taken back by `ack_timeout`.
    timed_out,
    /// ACKs and NACKs of deliveries that had been taken back; they change nothing.
    late_acks,
    /// Messages held for want of a subscriber (`TTL`).
    stale,
    /// Other messages whose time was over.
    expired,
    /// Messages that found nobody and were not held.
    unmatched,
    /// Messages left out by `drop-oldest` and `drop-newest`.
    dropped,
    /// Headers left out because the receiver's version cannot carry them.
    headers_left_out,
    /// ERROR frames, and WebSocket closes for violations.
    errors,
    /// Answers that another shard owed a connection and never gave: always 0.
    lost_answers,
    /// Times a SEND was parked.
    parked,
    /// Times an outbox was full.
    full_outboxes,
    /// Consumers cut off by `slow_consumer`.
    slow_consumers,
    /// Bytes received.
    bytes_in,
    /// Bytes written.
    bytes_out,
    /// Reads that returned something.
    reads,
    /// Writes that took something.
    writes,
    /// Turns of the loop.
    turns,
}
