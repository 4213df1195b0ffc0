//! Beginning and end of subscriptions, and the groups that they form.

use std::hash::BuildHasher as _;
use std::sync::Arc;

use stompica_proto::ProtocolError;
use stompica_proto::error::Code;
use stompica_proto::session::AckMode;

use super::group::{Group, GroupIndex, Member, Place, Subscription, SubscriptionIndex, WireFormat};
use super::{InterestChange, Router};
use crate::destination::tree::FilterIndex;
use crate::door::planted;
use crate::ids::ConnKey;
use crate::ids::{QueueKey, SubscriptionKey};
use crate::text::Text;

impl Router {
    /// Adds a subscription to a topic or a pattern of topics. With a `target_queue`, its messages go into that queue. So many
    /// `queues` count against `max_destinations` as well; `None`: without that limit.
    ///
    /// # Errors
    /// `E-DEST-INVALID`, `E-DEST-COUNT`; nothing has changed then.
    pub fn subscribe(
        &mut self,
        name: &[u8],
        (conn, id, ack): (ConnKey, Option<&[u8]>, AckMode),
        wire_format: WireFormat,
        target_queue: Option<QueueKey>,
        queues: Option<usize>,
    ) -> Result<(SubscriptionKey, InterestChange), ProtocolError> {
        let filter = match self.find_filter(name)? {
            Some(filter) => filter,
            None if queues.is_some_and(|queues| self.is_at_limit(queues)) => return Err(self.too_many()),
            None => self.add_filter(&Arc::new(name.into()))?,
        };
        let group = self.group(filter, wire_format, id, target_queue);
        let member = self.groups[group as usize].members.len() as u32;
        let key =
            self.add_subscription(conn, id.unwrap_or(name), ack, Place::Topic { filter, group, member });
        self.groups[group as usize].members.push(Member { conn: conn.index, subscription: key });
        let filter = &mut self.filters[filter as usize];
        filter.local += 1;
        Ok((key, if filter.local == 1 { InterestChange::Changed } else { InterestChange::None }))
    }

    /// The error if `max_destinations` is exceeded.
    #[must_use]
    pub fn too_many(&self) -> ProtocolError {
        ProtocolError::new(Code::DestinationCount, format!("max_destinations is {}", self.entries_max))
    }

    /// Whether one more name or queue would exceed `max_destinations`.
    #[must_use]
    pub fn is_at_limit(&self, queues: usize) -> bool {
        self.filters.len() + queues >= self.entries_max && !planted!("destination-too-many")
    }

    /// Adds a subscription to queues.
    pub fn subscribe_queue(&mut self, conn: ConnKey, id: &[u8], ack: AckMode) -> SubscriptionKey {
        self.add_subscription(conn, id, ack, Place::Queue)
    }

    fn add_subscription(&mut self, conn: ConnKey, id: &[u8], ack: AckMode, place: Place) -> SubscriptionKey {
        self.generation_of_subscriptions = self.generation_of_subscriptions.wrapping_add(1);
        let generation = self.generation_of_subscriptions;
        let subscription = Subscription { conn, generation, place, id: id.into(), ack };
        SubscriptionKey { index: self.subscriptions.insert(subscription) as u32, generation }
    }

    /// The generation of the newest subscription.
    #[must_use]
    pub fn newest_subscription(&self) -> u32 {
        self.generation_of_subscriptions
    }

    /// A subscription, if it still exists.
    pub fn subscription_mut(&mut self, key: SubscriptionKey) -> Option<&mut Subscription> {
        self.subscriptions.get_mut(key.index as usize).filter(|found| found.generation == key.generation)
    }

    /// Changes the connection whose messages are omitted from a queue that a topic feeds.
    pub fn leave_out(&mut self, key: SubscriptionKey, sender: u64) {
        if let Some(Place::Topic { group, .. }) = self.subscription_mut(key).map(|found| found.place)
            && let Some(group) =
                self.groups.get_mut(group as usize).filter(|group| group.target_queue.is_some())
        {
            group.wire_format.without = sender; // a group with a target queue is in no index
        }
    }

    /// Moves a subscription from its private queue to the group of subscriptions that are written to directly.
    pub fn leave_queue(&mut self, key: SubscriptionKey) {
        let Some(found) = self.subscription_mut(key) else { return };
        let Place::Topic { filter, group: alone, .. } = found.place else { return };
        let conn = found.conn.index;
        let old = &self.groups[alone as usize];
        let (wire_format, id) = (old.wire_format, old.id.clone());
        self.remove_group(alone);
        let group = self.group(filter, wire_format, id.as_deref(), None);
        let member = self.groups[group as usize].members.len() as u32;
        self.groups[group as usize].members.push(Member { conn, subscription: key });
        if let Some(found) = self.subscription_mut(key) {
            found.place = Place::Topic { filter, group, member };
        }
    }

    /// Removes a subscription that is not a consumer any more. Returns the filter's name if it was the shard's last
    /// one. The group must have no open chunk with frames that are not distributed.
    pub fn unsubscribe(&mut self, index: SubscriptionIndex) -> (Subscription, Option<Arc<Text>>) {
        let subscription = self.subscriptions.remove(index as usize);
        let Place::Topic { filter: filter_index, group: group_index, member } = subscription.place else {
            return (subscription, None);
        };
        let group = &mut self.groups[group_index as usize];
        group.members.swap_remove(member as usize);
        let moved = group.members.get(member as usize).map(|moved| moved.subscription.index);
        if group.members.is_empty() {
            self.remove_group(group_index);
        }
        if let Some(Place::Topic { member: place, .. }) =
            moved.map(|moved| &mut self.subscriptions[moved as usize].place)
            && !planted!("moved-member-misplaced")
        {
            *place = member;
        }
        let filter = &mut self.filters[filter_index as usize];
        filter.local -= 1;
        let is_last = filter.local == 0 || (filter.local == 1 && planted!("interest-withdrawn-early"));
        let last = is_last.then(|| Arc::clone(&filter.name));
        if last.is_some() {
            filter.fan_out_size_told = 0; // the report that it was the last one includes this
        }
        self.remove_filter_if_unused(filter_index);
        (subscription, last)
    }

    /// The group of a new subscription of this kind; one with a queue is alone in its group.
    fn group(
        &mut self,
        filter: FilterIndex,
        wire_format: WireFormat,
        id: Option<&[u8]>,
        target_queue: Option<QueueKey>,
    ) -> GroupIndex {
        let hash = self.hasher.hash_one((filter, wire_format, id));
        if target_queue.is_none() {
            let known = self.group_index.find(hash, |at| {
                let group = &self.groups[at as usize];
                group.filter == filter && group.wire_format == wire_format && group.id.as_deref() == id
            });
            if let Some(group) = known {
                return group;
            }
        }
        let slot = self.filters[filter as usize].groups.len() as u32;
        let index = self.groups.insert(Group::new(filter, slot, wire_format, id, target_queue)) as GroupIndex;
        self.filters[filter as usize].groups.push(index);
        if target_queue.is_none() {
            self.group_index.insert(hash, index);
        }
        index
    }

    fn remove_group(&mut self, index: GroupIndex) {
        let group = self.groups.remove(index as usize);
        let hash = self.hasher.hash_one((group.filter, group.wire_format, group.id.as_deref()));
        self.group_index.remove(hash, |at| at == index);
        let slots = &mut self.filters[group.filter as usize].groups;
        slots.swap_remove(group.slot as usize);
        if let Some(moved) = slots.get(group.slot as usize) {
            self.groups[*moved as usize].slot = group.slot;
        }
        debug_assert!(group.open.is_none(), "a group is closed before its last member leaves");
    }
}
