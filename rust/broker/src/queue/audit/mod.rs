//! Counts anew what a home and the consumers of its shard hold, and compares it with their own counts.

mod home;
mod lines;
mod notes;

use std::collections::BTreeMap;

use super::consumer_state::ConsumerState;
use super::prepared::{PreparedCommit, Step};
use super::queues::Queues;
use super::unacked::{Origin, Unacked};
use crate::audit::{Amount, Audit};
use crate::ids::{QueueKey, Subscriber};
use crate::requester::Requester;

impl Queues {
    /// Visits everything that has its home here.
    pub fn audit(&self, audit: &mut Audit) {
        self.home.audit(audit);
        self.consumers.iter().for_each(|consumer| consumer.audit(audit));
        self.audit_kept(audit);
        self.audit_reservations(audit);
        self.audit_replays(audit);
        self.home.store.audit(audit);
        self.restoration.iter().for_each(|restoration| restoration.audit(audit));
        for revival in &self.revivals {
            audit.text(&revival.name);
            audit.answer(revival.requester.to());
        }
        self.orphans.iter().flat_map(|orphans| &orphans.names).for_each(|name| audit.text(name));
        self.bindings.values().for_each(|binding| audit.text(&binding.topic));
        self.bindings.values().flat_map(|binding| &binding.requesters).for_each(|it| audit.answer(it.to()));
        audit.queues += self.counted;
    }

    /// Stale and retained messages, and their indices.
    fn audit_kept(&self, audit: &mut Audit) {
        let stale = &self.stale;
        audit.stale += stale.by_arrival.len();
        for (arrival, waiting) in &stale.by_arrival {
            let message = &waiting.message;
            message.audit(audit);
            let is_named =
                stale.by_name.get(message.destination()).is_some_and(|same| same.contains(arrival));
            audit.require(is_named, || format!("stale message {arrival} is not found by its name"));
            let expires = stale.expiring.contains(&(message.expires_ms, *arrival));
            audit.require(expires, || format!("stale message {arrival} does not expire"));
        }
        stale.by_name.keys().for_each(|name| audit.text(name));
        let named = stale.by_name.values().map(|same| same.len()).sum();
        audit.equal("names of stale messages", named, stale.by_arrival.len());
        audit.equal("expiries of stale messages", stale.expiring.len(), stale.by_arrival.len());
        let retained = &self.retained;
        audit.retained += retained.by_name.len();
        for (name, message) in &retained.by_name {
            audit.text(name);
            message.audit(audit);
            let expires =
                message.expires_ms == 0 || retained.expiring.contains(&(message.expires_ms, name.clone()));
            audit.require(expires, || format!("a retained message of {name:?} does not expire"));
        }
        retained.expiring.iter().for_each(|(_, name)| audit.text(name));
        retained.claims.keys().for_each(|name| audit.text(name));
        audit.retained += retained.claims.keys().filter(|name| !retained.has(name)).count();
        let expiring = retained.by_name.values().filter(|message| message.expires_ms != 0).count();
        audit.equal("expiries of retained messages", retained.expiring.len(), expiring);
    }

    /// Places and room that are reserved for transactions.
    fn audit_reservations(&self, audit: &mut Audit) {
        let mut reserved: BTreeMap<QueueKey, (u64, u64, Vec<u64>)> = BTreeMap::new();
        let mut claims = 0;
        for PreparedCommit { reservations, step } in self.prepared.values() {
            for reservation in reservations.iter().filter(|reservation| reservation.reserved) {
                let Some(queue) = reservation.queue else {
                    claims += 1;
                    continue;
                };
                let (count, bytes, firsts) = reserved.entry(queue).or_default();
                *count += reservation.count;
                *bytes += reservation.bytes;
                firsts.push(reservation.first);
            }
            match step {
                Step::Keeping { requester, .. } | Step::Freeing { requester } => audit.answer(requester.to()),
                Step::Placing { messages, requester } => {
                    audit.answer(requester.to());
                    messages.iter().for_each(|placed| placed.message.audit(audit));
                }
                Step::Kept | Step::GivingBack => {}
            }
        }
        audit.equal("claims of room for retained messages", self.retained.claims.values().sum(), claims);
        for (key, queue) in self.home.table().iter() {
            let (count, bytes, mut firsts) = reserved.remove(&key).unwrap_or_default();
            firsts.sort_unstable();
            let barriers =
                queue.barriers.iter().copied().filter(|barrier| *barrier >= super::types::FIRST_SEQ);
            audit.equal("reserved places", queue.reserved, count);
            audit.equal("reserved bytes", queue.reserved_bytes, bytes);
            audit.equal("barriers of reserved places", barriers.collect(), firsts);
        }
    }

    fn audit_replays(&self, audit: &mut Audit) {
        let asked = self.pending_replays.values().filter_map(|pending| pending.asked.as_ref());
        let replies = asked.chain(self.replays.all.values()).filter_map(|replay| replay.reply.as_ref());
        replies.map(Requester::to).for_each(|to| audit.answer(to));
        let bytes = self.replays.all.values().map(|replay| replay.held_bytes()).sum();
        audit.equal("bytes of replays", self.replays.held_bytes, bytes);
    }
}

impl ConsumerState {
    /// Visits the state, and the deliveries that it holds.
    pub fn audit(&self, audit: &mut Audit) {
        audit.text(&self.destination);
        self.durable.iter().for_each(|name| audit.text(name));
        audit.text(&self.prefix);
        audit.weight(&self._weight);
        self.unacked.audit(audit, self.bytes_on_ack);
        let subscriber = Subscriber { shard: audit.shard, key: self.key };
        if let Some(shared) = &self.shared_credit {
            audit.credit_of(subscriber, Amount::new(shared.available, 0));
            shared.requests.iter().for_each(|(home, _)| audit.wants_credit(subscriber, *home));
        }
        if let Some(replay) = &self.initial_replay {
            audit.credit_of(subscriber, Amount::new(0, -replay.bytes_granted));
        }
    }
}

impl Unacked {
    /// Visits the deliveries; with `bytes_on_ack` their bytes are credited when they are settled.
    pub fn audit(&self, audit: &mut Audit, bytes_on_ack: bool) {
        let mut last = None;
        for entry in self.entries.iter() {
            audit.require(last < Some(entry.number), || "deliveries in flight are not in order".to_owned());
            last = Some(entry.number);
            entry.message.audit(audit);
            let Origin { home, queue, consumer } = entry.origin;
            let bytes = entry.message.size();
            audit.in_flight(home, queue, 1, bytes as u64);
            audit.credit(home, consumer, Amount::new(1, if bytes_on_ack { bytes as i64 } else { 0 }));
            let is_found = entry.id_hash == 0 || self.by_id.contains(&(entry.id_hash, entry.number));
            audit.require(is_found, || format!("delivery {} is not found by its id", entry.number));
        }
        let with_ids = self.entries.iter().filter(|entry| entry.id_hash != 0).count();
        audit.equal("ids of deliveries in flight", self.by_id.len(), with_ids);
        audit.message_bytes += self.counted;
        audit.equal("bytes of deliveries in flight", self.counted, self.table_bytes());
    }
}
