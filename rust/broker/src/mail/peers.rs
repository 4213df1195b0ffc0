//! The other shards of the broker: mail to them, and mail from them.

use std::mem::take;
use std::sync::Arc;

use stompica_proto::encode::Message;

use super::inbound::Inbounds;
use super::incoming::Incoming;
use super::mailbox::{Batch, Mail, Mailbox};
use crate::destination::tree::FilterIndex;
use crate::door::{planted, planted_in_loom};
use crate::ids::ShardId;
use crate::queue::home::Home;
use crate::queue::mail::Note;
use crate::queue::notes::Notes;
use crate::queue::replay::Newcomer;
use crate::requester::AnswerTo;
use crate::router::Router;
use crate::router::reach::Reach;
use crate::text::Text;
use crate::turn::Turn;
use crate::turn::budget::{deliveries_max, fan_out_work_max};

/// A body of this many bytes costs each receiver as much work as the delivery itself.
const BODY_BYTES: usize = 128;

/// Shards that temporarily accept no more of something, as bit sets.
#[derive(Clone, Copy, Debug, Default)]
pub struct Busy {
    /// Shards whose mailbox is above its limit.
    pub congested: u64,
    /// Shards that have enough large fan-outs to route.
    pub saturated: u64,
    /// One of them has accepted more large fan-outs in this turn.
    pub routed_on: bool,
    /// In this turn, waiting SENDs take precedence over COMMITs in the use of room for large fan-outs.
    pub sends_first: bool,
    /// They did in the turn before.
    pub sends_went_first: bool,
}

/// Whether a count that has decreased by `by` to `left` has just reached half of a limit.
fn has_halved(left: usize, by: usize, mark: usize) -> bool {
    let is_under = if planted_in_loom!("half-missed") { left < mark / 2 } else { left <= mark / 2 };
    left + by > mark / 2 && is_under
}

/// Mail to the other shards at the end of the turn, mail from them, and which of them are busy.
#[derive(Debug)]
pub struct Peers {
    own: ShardId,
    /// The mailbox of each shard, this one included.
    pub mailboxes: Arc<[Mailbox]>,
    /// Mail for each shard.
    pub outgoing: Vec<Vec<Mail>>,
    /// The messages of this turn for other shards.
    pub batch: Batch,
    /// Messages of other shards that have not been routed yet.
    pub inbound: Inbounds,
    /// Mail that has not been read yet.
    pub incoming: Incoming,
    /// Shards that temporarily accept no more of something.
    pub busy: Busy,
}

impl Peers {
    /// The peers of a shard, without any mail.
    #[must_use]
    pub fn new(own: ShardId, mailboxes: Arc<[Mailbox]>) -> Self {
        Peers {
            own,
            outgoing: mailboxes.iter().map(|_| Vec::new()).collect(),
            mailboxes,
            batch: Batch::default(),
            inbound: Inbounds::default(),
            incoming: Incoming::default(),
            busy: Busy::default(),
        }
    }

    /// All shards but this one.
    pub fn others(&self) -> impl Iterator<Item = ShardId> + use<> {
        let own = self.own;
        (0..self.outgoing.len()).map(|at| ShardId(at as u8)).filter(move |at| *at != own)
    }

    fn mailbox(&self) -> &Mailbox {
        &self.mailboxes[usize::from(self.own.0)]
    }

    /// The number of frames in a mailbox above which SENDs to its shard have to wait.
    #[must_use]
    pub fn mark(&self, turn: &Turn) -> usize {
        (turn.config.max_input_queue_size / self.mailboxes.len()).max(1)
    }

    /// The number of frames in this shard's mailbox.
    #[must_use]
    pub fn waiting_frames(&self) -> usize {
        self.mailboxes[usize::from(self.own.0)].add_frames(0)
    }

    /// Queues mail for every other shard.
    pub fn tell_all(&mut self, mut mail: impl FnMut(ShardId) -> Mail) {
        for shard in self.others() {
            self.outgoing[usize::from(shard.0)].push(mail(self.own));
        }
    }

    /// Wakes the other shards, although they have no mail.
    pub fn wake_others(&self) {
        self.others().for_each(|shard| self.mailboxes[usize::from(shard.0)].wake());
    }

    /// Tells the other shards about the first subscription to a name or pattern here. `to` waits for their answers, and
    /// `newcomer` gets the stale and retained messages that they hold.
    pub fn tell_interest(
        &mut self,
        router: &Router,
        name: &[u8],
        to: Option<AnswerTo>,
        newcomer: Option<Newcomer>,
    ) {
        let name = router.shared_text(name);
        let to = to.filter(|to| to.awaited);
        if planted!("interest-forgotten") {
            return;
        }
        self.tell_all(|from| {
            let reply = to.map(AnswerTo::requester);
            Mail::Interest { from, name: Arc::clone(&name), interested: true, reply, newcomer }
        });
    }

    /// Tells the other shards that a name or pattern has no subscription here any more. They share the last copy of the
    /// name.
    pub fn tell_disinterest(&mut self, name: &Arc<Text>) {
        self.tell_all(|from| Mail::Interest {
            from,
            name: Arc::clone(name),
            interested: false,
            reply: None,
            newcomer: None,
        });
    }

    /// Tells the other shards the fan_out_size of a name or pattern here, if it has changed much. They must know already that
    /// it has subscriptions here.
    pub fn tell_fan_out_size(&mut self, router: &mut Router, filter: FilterIndex) {
        if self.outgoing.len() > 1
            && let Some(fan_out_size) = router.fan_out_size_to_tell(filter)
        {
            let name: Arc<[u8]> = router.filter_name(filter).into();
            self.tell_all(|from| Mail::FanOutSize { from, name: Arc::clone(&name), fan_out_size });
        }
    }

    /// Adds a message to the batch for the other shards that receive it.
    pub fn mail_message(&mut self, message: &Message<'_>, reach: &Reach) {
        let work = if reach.fan_out_size > 0 { self.count_work(message, reach) } else { 0 };
        self.batch.push(message, reach.remote, work);
    }

    /// Counts the work that a message causes on each shard that receives it. Returns that work.
    #[cold]
    fn count_work(&mut self, message: &Message<'_>, reach: &Reach) -> u32 {
        let work = reach.fan_out_size.saturating_mul(1 + message.body.len() / BODY_BYTES);
        let work = u32::try_from(work).unwrap_or(u32::MAX);
        for shard in self.others().filter(|shard| reach.remote & shard.bit() != 0) {
            if self.mailboxes[usize::from(shard.0)].add_work(work as usize) >= fan_out_work_max() {
                self.busy.saturated |= shard.bit();
            }
        }
        work
    }

    /// Posts the turn's batch, the notes and all other mail, together: a note may ask whether messages of the batch are
    /// safe, and must not be read before them.
    pub fn post(&mut self, notes: &mut Notes, home: &mut Home, turn: &Turn) {
        if !self.batch.is_empty() {
            self.post_batch(turn);
        }
        self.post_notes(notes, home, turn);
        for (mails, mailbox) in self.outgoing.iter_mut().zip(&*self.mailboxes) {
            if !mails.is_empty() {
                mailbox.post(mails);
            }
        }
    }

    fn post_batch(&mut self, turn: &Turn) {
        let mut batch = take(&mut self.batch);
        batch.count_in(&turn.totals.memory);
        let batch = Arc::new(batch);
        let mut shards = batch.shards();
        if shards.count_ones() > 1 && planted!("batch-for-one-shard") {
            shards &= shards.wrapping_neg();
        }
        for shard in self.others().filter(|at| shards & at.bit() != 0) {
            self.add_frames(shard, batch.count_for(shard), turn);
            // It precedes other mail: a shard that has read `Drained` has read every message.
            self.outgoing[usize::from(shard.0)].insert(0, Mail::Batch(Arc::clone(&batch)));
        }
    }

    fn post_notes(&mut self, notes: &mut Notes, home: &mut Home, turn: &Turn) {
        self.count_deliveries(notes, home);
        for (shard, notes) in notes.take_outgoing() {
            self.count_frames(shard, &notes, turn);
            // They precede other mail, as the batch does; so a RECEIPT for a subscription follows its messages.
            self.outgoing[usize::from(shard.0)].insert(0, Mail::Queue(self.own, notes));
        }
    }

    fn count_frames(&mut self, shard: ShardId, notes: &[Note], turn: &Turn) {
        let frames = notes.iter().filter(|note| note.is_frame()).count();
        if frames > 0 {
            self.add_frames(shard, frames, turn);
        }
    }

    /// Counts frames at a mailbox, and marks its shard as congested if they exceed the limit.
    fn add_frames(&mut self, shard: ShardId, frames: usize, turn: &Turn) {
        if self.mailboxes[usize::from(shard.0)].add_frames(frames) > self.mark(turn) {
            self.busy.congested |= shard.bit();
        }
    }

    /// Counts deliveries of this home that other shards have to read; a shard that has too many is closed.
    pub fn count_deliveries(&mut self, notes: &mut Notes, home: &mut Home) {
        for (shard, load) in notes.take_deliveries() {
            if self.mailboxes[usize::from(shard.0)].add_deliveries(load) > deliveries_max() {
                home.close(shard);
            }
        }
    }

    /// Counts deliveries that were read. Once half of them are read, reopens this shard at the homes that have closed
    /// it.
    pub fn have_read(&mut self, deliveries: usize) {
        if deliveries > 0 {
            let left = self.mailbox().remove_deliveries(deliveries);
            if has_halved(left, deliveries, deliveries_max()) {
                self.tell_all(Mail::ReadsOn);
            }
        }
    }

    /// Counts frames that were taken from the mailbox. Once it is under half of its limit, tells the other shards.
    pub fn have_taken(&mut self, frames: usize, turn: &Turn) {
        let left = self.mailbox().remove_frames(frames);
        if has_halved(left, frames, self.mark(turn)) && !planted!("uncongested-untold") {
            self.tell_all(Mail::Uncongested);
        }
    }

    /// Counts large fan-outs that were routed. Once half of them are routed, tells the other shards.
    pub fn have_routed(&mut self, work: usize) {
        if work > 0 {
            let left = self.mailbox().remove_work(work);
            if has_halved(left, work, fan_out_work_max()) {
                self.tell_all(Mail::RoutesOn);
            }
        }
    }

    /// Records that another shard accepts large fan-outs again.
    pub fn routes_on(&mut self, shard: ShardId) {
        self.busy.saturated &= !shard.bit();
        self.busy.routed_on = true;
    }

    /// Records that the mailbox of another shard is under half of its limit.
    pub fn has_room(&mut self, shard: ShardId) {
        self.busy.congested &= !shard.bit();
    }

    /// Lets COMMITs, which come first in a turn, and waiting SENDs use the room for large fan-outs alternately.
    pub fn share_room(&mut self, sends_wait: bool) {
        if take(&mut self.busy.routed_on) {
            self.busy.sends_first = sends_wait && !self.busy.sends_went_first;
            self.busy.sends_went_first = self.busy.sends_first;
        }
    }

    /// Whether a COMMIT of a message with a large fan-out on one of these shards has to wait.
    #[must_use]
    pub fn holds_large_fan_outs(&self, shards: u64) -> bool {
        self.busy.saturated & shards != 0 || self.busy.sends_first
    }

    /// Whether all mail that was taken in this round has been read, and its messages have been routed.
    #[must_use]
    pub fn have_routed_mail_of(&self, round: u64) -> bool {
        self.incoming.has_read(round) && self.inbound.is_behind(round)
    }

    /// Whether every message that was mailed up to the end of a round has been routed.
    #[must_use]
    pub fn have_all_routed(&self, round: u64) -> bool {
        self.outgoing.len() == 1
            || (self.incoming.has_read_behind(round) && self.inbound.is_behind(round + 1))
    }

    /// Whether all mail has been posted.
    #[must_use]
    pub fn have_posted_all(&self) -> bool {
        self.outgoing.iter().all(Vec::is_empty)
    }
}

#[cfg(test)]
#[path = "peers_tests.rs"]
mod tests;
