//! Messages that very many want at another shard: no more of them are mailed ahead of its routing than it does in a turn.
//!
//! ```text
//! a name gets subscriptions of many kinds, or very many ─ Width ─► every shard
//! SEND to that name ─ work counted at the mailbox ─► at the mark: laden, such SENDs park (Pause::Wide)
//!                     routed: counted off ─ under half: RoutesOn ─► they go on
//! ```
//! Mail of one shard is in order, so all else that it sends waits behind them: its other messages, and what new
//! subscriptions wait for. One message may be more than that by itself; then it goes alone.

use stompica_proto::encode::Message;

use super::Shard;
use crate::connection::pausing::Pause;
use crate::destination::tree::FilterIndex;
use crate::ids::ShardId;
use crate::mail::mailbox::Mail;
use crate::router::group::SubscriptionIndex;
use crate::router::reach::Reach;
use crate::turn::budget::WIDE_WORK_MAX;

/// Bytes of a body that are as much work for each receiver as the delivery itself.
const BODY_BYTES: usize = 128;

impl Shard {
    /// Tells the others how wide a name or pattern is here, if that has changed much. They must know already that it has
    /// subscriptions here.
    pub(super) fn note_width(&mut self, filter: FilterIndex) {
        if self.shared_len() > 1
            && let Some(width) = self.router.width_to_tell(filter)
        {
            let name = self.router.filter_name(filter).into();
            self.tell_all(|from| Mail::Width { from, name: std::sync::Arc::clone(&name), width });
        }
    }

    /// The same for what a new subscription wants.
    pub(crate) fn note_width_of(&mut self, subscription: SubscriptionIndex) {
        if let Some(filter) = self.router.subscriptions[subscription as usize].filter_index() {
            self.note_width(filter);
        }
    }

    /// Counts the work that a message is for each shard it goes to. Returns it.
    #[cold]
    pub(super) fn count_work(&mut self, message: &Message<'_>, reach: &Reach) -> u32 {
        let work = reach.width.saturating_mul(1 + message.body.len() / BODY_BYTES);
        let work = u32::try_from(work).unwrap_or(u32::MAX);
        for shard in (0..self.shared_len()).map(|at| ShardId(at as u8)) {
            if reach.remote & shard.bit() != 0
                && self.shared.mailboxes[usize::from(shard.0)].add_work(work as usize) >= WIDE_WORK_MAX
            {
                self.peers.busy.laden |= shard.bit();
            }
        }
        work
    }

    /// Shards that mail wide messages to this one need to know when it has routed the better part.
    pub(super) fn tell_of_work(&mut self, routed: usize) {
        if routed > 0 {
            let left = self.shared.mailboxes[usize::from(self.turn.id.0)].remove_work(routed);
            if left + routed > WIDE_WORK_MAX / 2 && left <= WIDE_WORK_MAX / 2 {
                self.tell_all(Mail::RoutesOn);
            }
        }
    }

    /// Another shard takes more wide messages.
    pub(super) fn routes_on(&mut self, shard: ShardId) {
        self.peers.busy.laden &= !shard.bit();
        self.peers.busy.routed_on = true;
        self.retry_parked(&[Pause::Wide]);
    }

    /// COMMITs, which come first in a turn, and SENDs that wait have the room by turns.
    pub(super) fn share_room(&mut self) {
        if std::mem::take(&mut self.peers.busy.routed_on) {
            let sends_wait = self.connections.parking.first_of(&[Pause::Wide]).is_some();
            self.peers.busy.sends_first = sends_wait && !self.peers.busy.sends_went_first;
            self.peers.busy.sends_went_first = self.peers.busy.sends_first;
        }
    }

    /// Whether a COMMIT that is wide at some of these shards has to wait.
    pub(super) fn holds_wide(&self, shards: u64) -> bool {
        self.peers.busy.laden & shards != 0 || self.peers.busy.sends_first
    }
}
