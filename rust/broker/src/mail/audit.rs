//! Counts anew the mail between shards.

use super::inbound::Inbounds;
use super::incoming::Incoming;
use super::mailbox::{Batch, Mail, Mailbox};
use super::peers::Peers;
use crate::audit::{Audit, Load};
use crate::ids::ShardId;
use crate::queue::mail::Note;
use crate::router::Router;
use crate::turn::Turn;
use crate::turn::budget::{deliveries_max, fan_out_work_max};

/// Frames, load of deliveries and work of large fan-outs that the counters of a mailbox include.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Unread {
    frames: usize,
    deliveries: usize,
    work: usize,
}

impl Unread {
    fn add_notes<'a>(&mut self, notes: impl Iterator<Item = &'a Note>) {
        for note in notes {
            self.frames += usize::from(note.is_frame());
            self.deliveries += note.load();
        }
    }
}

impl Peers {
    /// Visits the mail of this shard: in its mailbox, taken from it, and for others. `closed` are the shards that its home
    /// does not deliver to, as bits.
    pub fn audit(&self, audit: &mut Audit, router: &Router, turn: &Turn, closed: u64) {
        let own = audit.shard;
        let hash = |name: &[u8]| router.hash_of(name);
        let mut unread = self.mailboxes[usize::from(own.0)].audit(audit, own, &hash);
        self.incoming.audit(audit, own, &mut unread, &hash);
        self.inbound.audit(audit, own, &mut unread);
        let is_posted = self.outgoing.iter().all(Vec::is_empty) && self.batch.is_empty();
        audit.require(is_posted, || "mail was not posted at the end of the turn".to_owned());
        let counted = self.mailboxes[usize::from(own.0)].counted();
        audit.equal("unread mail", counted, unread);
        let Unread { frames, deliveries, work } = counted;
        audit.is_loaded(Load::Frames, frames > self.mark(turn) / 2);
        audit.is_loaded(Load::Deliveries, deliveries > deliveries_max() / 2);
        audit.is_loaded(Load::Work, work > fan_out_work_max() / 2);
        ShardId::of_bits(self.busy.congested).for_each(|shard| audit.stalls_for(shard, Load::Frames));
        ShardId::of_bits(closed).for_each(|shard| audit.stalls_for(shard, Load::Deliveries));
        ShardId::of_bits(self.busy.saturated).for_each(|shard| audit.stalls_for(shard, Load::Work));
    }
}

impl Mailbox {
    /// Visits the mail for a shard.
    fn audit(&self, audit: &mut Audit, to: ShardId, hash: &impl Fn(&[u8]) -> u64) -> Unread {
        let mut unread = Unread::default();
        self.visit(|mail| mail.audit(audit, to, &mut unread, hash));
        unread
    }

    fn counted(&self) -> Unread {
        Unread { frames: self.add_frames(0), deliveries: self.add_deliveries(0), work: self.add_work(0) }
    }
}

impl Mail {
    fn audit(&self, audit: &mut Audit, to: ShardId, unread: &mut Unread, hash: &impl Fn(&[u8]) -> u64) {
        match self {
            Mail::Batch(batch) => {
                if audit.is_first_visit(batch) {
                    batch.audit(audit);
                }
                unread.add_batch(batch, to, 0);
            }
            Mail::Interest { from, name, reply, .. } => {
                audit.shared_text(name);
                audit.news(*from, to, hash(name));
                reply.iter().for_each(|reply| audit.answer(reply.to()));
            }
            Mail::Queue(from, notes) => {
                notes.iter().for_each(|note| note.audit(audit, *from, to));
                unread.add_notes(notes.iter());
            }
            Mail::Full { from, name, .. } => audit.news(*from, to, hash(name)),
            Mail::Uncongested(from) => audit.relief(*from, to, Load::Frames),
            Mail::ReadsOn(from) => audit.relief(*from, to, Load::Deliveries),
            Mail::RoutesOn(from) => audit.relief(*from, to, Load::Work),
            Mail::Accepted(accepted) => audit.connections += usize::from(!accepted.refused),
            _ => {}
        }
    }
}

impl Unread {
    /// Counts the messages of a batch for a shard from an index on.
    fn add_batch(&mut self, batch: &Batch, to: ShardId, from: usize) {
        let mut place = from;
        while let Some((_, next)) = batch.next_for(to, place) {
            self.frames += 1;
            self.work += batch.work_before(next);
            place = next;
        }
    }
}

impl Incoming {
    fn audit(&self, audit: &mut Audit, own: ShardId, unread: &mut Unread, hash: &impl Fn(&[u8]) -> u64) {
        self.mails.iter().for_each(|mail| mail.audit(audit, own, unread, hash));
        if let Some(notes) = &self.notes {
            notes.left.as_slice().iter().for_each(|note| note.audit(audit, notes.from, own));
            unread.add_notes(notes.left.as_slice().iter());
        }
    }
}

impl Inbounds {
    fn audit(&self, audit: &mut Audit, own: ShardId, unread: &mut Unread) {
        for inbound in &self.batches {
            if audit.is_first_visit(&inbound.batch) {
                inbound.batch.audit(audit);
            }
            unread.add_batch(&inbound.batch, own, inbound.next);
            if inbound.behind.is_some() {
                unread.work += inbound.batch.work_before(inbound.next);
            }
        }
    }
}

impl Batch {
    /// Visits the bytes that the broker's count of held bytes includes.
    fn audit(&self, audit: &mut Audit) {
        let counted = self.counted.as_ref().map_or(0, |(_, bytes)| *bytes);
        audit.equal("bytes of a batch", counted, (self.held_bytes() + self.copied_bytes()) as i64);
        audit.batch_bytes += counted;
    }
}
