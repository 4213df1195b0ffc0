//! The numbers and rows that answers consist of.

use serde::Serialize;

use super::stages::{Histogram, Stage, Stages};

/// Structs of numbers that are summed over the shards, with the names and the order of the answer.
macro_rules! sums {
    ($(#[doc = $doc:literal] $kind:ident { $($(#[doc = $field_doc:literal])* $name:ident,)* })*) => {$(
        #[doc = $doc]
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
        pub struct $kind { $($(#[doc = $field_doc])* pub $name: u64,)* }

        impl $kind {
            /// Adds the numbers of another shard.
            pub fn add(&mut self, other: &Self) {
                $(self.$name += other.$name;)*
            }
        }
    )*};
}

sums! {
    /// Query `session`.
    Session {
        /// Open connections.
        clients,
        /// Open WebSocket connections.
        websockets,
        /// Connections with a STOMP session.
        stomp_connected,
        /// Active subscriptions.
        subscriptions,
    }
    /// Query `ws_buffer`.
    WsBuffer {
        /// Buffers ever allocated.
        allocated,
        /// How often a buffer was reused.
        hits,
        /// How often a buffer was allocated.
        misses,
    }
    /// Query `stale`: numbers of waiting messages.
    Waiting {
        /// Waiting to be routed: between shards, and parked SENDs.
        r#in,
        /// Waiting in outboxes.
        out,
        /// Waiting for a subscriber (`TTL`).
        stale,
    }
    /// Query `network`.
    Network {
        /// Bytes received.
        bytes_in,
        /// Bytes written.
        bytes_out,
        /// STOMP frames received.
        frames_in,
        /// Messages published.
        messages_in,
        /// Messages delivered to subscriptions.
        deliveries,
        /// Reads that returned bytes.
        reads,
        /// Writes that accepted bytes.
        writes,
        /// For compatibility with C stompica; always 0, because an invalid frame closes its connection.
        dropped_websocket_frames,
        /// For compatibility with C stompica; always 0.
        fixed_underruns,
        /// Names without a subscription in the cache of resolved names now.
        cached_destinations,
        /// Connections open now.
        connections,
        /// Connections accepted.
        accepted,
        /// Connections refused.
        refused,
        /// Connections that ended.
        closed,
        /// ERROR frames, and WebSocket connections closed because of violations.
        errors,
        /// Messages dropped by `drop-oldest` and `drop-newest`.
        dropped,
    }
    /// The numbers of query `store`; all of them are 0 with `store=memory`.
    StoreFigures {
        /// Bytes of its files now, without the reserve.
        disk_bytes,
        /// Bytes now that are reserved for what makes room on a full disk.
        reserve_bytes,
        /// Bytes of its files now that are needed.
        needed_bytes,
        /// Bytes of messages now that were handed over and are not written.
        unwritten_bytes,
        /// Bytes written since the start.
        written_bytes,
        /// Files of the log now.
        segments,
        /// Messages, last values and durable subscriptions in it now.
        messages,
        /// Messages of queues now of which only the store has the content.
        paged_messages,
        /// Damaged parts that were found at the start.
        damages,
        /// Messages that were lost since the start because they could not be read.
        lost_messages,
        /// Groups of records written since the start.
        groups,
        /// Times since the start at which what was written was synced to disk.
        syncs,
    }
}

/// Query `shards`: one shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ShardRow {
    /// Number of the shard, from 0.
    pub shard: u64,
    /// Open connections now.
    pub connections: u64,
    /// Active subscriptions now.
    pub subscriptions: u64,
    /// Queues whose home is this shard now, except the private queues of subscriptions.
    pub queues: u64,
    /// Turns of its loop.
    pub turns: u64,
    /// Messages from other shards in its mailbox now.
    pub mailbox_frames: u64,
    /// STOMP frames received.
    pub frames_in: u64,
    /// Messages delivered to subscriptions.
    pub deliveries: u64,
    /// How often a SEND was parked.
    pub parked: u64,
    /// Deadlines set now.
    pub timers: u64,
    /// Processor time of its thread, in microseconds.
    pub cpu_us: u64,
    /// RECEIPTs, transactions, new subscriptions and queries that wait for other shards now.
    pub unanswered: u64,
    /// Maximum number of bytes encoded in one turn.
    pub max_turn_bytes: u64,
    /// Maximum number of messages delivered to subscriptions in one turn.
    pub max_turn_deliveries: u64,
    /// Maximum number of visits (queues, names, patterns and the like) in one turn.
    pub max_turn_visits: u64,
    /// Maximum processor time of one turn, in microseconds.
    pub max_turn_us: u64,
}

/// Query `memory`: bytes held now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Memory {
    /// Memory of all shards that counts against the limit, as of their last turns.
    pub held_bytes: u64,
    /// The setting `memory_limit`.
    pub limit_bytes: u64,
    /// Whether publishers pause because memory is short.
    pub short: bool,
    /// Bytes waiting to be written; shared bytes are counted for each connection.
    pub outbox_bytes: u64,
    /// Incomplete input, and open transactions.
    pub input_bytes: u64,
    /// Buffers of encoded frames in use.
    pub chunk_bytes: u64,
    /// Messages in queues, including those in flight.
    pub queue_bytes: u64,
}

/// Query `queues`: one queue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct QueueRow {
    /// Name of the queue: for a temporary queue the name that its owner uses, for a durable subscription its name.
    pub name: String,
    /// `work`, `worker`, `temporary` or `durable`.
    pub kind: &'static str,
    /// Messages pending or in flight.
    pub size: u64,
    /// Bytes of pending messages.
    pub waiting_bytes: u64,
    /// Messages in flight.
    pub in_flight: u64,
    /// Number of consumers.
    pub consumers: u64,
    /// Messages ever put into the queue.
    pub enqueued: u64,
    /// Messages consumed.
    pub dequeued: u64,
}

/// Query `ack`: one subscription with acknowledgements.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct AckRow {
    /// The connection's number.
    pub connection: u64,
    /// The subscription's id.
    pub subscription: String,
    /// The destination or pattern it subscribed to.
    pub destination: String,
    /// `client` or `client-individual`.
    pub mode: &'static str,
    /// Unacknowledged deliveries.
    pub in_flight: u64,
    /// Age of the oldest unacknowledged delivery in milliseconds; 0 if there is none.
    pub oldest_ms: u64,
}

/// Query `store`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Store {
    /// The kind of store.
    pub kind: &'static str,
    /// What it says of itself. Only the first shard tells it.
    #[serde(flatten)]
    pub status: StoreStatus,
}

/// What a store says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct StoreStatus {
    /// `recovering`, `ready`, `behind`, `full` or `read-only`; empty: another shard tells it.
    pub state: &'static str,
    /// Why it is read-only.
    pub reason: String,
    /// Its numbers.
    #[serde(flatten)]
    pub figures: StoreFigures,
    /// How long the calls took that synced what was written.
    pub sync: Histogram,
}

impl StoreStatus {
    /// Adds what another shard says.
    pub fn add(&mut self, other: Self) {
        self.figures.add(&other.figures);
        if self.state.is_empty() {
            (self.state, self.reason, self.sync) = (other.state, other.reason, other.sync);
        }
    }
}

/// Query `slow`: one slow consumer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SlowRow {
    /// The connection's number.
    pub connection: u64,
    /// The client's address and port.
    pub peer: String,
    /// Bytes in its outbox.
    pub outbox_bytes: u64,
    /// How long its outbox has been full, in milliseconds; 0 if it is not.
    pub full_ms: u64,
    /// Messages dropped since the last one that it was sent.
    pub dropped: u64,
}

/// Query `recorded`: one recorded destination.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RecordedRow {
    /// The destination.
    pub name: String,
    /// The epoch of its last message.
    pub epoch: u64,
    /// The `seq` of the first message that is there; above `last` if none is.
    pub first: u64,
    /// The `seq` of the last message that was written.
    pub last: u64,
    /// The `seq` of the last message that is safe.
    pub durable: u64,
    /// The bytes of its messages on disk.
    pub bytes: u64,
}

/// Query `benchmark`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Benchmark {
    /// How much longer profiling stays enabled, unless it is queried again.
    pub left_ms: u64,
    /// Histograms in the order of [`Stage::ALL`].
    pub stages: Vec<Histogram>,
}

impl Benchmark {
    /// The times that a shard has measured.
    #[must_use]
    pub fn of(stages: &Stages, now_ms: u64) -> Self {
        let histograms = Stage::ALL.into_iter().map(|stage| stages.histogram(stage).clone()).collect();
        Benchmark { left_ms: stages.left_ms(now_ms), stages: histograms }
    }
}
