//! Queue messages on their way to a connection's socket, and the ids of requeued deliveries.

use std::collections::VecDeque;

use super::acknowledgement::Acknowledgement;
use crate::collections::paged_deque::PagedDeque;
use crate::door::HashMap;
use crate::ids::SubscriptionKey;
use crate::message::OwnedMessage;
use crate::queue::unacked::Origin;

/// The number of ids of requeued deliveries that are remembered; an ACK of one of them is not an error.
pub const REQUEUED_MAX: usize = 65_536;
/// The same while memory is short: nobody else could free what they take.
const REQUEUED_SHORT: usize = 256;

/// The number of deliveries settled by late ACKs that are remembered.
const SETTLED_MAX: usize = 256;

/// The bits of [`ForgottenIds`].
const BITS: usize = 1 << 16;

/// Ids that were forgotten while memory was short, however many, in a constant amount of memory: each sets two bits (a
/// Bloom filter). It has all of them, and by chance others.
#[derive(Debug, Default)]
struct ForgottenIds {
    words: Vec<u64>,
}

impl ForgottenIds {
    /// The words and bits of a hash. The hashes of ids that follow each other may have much in common, so they are mixed (the
    /// finalizer of SplitMix64).
    fn places(id_hash: u64) -> [(usize, u64); 2] {
        let mixed = (id_hash ^ (id_hash >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        let mixed = mixed ^ (mixed >> 31);
        [mixed, mixed >> 16].map(|part| (part as usize % BITS / 64, 1 << (part % 64)))
    }

    fn add(&mut self, id_hash: u64) {
        self.words.resize(BITS / 64, 0);
        for (word, bit) in Self::places(id_hash) {
            self.words[word] |= bit;
        }
    }

    fn may_have(&self, id_hash: u64) -> bool {
        let is_set = |(word, bit): (usize, u64)| self.words.get(word).is_some_and(|word| word & bit != 0);
        Self::places(id_hash).into_iter().all(is_set)
    }
}

/// The hash of an id and the subscription that its delivery was requeued from.
fn with_subscription(id_hash: u64, subscription: SubscriptionKey) -> u64 {
    id_hash ^ (u64::from(subscription.index) << 32 | u64::from(subscription.generation)).wrapping_mul(MIX)
}

/// An odd number with bits everywhere.
const MIX: u64 = 0x9E37_79B9_7F4A_7C15;

/// Whether a delivery was requeued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requeued {
    /// It was.
    Surely,
    /// Its id was forgotten, or looks like one that was.
    Perhaps,
    /// It was not, as far as that is remembered.
    Never,
}

/// Queue messages in the outbox that are not written completely; each belongs to one write marker.
#[derive(Debug)]
pub struct PendingWrite {
    /// The subscription.
    pub subscription: SubscriptionKey,
    /// The queue that it came from.
    pub origin: Origin,
    /// Bytes that are credited once they are written.
    pub bytes: u64,
    /// With ack auto, the message, which is consumed once it is written.
    pub message: Option<OwnedMessage>,
}

/// The maximum of bytes of written deliveries in one note, so that credit is returned early enough.
const NOTE_BYTES_MAX: u64 = 32 << 10;

impl PendingWrite {
    /// Whether it may cover one more delivery.
    #[must_use]
    pub fn can_take(&self, origin: Origin, bytes: u64) -> bool {
        self.origin == origin && self.bytes + bytes <= NOTE_BYTES_MAX
    }
}

/// The state of a connection that only consumers of queues need.
#[derive(Debug, Default)]
pub struct PendingWrites {
    /// Pending writes, in the order of the outbox.
    pub writes: PagedDeque<PendingWrite>,
    /// The number of unacknowledged deliveries.
    pub unacked: usize,
    /// What is left of an ACK or NACK of very many deliveries.
    pub acknowledging: Option<Acknowledgement>,
    /// Deliveries were forgotten, so an ACK of an unknown id is not an error.
    pub accepts_unknown: bool,
    /// Ids that were forgotten while memory was short, and the same with their subscriptions.
    forgotten: ForgottenIds,
    forgotten_of: ForgottenIds,
    /// The subscription of each id that is remembered, by the hash of the id, and when it was requeued last.
    pub(super) requeued: HashMap<u64, (SubscriptionKey, u32)>,
    /// The ids with the times when they were requeued, as numbers that grow.
    pub(super) order: VecDeque<(u64, u32)>,
    last: u32,
    /// Deliveries that late ACKs have settled alone, as hashes of their ids, with subscription and number.
    settled: VecDeque<(u64, SubscriptionKey, u64)>,
}

impl PendingWrites {
    /// Remembers the id of a requeued delivery to a subscription, by its hash, and forgets up to two if they are too many.
    pub fn take_back(&mut self, id_hash: u64, subscription: SubscriptionKey, is_memory_short: bool) {
        self.last = self.last.wrapping_add(1);
        self.requeued.insert(id_hash, (subscription, self.last));
        self.order.push_back((id_hash, self.last));
        let max = if is_memory_short { REQUEUED_SHORT } else { REQUEUED_MAX };
        for _ in 0..2 {
            if self.requeued.len() > max {
                self.forget_oldest(is_memory_short);
            }
        }
        // An id that was requeued again is in the order twice.
        if self.order.len() > 2 * self.requeued.len() + REQUEUED_SHORT {
            let requeued = &self.requeued;
            self.order.retain(|(id_hash, at)| requeued.get(id_hash).is_some_and(|(_, last)| last == at));
        }
        if self.order.capacity() > 4 * self.order.len().max(REQUEUED_SHORT) {
            self.order.shrink_to(2 * self.order.len());
            self.requeued.shrink_to(2 * self.order.len());
        }
    }

    /// Forgets the id that was requeued longest ago.
    fn forget_oldest(&mut self, is_memory_short: bool) {
        while let Some((id_hash, at)) = self.order.pop_front() {
            let Some((subscription, last)) = self.requeued.get(&id_hash).copied() else { continue };
            if last == at {
                self.requeued.remove(&id_hash);
                if is_memory_short {
                    self.forgotten.add(id_hash);
                    self.forgotten_of.add(with_subscription(id_hash, subscription));
                }
                return;
            }
        }
    }

    /// Whether this id of a requeued delivery is remembered.
    #[must_use]
    pub fn is_remembered(&self, id_hash: u64) -> bool {
        self.requeued.contains_key(&id_hash)
    }

    /// Remembers a delivery that a late ACK has settled alone: a NACK of it covers those before it.
    pub fn settle_late(&mut self, id_hash: u64, subscription: SubscriptionKey, number: u64) {
        if self.settled.len() == SETTLED_MAX {
            self.settled.pop_front();
        }
        self.settled.push_back((id_hash, subscription, number));
    }

    /// The number of the last delivery with this id that a late ACK has settled alone, as far as it is remembered.
    #[must_use]
    pub fn settled_late(&self, id_hash: u64, subscription: SubscriptionKey) -> Option<u64> {
        let found = self.settled.iter().rev().find(|(hash, of, _)| *hash == id_hash && *of == subscription);
        found.map(|(.., number)| *number)
    }

    /// Whether this id of a requeued delivery may have been forgotten while memory was short.
    #[must_use]
    pub fn may_have_forgotten(&self, id_hash: u64) -> bool {
        self.forgotten.may_have(id_hash)
    }

    /// Whether a delivery with this id was requeued from this subscription, or may have been.
    #[must_use]
    pub fn may_have_requeued(&self, id_hash: u64, subscription: SubscriptionKey) -> Requeued {
        match self.requeued.get(&id_hash) {
            Some((from, _)) if *from == subscription => Requeued::Surely,
            _ if self.forgotten_of.may_have(with_subscription(id_hash, subscription)) => Requeued::Perhaps,
            _ => Requeued::Never,
        }
    }

    /// The memory that it uses, in bytes.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        56 * self.order.capacity()
            + size_of_val(&*self.forgotten.words)
            + size_of_val(&*self.forgotten_of.words)
            + size_of::<(u64, SubscriptionKey, u64)>() * self.settled.capacity()
            + size_of::<PendingWrite>() * self.writes.capacity()
    }
}

#[cfg(test)]
mod tests {
    use std::hash::BuildHasher as _;

    use super::*;
    use crate::collections::keyed::Key;
    use crate::ids::ShardId;

    const KEY: SubscriptionKey = Key { index: 3, generation: 1 };

    #[test]
    fn the_newest_ids_of_requeued_deliveries_are_remembered() {
        let mut pending = PendingWrites::default();
        let max = REQUEUED_MAX as u64;
        (0..max).for_each(|id| pending.take_back(id, KEY, false));
        pending.take_back(0, KEY, false); // it is the newest now
        pending.take_back(max, KEY, false);
        assert!(!pending.is_remembered(1) && [0, 2, max].iter().all(|id| pending.is_remembered(*id)));
        assert!(!pending.may_have_forgotten(1), "it is wrong from now on");
        (0..1_000_000).for_each(|_| pending.take_back(0, KEY, false));
        assert!(pending.order.len() <= 3 * REQUEUED_MAX && pending.is_remembered(2));
        assert!(pending.held_bytes() >= REQUEUED_MAX * size_of::<u64>());
    }

    /// Seed 17041841: they alone took half of a small memory.
    #[test]
    fn fewer_ids_are_remembered_while_memory_is_short() {
        let mut pending = PendingWrites::default();
        (0..50_000).for_each(|id| pending.take_back(id, KEY, false));
        let before = pending.held_bytes();
        (50_000..110_000).for_each(|id| pending.take_back(id, KEY, true));
        assert!((0..108_000).all(|id| pending.may_have_forgotten(id)));
        assert!(pending.held_bytes() < before / 8, "{before}, then {}", pending.held_bytes());
        assert!(pending.is_remembered(109_999) && !pending.is_remembered(108_000));
        assert_eq!((pending.order.len(), pending.requeued.len()), (REQUEUED_SHORT, REQUEUED_SHORT));
    }

    #[test]
    fn few_other_ids_count_as_forgotten() {
        let hasher = crate::door::HashState::default();
        let hashes = |numbers: std::ops::Range<u64>| numbers.map(|number| hasher.hash_one((7_u32, number)));
        let mut pending = PendingWrites::default();
        hashes(0..4000).for_each(|id| pending.take_back(id, KEY, true));
        assert!(hashes(0..4000 - REQUEUED_SHORT as u64).all(|id| pending.may_have_forgotten(id)));
        let others = hashes(4000..14_000).filter(|id| pending.may_have_forgotten(*id)).count();
        assert!(others < 300, "{others} of 10,000 others");
    }

    #[test]
    fn a_write_covers_deliveries_of_one_queue_up_to_its_maximum() {
        let key = Key { index: 0, generation: 0 };
        let origin = |home| Origin { home: ShardId(home), queue: key, consumer: key };
        let write =
            PendingWrite { subscription: key, origin: origin(0), bytes: NOTE_BYTES_MAX - 5, message: None };
        assert!(
            write.can_take(origin(0), 5) && !write.can_take(origin(0), 6) && !write.can_take(origin(1), 5)
        );
    }
}
