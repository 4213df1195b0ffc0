//! Connections for unit tests. Their sockets are test doubles, so no poll and no network is needed.

use std::net::SocketAddr;
use std::sync::Arc;

use stompica_proto::Decoded;

use super::Connections;
use super::conn::{Conn, Transport};
use super::socket::{Script, Socket};
use crate::config::Config;
use crate::ids::{ConnKey, ShardId};
use crate::log::{Level, LogQueue};
use crate::totals::Totals;
use crate::turn::Turn;

impl Conn {
    /// A connection that was just accepted.
    pub(crate) fn scripted(id: u64) -> Self {
        let socket = Socket::scripted(Script::default());
        Conn::new(socket, SocketAddr::from(([127, 0, 0, 1], 1)), id, false, 0)
    }

    /// A STOMP 1.2 connection that has logged in, with these heart-beats.
    pub(crate) fn connected(id: u64, heart_beat: &str) -> Self {
        let mut conn = Conn::scripted(id);
        conn.protocol.transport = Transport::Stomp;
        let text = format!("CONNECT\naccept-version:1.2\nhost:h\nheart-beat:{heart_beat}\n\n\0");
        let (mut spans, config) = (Vec::new(), Config::default());
        let Ok(Decoded::Frame { frame, .. }) =
            conn.protocol.decoder.decode(text.as_bytes(), &mut spans, &config.limits)
        else {
            panic!("a whole frame");
        };
        conn.protocol.session.handle(&frame, config.heartbeat_ms, &mut Vec::new()).expect("a CONNECT");
        conn
    }
}

/// The first turn of the only shard, at time 0.
pub(crate) fn turn(config: Config) -> Turn {
    let (totals, log) = (Arc::new(Totals::default()), LogQueue::new(100, Level::Debug));
    Turn::new(ShardId(0), 1, Arc::new(config), totals, log, crate::door::HashState::default(), "epoch")
}

/// Creates connections that have logged in, without heart-beats.
pub(crate) fn connections(count: usize) -> (Connections, Vec<ConnKey>) {
    let mut connections = Connections::default();
    let keys = (0..count).map(|at| connections.table.insert(Conn::connected(at as u64, "0,0"))).collect();
    (connections, keys)
}

/// A connection's socket was found to have nothing more to read.
pub(crate) fn read_everything(connections: &mut Connections, turn: &Turn, key: ConnKey) {
    let conn = connections.table.get_mut(key).expect("an open connection");
    conn.input.is_drained(turn.now_ms);
}

/// Everything sent to a connection whose socket takes all bytes; one character per byte.
pub(crate) fn told(connections: &mut Connections, turn: &mut Turn, key: ConnKey) -> String {
    let conn = connections.table.get_mut(key).expect("an open connection");
    conn.socket.script().room = usize::MAX;
    connections.flush_one(turn, key);
    let conn = connections.table.get_mut(key).expect("an open connection");
    std::mem::take(&mut conn.socket.script().taken).into_iter().map(char::from).collect()
}
