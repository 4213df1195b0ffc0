//! One connection: its socket, its codec, its session, and what waits for it.

use std::net::SocketAddr;

use hashbrown::HashTable;
use slab::Slab;
use stompica_proto::ws::WsDecoder;
use stompica_proto::{Decoder, session::Session};

use crate::connection::answers::Answers;
use crate::connection::arrival::Arrival;
use crate::connection::deferred::Deferred;
use crate::connection::input::Input;
use crate::connection::leaving::Leaving;
use crate::connection::outbox::Outbox;
use crate::connection::pausing::Wait;
use crate::connection::pending_writes::PendingWrites;
use crate::connection::pulls::Pulls;
use crate::connection::pulse::Pulse;
use crate::connection::socket::Socket;
use crate::connection::temporary::Temporary;
use crate::connection::transaction::{Committing, Transactions};
use crate::ids::ConnKey;
use crate::router::group::{Framing, SubscriptionIndex};
use crate::timer::NEVER;

/// What the connection speaks.
#[derive(Debug)]
pub enum Transport {
    /// Not known yet: too few bytes.
    Unknown,
    /// STOMP.
    Stomp,
    /// An HTTP request that is not complete.
    Http,
    /// STOMP in WebSocket messages.
    WebSocket(Box<WebSocket>),
}

/// State of a WebSocket connection.
#[derive(Debug)]
pub struct WebSocket {
    /// Finds frames.
    pub decoder: WsDecoder,
    /// Bytes that were received and not looked at, because the turn ended or a SEND is parked.
    pub raw: Vec<u8>,
    /// The message, or the frame of one, that has come in part.
    pub arrival: Arrival,
    /// A Close frame was sent: nothing may follow.
    pub close_sent: bool,
    /// The code of the Close frame that came: what follows it is ignored.
    pub peer_code: Option<u16>,
    /// Whether it lives.
    pub pulse: Pulse,
}

impl WebSocket {
    /// The state right after the upgrade.
    #[must_use]
    pub fn new(now_ms: u64) -> Self {
        let pulse = Pulse::new(now_ms);
        let arrival = Arrival::default();
        let (decoder, raw) = (WsDecoder::default(), Vec::new());
        WebSocket { decoder, raw, arrival, close_sent: false, peer_code: None, pulse }
    }
}

/// How far a connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Reading and writing.
    Open,
    /// Input is discarded, its subscriptions go; nothing is written, so that none is left once the peer reads its last
    /// frames.
    Leaving,
    /// Input is discarded, the outbox is being flushed; then the write side is shut.
    Closing,
    /// The write side is shut: reading and discarding until the peer closes too.
    Lingering,
}

/// Where a connection stands in the list of those to be flushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flush {
    /// Nothing new to write.
    Idle,
    /// Flushed at the end of this turn.
    Prompt,
    /// Flushed when its place in the paced list comes, as a receiver of a wide fan-out.
    Paced,
}

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
    pub transport: Transport,
    /// Finds STOMP frames.
    pub decoder: Decoder,
    /// The STOMP state.
    pub session: Session,
    /// What has come and was not consumed.
    pub input: Input,
    /// What waits to be written.
    pub outbox: Outbox,
    /// What waits until there is room in the outbox.
    pub deferred: Option<Box<Deferred>>,
    /// How far it has come.
    pub phase: Phase,
    /// Where it stands in the flush lists.
    pub flush: Flush,
    /// Accepted only to be refused.
    pub refused: bool,
    /// DISCONNECT was taken, or an ERROR waits: read no more, and close once the answers due are written.
    pub ending: bool,
    /// What its next frame waits for, if it is not read.
    pub wait: Wait,
    /// The outbox is full since this time.
    pub full_since_ms: Option<u64>,
    /// How long a full outbox may stay over half, in milliseconds, by what its subscriptions asked for.
    pub patience_ms: u64,
    /// From when on the outbox, which is full or is to get something of the past, is expected to move.
    pub stuck_since_ms: u64,
    /// Messages left out since the last one that was delivered.
    pub dropped: u32,
    /// When it was accepted, and later when its closing began.
    pub since_ms: u64,
    /// Last byte out.
    pub written_ms: u64,
    /// The deadline that is in the timers.
    pub deadline_ms: u64,
    /// Subscriptions by id.
    pub subscriptions: HashTable<SubscriptionIndex>,
    /// Those that are about to go: nothing is delivered to them any more.
    pub leaving: Option<Box<Leaving>>,
    /// Answers that wait, in the order of the frames they answer.
    pub answers: Answers,
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
    /// Whether it has not taken all that was delivered to it, or is sent the past of a topic.
    #[must_use]
    pub fn has_more_to_take(&self) -> bool {
        !self.outbox.is_empty() || self.deferred.is_some() || self.pulls.is_some()
    }

    /// Whether deliveries are about to be acknowledged by what it has said already.
    #[must_use]
    pub fn is_acknowledging(&self) -> bool {
        self.committing.is_some()
            || self.pending_writes.as_ref().is_some_and(|pending_writes| pending_writes.is_acknowledging)
    }

    /// A connection that was just accepted.
    #[must_use]
    pub fn new(socket: Socket, peer: SocketAddr, id: u64, refused: bool, now_ms: u64) -> Self {
        Conn {
            socket,
            generation: 0,
            id,
            peer,
            transport: Transport::Unknown,
            decoder: Decoder::new(),
            session: Session::new(),
            input: Input::new(now_ms),
            outbox: Outbox::default(),
            deferred: None,
            phase: Phase::Open,
            flush: Flush::Idle,
            refused,
            ending: false,
            wait: Wait::default(),
            full_since_ms: None,
            patience_ms: u64::MAX,
            stuck_since_ms: now_ms,
            dropped: 0,
            since_ms: now_ms,
            written_ms: now_ms,
            deadline_ms: NEVER,
            subscriptions: HashTable::new(),
            leaving: None,
            answers: Answers::default(),
            pulls: None,
            transactions: None,
            committing: None,
            pending_writes: None,
            scope: None,
            temporary: None,
        }
    }

    /// How frames to this connection are framed.
    #[must_use]
    pub fn framing(&self) -> Framing {
        match self.transport {
            Transport::WebSocket(_) => Framing::WebSocket,
            _ => Framing::Stomp,
        }
    }

    /// Whether a message can go straight into the outbox: it is under its limit, nothing is to go before, and its
    /// subscription stays.
    #[must_use]
    pub fn has_room(&self, outbox_limit: usize) -> bool {
        self.outbox.bytes() < outbox_limit && self.deferred.is_none() && self.leaving.is_none()
    }

    /// The WebSocket state, if it is one.
    pub fn websocket(&mut self) -> Option<&mut WebSocket> {
        match &mut self.transport {
            Transport::WebSocket(state) => Some(state),
            _ => None,
        }
    }

    /// Notes whether the peer has taken some of what the system held when this was last called.
    pub fn look_at_socket(&mut self, now_ms: u64) {
        self.socket.look_at_untaken(now_ms);
    }

    /// When the peer took something last, as far as is known.
    #[must_use]
    pub fn moved_ms(&self) -> u64 {
        self.written_ms.max(self.socket.taken_ms())
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

/// All connections of one shard.
#[derive(Debug, Default)]
pub struct Conns {
    /// Boxed, so that a growing table moves pointers and leaves no large holes behind.
    slots: Slab<Box<Conn>>,
    /// Generation of the next owner of any slot; grows with every connection.
    generation: u32,
}

impl Conns {
    /// Adds a connection and names it.
    pub fn insert(&mut self, mut conn: Conn) -> ConnKey {
        self.generation = self.generation.wrapping_add(1);
        conn.generation = self.generation;
        ConnKey { index: self.slots.insert(Box::new(conn)) as u32, generation: self.generation }
    }

    /// The connection, unless it is gone.
    #[must_use]
    pub fn get(&self, key: ConnKey) -> Option<&Conn> {
        self.slots.get(key.index as usize).filter(|conn| conn.generation == key.generation).map(Box::as_ref)
    }

    /// The connection, unless it is gone.
    pub fn get_mut(&mut self, key: ConnKey) -> Option<&mut Conn> {
        self.slots
            .get_mut(key.index as usize)
            .filter(|conn| conn.generation == key.generation)
            .map(Box::as_mut)
    }

    /// The connection of a live subscription, which never outlives it.
    pub fn member_mut(&mut self, index: u32) -> &mut Conn {
        &mut self.slots[index as usize]
    }

    /// Takes the connection out.
    pub fn remove(&mut self, key: ConnKey) -> Option<Box<Conn>> {
        self.get(key)?;
        Some(self.slots.remove(key.index as usize))
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Slots, free ones included.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.slots.capacity()
    }

    /// The connection in a slot.
    #[must_use]
    pub fn at(&self, index: usize) -> Option<&Conn> {
        self.slots.get(index).map(Box::as_ref)
    }

    /// All of them with their keys.
    pub fn iter(&self) -> impl Iterator<Item = (ConnKey, &Conn)> {
        self.slots
            .iter()
            .map(|(index, conn)| (ConnKey { index: index as u32, generation: conn.generation }, &**conn))
    }

    /// The keys of all of them.
    #[must_use]
    pub fn keys(&self) -> Vec<ConnKey> {
        self.iter().map(|(key, _)| key).collect()
    }
}
