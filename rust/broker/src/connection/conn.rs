//! One connection: its socket, what it speaks, what comes and goes, and what waits for it.

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
    /// Guards the slot's next owner.
    pub generation: u32,
    /// Counted over the whole broker.
    pub id: u64,
    /// Where it comes from.
    pub peer: SocketAddr,
    /// What it speaks.
    pub protocol: Protocol,
    /// What has come and was not consumed.
    pub input: Input,
    /// What goes out.
    pub output: Output,
    /// How far it has come.
    pub life: Life,
    /// What its next frame waits for, if it is not read.
    pub wait: Wait,
    /// Answers that wait, in the order of the frames they answer.
    pub answers: Answers,
    /// Subscriptions by id.
    pub subscriptions: HashTable<SubscriptionIndex>,
    /// What of the past its subscriptions ask for.
    pub pulls: Option<Box<Pulls>>,
    /// Open transactions.
    pub transactions: Option<Box<Transactions>>,
    /// A COMMIT that goes on over several turns, or waits for the homes of its queues.
    pub committing: Option<Committing>,
    /// What it has of queues.
    pub pending_writes: Option<Box<PendingWrites>>,
    /// Login and client-id, within which the names of durable subscriptions count.
    pub scope: Option<Box<[u8]>>,
    /// Its temporary destinations.
    pub temporary: Option<Box<Temporary>>,
}

impl Conn {
    /// A connection that was just accepted.
    #[must_use]
    pub fn new(socket: Socket, peer: SocketAddr, id: u64, refused: bool, now_ms: u64) -> Self {
        Conn {
            socket,
            generation: 0,
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

    /// Whether it has not taken all that was delivered to it, or is sent the past of a topic.
    #[must_use]
    pub fn has_more_to_take(&self) -> bool {
        self.output.has_more() || self.pulls.is_some()
    }

    /// Whether deliveries are about to be acknowledged by what it has said already.
    #[must_use]
    pub fn is_acknowledging(&self) -> bool {
        self.committing.is_some()
            || self.pending_writes.as_ref().is_some_and(|pending_writes| pending_writes.is_acknowledging)
    }

    /// How frames to this connection are framed.
    #[must_use]
    pub fn framing(&self) -> Framing {
        self.protocol.framing()
    }

    /// The WebSocket state, if it is one.
    pub fn websocket(&mut self) -> Option<&mut WebSocket> {
        self.protocol.websocket()
    }

    /// Whether a message can go straight into the outbox: it is under its limit, nothing is to go before, and its
    /// subscription stays.
    #[must_use]
    pub fn has_room(&self, outbox_limit: usize) -> bool {
        self.output.has_room(outbox_limit) && self.life.leaving.is_none()
    }

    /// Notes whether the peer has taken some of what the system held when this was last called.
    pub fn look_at_socket(&mut self, now_ms: u64) {
        self.socket.look_at_untaken(now_ms);
    }

    /// When the peer took something last, as far as is known.
    #[must_use]
    pub fn moved_ms(&self) -> u64 {
        self.output.written_ms.max(self.socket.taken_ms())
    }

    /// Memory of bytes that were received and not consumed, or wait for COMMIT, and of answers that wait.
    #[must_use]
    pub fn input_bytes(&self) -> usize {
        let pending_writes =
            self.pending_writes.as_ref().map_or(0, |pending_writes| pending_writes.held_bytes());
        let commit = match &self.committing {
            Some(Committing::Deciding(commit)) => commit.plan.held_bytes(),
            _ => 0,
        };
        self.kept_bytes()
            + commit
            + pending_writes
            + self.answers.bytes()
            + self.transactions.as_ref().map_or(0, |open| open.held_bytes())
    }
}
