//! A fixture for tests: the owners that deliveries need, without a poll, and connections with test doubles as
//! sockets.

use std::sync::Arc;

use stompica_proto::Version;
use stompica_proto::encode::Message;
use stompica_proto::session::AckMode;

use super::{Deliveries, Owners};
use crate::config::Config;
use crate::connection::Connections;
use crate::connection::conn::Conn;
use crate::connection::socket::Socket;
use crate::ids::{ConnKey, NOBODY, QueueKey, ShardId, Subscriber, SubscriptionKey};
use crate::log::{Level, LogQueue};
use crate::mail::mailbox::{Mail, Mailbox};
use crate::mail::peers::Peers;
use crate::message::OwnedMessage;
use crate::queue::QueueKind;
use crate::queue::consumer_state::ConsumerState;
use crate::queue::notes::Notes;
use crate::queue::queues::Queues;
use crate::queue::stale::StaleCounts;
use crate::queue::types::{Credit, Effect};
use crate::router::Router;
use crate::router::fan_out::FanOutKey;
use crate::router::group::{Framing, WireFormat};
use crate::store::Memory;
use crate::turn::Turn;

/// The shard that the owners belong to.
pub(crate) const OWN: ShardId = ShardId(0);
/// The other shard of the broker.
pub(crate) const OTHER: ShardId = ShardId(1);

/// The owners of one shard of two.
#[derive(Debug)]
pub(crate) struct Fixture {
    pub turn: Turn,
    pub notes: Notes,
    pub router: Router,
    pub queues: Queues,
    pub connections: Connections,
    pub deliveries: Deliveries,
    pub peers: Peers,
}

/// A message to a destination.
pub(crate) fn message<'a>(destination: &'a [u8], body: &'a [u8]) -> Message<'a> {
    Message { destination, id: b"i", sender: NOBODY, headers: b"", plain: true, expires_ms: 0, body }
}

impl Fixture {
    pub fn new(config: Config) -> Self {
        let config = Config { writers: 2, ..config };
        let hasher = crate::door::HashState::default();
        let stale = Arc::new(StaleCounts::new(2));
        let log = LogQueue::new(16, Level::Error);
        Fixture {
            notes: Notes::new(OWN, 2),
            router: Router::new(&config, hasher.clone()),
            queues: Queues::new(OWN, &config, hasher.clone(), stale, Arc::default(), Box::new(Memory)),
            connections: Connections::default(),
            deliveries: Deliveries::default(),
            peers: Peers::new(OWN, Mailbox::detached(2)),
            turn: Turn::new(OWN, 2, Arc::new(config), Arc::default(), log, hasher, "e"),
        }
    }

    pub fn owners(&mut self) -> Owners<'_> {
        lend!(self => Owners { turn, notes, router, queues, connections, deliveries, peers })
    }

    /// Adds a connection whose socket takes this many bytes before it would block.
    pub fn connect(&mut self, room: usize) -> ConnKey {
        let peer = "127.0.0.1:1".parse().expect("an address");
        self.connections.table.insert(Conn::new(Socket::with_room(room), peer, 1, false, 0))
    }

    fn wire_format() -> WireFormat {
        WireFormat { framing: Framing::Stomp, version: Version::V1_2, without: NOBODY }
    }

    /// Subscribes a connection to a topic; with a private queue, messages go there.
    pub fn subscribe(
        &mut self,
        conn: ConnKey,
        topic: &str,
        id: &str,
        target_queue: Option<QueueKey>,
    ) -> SubscriptionKey {
        let ack = if target_queue.is_some() { AckMode::Client } else { AckMode::Auto };
        let who = (conn, Some(id.as_bytes()), ack);
        let (key, _) = self
            .router
            .subscribe(topic.as_bytes(), who, Self::wire_format(), target_queue, Some(0))
            .expect("a topic");
        self.list(conn, key);
        if let Some(queue) = target_queue {
            self.add_consumer(conn, key, ack, Some(queue));
            let credit = Credit { messages: 1, bytes: 1 << 20 };
            self.queues.home.attach(queue, Subscriber { shard: OWN, key }, credit);
        }
        key
    }

    fn list(&mut self, conn: ConnKey, key: SubscriptionKey) {
        let conn = self.connections.table.get_mut(conn).expect("an open connection");
        conn.subscriptions.insert_unique(u64::from(key.index), key.index, |at| u64::from(*at));
    }

    fn add_consumer(
        &mut self,
        conn: ConnKey,
        key: SubscriptionKey,
        ack: AckMode,
        own_queue: Option<QueueKey>,
    ) {
        let mut consumer = ConsumerState::for_tests(key, conn, ack);
        consumer.own_queue = own_queue;
        self.queues.consumers.insert(Box::new(consumer));
    }

    /// Subscribes a connection to a queue whose home is this shard.
    pub fn consume(&mut self, conn: ConnKey, name: &str, ack: AckMode) -> SubscriptionKey {
        let key = self.router.subscribe_queue(conn, b"0", ack);
        self.list(conn, key);
        self.add_consumer(conn, key, ack, None);
        let queue = self.queue(name);
        let credit = Credit { messages: Credit::UNLIMITED, bytes: 1 << 20 };
        self.queues.home.attach(queue, Subscriber { shard: OWN, key }, credit);
        key
    }

    pub fn queue(&mut self, name: &str) -> QueueKey {
        let known = self.queues.home.find(name.as_bytes());
        known.unwrap_or_else(|| self.queues.home.create(name.as_bytes(), QueueKind::Work))
    }

    /// Removes a subscription to a queue.
    pub fn unsubscribe(&mut self, key: SubscriptionKey) {
        self.queues.consumers.remove(key);
        self.router.unsubscribe(key.index);
    }

    /// Delivers a message to the subscriptions of a topic here.
    pub fn deliver(&mut self, topic: &str, body: &str) -> Option<FanOutKey> {
        let destination = self.router.destination(topic.as_bytes()).expect("a topic");
        let reach = self.router.reach(destination);
        self.owners().deliver(&message(topic.as_bytes(), body.as_bytes()), destination, &reach)
    }

    /// Puts messages into a queue, and dispatches within the credit of its consumers.
    pub fn enqueue(&mut self, name: &str, bodies: &[&str]) {
        let queue = self.queue(name);
        for body in bodies {
            let owned = OwnedMessage::new(&message(name.as_bytes(), body.as_bytes()));
            self.queues.home.enqueue(queue, owned);
        }
        self.dispatch();
    }

    /// Dispatches the queues of the home.
    pub fn dispatch(&mut self) {
        self.queues.home.dispatch(usize::MAX);
        for effect in std::mem::take(&mut self.queues.home.effects) {
            if let Effect::Deliver(delivery) = effect {
                self.owners().carry_out(delivery);
            }
        }
    }

    /// The number of pending messages in a queue.
    pub fn waiting(&mut self, name: &str) -> u64 {
        let queue = self.queue(name);
        self.queues.home.queue(queue).map_or(0, |queue| queue.size() - queue.in_flight().0)
    }

    /// Lets the socket of a connection take more bytes, flushes its outbox, and applies the effects. Returns the
    /// bodies of the frames taken since the last call.
    pub fn write(&mut self, key: ConnKey, room: usize) -> Vec<String> {
        self.connections.distribute(&mut self.turn);
        let conn = self.connections.table.get_mut(key).expect("an open connection");
        conn.socket.script().room = room;
        conn.output
            .outbox
            .flush(&mut self.connections.chunks, &mut conn.socket)
            .expect("a test double does not fail");
        let text = std::mem::take(&mut conn.socket.script().taken);
        let mut owners = self.owners();
        owners.note_written(key);
        owners.note_room(key);
        owners.refill_outboxes();
        owners.note_progress(key);
        let frames = text.split(|byte| *byte == 0).filter(|frame| !frame.is_empty());
        let body = |frame: &[u8]| {
            let frame = String::from_utf8_lossy(frame).into_owned();
            frame.split_once("\n\n").map_or_else(String::new, |(_, body)| body.to_owned())
        };
        frames.map(body).collect()
    }

    /// The reports to the other shard about full filters: the name, and whether it is full now.
    pub fn told_full(&mut self) -> Vec<(String, bool)> {
        let mail = self.peers.outgoing[usize::from(OTHER.0)].drain(..);
        mail.filter_map(|mail| match mail {
            Mail::Full { name, full, .. } => Some((String::from_utf8_lossy(&name).into_owned(), full)),
            _ => None,
        })
        .collect()
    }
}
