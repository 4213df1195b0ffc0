//! Subscriptions, and the groups of those whose MESSAGE frames are byte for byte the same.

use stompica_proto::Version;
use stompica_proto::encode;
use stompica_proto::session::AckMode;

use crate::chunk::ChunkId;
use crate::ids::ConnKey;

/// Index of a [`Subscription`] in its router.
pub type SubscriptionIndex = u32;
/// Index of a [`Group`] in its router.
pub type GroupIndex = u32;

/// Which framing a connection speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Framing {
    /// STOMP on TCP.
    Stomp,
    /// STOMP in WebSocket messages.
    WebSocket,
}

/// How a subscriber is to be written to: what subscriptions of one group have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Dialect {
    /// TCP or WebSocket.
    pub framing: Framing,
    /// The receiver's STOMP version.
    pub version: Version,
}

/// One SUBSCRIBE.
#[derive(Debug)]
pub struct Subscription {
    /// Who subscribed.
    pub conn: ConnKey,
    /// What to: the router's entry for the name or pattern.
    pub entry: u32,
    /// The group it is a member of.
    pub group: GroupIndex,
    /// Its place among the group's members.
    pub member: u32,
    /// The id as the client knows it, unescaped; in 1.0 the destination where the client gave none.
    pub id: Box<[u8]>,
    /// How it acknowledges.
    pub ack: AckMode,
    /// Deliveries so far, for the `ack` ids of client modes.
    pub deliveries: u64,
}

/// A subscription as a group sees it.
#[derive(Clone, Copy, Debug)]
pub struct Member {
    /// Slot of the connection.
    pub conn: u32,
    /// The subscription.
    pub subscription: SubscriptionIndex,
}

/// Subscriptions of one entry that get identical bytes.
#[derive(Debug)]
pub struct Group {
    /// The entry it belongs to.
    pub entry: u32,
    /// Its place in the entry's list.
    pub slot: u32,
    /// How its members are written to.
    pub dialect: Dialect,
    /// Deliveries carry an `ack` id of their own, so the group has one member only.
    pub individual: bool,
    /// The subscription id its members share; `None` for 1.0 subscriptions without one.
    pub id: Option<Box<[u8]>>,
    /// `MESSAGE` and `subscription`, encoded.
    pub prefix: Box<[u8]>,
    /// The members; at least one.
    pub members: Vec<Member>,
    /// The chunk that the group's frames are appended to, while the shard is busy.
    pub open: Option<ChunkId>,
}

impl Group {
    /// A group without members yet.
    #[must_use]
    pub fn new(entry: u32, slot: u32, dialect: Dialect, id: Option<&[u8]>, individual: bool) -> Self {
        let mut prefix = Vec::new();
        encode::message_prefix(&mut prefix, id, dialect.version);
        Group {
            entry,
            slot,
            dialect,
            individual,
            id: id.map(Into::into),
            prefix: prefix.into_boxed_slice(),
            members: Vec::new(),
            open: None,
        }
    }
}
