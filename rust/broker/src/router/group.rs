//! Subscriptions, and groups of subscriptions whose MESSAGE frames are identical.

use std::ops::Deref;
use std::sync::Arc;

use stompica_proto::Version;
use stompica_proto::encode;
use stompica_proto::session::AckMode;

use crate::ids::{ConnKey, NOBODY, QueueKey, SubscriptionKey};
use crate::message::chunk::ChunkId;
use crate::text::Text;

/// Index of a [`Subscription`] in its router.
pub type SubscriptionIndex = u32;
/// Index of a [`Group`] in its router.
pub type GroupIndex = u32;

/// The framing of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Framing {
    /// STOMP on TCP.
    Stomp,
    /// STOMP in WebSocket messages.
    WebSocket,
}

/// The format of MESSAGE frames, which all subscriptions of one group have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WireFormat {
    /// TCP or WebSocket.
    pub framing: Framing,
    /// The receiver's STOMP version.
    pub version: Version,
    /// Messages of this connection are omitted (`no-local`); [`NOBODY`]: none are.
    pub without: u64,
}

impl WireFormat {
    /// Whether a message of this sender has to be delivered.
    #[inline]
    #[must_use]
    pub fn takes_from(self, sender: u64) -> bool {
        self.without == NOBODY || self.without != sender
    }
}

/// A subscription.
#[derive(Debug)]
pub struct Subscription {
    /// The connection that subscribed.
    pub conn: ConnKey,
    /// Guards the slot's next owner.
    pub generation: u32,
    /// The source of its messages.
    pub place: Place,
    /// The id as the client knows it, unescaped; in 1.0 the destination if the client gave no id.
    pub id: Text,
    /// The ack mode.
    pub ack: AckMode,
}

impl Subscription {
    /// The filter, if it is a subscription to a topic.
    #[must_use]
    pub fn filter_index(&self) -> Option<u32> {
        match self.place {
            Place::Topic { filter, .. } => Some(filter),
            Place::Queue => None,
        }
    }
}

/// The source of a subscription's messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A topic, or a pattern of topics.
    Topic {
        /// The filter.
        filter: u32,
        /// The group it is a member of.
        group: GroupIndex,
        /// Its index among the group's members.
        member: u32,
    },
    /// Queues: their homes send deliveries.
    Queue,
}

/// A member of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// The slot of the connection.
    pub conn: u32,
    /// The subscription.
    pub subscription: SubscriptionKey,
}

/// The members of a group. A list of several is shared with frames that were encoded and not distributed yet.
#[derive(Clone, Debug)]
pub enum Members {
    /// One member, or none yet.
    Single(Option<Member>),
    /// Several.
    Several(Arc<Vec<Member>>),
}

impl Members {
    /// Adds a member at the end.
    pub fn push(&mut self, member: Member) {
        match self {
            Members::Single(Some(first)) => *self = Members::Several(Arc::new(vec![*first, member])),
            Members::Single(free) => *free = Some(member),
            Members::Several(all) => Arc::make_mut(all).push(member),
        }
    }

    /// Removes a member; the last one takes its place.
    pub fn swap_remove(&mut self, at: usize) {
        match self {
            Members::Single(first) => *first = None,
            Members::Several(all) => {
                let left = Arc::make_mut(all);
                left.swap_remove(at);
                if let [last] = left[..] {
                    *self = Members::Single(Some(last));
                }
            }
        }
    }
}

impl Deref for Members {
    type Target = [Member];

    #[inline]
    fn deref(&self) -> &[Member] {
        match self {
            Members::Single(first) => first.as_slice(),
            Members::Several(all) => all,
        }
    }
}

/// Subscriptions of one filter that get identical bytes.
#[derive(Debug)]
pub struct Group {
    /// Its filter.
    pub filter: u32,
    /// Its index in the filter's list.
    pub slot: u32,
    /// The members; at least one.
    pub members: Members,
    /// The format of its members' frames.
    pub wire_format: WireFormat,
    /// The subscription id of its members; `None` for 1.0 subscriptions without one.
    pub id: Option<Text>,
    /// `MESSAGE` and `subscription`, encoded.
    pub prefix: Text,
    /// The queue of its only member: messages go there, not to an outbox.
    pub target_queue: Option<QueueKey>,
    /// The chunk to which the group's frames are appended during a turn.
    pub open: Option<ChunkId>,
    /// Its index in the shard's list of such groups.
    pub open_at: u32,
}

impl Group {
    /// A group without members.
    #[must_use]
    pub fn new(
        filter: u32,
        slot: u32,
        wire_format: WireFormat,
        id: Option<&[u8]>,
        target_queue: Option<QueueKey>,
    ) -> Self {
        let mut prefix = Vec::new();
        encode::message_prefix(&mut prefix, id, wire_format.version);
        Group {
            filter,
            slot,
            members: Members::Single(None),
            wire_format,
            id: id.map(Into::into),
            prefix: prefix.into(),
            target_queue,
            open: None,
            open_at: 0,
        }
    }

    /// Whether every message goes to the outboxes of its members, regardless of its sender.
    #[inline]
    #[must_use]
    pub fn takes_all(&self) -> bool {
        self.target_queue.is_none() && self.wire_format.without == NOBODY
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(number: u32) -> Member {
        Member { conn: number, subscription: SubscriptionKey { index: number, generation: 1 } }
    }

    #[test]
    fn the_last_member_replaces_a_removed_one() {
        let mut members = Members::Single(None);
        assert!(members.is_empty());
        (0..4).for_each(|number| members.push(member(number)));
        members.swap_remove(1);
        assert_eq!(members[..], [member(0), member(3), member(2)]);
        members.swap_remove(2);
        members.swap_remove(0);
        assert!(matches!(members, Members::Single(Some(last)) if last == member(3)));
        members.swap_remove(0);
        assert!(members.is_empty());
    }

    #[test]
    fn a_shared_list_keeps_its_members_when_the_group_changes() {
        let mut members = Members::Single(None);
        (0..3).for_each(|number| members.push(member(number)));
        let held = members.clone();
        assert!(
            matches!((&members, &held), (Members::Several(one), Members::Several(other)) if Arc::ptr_eq(one, other))
        );
        members.swap_remove(0);
        members.push(member(3));
        assert_eq!(held[..], [member(0), member(1), member(2)]);
        assert_eq!(members[..], [member(2), member(1), member(3)]);
    }
}
