//! Queues, consumers and patterns of a home: their counts, rings and indices.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::BuildHasher as _;

use crate::audit::{Amount, Audit};
use crate::ids::{ConsumerKey, PatternKey, QueueKey, ShardId};
use crate::queue::QueueKind;
use crate::queue::home::Home;
use crate::queue::types::{Consumed, Consumer, Effect, Queue, Taker};

impl Home {
    /// Visits all queues, consumers and patterns.
    pub(super) fn audit(&self, audit: &mut Audit) {
        let consumers = self.consumers_by_source();
        let listed: BTreeSet<QueueKey> =
            self.ready_queues.iter().chain(self.copies.held()).copied().collect();
        for (key, queue) in self.queues.iter() {
            audit.queue(key, Amount::new(queue.in_flight, queue.in_flight_bytes));
            queue.pending.audit(audit);
            let own = consumers.get(&Consumed::Queue(key).source()).map_or(&[][..], |own| own);
            self.audit_queue(audit, (key, queue), own);
            let is_listed = listed.contains(&key);
            audit.require(queue.is_ready == is_listed, || {
                format!("{} is ready: {}, and on the list: {is_listed}", queue.shown(), queue.is_ready)
            });
        }
        audit.equal("ready queues", self.ready_queues.len() + self.copies.held().len(), listed.len());
        let waiting = self.queues.iter().filter(|(_, queue)| queue.waits_to_load).count();
        let in_line = self.paging.waiting.iter().filter(|key| self.queues.get(**key).is_some()).count();
        audit.equal("queues that wait to load", waiting, in_line);
        let requested = self.paging.bytes_of_requested();
        audit.equal("bytes requested by a home", self.paging.requested_bytes, requested);
        self.audit_names(audit);
        self.consumers.iter().for_each(|(key, consumer)| self.audit_consumer(audit, key, consumer));
        self.audit_patterns(audit, &consumers);
        self.sweep.dropped.iter().for_each(|pending| pending.audit(audit));
        for effect in &self.effects {
            match effect {
                Effect::Deliver(delivery) => delivery.audit(audit, audit.shard),
                Effect::DeadLetter(message) | Effect::Unmatched(message) => message.audit(audit),
                _ => {}
            }
        }
        let references = self.queues.iter().map(|(_, queue)| queue.patterns.len()).sum();
        audit.equal("references to patterns", self.references, references);
        audit.equal("effects of a home after its turn", self.effects.len(), 0);
    }

    /// The shards that are closed for deliveries, as bits.
    #[must_use]
    pub fn closed_shards(&self) -> u64 {
        self.congestion.closed
    }

    fn audit_names(&self, audit: &mut Audit) {
        let mut named = 0;
        for (hash, key) in self.names.iter() {
            let queue = self.queues.get(key);
            let is_right = queue.is_some_and(|queue| {
                queue.kind != QueueKind::Private && self.hasher.hash_one(&*queue.name) == hash
            });
            audit.require(is_right, || format!("a name refers to {key:?}, which is {queue:?}"));
            named += 1;
        }
        let queues = self.queues.iter().filter(|(_, queue)| queue.kind != QueueKind::Private).count();
        audit.equal("names of queues", named, queues);
        let bytes = self.queues.iter().map(|(_, queue)| queue.name.len()).sum();
        audit.equal("bytes of names", self.name_bytes, bytes);
        let mut found = 0;
        for (hash, key) in self.by_subscriber.iter() {
            let consumer = self.consumers.get(key);
            let is_right = consumer.is_some_and(|consumer| self.hasher.hash_one(consumer.subscriber) == hash);
            audit.require(is_right, || format!("a subscriber refers to {key:?}, which is {consumer:?}"));
            found += 1;
        }
        audit.equal("subscribers", found, self.consumers.len());
    }

    /// The consumers of each queue and of each pattern.
    fn consumers_by_source(&self) -> BTreeMap<(bool, QueueKey), Vec<ConsumerKey>> {
        let mut found: BTreeMap<_, Vec<ConsumerKey>> = BTreeMap::new();
        for (key, consumer) in self.consumers.iter() {
            found.entry(consumer.consumed.source()).or_default().push(key);
        }
        found
    }

    fn audit_queue(&self, audit: &mut Audit, (key, queue): (QueueKey, &Queue), own: &[ConsumerKey]) {
        audit.equal("consumers of a queue", queue.exact as usize, own.len());
        let is_own = |at: &&ConsumerKey| {
            self.consumers.get(**at).is_some_and(|consumer| self.pacing.is_own(consumer.subscriber.shard))
        };
        audit.equal("own consumers of a queue", queue.lead.own as usize, own.iter().filter(is_own).count());
        if queue.picking.is_some() {
            return;
        }
        let mut waits_for_consumer = true;
        for (at, consumer) in own.iter().filter_map(|at| Some((*at, self.consumers.get(*at)?))) {
            let times = queue.ready.iter().filter(|taker| **taker == Taker::One(at)).count();
            let expected = usize::from(!consumer.out_of_credit);
            audit.require(times == expected, || {
                format!("{} is {times} times in the ring of {}", consumer.shown(), queue.shown())
            });
            waits_for_consumer &= times == 0 || !consumer.credit.is_left();
        }
        for pattern in queue.patterns.iter().filter(|_| queue.patterns_as_of == self.patterns.generation) {
            let Some(known) = self.patterns.get(*pattern) else { continue };
            let in_ring = queue.ready.iter().filter(|taker| **taker == Taker::Pattern(*pattern)).count();
            let waiting = known.out_of_credit.iter().filter(|at| **at == key).count();
            audit.require(in_ring + waiting == 1, || {
                format!(
                    "{} has a pattern {in_ring} times in its ring, and waits {waiting} times",
                    queue.shown()
                )
            });
        }
        let next = queue.pending.first().filter(|first| !queue.holds_back(first.seq));
        audit.require(waits_for_consumer || queue.is_ready || next.is_none() || self.is_ending, || {
            format!("{} has a message and a consumer with credit, and is not ready", queue.shown())
        });
    }

    fn audit_consumer(&self, audit: &mut Audit, key: ConsumerKey, consumer: &Consumer) {
        audit.consumer(key, consumer.subscriber);
        audit.credit(audit.shard, key, consumer.credit.amount());
        if consumer.credit.messages > 0 && !consumer.is_revoked {
            audit.keeps_credit(consumer.subscriber);
        }
        let waits = consumer.out_of_credit && consumer.credit.is_left() && !consumer.is_suspended;
        audit.require(!waits, || format!("{} has credit, and is in no ring", consumer.shown()));
        let of_shard = self.congestion.suspended.get(usize::from(consumer.subscriber.shard.0));
        let is_waiting = of_shard.is_some_and(|waiting| waiting.contains(&key))
            || self.pacing.waiting.iter().any(|(_, at)| *at == key);
        audit.require(consumer.is_suspended == is_waiting, || {
            format!("{} is suspended, and on a list of those: {is_waiting}", consumer.shown())
        });
        let is_listed = self.revocations.iter().any(|(_, at)| *at == key);
        audit.require(consumer.is_revoked == is_listed, || {
            format!("{} is revoked, and on the list of those: {is_listed}", consumer.shown())
        });
    }

    fn audit_patterns(&self, audit: &mut Audit, consumers: &BTreeMap<(bool, QueueKey), Vec<ConsumerKey>>) {
        let patterns = &self.patterns;
        let bytes: usize = patterns.all.iter().map(|(_, pattern)| pattern.text.len()).sum();
        audit.equal(
            "bytes of patterns",
            2 * bytes,
            patterns.held_bytes() - super::super::patterns::PATTERN_BYTES * patterns.all.len(),
        );
        audit.equal("patterns by text", patterns.by_text.len(), patterns.all.len());
        for (key, pattern) in patterns.all.iter() {
            let own = consumers.get(&Consumed::Pattern(key).source()).map_or(&[][..], |own| own);
            audit.equal("consumers of a pattern", pattern.consumers as usize, own.len());
            audit.require(!own.is_empty(), || format!("a pattern without consumers: {pattern:?}"));
            for (at, consumer) in own.iter().filter_map(|at| Some((*at, self.consumers.get(*at)?))) {
                let times = pattern.ring.iter().filter(|other| **other == at).count();
                audit.require(times == usize::from(!consumer.out_of_credit), || {
                    format!("{} is {times} times in the ring of its pattern", consumer.shown())
                });
            }
            let is_listed = self.unserved.contains(&key);
            audit.require(pattern.unserved == is_listed, || {
                format!("a pattern is unserved: {}, and on the list: {is_listed}", pattern.unserved)
            });
        }
    }
}

impl Consumed {
    /// A sortable form.
    fn source(self) -> (bool, PatternKey) {
        match self {
            Consumed::Queue(key) => (false, key),
            Consumed::Pattern(key) => (true, key),
        }
    }
}

impl Queue {
    fn shown(&self) -> String {
        format!("queue '{}'", String::from_utf8_lossy(&self.name))
    }
}

impl Consumer {
    fn shown(&self) -> String {
        let ShardId(shard) = self.subscriber.shard;
        format!("the consumer of subscription {} on shard {shard}", self.subscriber.key.index)
    }
}
