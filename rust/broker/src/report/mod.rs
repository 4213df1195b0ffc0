//! Diagnostics: queries and answers of DIAG (docs/behaviour.md, section 9).
//!
//! ```text
//! query ─► every shard: a partial report, made between two frames ─► merged on the asking shard ─► JSON, or headers
//! ```
//! This code runs only when a query is made. The shards' side is `diag/mod.rs`.

pub mod answer;
pub mod merge;
pub mod stages;
pub mod types;

use std::net::SocketAddr;

/// One connection, for reports and tests.
#[derive(Clone, Debug)]
pub struct ConnectionInfo {
    /// Its number, unique in the whole broker, from 1.
    pub id: u64,
    /// The client's address.
    pub peer: SocketAddr,
    /// The shard that owns it.
    pub shard: usize,
    /// `stomp`, `websocket`, `http` or `unknown`.
    pub transport: &'static str,
    /// The STOMP version, once connected.
    pub version: Option<&'static str>,
    /// The number of its subscriptions.
    pub subscriptions: usize,
    /// Bytes in its outbox.
    pub outbox_bytes: usize,
}

/// The queries with their names, in the order of the documentation.
macro_rules! queries {
    ($(#[doc = $doc:literal] $query:ident = $name:literal,)*) => {
        /// A diagnostic query.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Query { $(#[doc = $doc] $query,)* }

        impl Query {
            /// All queries, in the order of the documentation.
            pub const ALL: [Query; [$($name,)*].len()] = [$(Query::$query,)*];

            /// The name as written in a request.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Query::$query => $name,)* }
            }
        }
    };
}

queries! {
    /// Clients and their subscriptions; from C stompica.
    Session = "session",
    /// Reuse of the buffers of encoded frames; from C stompica.
    WsBuffer = "ws_buffer",
    /// Numbers of waiting messages; from C stompica.
    Stale = "stale",
    /// Number of clients; from C stompica.
    SessionSize = "session-size",
    /// Number of WebSocket clients; from C stompica.
    SessionEncodedSize = "session-encoded-size",
    /// Number of clients with a session; from C stompica.
    SessionConnectedSize = "session-connected-size",
    /// Number of names and patterns with subscriptions; from C stompica.
    PubsubSize = "pubsub-size",
    /// Names and patterns with subscriptions; from C stompica.
    Subs = "subs",
    /// Counters of bytes, frames and connections.
    Network = "network",
    /// Time spent in each stage.
    Benchmark = "benchmark",
    /// Counters of each shard.
    Shards = "shards",
    /// Memory that counts against `memory_limit`.
    Memory = "memory",
    /// Queues.
    Queues = "queues",
    /// Unacknowledged deliveries of consumers.
    Ack = "ack",
    /// The kind of store.
    Store = "store",
    /// Slow consumers.
    Slow = "slow",
    /// Recorded destinations.
    Recorded = "recorded",
}

impl Query {
    /// Parses the name of a query; surrounding whitespace is ignored.
    ///
    /// # Errors
    /// One sentence: there is no such query.
    pub fn parse(text: &[u8]) -> Result<Query, String> {
        let asked = text.trim_ascii();
        Self::ALL.into_iter().find(|query| query.name().as_bytes() == asked).ok_or_else(|| {
            let shown: String = String::from_utf8_lossy(asked).chars().take(64).collect();
            let names = Self::ALL.map(Query::name).join(", ");
            format!("'{}' is not one of {names}", shown.escape_debug())
        })
    }

    /// Whether the size of the answer grows with the number of items in the broker.
    #[must_use]
    pub fn has_rows(self) -> bool {
        matches!(self, Query::PubsubSize | Query::Subs | Query::Queues | Query::Ack | Query::Slow)
    }

    /// Whether C stompica has this query: then the answer is in headers, otherwise in a JSON body.
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
        assert!(text.starts_with("'a\\nb' is not one of session, ws_buffer, ") && text.lines().count() == 1);
    }
}
