//! Messages on their way into outboxes: of topics, of queues, and those that come back.

pub mod keepers;
pub mod passing;
pub mod returning;

use std::collections::VecDeque;

use self::returning::Returning;
use crate::connection::deferred::Deferred;
use crate::router::fan_out::FanOuts;
use crate::router::group::GroupIndex;
use crate::router::suffixes::EncodedSuffixes;

/// What is on its way to connections of one shard.
#[derive(Debug, Default)]
pub struct Deliveries {
    /// Messages to topics that take several turns.
    pub fan_outs: FanOuts,
    /// The message that is being delivered, encoded once for each version.
    pub suffixes: EncodedSuffixes,
    /// Groups that have an open chunk.
    pub open_groups: Vec<GroupIndex>,
    /// What waited for outboxes and is not wanted any more.
    pub forgotten: VecDeque<Box<Deferred>>,
    /// Deliveries that go back to their queues over several turns.
    pub returning: Returning,
}
