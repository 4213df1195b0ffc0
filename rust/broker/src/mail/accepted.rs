//! Connections on their way from the shard that accepts them to the one that owns them.

use std::net::SocketAddr;

use crate::door::TcpStream;

/// An accepted socket on its way to the shard that will own it.
#[derive(Debug)]
pub struct Accepted {
    /// The socket, non-blocking.
    pub stream: TcpStream,
    /// The client's address.
    pub peer: SocketAddr,
    /// The connection's number, unique in the whole broker.
    pub id: u64,
    /// It was accepted only to be told that `max_connections` is reached.
    pub refused: bool,
    /// The time at which it was accepted. The turn in which its shard adopts it may have begun before that.
    pub accepted_ms: u64,
}
