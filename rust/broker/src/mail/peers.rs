//! The other shards: what this one tells them, and what it has from them.

use super::inbound::Inbounds;
use super::incoming::Incoming;
use super::mailbox::{Batch, Mail};
use crate::ids::ShardId;

/// Other shards that take no more of something for now, a bit for each.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Busy {
    /// Their mailbox is over its mark.
    pub(crate) congested: u64,
    /// They have enough wide messages to route.
    pub(crate) laden: u64,
    /// One of them has taken more of those in this turn.
    pub(crate) routed_on: bool,
    /// COMMITs leave the room of this turn to SENDs that wait, or did so when there was room last.
    pub(crate) sends_first: bool,
    pub(crate) sends_went_first: bool,
}

/// What goes to the other shards at the end of the turn, what came from them, and which of them are busy.
#[derive(Debug)]
pub struct Peers {
    /// Mail for each shard.
    pub outgoing: Vec<Vec<Mail>>,
    /// This turn's messages for other shards.
    pub batch: Batch,
    /// Messages of other shards that are to be routed.
    pub inbound: Inbounds,
    /// Mail that is to be read.
    pub incoming: Incoming,
    /// Shards that take no more of something for now.
    pub busy: Busy,
}

impl Peers {
    /// Nothing to say to so many shards, this one included.
    #[must_use]
    pub fn new(shards: usize) -> Self {
        Peers {
            outgoing: (0..shards).map(|_| Vec::new()).collect(),
            batch: Batch::default(),
            inbound: Inbounds::default(),
            incoming: Incoming::default(),
            busy: Busy::default(),
        }
    }

    /// Queues mail for every shard but the one that it is `from`, this one.
    pub fn tell_all(&mut self, from: ShardId, mut mail: impl FnMut(ShardId) -> Mail) {
        for (shard, outgoing) in self.outgoing.iter_mut().enumerate() {
            if shard != usize::from(from.0) {
                outgoing.push(mail(from));
            }
        }
    }
}
