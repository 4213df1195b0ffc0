//! Queue messages on their way to a connection's socket, and delivery ids that are void.

use std::collections::VecDeque;

use hashbrown::HashSet;

use crate::collections::paged_deque::PagedDeque;
use crate::ids::SubscriptionKey;
use crate::message::OwnedMessage;
use crate::queue::unacked::Origin;

/// How many ids of requeued deliveries are remembered; an ACK of one of them is no error.
pub const REQUEUED_MAX: usize = 65_536;

/// Queue messages in the outbox that are not written completely; each belongs to one write marker.
#[derive(Debug)]
pub struct PendingWrite {
    /// The subscription.
    pub subscription: SubscriptionKey,
    /// Where it came from.
    pub origin: Origin,
    /// Bytes that are credited once they are written.
    pub bytes: u64,
    /// With ack auto, the message: it is consumed once it is written.
    pub stored: Option<OwnedMessage>,
}

/// One note about written deliveries covers at most so many bytes, so that credit comes back early enough.
const NOTE_BYTES_MAX: u64 = 32 << 10;

impl PendingWrite {
    /// Whether it may cover one more delivery.
    #[must_use]
    pub fn can_take(&self, origin: Origin, bytes: u64) -> bool {
        self.origin == origin && self.bytes + bytes <= NOTE_BYTES_MAX
    }
}

/// The part of a connection that only consumers of queues have.
#[derive(Debug, Default)]
pub struct PendingWrites {
    /// In the order of the outbox.
    pub writes: PagedDeque<PendingWrite>,
    /// Deliveries that it has not acknowledged.
    pub unacked: usize,
    /// An ACK or NACK of very many deliveries is under way.
    pub is_acknowledging: bool,
    requeued: HashSet<u64, foldhash::fast::RandomState>,
    order: VecDeque<u64>,
}

impl PendingWrites {
    /// Remembers the id of a requeued delivery, by its hash.
    pub fn take_back(&mut self, id_hash: u64) {
        if self.requeued.insert(id_hash) {
            self.order.push_back(id_hash);
        }
        if self.order.len() > REQUEUED_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.requeued.remove(&oldest);
        }
    }

    /// Whether the delivery with this id was requeued.
    #[must_use]
    pub fn was_requeued(&self, id_hash: u64) -> bool {
        self.requeued.contains(&id_hash)
    }

    /// Bytes it occupies.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        32 * self.order.capacity() + size_of::<PendingWrite>() * self.writes.capacity()
    }
}
