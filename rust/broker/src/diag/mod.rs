//! What the broker tells of itself when asked: DIAG (docs/behaviour.md, section 9).
//!
//! ```text
//! question ─► every shard: a report, walked over its tables ─► merged where it was asked ─► JSON, or headers
//! ```
//! Nothing here is touched while nobody asks. The types of questions and reports are in [`crate::report`].

pub mod assembly;
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

/// What a report tells of: a shard's owners, to be read.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// Time, settings and counters.
    pub turn: &'a Turn,
    /// Its connections.
    pub connections: &'a Connections,
    /// Its subscriptions.
    pub router: &'a Router,
    /// The queues whose home it is.
    pub queues: &'a Queues,
    /// Frames in its mailbox.
    pub mailbox_frames: usize,
    /// Stale messages of all shards.
    pub stale: usize,
    /// Questions to other shards that are not answered, but for those a RECEIPT waits for.
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
    /// What delivering takes.
    #[inline]
    pub fn delivery(&mut self) -> delivery::Owners<'_> {
        lend!(self => delivery::Owners { turn, notes, router, queues, connections, deliveries, peers })
    }
}
