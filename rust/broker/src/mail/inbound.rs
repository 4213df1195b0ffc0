//! Messages of other shards that have not been routed yet.

use std::collections::VecDeque;
use std::sync::Arc;

use super::mailbox::Batch;
use crate::router::fan_out::{FanOutKey, FanOuts};

/// A batch that is being routed.
#[derive(Debug)]
pub(crate) struct Inbound {
    pub(crate) batch: Arc<Batch>,
    /// The round of mail that it belongs to.
    pub(crate) round: u64,
    /// The newest subscription at that time; later subscriptions get none of its messages.
    pub(crate) newest: u32,
    pub(crate) next: usize,
    /// The fan-out of the message before `next`, if it is not complete.
    pub(crate) behind: Option<FanOutKey>,
}

/// Messages of other shards that have not been routed yet.
#[derive(Debug, Default)]
pub(crate) struct Inbounds {
    pub(crate) batches: VecDeque<Inbound>,
    /// While a message is routed: the newest subscription when it arrived.
    pub(crate) routes_for: Option<u32>,
}

impl Inbounds {
    /// Whether all messages have been routed.
    pub(crate) fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    /// Whether the next message can be routed: the fan-out of the message before it is complete.
    pub(crate) fn can_go_on(&self, fan_outs: &FanOuts) -> bool {
        let is_free = |first: &Inbound| first.behind.is_none_or(|fan_out| !fan_outs.is_going(fan_out));
        self.batches.front().is_some_and(is_free)
    }

    /// Whether the messages of this round and of all earlier rounds have been routed.
    pub(crate) fn is_behind(&self, round: u64) -> bool {
        self.batches.front().is_none_or(|first| first.round > round)
    }

    /// The newest subscription that may get the message that is being routed; `None`: all may.
    pub(crate) fn routes_for(&self) -> Option<u32> {
        self.routes_for
    }
}
