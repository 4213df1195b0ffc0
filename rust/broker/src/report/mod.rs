//! What the broker tells of itself when asked: DIAG (docs/behaviour.md, section 9).
//!
//! ```text
//! question ─► every shard: a part, made between two frames ─► merged where it was asked ─► JSON, or headers
//! ```
//! Nothing here is touched while nobody asks. The shards' side is `diag/mod.rs`.

pub mod answer;
pub mod stages;
pub mod types;

/// What may be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Query {
    /// Clients and what they have; from C stompica.
    Session,
    /// Reuse of the buffers that frames are written from; from C stompica.
    WsBuffer,
    /// Waiting messages; from C stompica.
    Stale,
    /// Number of clients; from C stompica.
    SessionSize,
    /// Number of WebSocket clients; from C stompica.
    SessionEncodedSize,
    /// Number of clients with a session; from C stompica.
    SessionConnectedSize,
    /// Number of names and patterns with subscriptions; from C stompica.
    PubsubSize,
    /// Names and patterns with subscriptions; from C stompica.
    Subs,
    /// Bytes, frames, connections.
    Network,
    /// Time spent, by stage.
    Benchmark,
    /// The same counters for each shard.
    Shards,
    /// What is held against `memory_limit`.
    Memory,
    /// The queues.
    Queues,
    /// What consumers have not acknowledged.
    Ack,
    /// Where messages are kept.
    Store,
    /// Consumers that are too slow.
    Slow,
}

impl Query {
    /// All of them, in the order of the documentation.
    pub const ALL: [Query; 16] = [
        Query::Session,
        Query::WsBuffer,
        Query::Stale,
        Query::SessionSize,
        Query::SessionEncodedSize,
        Query::SessionConnectedSize,
        Query::PubsubSize,
        Query::Subs,
        Query::Network,
        Query::Benchmark,
        Query::Shards,
        Query::Memory,
        Query::Queues,
        Query::Ack,
        Query::Store,
        Query::Slow,
    ];

    /// As it is asked.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Query::Session => "session",
            Query::WsBuffer => "ws_buffer",
            Query::Stale => "stale",
            Query::SessionSize => "session-size",
            Query::SessionEncodedSize => "session-encoded-size",
            Query::SessionConnectedSize => "session-connected-size",
            Query::PubsubSize => "pubsub-size",
            Query::Subs => "subs",
            Query::Network => "network",
            Query::Benchmark => "benchmark",
            Query::Shards => "shards",
            Query::Memory => "memory",
            Query::Queues => "queues",
            Query::Ack => "ack",
            Query::Store => "store",
            Query::Slow => "slow",
        }
    }

    /// What is asked; blanks and line ends around it do not count.
    ///
    /// # Errors
    /// One sentence: the query is none of those there are.
    pub fn parse(text: &[u8]) -> Result<Query, String> {
        let asked = text.trim_ascii();
        Self::ALL.into_iter().find(|query| query.name().as_bytes() == asked).ok_or_else(|| {
            let shown: String = String::from_utf8_lossy(asked).chars().take(64).collect();
            let names = Self::ALL.map(Query::name).join(", ");
            format!("'{}' is none of {names}", shown.escape_debug())
        })
    }

    /// Whether the answer grows with what the broker holds.
    #[must_use]
    pub fn has_rows(self) -> bool {
        matches!(self, Query::PubsubSize | Query::Subs | Query::Queues | Query::Ack | Query::Slow)
    }

    /// Whether C stompica has this query: then the answer is in headers, else in a JSON body.
    #[must_use]
    pub fn is_from_c_stompica(self) -> bool {
        self <= Query::Subs
    }
}

#[cfg(test)]
mod tests {
    use super::Query;

    #[test]
    fn queries_are_known_by_their_names() {
        for query in Query::ALL {
            assert_eq!(Query::parse(query.name().as_bytes()), Ok(query));
        }
        assert_eq!(Query::parse(b" session\r\n"), Ok(Query::Session));
        assert_eq!(Query::ALL.iter().filter(|query| query.is_from_c_stompica()).count(), 8);
        for unknown in [&b""[..], b"sessions", b"Session", b"session\0", b"\xff"] {
            assert!(Query::parse(unknown).is_err());
        }
        let text = Query::parse(b"a\nb").expect_err("no query");
        assert!(text.starts_with("'a\\nb' is none of session, ws_buffer, ") && text.lines().count() == 1);
    }
}
