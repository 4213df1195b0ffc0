//! Connections of one shard: sockets, input, answers in order, outboxes, and waits.

pub mod acceptor;
pub mod acknowledgement;
pub mod answering;
pub mod answers;
pub mod arrival;
#[cfg(any(test, simulated))]
pub(crate) mod audit;
pub mod closing;
pub mod conn;
pub mod deadline;
pub mod deferred;
#[cfg(test)]
pub(crate) mod fixtures;
pub mod flow;
pub mod full;
pub mod http;
pub mod input;
pub mod leaving;
pub mod life;
pub mod listener;
pub mod login;
pub mod outbox;
pub mod output;
pub mod overdue;
pub mod parked;
pub mod pausing;
pub mod pending_copies;
pub mod pending_range;
pub mod pending_writes;
pub mod protocol;
pub mod pulls;
pub mod pulse;
pub mod room;
pub mod socket;
pub mod table;
pub mod temporary;
pub mod transaction;
pub mod transfer;
pub mod unfinished;
pub mod websocket;

use std::collections::VecDeque;
use std::hash::BuildHasher as _;

use stompica_proto::HeaderSpan;

use self::conn::Conns;
use self::login::Logins;
use self::pausing::Parking;
use self::pending_copies::PendingCopies;
use self::pending_range::PendingRange;
use self::transaction::{Commit, Transactions};
use self::unfinished::Unfinished;
use crate::ids::{ConnKey, ShardId};
use crate::message::chunk::ChunkPool;
use crate::queue::types::Progress;
use crate::requester::AnswerTo;

/// Bytes read from one connection in one turn.
pub const READ_BYTES: usize = 64 << 10;

/// Work for the layers above that follows from a change of a connection.
#[derive(Debug)]
pub enum Effect {
    /// A COMMIT that waited for room is checked again at once: in the next turn others may have taken the room.
    RetriesCommit,
    /// The next frame of this connection waits no more, because the connection ends.
    StopsWaiting(ConnKey),
    /// A COMMIT that was not decided is abandoned.
    AbandonsCommit(Box<Commit>),
    /// Open transactions are discarded.
    DiscardsTransactions(Box<Transactions>),
    /// The subscriptions and temporary destinations of this connection are removed; after the last one it closes, or
    /// is removed.
    Leaves(ConnKey),
    /// These shards, one bit each, have to answer once they have read all earlier mail of this one.
    AsksForRoundTrips(AnswerTo, u64),
    /// A durable subscription gets credit at its home, since the RECEIPT of its SUBSCRIBE is sent.
    Credits(ShardId, Progress),
}

/// The connections of one shard, and the lists of those with work.
#[derive(Debug)]
pub struct Connections {
    /// All connections.
    pub table: Conns,
    /// Connections whose socket may have more to read, or whose input was left by the end of a turn.
    pub undrained: VecDeque<ConnKey>,
    /// Connections that are flushed at the end of the turn.
    pub dirty: Vec<ConnKey>,
    /// Receivers of large fan-outs, of which some are flushed in each turn.
    pub paced: VecDeque<ConnKey>,
    /// Connections whose outbox has room for deferred deliveries.
    pub refill: VecDeque<ConnKey>,
    /// Connections whose outbox was filled in this turn.
    pub newly_full: Vec<ConnKey>,
    /// Connections that are to be cut off.
    pub too_slow: Vec<ConnKey>,
    /// Connections that are not read for a while.
    pub parking: Parking,
    /// Clients that are logging in.
    pub logins: Logins,
    /// Input that is not consumed.
    pub unfinished: Unfinished,
    /// The encoded frames in outboxes.
    pub chunks: ChunkPool,
    /// Frames of a group that its members' outboxes do not refer to yet.
    pub pending_range: Option<PendingRange>,
    /// Messages that are not yet copied for each of their receivers.
    pub pending_copies: PendingCopies,
    /// Hashes subscription ids in the tables of connections.
    pub subscription_hasher: crate::door::HashState,
    /// The last token that was assigned to a frame.
    pub next_token: u64,
    /// Work for the layers above.
    pub effects: VecDeque<Effect>,
    /// Bytes of input, answers and transactions.
    pub input_bytes: usize,
    /// The buffer for reads from sockets.
    pub read_buffer: Vec<u8>,
    /// Header lines of the frame that is being decoded.
    pub spans: Vec<HeaderSpan>,
    /// The own headers of a SEND.
    pub own_headers: Vec<u8>,
    /// Space for a frame before it is wrapped for WebSocket.
    pub scratch: Vec<u8>,
}

impl Default for Connections {
    fn default() -> Self {
        Connections {
            table: Conns::default(),
            undrained: VecDeque::new(),
            dirty: Vec::new(),
            paced: VecDeque::new(),
            refill: VecDeque::new(),
            newly_full: Vec::new(),
            too_slow: Vec::new(),
            parking: Parking::default(),
            logins: Logins::default(),
            unfinished: Unfinished::default(),
            chunks: ChunkPool::default(),
            pending_range: None,
            pending_copies: PendingCopies::default(),
            subscription_hasher: crate::door::HashState::default(),
            next_token: 0,
            effects: VecDeque::new(),
            input_bytes: 0,
            read_buffer: vec![0; READ_BYTES],
            spans: Vec::new(),
            own_headers: Vec::new(),
            scratch: Vec::new(),
        }
    }
}

impl Connections {
    /// The hash of a `message-id` of a subscription, by which STOMP 1.1 acknowledges.
    #[must_use]
    pub(crate) fn hash_by_message(&self, subscription: &[u8], id_hash: u64) -> u64 {
        self.subscription_hasher.hash_one((subscription, id_hash))
    }
}
