//! Client commands: each one checks its frame, then calls the owners that it is given.
//!
//! ```text
//! frame ─► session ─► frame.rs ─► one file per command ─► router, queues, connections, other shards
//!                                                      └─► Flow: done, or what it waits for
//! ```
//! A command that takes several turns (COMMIT, the end of many subscriptions) leaves a job. Notes that a command
//! sends to this shard's own connections wait in [`Notes`] until the frame is done.

mod ack;
mod apply;
mod arrival;
mod commit;
pub(crate) mod commits;
mod consume;
mod diagnostics;
mod frame;
mod leaving;
mod replies;
mod room;
mod send;
mod subscribe;
pub(crate) mod temporary;
mod transaction;
mod unsubscribe;

use self::commits::Commits;
use crate::connection::Connections;
use crate::delivery::{self, Deliveries};
use crate::diag;
use crate::diag::inquiries::Diagnostics;
use crate::mail::peers::Peers;
use crate::queue;
use crate::queue::notes::Notes;
use crate::queue::queues::Queues;
use crate::router::Router;
use crate::turn::Turn;

owners! {
    /// All owners that commands need.
    pub struct Owners {
        turn: Turn, notes: Notes, router: Router, queues: Queues,
        connections: Connections, deliveries: Deliveries, peers: Peers,
        diagnostics: Diagnostics, commits: Commits,
    } with {
        /// Whether the broker is shutting down.
        pub is_draining: bool,
    }
}

impl Owners<'_> {
    /// The owners that queues need.
    #[inline]
    pub fn queue(&mut self) -> queue::Owners<'_> {
        lend!(self => queue::Owners { turn, notes, router, queues })
    }

    /// The owners that deliveries need.
    #[inline]
    pub fn delivery(&mut self) -> delivery::Owners<'_> {
        lend!(self => delivery::Owners { turn, notes, router, queues, connections, deliveries, peers })
    }

    /// The owners that diagnostics need.
    pub fn diag(&mut self) -> diag::Owners<'_> {
        lend!(self => diag::Owners {
            turn, notes, router, queues, connections, deliveries, peers, diagnostics
        } with { is_draining: self.is_draining })
    }
}
