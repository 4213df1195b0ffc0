//! The one table of settings. Parsing, `--help`, `stompica config` and docs/configuration.md all come from it.

use super::value::{Field, Kind, Unit};
use super::{Config, system};

/// How far the feature behind a setting is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Availability {
    /// It works.
    Yes,
    /// Only these values are taken, for they ask for what happens anyway; any other is refused by name.
    Only(&'static [&'static str]),
}

/// One setting: its names, its type and bounds, and what it means.
#[derive(Debug)]
pub struct Setting {
    /// The name, as documented. Names are compared without regard to case, `-` equals `_`.
    pub key: &'static str,
    /// Other names for it: those of C stompica and stompserver.
    pub aliases: &'static [&'static str],
    /// The heading under which help and docs list it.
    pub group: &'static str,
    /// Type and bounds.
    pub kind: Kind,
    /// The default as documented; not always a value (`cores`).
    pub default: &'static str,
    /// What it means, one sentence or two.
    pub doc: &'static str,
    /// Whether a reload (SIGHUP) applies it to the running broker.
    pub reloadable: bool,
    /// How far its feature is built.
    pub availability: Availability,
    /// The field of `Config` it fills; `None` where it never reaches the broker.
    pub(super) field: Option<fn(&mut Config) -> &mut dyn Field>,
}

impl Setting {
    const fn also(mut self, aliases: &'static [&'static str]) -> Setting {
        self.aliases = aliases;
        self
    }
    /// A reload can't apply it: the broker must be started again.
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
    /// The value `config` holds, as text that parses back; the documented default where it holds none.
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

/// All settings, in the order in which help and docs list them.
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

// One row a setting; prose is not broken over lines.
#[rustfmt::skip]
static TABLE: &[Setting] = &[
    setting(NETWORK, "port", integer(0, 65535), "61613", "The one port for STOMP over TCP, WebSocket and HTTP. 0 picks a free one and prints it.")
        .fixed().fills(|c| &mut c.port),
    setting(NETWORK, "host", Kind::Text, "127.0.0.1", "Address to bind; 0.0.0.0 or :: must be asked for.")
        .fixed().fills(|c| &mut c.host),
    setting(NETWORK, "max_connections", integer(1, system::CONNECTIONS_MAX), "ulimit -n minus 128", "Connections at a time; one more gets ERROR or HTTP 503 and is closed.")
        .fills(|c| &mut c.max_connections),
    setting(NETWORK, "login_timeout", seconds(10, HOUR_MS), "10s", "From accept to CONNECT, and for an HTTP or WebSocket handshake.")
        .fills(|c| &mut c.login_timeout),
    setting(NETWORK, "frame_timeout", seconds(10, HOUR_MS), "30s", "From a frame's first byte to its last, plus its length at 64 KiB/s; then ERROR E-FRAME-TIMEOUT.")
        .fills(|c| &mut c.frame_timeout),
    setting(NETWORK, "heartbeat", Kind::Heartbeat, "10000,10000", "Milliseconds: the heart-beats the server offers, and those it asks for; 0 is none. New sessions take a reloaded value.")
        .also(&["heart_beat"]).fills(|c| &mut c.heartbeat_ms),
    setting(NETWORK, "ws_origins", Kind::Origins, "same-host", "Origins a browser may open a WebSocket from. same-host: the page's host is the broker's, whatever the port; no Origin is allowed, null is not.")
        .fills(|c| &mut c.ws_origins),
    setting(NETWORK, "drain", seconds(0, DAY_MS), "5s", "Time for outboxes to empty at shutdown.").fills(|c| &mut c.drain),

    setting(THREADS, "writers", integer(1, system::WRITERS_MAX as u64), "cores", "I/O threads that read, route and write.")
        .fixed().fills(|c| &mut c.writers),
    setting(THREADS, "processors", Kind::Processors, "writers + 2", "C stompica's way to set writers: processors minus 2, at least 1; 0 is the default of writers.")
        .fixed().fills(|c| &mut c.writers),
    setting(THREADS, "max_input_queue_size", integer(1, COUNT_MAX), "1000000", "Frames accepted and not yet routed, over all threads; when full, reading pauses.")
        .fixed().fills(|c| &mut c.max_input_queue_size),
    setting(THREADS, "memory_limit", Kind::Memory { min: MIB }, "60%", "Bytes held in outboxes, subscriptions and all other state, or a share of the RAM (of the cgroup's limit if that is less). At 80 % of it SENDs pause that would be kept, at 95 % all.")
        .fills(|c| &mut c.memory_limit),
    setting(THREADS, "outbox_limit", size(1 << 10, 64 * GIB), "32MiB", "Bytes waiting for one connection; at the limit slow_consumer acts.").fills(|c| &mut c.outbox_limit),
    setting(THREADS, "slow_consumer", Kind::SlowConsumer, "block:5s", "What a full outbox does. block:TIME: its publishers pause until it is under half; a consumer that takes no byte for 1 s, or stays over half for TIME, is disconnected. drop-oldest, drop-newest: counted. disconnect: at once.")
        .fills(|c| &mut c.slow_consumer),
    setting(THREADS, "publish_timeout", seconds(1, DAY_MS), "30s", "How long backpressure may hold one SEND, then ERROR E-MEMORY.").fills(|c| &mut c.publish_timeout),

    setting(LIMITS, "max_message_size", size(1, 2 * GIB), "16MiB", "Body of one frame.").fills(|c| &mut c.limits.message_bytes_max),
    setting(LIMITS, "max_header_size", size(64, MIB), "10KiB", "One header line.").fills(|c| &mut c.limits.header_line_bytes_max),
    setting(LIMITS, "max_headers", integer(1, 65535), "100", "Header lines of one frame.").fills(|c| &mut c.limits.headers_max),
    setting(LIMITS, "ws_data_frame_max_length", size(125, 4 * GIB), "max_message_size + 1MiB + 64KiB", "Payload of one WebSocket data frame and of one assembled message.")
        .fills(|c| &mut c.limits.ws_message_bytes_max),
    setting(LIMITS, "max_subscriptions", integer(1, 10_000_000), "10000", "Subscriptions of one connection, and its temporary destinations; one more of either gets ERROR and is closed.").fills(|c| &mut c.max_subscriptions),
    setting(LIMITS, "max_transactions", integer(0, 1_000_000), "100", "Open transactions of one connection.").fills(|c| &mut c.max_transactions),
    setting(LIMITS, "max_transaction_size", size(1, 64 * GIB), "16MiB", "Bytes in the open transactions of one connection.").fills(|c| &mut c.max_transaction_size),

    setting(DESTINATIONS, "wildcards", Kind::Choice(&["ancestor", "segment"]), "ancestor", "What a * that ends a pattern matches: whatever remains, or exactly one segment.")
        .fixed().fills(|c| &mut c.wildcards),
    setting(DESTINATIONS, "compat", Kind::Choice(&["none", "stompica"]), "none", "stompica: the rules of C stompica; no /queue/ kind, every destination but #… is pub-sub, * matches by prefix wherever it stands.")
        .fixed().fills(|c| &mut c.compat),
    setting(DESTINATIONS, "max_destinations", integer(1, COUNT_MAX), "1000000", "Destinations with state; who would create one more gets ERROR.").fills(|c| &mut c.max_destinations),
    setting(DESTINATIONS, "max_retained", integer(0, COUNT_MAX), "100000", "Retained messages; who would create one more gets ERROR.").fills(|c| &mut c.max_retained),
    setting(DESTINATIONS, "TTL", millis(0, 365 * DAY_MS), "0", "How long a message may wait without subscriber; 0: not at all.").fills(|c| &mut c.ttl_ms),
    setting(DESTINATIONS, "max_stale_queue_size", integer(1, COUNT_MAX), "1000000", "Messages held for destinations without subscriber while TTL > 0; when full, the oldest goes, counted.")
        .fixed().fills(|c| &mut c.max_stale_queue_size),
    setting(DESTINATIONS, "record", Kind::Text, "none", "Destinations whose history is kept.").fixed().only(&["none"]),

    setting(QUEUES, "ack_timeout", millis(0, 365 * DAY_MS), "0", "Until an unacknowledged delivery is taken back and delivered again; 0: never.").fills(|c| &mut c.ack_timeout_ms),
    setting(QUEUES, "max_queue_length", Kind::Count, "unlimited", "Messages in one queue; above it ERROR to the sender.").fills(|c| &mut c.max_queue_length),
    setting(QUEUES, "max_queue_bytes", Kind::SizeOrUnlimited, "unlimited", "Bytes in one queue; above it ERROR to the sender.").fills(|c| &mut c.max_queue_bytes),
    setting(QUEUES, "queue_idle_expiry", seconds(1, 365 * DAY_MS), "5m", "After which an empty queue without consumers is forgotten.").fills(|c| &mut c.queue_idle_expiry),
    setting(QUEUES, "max_deliveries", integer(1, COUNT_MAX), "10", "Deliveries of one message before it goes to the dead-letter queue.").fills(|c| &mut c.max_deliveries),
    setting(QUEUES, "redelivery_delay", millis(0, DAY_MS), "100ms", "Wait before the first redelivery; it doubles up to 10 s.").fills(|c| &mut c.redelivery_delay),
    setting(QUEUES, "prefetch", integer(1, COUNT_MAX), "1000", "Unacknowledged deliveries a subscription may hold.").fills(|c| &mut c.prefetch),

    setting(STORE, "config", Kind::Text, "none", "File of settings: TOML, or stompserver's YAML. Read only when named; the environment and the command line win over it.").fixed(),
    setting(STORE, "working_dir", Kind::Text, ".", "Folder that relative names start from.").fixed(),
    setting(STORE, "dir", Kind::Text, ".stompica", "Folder of the store, logs and recordings, inside working_dir.").also(&["storage"]).fixed().fills(|c| &mut c.dir),
    setting(STORE, "store", Kind::Choice(&["memory", "file", "sqlite", "dbm", "activerecord"]), "memory", "Where messages live. stompserver's dbm and activerecord stand for file and sqlite.")
        .also(&["queue", "queuetype"]).fixed().only(&["memory"]),
    setting(STORE, "fsync", Kind::Text, "always", "When a persistent SEND is on disk: always, interval:MS or never. With store=memory there is nothing to sync.").fixed().only(&["always", "never"]),
    setting(STORE, "checkpoint", Kind::Text, "0", "stompserver's way to set fsync: seconds between two syncs; 0 is always.").fixed().only(&["0"]),

    setting(SECURITY, "auth", Kind::Flag, "0", "Ask for login and passcode.").only(&["0"]),
    setting(SECURITY, "users", Kind::Text, ".passwd", "File of users.").only(&[]),
    setting(SECURITY, "tls_cert", Kind::Text, "none", "Certificate chain, PEM.").only(&["none"]),
    setting(SECURITY, "tls_key", Kind::Text, "none", "Private key, PEM.").only(&["none"]),
    setting(SECURITY, "tls_client_ca", Kind::Text, "none", "Authority that client certificates must come from, PEM.").only(&["none"]),

    setting(LOG, "log_level", Kind::Choice(&["debug", "info", "warn", "error"]), "info", "Least grave level that is logged.").fills(|c| &mut c.log_level),
    setting(LOG, "log_format", Kind::Choice(&["text", "json"]), "text", "Lines of text with timestamps, or JSON objects, one a line.").fills(|c| &mut c.log_format),
    setting(LOG, "debug", Kind::Flag, "0", "Log frames, passcodes masked; implies log_level=debug.").fills(|c| &mut c.log_frames),
    setting(LOG, "ids", Kind::Choice(&["random", "sequential"]), "random", "Session and message ids; sequential makes them reproducible, for tests that compare whole frames.").fixed().fills(|c| &mut c.ids),
];
