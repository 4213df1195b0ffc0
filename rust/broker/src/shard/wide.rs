//! Messages that very many want at another shard: no more of them are mailed ahead of its routing than it does in a turn.
//!
//! ```text
//! a name gets subscriptions of many kinds, or very many ─ Width ─► every shard
//! SEND to that name ─ work counted at the mailbox ─► at the mark: laden, such SENDs park (Pause::Wide)
//!                     routed: counted off ─ under half: RoutesOn ─► they go on
//! ```
//! Mail of one shard is in order, so all else that it sends waits behind them: its other messages, and what new
//! subscriptions wait for. One message may be more than that by itself; then it goes alone.

use super::Shard;
use crate::connection::pausing::Pause;
use crate::destination::tree::FilterIndex;
use crate::queue::replay::Newcomer;
use crate::requester::AnswerTo;
use crate::router::group::SubscriptionIndex;

impl Shard {
    /// See [`Peers::tell_width`](crate::mail::peers::Peers::tell_width).
    pub(super) fn note_width(&mut self, filter: FilterIndex) {
        self.peers.tell_width(&mut self.router, filter);
    }

    /// The same for what a new subscription wants.
    pub(crate) fn note_width_of(&mut self, subscription: SubscriptionIndex) {
        if let Some(filter) = self.router.subscriptions[subscription as usize].filter_index() {
            self.note_width(filter);
        }
    }

    /// See [`Peers::tell_interest`](crate::mail::peers::Peers::tell_interest).
    pub(crate) fn tell_interest(&mut self, name: &[u8], to: Option<AnswerTo>, backlog: Option<Newcomer>) {
        self.peers.tell_interest(&self.router, name, to, backlog);
    }

    /// COMMITs, which come first in a turn, and SENDs that wait have the room by turns.
    pub(super) fn share_room(&mut self) {
        self.peers.share_room(self.connections.parking.first_of(&[Pause::Wide]).is_some());
    }
}
