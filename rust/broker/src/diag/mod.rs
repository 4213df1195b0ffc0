//! Diagnostics: answers queries about the broker's state (DIAG, docs/behaviour.md, section 9).
//!
//! ```text
//! query ─► every shard: a report, from a walk over its tables ─► merged on the asking shard ─► JSON, or headers
//! ```
//! This code has no cost while there are no queries. The types of queries and reports are in [`crate::report`].

pub mod assembly;
#[cfg(any(test, simulated))]
mod audit;
mod gather;
pub mod inquiries;
mod monitor;
mod reports;
mod rows;
pub mod survey;
pub mod watch;

use self::inquiries::Diagnostics;
use crate::connection::Connections;
use crate::delivery::{self, Deliveries};
use crate::mail::peers::Peers;
use crate::queue::notes::Notes;
use crate::queue::queues::Queues;
use crate::router::Router;
use crate::turn::Turn;

/// Read access to the owners of a shard, for a report.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// Time, settings and counters.
    pub turn: &'a Turn,
    /// Its connections.
    pub connections: &'a Connections,
    /// Its subscriptions.
    pub router: &'a Router,
    /// The queues with their home here.
    pub queues: &'a Queues,
    /// Frames in its mailbox.
    pub mailbox_frames: usize,
    /// Stale messages of all shards.
    pub stale: usize,
    /// Pending answers of other shards, without those for RECEIPTs.
    pub unanswered: usize,
}

owners! {
    /// All owners that diagnostics need.
    pub struct Owners {
        turn: Turn, notes: Notes, router: Router, queues: Queues,
        connections: Connections, deliveries: Deliveries, peers: Peers, diagnostics: Diagnostics,
    } with {
        /// Whether the broker is shutting down: then no periodic reports are sent.
        pub is_draining: bool,
    }
}

impl Owners<'_> {
    /// The owners that deliveries need.
    #[inline]
    pub fn delivery(&mut self) -> delivery::Owners<'_> {
        lend!(self => delivery::Owners { turn, notes, router, queues, connections, deliveries, peers })
    }
}
