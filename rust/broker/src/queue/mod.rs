//! Work queues and similar queues: each has one home shard, which determines its order.
//!
//! ```text
//! SEND ─► enqueue ─► pending ─► dispatch ─► the consumer's shard ─► ACK, or written (ack auto): settled
//!                       ▲                          │
//!                       └── give back: consumer lost (old place), NACK or ack_timeout (after a delay) ──► dead letter
//! ```
//! A message at rest ([`OwnedMessage`](crate::message::OwnedMessage)) moves between shards: its home holds it while it
//! is pending, and the shard of its consumer while it is in flight. That shard requeues it or reports it as settled.
//! The home keeps the order, the consumers and their credit. It does no I/O; its requests to others are in
//! [`home::Home::effects`].
//!
//! | kind | named | holds messages without a consumer | ends |
//! |---|---|---|---|
//! | work | `/queue/…` | yes | idle and empty for `queue_idle_expiry` |
//! | worker topic | `#…` | no (stale store, if `TTL` > 0) | the same |
//! | temporary | `/temp-queue/…` | yes | with its owner |
//! | durable | a durable subscription | yes | UNSUBSCRIBE |
//! | private | a subscription to a topic that acknowledges | yes | with the subscription |

pub mod allowance;
mod attach;
#[cfg(any(test, simulated))]
mod audit;
mod congestion;
pub mod consumer_state;
pub mod consumer_states;
mod consumers;
mod copies;
mod counts;
mod dead_letters;
mod dispatch;
pub mod durable;
pub(crate) mod enqueue;
pub mod home;
pub mod initial_replay;
mod kept;
mod lifetime;
pub mod mail;
pub mod notes;
pub mod orphans;
mod pacing;
mod paged;
mod paging;
mod patterns;
pub mod pending;
mod pick;
pub mod prepared;
pub mod queues;
mod read;
mod recorded;
pub mod replay;
pub mod replays;
mod reservations;
pub mod restored;
pub mod retained;
pub mod revival;
mod revocation;
pub mod stale;
mod stubs;
mod sweep;
pub mod types;
pub mod unacked;

use self::notes::Notes;
use self::queues::Queues;
use crate::router::Router;
use crate::turn::Turn;

owners! {
    /// The queues of one shard, and the other owners that they need.
    pub struct Owners {
        turn: Turn, notes: Notes, router: Router, queues: Queues,
    }
}

/// The kind of a queue.
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
        /// Several subscriptions may hold it at a time.
        shared: bool,
    },
    /// Belongs to one subscription.
    Private,
}

impl QueueKind {
    /// Whether its persistent messages survive the end of the process, if the store is durable.
    #[must_use]
    pub fn survives(self) -> bool {
        matches!(self, QueueKind::Work | QueueKind::Durable { .. })
    }

    /// Whether its messages are also in other queues: it belongs to a subscription to topics.
    #[must_use]
    pub fn shares_messages(self) -> bool {
        matches!(self, QueueKind::Durable { .. } | QueueKind::Private)
    }

    /// Whether clients name the queue, so that patterns may match it.
    #[must_use]
    pub fn is_named(self) -> bool {
        matches!(self, QueueKind::Work | QueueKind::Worker | QueueKind::Temporary)
    }
}

#[cfg(test)]
#[path = "owners_tests.rs"]
mod tests;
