//! The settings of a broker: their types, their defaults, and the table that lists them.

mod file;
mod load;
mod recording;
mod storing;
mod system;
mod table;
mod value;

use std::time::Duration;

use stompica_proto::Limits;

use crate::log::Level;

pub use file::{parse_file, parse_stompserver_yaml, parse_toml};
pub use load::{ConfigError, Effective, Given, load, needing_restart, reloaded};
pub use recording::Record;
pub use storing::{Fsync, StoreKind};
pub use system::{avoid_huge_pages, descriptor_limit, raise_descriptor_limit};
pub use table::{Availability, Setting, settings};
pub(crate) use value::show_size;
pub use value::{Kind, Unit};

pub(crate) use load::quoted;
pub(crate) use value::Field;

/// What a `*` at the end of a pattern matches; setting `wildcards`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wildcards {
    /// The rest of the destination, as in C stompica.
    Ancestor,
    /// Exactly one segment, as in other brokers.
    Segment,
}

/// What a full outbox does to its topic subscriptions; setting `slow_consumer`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlowConsumer {
    /// Publishers pause until the outbox is less than half full; a consumer that stays above half for this time is
    /// disconnected.
    Block(Duration),
    /// The oldest pending message is dropped and counted.
    DropOldest,
    /// The message that does not fit is dropped and counted.
    DropNewest,
    /// The consumer is disconnected at once.
    Disconnect,
}

/// Which broker's destination rules apply; setting `compat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compat {
    /// The rules of this broker.
    None,
    /// The rules of C stompica: `#…` is the only kind besides topics, and `*` matches by prefix anywhere in a pattern.
    Stompica,
}

/// How session and message ids are generated; setting `ids`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ids {
    /// Unguessable.
    Random,
    /// Numbers from 1, for tests that compare whole frames.
    Sequential,
}

/// How the process prints its log; setting `log_format`. The broker itself only queues records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// Lines of text with timestamps.
    Text,
    /// JSON objects, one per line.
    Json,
}

/// All settings of one broker, validated. Units are in the names or in the type; the table explains each setting.
#[derive(Clone, Debug)]
pub struct Config {
    /// TCP port; 0 picks a free one.
    pub port: u16,
    /// Address or name to bind.
    pub host: String,
    /// I/O threads, 1 to 64.
    pub writers: usize,
    /// Maximum number of frames accepted and not yet routed, over all threads.
    pub max_input_queue_size: usize,
    /// Maximum number of messages kept for destinations without a subscriber.
    pub max_stale_queue_size: usize,
    /// How long a message may wait for a subscriber, in milliseconds; 0: not at all.
    pub ttl_ms: u64,
    /// Milliseconds until an unacknowledged delivery is requeued; 0: never.
    pub ack_timeout_ms: u64,
    /// Maximum number of open connections.
    pub max_connections: usize,
    /// Limits on the input of one connection.
    pub limits: Limits,
    /// What a trailing `*` matches.
    pub wildcards: Wildcards,
    /// Allowed WebSocket origins; `None`: the same host name, with any port.
    pub ws_origins: Option<Vec<String>>,
    /// Maximum number of messages in one queue; `u64::MAX`: unlimited.
    pub max_queue_length: u64,
    /// Maximum number of bytes in one queue; `u64::MAX`: unlimited.
    pub max_queue_bytes: u64,
    /// Time after which an empty queue without consumers is removed.
    pub queue_idle_expiry: Duration,
    /// Number of deliveries after which a message is dead-lettered.
    pub max_deliveries: u32,
    /// Delay before the first redelivery.
    pub redelivery_delay: Duration,
    /// Maximum number of unacknowledged deliveries of a subscription.
    pub prefetch: u32,
    /// Maximum number of open transactions of one connection.
    pub max_transactions: usize,
    /// Maximum number of bytes in the open transactions of one connection.
    pub max_transaction_size: usize,
    /// Maximum number of destinations with state.
    pub max_destinations: usize,
    /// Maximum number of retained messages.
    pub max_retained: usize,
    /// How long backpressure may delay one SEND.
    pub publish_timeout: Duration,
    /// Maximum number of subscriptions of one connection.
    pub max_subscriptions: usize,
    /// Maximum number of bytes held in total.
    pub memory_limit: u64,
    /// Maximum number of bytes waiting for one connection.
    pub outbox_limit: usize,
    /// What a full outbox does.
    pub slow_consumer: SlowConsumer,
    /// Heart-beat intervals that the server offers and requests, in milliseconds; 0: none.
    pub heartbeat_ms: (u32, u32),
    /// Maximum time from accept to CONNECT.
    pub login_timeout: Duration,
    /// Maximum time from a frame's first byte to its last, plus an allowance for its length.
    pub frame_timeout: Duration,
    /// Lowest level that is logged.
    pub log_level: Level,
    /// Whether frames are logged.
    pub log_frames: bool,
    /// How the process prints its log.
    pub log_format: LogFormat,
    /// Directory that relative names are based on.
    pub working_dir: String,
    /// Directory of the store, logs and recordings.
    pub dir: String,
    /// Where messages are stored.
    pub store: StoreKind,
    /// When persistent messages are synced to disk.
    pub fsync: Fsync,
    /// Bytes of the disk that are kept for what makes room on a full one, rounded up to whole segments, two at least.
    pub store_reserve: u64,
    /// Destinations whose history is kept.
    pub record: Record,
    /// How long it is kept.
    pub record_age: Duration,
    /// How many bytes of it are kept.
    pub record_size: u64,
    /// Which broker's destination rules apply.
    pub compat: Compat,
    /// How ids are generated.
    pub ids: Ids,
    /// Maximum time for outboxes to empty at shutdown.
    pub drain: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            port: 61613,
            host: "127.0.0.1".to_owned(),
            writers: system::default_writers(),
            max_input_queue_size: 1_000_000,
            max_stale_queue_size: 1_000_000,
            ttl_ms: 0,
            ack_timeout_ms: 0,
            max_connections: system::default_max_connections(),
            limits: Limits::default(),
            wildcards: Wildcards::Ancestor,
            ws_origins: None,
            max_queue_length: u64::MAX,
            max_queue_bytes: u64::MAX,
            queue_idle_expiry: Duration::from_secs(300),
            max_deliveries: 10,
            redelivery_delay: Duration::from_millis(100),
            prefetch: 1000,
            max_transactions: 100,
            max_transaction_size: 16 << 20,
            max_destinations: 1_000_000,
            max_retained: 100_000,
            publish_timeout: Duration::from_secs(30),
            max_subscriptions: 10_000,
            memory_limit: system::memory_share(60),
            outbox_limit: 32 << 20,
            slow_consumer: SlowConsumer::Block(Duration::from_secs(5)),
            heartbeat_ms: (10_000, 10_000),
            login_timeout: Duration::from_secs(10),
            frame_timeout: Duration::from_secs(30),
            log_level: Level::Info,
            log_frames: false,
            log_format: LogFormat::Text,
            working_dir: ".".to_owned(),
            dir: ".stompica".to_owned(),
            store: StoreKind::Memory,
            fsync: Fsync::Always,
            store_reserve: 0,
            record: Record::default(),
            record_age: Duration::from_secs(7 * 86_400),
            record_size: 10 << 30,
            compat: Compat::None,
            ids: Ids::Random,
            drain: Duration::from_secs(5),
        }
    }
}

impl Config {
    /// The default of `ws_data_frame_max_length`: enough for a frame with the largest body and all its headers.
    pub(crate) fn ws_message_bytes_for(message_bytes_max: usize) -> usize {
        message_bytes_max.saturating_add((1 << 20) + (64 << 10))
    }
}
