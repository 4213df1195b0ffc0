//! Subscriptions that come and go, and the groups they form.

use std::hash::BuildHasher as _;
use std::sync::Arc;

use stompica_proto::ProtocolError;
use stompica_proto::error::Code;
use stompica_proto::session::AckMode;

use super::group::{Dialect, Group, GroupIndex, Member, Place, Subscription, SubscriptionIndex};
use super::{InterestChange, Router};
use crate::destination::tree::EntryIndex;
use crate::ids::ConnKey;
use crate::ids::{QueueKey, SubscriptionKey};
use crate::queue::receiver::{Lending, Receiver};
use crate::text::Text;

impl Router {
    /// Adds a subscription to a topic or a pattern of topics. With a `sink`, its messages go into that queue. `queues`
    /// count against `max_destinations` as well.
    ///
    /// # Errors
    /// `E-DEST-INVALID`, `E-DEST-COUNT`; nothing has changed then.
    pub fn subscribe(
        &mut self,
        name: &[u8],
        (conn, id, ack): (ConnKey, Option<&[u8]>, AckMode),
        dialect: Dialect,
        sink: Option<QueueKey>,
        queues: usize,
    ) -> Result<(SubscriptionKey, InterestChange), ProtocolError> {
        let entry = match self.entry(name)? {
            Some(entry) => entry,
            None if self.entries.len() + queues >= self.entries_max => return Err(self.too_many()),
            None => self.add_entry(&Arc::new(name.into()))?,
        };
        let group = self.group(entry, dialect, id, sink);
        let member = self.groups[group as usize].members.len() as u32;
        let key = self.add_subscription(conn, id.unwrap_or(name), ack, Place::Topic { entry, group, member });
        self.groups[group as usize].members.push(Member { conn: conn.index, subscription: key.index });
        let entry = &mut self.entries[entry as usize];
        entry.local += 1;
        Ok((key, if entry.local == 1 { InterestChange::Changed } else { InterestChange::None }))
    }

    /// The error for one destination more than `max_destinations`.
    #[must_use]
    pub fn too_many(&self) -> ProtocolError {
        ProtocolError::new(Code::DestinationCount, format!("max_destinations is {}", self.entries_max))
    }

    /// Whether one more queue would exceed `max_destinations`.
    #[must_use]
    pub fn is_at_limit(&self, queues: usize) -> bool {
        self.entries.len() + queues >= self.entries_max
    }

    /// Adds a subscription to queues.
    pub fn subscribe_queue(&mut self, conn: ConnKey, id: &[u8], ack: AckMode) -> SubscriptionKey {
        self.add_subscription(conn, id, ack, Place::Queue)
    }

    fn add_subscription(&mut self, conn: ConnKey, id: &[u8], ack: AckMode, place: Place) -> SubscriptionKey {
        self.generation_of_subscriptions = self.generation_of_subscriptions.wrapping_add(1);
        let generation = self.generation_of_subscriptions;
        let subscription = Subscription { conn, generation, place, id: id.into(), ack, receiver: None };
        SubscriptionKey { index: self.subscriptions.insert(subscription) as u32, generation }
    }

    /// The generation of the newest subscription.
    #[must_use]
    pub fn newest_subscription(&self) -> u32 {
        self.generation_of_subscriptions
    }

    /// A subscription, unless it is gone.
    pub fn subscription_mut(&mut self, key: SubscriptionKey) -> Option<&mut Subscription> {
        self.subscriptions.get_mut(key.index as usize).filter(|found| found.generation == key.generation)
    }

    /// A number that no delivery had before.
    #[must_use]
    pub fn number_floor(&self) -> u64 {
        self.number_floor
    }

    /// What a subscription lends, if it consumes a pattern's queues.
    pub fn lending_mut(&mut self, key: SubscriptionKey) -> Option<&mut Lending> {
        self.subscription_mut(key)?.receiver.as_deref_mut()?.lending.as_mut()
    }

    /// The receiver of a subscription, if it consumes queues.
    pub fn receiver_mut(&mut self, index: SubscriptionIndex) -> Option<&mut Receiver> {
        self.subscriptions.get_mut(index as usize)?.receiver.as_deref_mut()
    }

    /// Leaves messages of another connection than before out of a queue that a topic feeds.
    pub fn leave_out(&mut self, key: SubscriptionKey, sender: u64) {
        if let Some(Place::Topic { group, .. }) = self.subscription_mut(key).map(|found| found.place)
            && let Some(group) = self.groups.get_mut(group as usize).filter(|group| group.sink.is_some())
        {
            group.dialect.without = sender; // with a sink it is in no index
        }
    }

    /// Lets a subscription whose messages went into a queue of its own join those that are written to directly.
    pub fn leave_queue(&mut self, key: SubscriptionKey) {
        let Some(found) = self.subscription_mut(key) else { return };
        let Place::Topic { entry, group: alone, .. } = found.place else { return };
        let conn = found.conn.index;
        found.receiver = None;
        let old = &self.groups[alone as usize];
        let (dialect, id) = (old.dialect, old.id.clone());
        self.remove_group(alone);
        let group = self.group(entry, dialect, id.as_deref(), None);
        let member = self.groups[group as usize].members.len() as u32;
        self.groups[group as usize].members.push(Member { conn, subscription: key.index });
        if let Some(found) = self.subscription_mut(key) {
            found.place = Place::Topic { entry, group, member };
        }
    }

    /// Removes a subscription; returns the entry's name where it was the shard's last one. The group must have no
    /// open chunk of which frames are still to be handed out.
    pub fn unsubscribe(&mut self, index: SubscriptionIndex) -> (Subscription, Option<Arc<Text>>) {
        let subscription = self.subscriptions.remove(index as usize);
        if let Some(receiver) = &subscription.receiver {
            self.number_floor = self.number_floor.max(receiver.number);
        }
        let Place::Topic { entry: entry_index, group: group_index, member } = subscription.place else {
            return (subscription, None);
        };
        let group = &mut self.groups[group_index as usize];
        group.members.swap_remove(member as usize);
        let moved = group.members.get(member as usize).map(|moved| moved.subscription);
        if group.members.is_empty() {
            self.remove_group(group_index);
        }
        if let Some(Place::Topic { member: place, .. }) =
            moved.map(|moved| &mut self.subscriptions[moved as usize].place)
        {
            *place = member;
        }
        let entry = &mut self.entries[entry_index as usize];
        entry.local -= 1;
        let last = (entry.local == 0).then(|| Arc::clone(&entry.name));
        if last.is_some() {
            entry.width_told = 0; // the news that it was the last one says so
        }
        self.remove_entry_if_unused(entry_index);
        (subscription, last)
    }

    /// The group that a new subscription of this kind joins; one with a queue of its own stays alone.
    fn group(
        &mut self,
        entry: EntryIndex,
        dialect: Dialect,
        id: Option<&[u8]>,
        sink: Option<QueueKey>,
    ) -> GroupIndex {
        let hash = self.hasher.hash_one((entry, dialect, id));
        if sink.is_none() {
            let known = self.group_index.find(hash, |at| {
                let group = &self.groups[at as usize];
                group.entry == entry && group.dialect == dialect && group.id.as_deref() == id
            });
            if let Some(group) = known {
                return group;
            }
        }
        let slot = self.entries[entry as usize].groups.len() as u32;
        let index = self.groups.insert(Group::new(entry, slot, dialect, id, sink)) as GroupIndex;
        self.entries[entry as usize].groups.push(index);
        if sink.is_none() {
            self.group_index.insert(hash, index);
        }
        index
    }

    fn remove_group(&mut self, index: GroupIndex) {
        let group = self.groups.remove(index as usize);
        let hash = self.hasher.hash_one((group.entry, group.dialect, group.id.as_deref()));
        self.group_index.remove(hash, |at| at == index);
        let slots = &mut self.entries[group.entry as usize].groups;
        slots.swap_remove(group.slot as usize);
        if let Some(moved) = slots.get(group.slot as usize) {
            self.groups[*moved as usize].slot = group.slot;
        }
        debug_assert!(group.open.is_none(), "a group is closed before its last member leaves");
    }
}
