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

/// All owners that commands need.
#[derive(Debug)]
pub struct Owners<'a> {
    /// The turn.
    pub turn: &'a mut Turn,
    /// Notes that wait to be sent.
    pub notes: &'a mut Notes,
    /// Filters and subscriptions.
    pub router: &'a mut Router,
    /// The queues with their home here, and the consumers of this shard's subscriptions.
    pub queues: &'a mut Queues,
    /// The connections.
    pub connections: &'a mut Connections,
    /// Messages on their way to the connections.
    pub deliveries: &'a mut Deliveries,
    /// The other shards.
    pub peers: &'a mut Peers,
    /// Diagnostics queries.
    pub(crate) diagnostics: &'a mut Diagnostics,
    /// COMMITs that take several turns.
    pub(crate) commits: &'a mut Commits,
    /// Whether the broker is shutting down.
    pub is_draining: bool,
}

impl Owners<'_> {
    /// The owners that queues need.
    #[inline]
    pub fn queue(&mut self) -> queue::Owners<'_> {
        queue::Owners { turn: self.turn, notes: self.notes, router: self.router, queues: self.queues }
    }

    /// The owners that deliveries need.
    #[inline]
    pub fn delivery(&mut self) -> delivery::Owners<'_> {
        delivery::Owners {
            turn: self.turn,
            notes: self.notes,
            router: self.router,
            queues: self.queues,
            connections: self.connections,
            deliveries: self.deliveries,
            peers: self.peers,
        }
    }

    /// The owners that diagnostics need.
    pub fn diag(&mut self) -> diag::Owners<'_> {
        diag::Owners {
            turn: self.turn,
            notes: self.notes,
            router: self.router,
            queues: self.queues,
            connections: self.connections,
            deliveries: self.deliveries,
            peers: self.peers,
            diagnostics: self.diagnostics,
            is_draining: self.is_draining,
        }
    }
}
