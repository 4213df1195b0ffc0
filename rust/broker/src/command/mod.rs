//! What each client frame does: checks, then calls of the owners that a command is given.
//!
//! ```text
//! frame ─► session ─► frame.rs ─► one file per command ─► router, queues, connections, other shards
//!                                                      └─► Flow: done with, or what it waits for
//! ```
//! A command that takes several turns (COMMIT, the end of many subscriptions) leaves a job. What a command says to this
//! shard's own homes from below waits in [`Notes`] until the frame is done.

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

/// All that commands take.
#[derive(Debug)]
pub struct Owners<'a> {
    /// The turn.
    pub turn: &'a mut Turn,
    /// Notes that wait.
    pub notes: &'a mut Notes,
    /// Who wants what.
    pub router: &'a mut Router,
    /// What has its home here, and the consumers among the subscriptions.
    pub queues: &'a mut Queues,
    /// The connections.
    pub connections: &'a mut Connections,
    /// What is on its way to them.
    pub deliveries: &'a mut Deliveries,
    /// The other shards.
    pub peers: &'a mut Peers,
    /// Questions about the broker's inside.
    pub(crate) diagnostics: &'a mut Diagnostics,
    /// COMMITs that go on over several turns.
    pub(crate) commits: &'a mut Commits,
    /// The broker ends.
    pub is_draining: bool,
}

impl Owners<'_> {
    /// What has its home here, and what that needs beside itself.
    #[inline]
    pub fn queue(&mut self) -> queue::Owners<'_> {
        queue::Owners { turn: self.turn, notes: self.notes, router: self.router, queues: self.queues }
    }

    /// What delivering takes.
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

    /// What diagnostics take.
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
