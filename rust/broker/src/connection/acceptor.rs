//! The first shard's listening socket, and the rate limit of its log records.

use super::listener::Listener;

/// Accepts connections on the shard that listens.
#[derive(Debug)]
pub struct Acceptor {
    /// The socket; none on other shards, and none once the broker drains.
    pub listener: Option<Listener>,
    /// The time from which the next failure may be logged.
    pub next_log_ms: u64,
}

impl Acceptor {
    /// The state before anything was accepted.
    #[must_use]
    pub fn new(listener: Option<Listener>) -> Self {
        Acceptor { listener, next_log_ms: 0 }
    }
}
