//! The table of settings. Parsing, `--help`, `stompica config` and docs/configuration.md are derived from it.

use super::value::{Field, Kind, Unit};
use super::{Config, system};

/// Whether the feature behind a setting is implemented.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Availability {
    /// Implemented.
    Yes,
    /// Not implemented: only these values, which request the existing behaviour, are accepted; any other value is an
    /// error.
    Only(&'static [&'static str]),
}

/// One setting: its names, type, bounds and meaning.
#[derive(Debug)]
pub struct Setting {
    /// The documented name. Names are case-insensitive, and `-` equals `_`.
    pub key: &'static str,
    /// Alternative names, from C stompica and stompserver.
    pub aliases: &'static [&'static str],
    /// The heading under which the help and the documentation list it.
    pub group: &'static str,
    /// Type and bounds.
    pub kind: Kind,
    /// The documented default; not always a value (`cores`).
    pub default: &'static str,
    /// Its meaning, in one or two sentences.
    pub doc: &'static str,
    /// Whether a reload (SIGHUP) applies a new value to the running broker.
    pub reloadable: bool,
    /// Whether its feature is implemented.
    pub availability: Availability,
    /// The field of `Config` that it sets; `None` if the broker does not use it.
    pub(super) field: Option<fn(&mut Config) -> &mut dyn Field>,
}

impl Setting {
    const fn also(mut self, aliases: &'static [&'static str]) -> Setting {
        self.aliases = aliases;
        self
    }
    /// Requires a restart: a reload cannot apply it.
    const fn fixed(mut self) -> Setting {
        self.reloadable = false;
        self
    }
    const fn only(mut self, taken: &'static [&'static str]) -> Setting {
        self.availability = Availability::Only(taken);
        self
    }
    const fn fills(mut self, field: fn(&mut Config) -> &mut dyn Field) -> Setting {
        self.field = Some(field);
        self
    }
    /// The value in `config` as text that can be parsed again; the documented default if `config` has no such field.
    #[must_use]
    pub fn show(&self, config: &Config) -> String {
        match self.field {
            Some(field) => field(&mut config.clone()).show(&self.kind),
            None => self.default.to_owned(),
        }
    }
    /// Whether `name` is this setting's key or one of its aliases.
    #[must_use]
    pub fn is_named(&self, name: &str) -> bool {
        let same = |key: &str| {
            key.len() == name.len()
                && key
                    .bytes()
                    .zip(name.bytes())
                    .all(|(a, b)| a.eq_ignore_ascii_case(&b) || (a == b'_' && b == b'-'))
        };
        same(self.key) || self.aliases.iter().any(|alias| same(alias))
    }
}

const fn setting(
    group: &'static str,
    key: &'static str,
    kind: Kind,
    default: &'static str,
    doc: &'static str,
) -> Setting {
    Setting {
        key,
        aliases: &[],
        group,
        kind,
        default,
        doc,
        reloadable: true,
        availability: Availability::Yes,
        field: None,
    }
}

/// All settings, in the order of the help and the documentation.
#[must_use]
pub fn settings() -> &'static [Setting] {
    TABLE
}

const NETWORK: &str = "Network";
const THREADS: &str = "Threads and memory";
const LIMITS: &str = "Limits of one connection";
const DESTINATIONS: &str = "Destinations";
const QUEUES: &str = "Queues and acknowledgements";
const STORE: &str = "Files and store";
const SECURITY: &str = "Security";
const LOG: &str = "Log and diagnosis";

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const COUNT_MAX: u64 = u32::MAX as u64;

const fn integer(min: u64, max: u64) -> Kind {
    Kind::Integer { min, max }
}
const fn size(min: u64, max: u64) -> Kind {
    Kind::Size { min, max }
}
const fn seconds(min_ms: u64, max_ms: u64) -> Kind {
    Kind::Time { unit: Unit::Seconds, min_ms, max_ms }
}
const fn millis(min_ms: u64, max_ms: u64) -> Kind {
    Kind::Time { unit: Unit::Millis, min_ms, max_ms }
}
const HOUR_MS: u64 = 3_600_000;
const DAY_MS: u64 = 24 * HOUR_MS;

// One row per setting; descriptions stay on one line.
#[rustfmt::skip]
static TABLE: &[Setting] = &[
    setting(NETWORK, "port", integer(0, 65535), "61613", "Port for STOMP over TCP, WebSocket and HTTP. 0 picks a free port and prints it.")
        .fixed().fills(|c| &mut c.port),
    setting(NETWORK, "host", Kind::Text, "127.0.0.1", "Address to bind. Use 0.0.0.0 or :: to listen on all interfaces.")
        .fixed().fills(|c| &mut c.host),
    setting(NETWORK, "max_connections", integer(1, system::CONNECTIONS_MAX), "ulimit -n minus 128", "Maximum number of open connections; any further one gets ERROR or HTTP 503 and is closed.")
        .fills(|c| &mut c.max_connections),
    setting(NETWORK, "login_timeout", seconds(10, HOUR_MS), "10s", "Maximum time from accept to CONNECT, and for an HTTP or WebSocket handshake.")
        .fills(|c| &mut c.login_timeout),
    setting(NETWORK, "frame_timeout", seconds(10, HOUR_MS), "30s", "Maximum time from a frame's first byte to its last, plus its length at 64 KiB/s; after that ERROR E-FRAME-TIMEOUT.")
        .fills(|c| &mut c.frame_timeout),
    setting(NETWORK, "heartbeat", Kind::Heartbeat, "10000,10000", "Heart-beat intervals in milliseconds that the server offers and requests; 0: none. A reloaded value applies to new sessions.")
        .also(&["heart_beat"]).fills(|c| &mut c.heartbeat_ms),
    setting(NETWORK, "ws_origins", Kind::Origins, "same-host", "Origins from which a browser may open a WebSocket. same-host: the page's host must be the broker's, with any port; a request without Origin is allowed, the Origin null is not.")
        .fills(|c| &mut c.ws_origins),
    setting(NETWORK, "drain", seconds(0, DAY_MS), "5s", "Maximum time for outboxes to empty at shutdown.").fills(|c| &mut c.drain),

    setting(THREADS, "writers", integer(1, system::WRITERS_MAX as u64), "cores", "I/O threads that read, route and write.")
        .fixed().fills(|c| &mut c.writers),
    setting(THREADS, "processors", Kind::Processors, "writers + 2", "C stompica's form of writers: writers is processors minus 2, at least 1; 0: the default of writers.")
        .fixed().fills(|c| &mut c.writers),
    setting(THREADS, "max_input_queue_size", integer(1, COUNT_MAX), "1000000", "Maximum number of frames accepted and not yet routed, over all threads; at the limit, reading pauses.")
        .fixed().fills(|c| &mut c.max_input_queue_size),
    setting(THREADS, "memory_limit", Kind::Memory { min: MIB }, "60%", "Maximum number of bytes held in outboxes, subscriptions and all other state, or a share of the RAM (of the cgroup's limit if that is less). At 80 % of it, SENDs whose messages would be kept pause; at 95 %, all SENDs pause.")
        .fills(|c| &mut c.memory_limit),
    setting(THREADS, "outbox_limit", size(1 << 10, 64 * GIB), "32MiB", "Maximum number of bytes waiting for one connection; at the limit, slow_consumer applies.").fills(|c| &mut c.outbox_limit),
    setting(THREADS, "slow_consumer", Kind::SlowConsumer, "block:5s", "What happens when an outbox is full. block:TIME: its publishers pause until it is less than half full; a consumer that takes no byte for 1 s, or stays above half for TIME, is disconnected. drop-oldest, drop-newest: a message is dropped and counted. disconnect: the consumer is disconnected at once.")
        .fills(|c| &mut c.slow_consumer),
    setting(THREADS, "publish_timeout", seconds(1, DAY_MS), "30s", "How long backpressure may delay one SEND; after that ERROR E-MEMORY.").fills(|c| &mut c.publish_timeout),

    setting(LIMITS, "max_message_size", size(1, 2 * GIB), "16MiB", "Maximum body of one frame.").fills(|c| &mut c.limits.message_bytes_max),
    setting(LIMITS, "max_header_size", size(64, MIB), "10KiB", "Maximum length of one header line.").fills(|c| &mut c.limits.header_line_bytes_max),
    setting(LIMITS, "max_headers", integer(1, 65535), "100", "Maximum number of header lines of one frame.").fills(|c| &mut c.limits.headers_max),
    setting(LIMITS, "ws_data_frame_max_length", size(125, 4 * GIB), "max_message_size + 1MiB + 64KiB", "Maximum payload of one WebSocket data frame and of one assembled message.")
        .fills(|c| &mut c.limits.ws_message_bytes_max),
    setting(LIMITS, "max_subscriptions", integer(1, 10_000_000), "10000", "Maximum number of subscriptions, and of temporary destinations, of one connection; a connection that exceeds either gets ERROR and is closed.").fills(|c| &mut c.max_subscriptions),
    setting(LIMITS, "max_transactions", integer(0, 1_000_000), "100", "Maximum number of open transactions of one connection.").fills(|c| &mut c.max_transactions),
    setting(LIMITS, "max_transaction_size", size(1, 64 * GIB), "16MiB", "Maximum number of bytes in the open transactions of one connection.").fills(|c| &mut c.max_transaction_size),

    setting(DESTINATIONS, "wildcards", Kind::Choice(&["ancestor", "segment"]), "ancestor", "What a * at the end of a pattern matches: the rest of the destination (ancestor) or exactly one segment (segment).")
        .fixed().fills(|c| &mut c.wildcards),
    setting(DESTINATIONS, "compat", Kind::Choice(&["none", "stompica"]), "none", "stompica: the rules of C stompica: there are no /queue/ destinations, every destination except #… is a topic, and * anywhere in a pattern matches by prefix.")
        .fixed().fills(|c| &mut c.compat),
    setting(DESTINATIONS, "max_destinations", integer(1, COUNT_MAX), "1000000", "Maximum number of destinations with state; a frame that would create one more gets ERROR.").fills(|c| &mut c.max_destinations),
    setting(DESTINATIONS, "max_retained", integer(0, COUNT_MAX), "100000", "Maximum number of retained messages; a SEND that would create one more gets ERROR.").fills(|c| &mut c.max_retained),
    setting(DESTINATIONS, "TTL", millis(0, 365 * DAY_MS), "0", "How long a message may wait for a subscriber; 0: not at all.").fills(|c| &mut c.ttl_ms),
    setting(DESTINATIONS, "max_stale_queue_size", integer(1, COUNT_MAX), "1000000", "Maximum number of messages kept for destinations without a subscriber while TTL > 0; at the limit, the oldest is dropped and counted.")
        .fixed().fills(|c| &mut c.max_stale_queue_size),
    setting(DESTINATIONS, "record", Kind::Destinations, "none", "Names and patterns of topics and queues whose messages are numbered and kept as history, for replay-from. It needs store=file.").fixed().fills(|c| &mut c.record),
    setting(DESTINATIONS, "record_age", seconds(1_000, 3650 * DAY_MS), "7d", "How long history is kept: parts whose last message is older are removed.").fixed().fills(|c| &mut c.record_age),
    setting(DESTINATIONS, "record_size", size(4 * MIB, 1 << 50), "10GiB", "Maximum number of bytes of history on disk; above it, the oldest part is removed.").fixed().fills(|c| &mut c.record_size),

    setting(QUEUES, "ack_timeout", millis(0, 365 * DAY_MS), "0", "Time after which an unacknowledged delivery is requeued and delivered again; 0: never.").fills(|c| &mut c.ack_timeout_ms),
    setting(QUEUES, "max_queue_length", Kind::Count, "unlimited", "Maximum number of messages in one queue; above it, the sender gets ERROR.").fills(|c| &mut c.max_queue_length),
    setting(QUEUES, "max_queue_bytes", Kind::SizeOrUnlimited, "unlimited", "Maximum number of bytes in one queue; above it, the sender gets ERROR.").fills(|c| &mut c.max_queue_bytes),
    setting(QUEUES, "queue_idle_expiry", seconds(1, 365 * DAY_MS), "5m", "Time after which an empty queue without consumers is removed.").fills(|c| &mut c.queue_idle_expiry),
    setting(QUEUES, "max_deliveries", integer(1, COUNT_MAX), "10", "Number of deliveries after which a message goes to the dead-letter queue.").fills(|c| &mut c.max_deliveries),
    setting(QUEUES, "redelivery_delay", millis(0, DAY_MS), "100ms", "Delay before the first redelivery; it doubles with each further one, up to 10 s.").fills(|c| &mut c.redelivery_delay),
    setting(QUEUES, "prefetch", integer(1, COUNT_MAX), "1000", "Maximum number of unacknowledged deliveries of a subscription.").fills(|c| &mut c.prefetch),

    setting(STORE, "config", Kind::Text, "none", "Settings file: TOML, or stompserver's YAML. It is read only when named here; the environment and the command line override it.").fixed(),
    setting(STORE, "working_dir", Kind::Text, ".", "Directory that relative names are based on.").fixed().fills(|c| &mut c.working_dir),
    setting(STORE, "dir", Kind::Text, ".stompica", "Directory of the store, logs and recordings, inside working_dir.").also(&["storage"]).fixed().fills(|c| &mut c.dir),
    setting(STORE, "store", Kind::Choice(&["memory", "file", "sqlite", "dbm", "activerecord"]), "memory", "Where messages are stored. stompserver's dbm and activerecord mean file and sqlite.")
        .also(&["queue", "queuetype"]).fixed().fills(|c| &mut c.store),
    setting(STORE, "fsync", Kind::Fsync, "always", "When persistent messages are synced to disk: before their RECEIPT, at least once in an interval, or when the system likes. With store=memory there is nothing to sync.").fixed().fills(|c| &mut c.fsync),
    setting(STORE, "store_reserve", size(0, 1 << 50), "0", "Bytes of the disk that the store reserves for acknowledgements, expiry and compaction, so that a full disk can be cleared. They are rounded up to whole segments; two segments are always reserved. With store=memory there is nothing to reserve.").fixed().fills(|c| &mut c.store_reserve),
    setting(STORE, "checkpoint", Kind::Checkpoint, "0", "stompserver's form of fsync: seconds between two syncs; 0: always.").fixed().fills(|c| &mut c.fsync),

    setting(SECURITY, "auth", Kind::Flag, "0", "Require login and passcode.").only(&["0"]),
    setting(SECURITY, "users", Kind::Text, ".passwd", "File of users.").only(&[]),
    setting(SECURITY, "tls_cert", Kind::Text, "none", "Certificate chain in PEM format.").only(&["none"]),
    setting(SECURITY, "tls_key", Kind::Text, "none", "Private key in PEM format.").only(&["none"]),
    setting(SECURITY, "tls_client_ca", Kind::Text, "none", "Certificate authority for client certificates in PEM format.").only(&["none"]),

    setting(LOG, "log_level", Kind::Choice(&["debug", "info", "warn", "error"]), "info", "Lowest level that is logged.").fills(|c| &mut c.log_level),
    setting(LOG, "log_format", Kind::Choice(&["text", "json"]), "text", "Lines of text with timestamps, or JSON objects, one per line.").fills(|c| &mut c.log_format),
    setting(LOG, "debug", Kind::Flag, "0", "Log frames, with passcodes masked; implies log_level=debug.").fills(|c| &mut c.log_frames),
    setting(LOG, "ids", Kind::Choice(&["random", "sequential"]), "random", "How session and message ids are generated; sequential makes them reproducible, for tests that compare whole frames.").fixed().fills(|c| &mut c.ids),
];
