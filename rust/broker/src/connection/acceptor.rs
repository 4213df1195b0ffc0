//! The first shard's listening socket, and when a failure to accept is logged next.

use super::listener::Listener;

/// Accepts connections, on the shard that listens.
#[derive(Debug)]
pub struct Acceptor {
    /// The socket; none on other shards, and none once the broker drains.
    pub listener: Option<Listener>,
    /// When the next failure is worth a line in the log.
    pub next_log_ms: u64,
}

impl Acceptor {
    /// One that has accepted nothing yet.
    #[must_use]
    pub fn new(listener: Option<Listener>) -> Self {
        Acceptor { listener, next_log_ms: 0 }
    }
}
