//! One connection: its socket, protocol, input, output, and pending answers.

use std::net::SocketAddr;

use hashbrown::HashTable;

use super::answers::Answers;
use super::input::Input;
pub use super::life::{Life, Phase};
pub use super::output::{Flush, Output};
use super::pausing::Wait;
use super::pending_writes::PendingWrites;
pub use super::protocol::{Protocol, Transport, WebSocket};
use super::pulls::Pulls;
use super::socket::Socket;
pub use super::table::Conns;
use super::temporary::Temporary;
use super::transaction::{Committing, Transactions};
use crate::router::group::{Framing, SubscriptionIndex};

/// One client.
#[derive(Debug)]
pub struct Conn {
    /// The socket, registered with the shard's poll.
    pub socket: Socket,
    /// Its number, unique in the whole broker.
    pub id: u64,
    /// The address of the peer.
    pub peer: SocketAddr,
    /// The protocol that it uses.
    pub protocol: Protocol,
    /// Input that is received and not consumed.
    pub input: Input,
    /// Output: the outbox, and what waits for room in it.
    pub output: Output,
    /// Its phase.
    pub life: Life,
    /// The reason why it is not read, if it waits.
    pub wait: Wait,
    /// Pending answers, in the order of their frames.
    pub answers: Answers,
    /// Subscriptions by id.
    pub subscriptions: HashTable<SubscriptionIndex>,
    /// Requests of its subscriptions for initial replay.
    pub pulls: Option<Box<Pulls>>,
    /// Open transactions.
    pub transactions: Option<Box<Transactions>>,
    /// A COMMIT that takes several turns, or waits for the homes of its queues.
    pub committing: Option<Committing>,
    /// Deliveries of queues to its consumers.
    pub pending_writes: Option<Box<PendingWrites>>,
    /// Login and client-id: the scope of names of durable subscriptions.
    pub scope: Option<Box<[u8]>>,
    /// Its temporary destinations.
    pub temporary: Option<Box<Temporary>>,
}

// Connections are allocated one by one. A larger one would occupy 768 bytes instead of 640, because the allocator has
// size classes.
const _: () = assert!(size_of::<Conn>() <= 632 || cfg!(any(test, debug_assertions)));

impl Conn {
    /// A connection that was just accepted.
    #[must_use]
    pub fn new(socket: Socket, peer: SocketAddr, id: u64, refused: bool, now_ms: u64) -> Self {
        Conn {
            socket,
            id,
            peer,
            protocol: Protocol::default(),
            input: Input::new(now_ms),
            output: Output::new(now_ms),
            life: Life::new(refused, now_ms),
            wait: Wait::default(),
            answers: Answers::default(),
            subscriptions: HashTable::new(),
            pulls: None,
            transactions: None,
            committing: None,
            pending_writes: None,
            scope: None,
            temporary: None,
        }
    }

    /// Whether it has not taken all deliveries made to it, or receives an initial replay.
    #[must_use]
    pub fn has_more_to_take(&self) -> bool {
        self.output.has_more() || self.pulls.is_some()
    }

    /// Whether a frame that it has sent is about to acknowledge deliveries: until it has, none is taken back or forgotten.
    #[must_use]
    pub fn is_acknowledging(&self) -> bool {
        matches!(self.committing, Some(Committing::Deciding(_) | Committing::Applying { has_acks: true }))
            || self
                .pending_writes
                .as_ref()
                .is_some_and(|pending_writes| pending_writes.acknowledging.is_some())
    }

    /// The framing of frames to this connection.
    #[must_use]
    pub fn framing(&self) -> Framing {
        self.protocol.framing()
    }

    /// The WebSocket state, if it is one.
    pub fn websocket(&mut self) -> Option<&mut WebSocket> {
        self.protocol.websocket()
    }

    /// Whether a message can be appended to the outbox directly: it is below its limit, nothing is deferred, and its
    /// subscription stays.
    #[must_use]
    pub fn has_room(&self, outbox_limit: usize) -> bool {
        self.output.has_room(outbox_limit) && self.life.leaving.is_none()
    }

    /// Updates when the peer last took some of the bytes that the system holds.
    pub fn check_socket(&mut self, now_ms: u64) {
        self.socket.check_untaken(now_ms);
    }

    /// The last time at which the peer took bytes, as far as known.
    #[must_use]
    pub fn moved_ms(&self) -> u64 {
        self.output.written_ms.max(self.socket.taken_ms())
    }

    /// Memory of unconsumed input, of open transactions and a COMMIT, and of pending answers.
    #[must_use]
    pub fn input_bytes(&self) -> usize {
        let pending_writes =
            self.pending_writes.as_ref().map_or(0, |pending_writes| pending_writes.held_bytes());
        let commit = match &self.committing {
            Some(Committing::Deciding(commit)) => commit.held_bytes(),
            _ => 0,
        };
        self.kept_bytes()
            + commit
            + pending_writes
            + self.answers.bytes()
            + self.transactions.as_ref().map_or(0, |open| open.held_bytes())
    }
}
