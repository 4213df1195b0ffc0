//! Client commands: each one checks its frame, then calls the owners that it is given.
//!
//! ```text
//! frame ─► session ─► frame.rs ─► one file per command ─► router, queues, connections, other shards
//!                                                      └─► Flow: done, or what it waits for
//! ```
//! A command that takes several turns (COMMIT, the end of many subscriptions) leaves a job. Notes that a command
//! sends to this shard's own connections wait in [`Notes`] until the frame is done.

mod ack;
mod acknowledge;
mod apply;
mod arrival;
#[cfg(any(test, simulated))]
mod audit;
mod commit;
pub(crate) mod commits;
mod consume;
mod diagnostics;
mod frame;
mod leaving;
mod replay;
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
use crate::ids::{ConnKey, ShardId};
use crate::mail::peers::Peers;
use crate::queue;
use crate::queue::mail::AnswerNote;
use crate::queue::notes::Notes;
use crate::queue::queues::Queues;
use crate::requester::AnswerTo;
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

    /// Sends the RECEIPT of a frame that has taken effect here, once all stores have what follows from it.
    #[inline]
    pub(crate) fn receipt(&mut self, key: ConnKey, receipt: Option<&[u8]>) {
        let concerned = self.queues.home.store.take_concerned();
        if concerned != 0 || self.queues.home.store.has_written() {
            self.receipt_when_saved(key, receipt, concerned);
        } else if receipt.is_some() {
            self.connections.receipt(self.turn, key, receipt);
        }
    }

    /// A frame without a RECEIPT waits, too: the store may fail, and DISCONNECT waits for it.
    #[cold]
    fn receipt_when_saved(&mut self, key: ConnKey, receipt: Option<&[u8]>, concerned: u64) {
        let own = self.own_store();
        let to = self.connections.ask(self.turn, key, receipt, own | concerned);
        self.ask_stores(to, own, concerned);
    }

    /// This shard as a bit, if the current frame has called its store.
    pub(crate) fn own_store(&self) -> u64 {
        if self.queues.home.store.has_written() { self.turn.id.bit() } else { 0 }
    }

    /// Lets a frame that waits for other answers wait for the stores as well that it concerns.
    pub(crate) fn await_stores(&mut self, to: AnswerTo) {
        let concerned = self.queues.home.store.take_concerned();
        let own = self.own_store();
        if own | concerned != 0 {
            self.connections.await_more(to, (own | concerned).count_ones());
            self.ask_stores(to, own, concerned);
        }
    }

    /// The own store answers once it has what it was told; other shards, once they have routed what came before, and
    /// their stores have it. A frame without a RECEIPT does not ask them: DISCONNECT does.
    pub(crate) fn ask_stores(&mut self, to: AnswerTo, own: u64, concerned: u64) {
        if own & !concerned != 0 {
            self.queues.home.store.hold(to.requester(), 0);
        }
        if !to.awaited {
            return self.connections.may_be_refused_by(to.conn, own | concerned);
        }
        for shard in ShardId::of_bits(concerned) {
            self.notes.tell(shard, AnswerNote::RoundTrip(to.requester(), None));
        }
    }

    /// Whether the shard has effects or notes to carry out before the next frame.
    #[inline]
    pub(crate) fn has_work_left(&self) -> bool {
        !self.connections.effects.is_empty() || self.notes.has_local()
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

#[cfg(test)]
mod ack_tests;
#[cfg(test)]
mod commit_tests;
#[cfg(test)]
mod diagnostics_tests;
#[cfg(test)]
mod fixture;
#[cfg(test)]
mod frame_tests;
#[cfg(test)]
mod send_tests;
#[cfg(test)]
mod store_tests;
#[cfg(test)]
mod subscribe_tests;
#[cfg(test)]
mod temporary_tests;
#[cfg(test)]
mod transaction_tests;
