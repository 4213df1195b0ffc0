//! Work queues and everything that behaves like one: each has one home shard, where its order is decided.
//!
//! ```text
//! SEND ─► enqueue ─► pending ─► dispatch ─► the consumer's shard ─► ACK, or written (ack auto): settled
//!                       ▲                          │
//!                       └── give back: consumer lost (old place), NACK or ack_timeout (after a delay) ──► dead letter
//! ```
//! A message at rest ([`stored::Stored`]) moves: its home holds it while it waits, the shard of its consumer while it
//! is in flight. Whoever holds it gives it back or reports it settled. The home keeps the order, the consumers and
//! their credit; it does no I/O, and what it wants done elsewhere it leaves in [`home::Home::effects`].
//!
//! | kind | named | holds messages without a consumer | ends |
//! |---|---|---|---|
//! | work | `/queue/…` | yes | idle and empty for `queue_idle_expiry` |
//! | worker topic | `#…` | no (stale store, if `TTL` > 0) | the same |
//! | temporary | `/temp-queue/…` | yes | with its owner |
//! | durable | a durable subscription | yes | UNSUBSCRIBE |
//! | private | a subscription to a topic that acknowledges | yes | with the subscription |

pub mod asker;
mod consumers;
mod dispatch;
pub mod home;
mod lifetime;
pub mod mail;
pub mod parts;
pub mod passing;
mod patterns;
pub mod pending;
pub mod replay;
pub mod retained;
mod room;
pub mod stale;
pub mod stored;
mod sweep;
pub mod unacked;

use crate::ids::ShardId;
use crate::keyed::Key;
use crate::text::Text;

/// Names a queue of one home.
pub type QueueKey = Key;
/// Names a consumer of one home.
pub type ConsumerKey = Key;
/// Names a pattern of one home.
pub type PatternKey = Key;
/// Names a subscription of one shard.
pub type SubscriptionKey = Key;

/// What a queue is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueKind {
    /// `/queue/…`.
    Work,
    /// `#…`.
    Worker,
    /// `/temp-queue/…`.
    Temporary,
    /// A durable subscription.
    Durable {
        /// Several may hold it at a time.
        shared: bool,
    },
    /// Of one subscription.
    Private,
}

impl QueueKind {
    /// Whether clients name the queue, so that patterns may match it.
    #[must_use]
    pub fn is_named(self) -> bool {
        matches!(self, QueueKind::Work | QueueKind::Worker | QueueKind::Temporary)
    }
}

/// A subscription, wherever its connection lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Subscriber {
    /// The shard of its connection.
    pub shard: ShardId,
    /// The subscription there.
    pub key: SubscriptionKey,
}

/// The temporary destinations of one connection.
#[derive(Debug)]
pub struct Temporary {
    /// Part of their full names.
    pub secret: String,
    /// Their names as the owner uses them.
    pub names: Names,
    /// Those that it consumes without a SUBSCRIBE, as a `reply-to` named them.
    pub answered: Names,
}

/// Names that count themselves as held.
pub type Names = hashbrown::HashSet<Text, foldhash::fast::RandomState>;

impl Temporary {
    /// None yet.
    #[must_use]
    pub fn new(secret: String) -> Self {
        Temporary { secret, names: Names::default(), answered: Names::default() }
    }
}

/// The home of a name with this hash.
#[must_use]
pub fn home_of(hash: u64, shards: usize) -> ShardId {
    // The upper half: tables use the lower bits.
    ShardId(((hash >> 32) as usize % shards) as u8)
}
