//! Messages of other shards that are to be routed.

use std::collections::VecDeque;
use std::sync::Arc;

use super::mailbox::Batch;
use crate::router::fan_out::{FanOutKey, FanOuts};

/// A batch that is being routed.
#[derive(Debug)]
pub(crate) struct Inbound {
    pub(crate) batch: Arc<Batch>,
    /// The round of mail with which it was taken.
    pub(crate) round: u64,
    /// The newest subscription at that time: none of its messages is for one that came later.
    pub(crate) newest: u32,
    pub(crate) next: usize,
    /// The message before `next` is still being delivered.
    pub(crate) behind: Option<FanOutKey>,
}

/// Messages of other shards that are to be routed.
#[derive(Debug, Default)]
pub(crate) struct Inbounds {
    pub(crate) batches: VecDeque<Inbound>,
    /// While one of them is routed: the newest subscription when it came.
    pub(crate) routes_for: Option<u32>,
}

impl Inbounds {
    /// Whether nothing is left to be routed.
    pub(crate) fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    /// Whether there are messages that can be routed: the one in front of them is not on its way any more.
    pub(crate) fn can_go_on(&self, fan_outs: &FanOuts) -> bool {
        let is_free = |first: &Inbound| first.behind.is_none_or(|fan_out| !fan_outs.is_going(fan_out));
        self.batches.front().is_some_and(is_free)
    }

    /// Whether the messages of this round, and of those before it, have been routed.
    pub(crate) fn is_behind(&self, round: u64) -> bool {
        self.batches.front().is_none_or(|first| first.round > round)
    }

    /// The newest subscription that what is delivered now may be for; `None`: all of them.
    pub(crate) fn routes_for(&self) -> Option<u32> {
        self.routes_for
    }
}
