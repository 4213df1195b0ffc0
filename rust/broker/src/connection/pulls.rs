//! What of the past a connection asks other homes for, window by window.

use std::collections::VecDeque;

use crate::ids::{ShardId, SubscriptionKey};

/// What a connection has to ask homes for.
#[derive(Debug, Default)]
pub struct Pulls {
    /// Its subscriptions for which homes have more, in turn.
    pub(crate) wanting: VecDeque<(SubscriptionKey, ShardId)>,
    /// Those of `wanting` whose subscription has gone: less than half of them.
    pub(crate) gone: usize,
    /// Windows on their way.
    pub(crate) windows: usize,
    /// Those of `wanting` that have not been looked at since something changed.
    pub(crate) unasked: usize,
    /// The connection is on one of the shard's lists of those to be looked at again.
    pub(crate) is_listed: bool,
}

impl Pulls {
    /// Whether it waits for its turn to ask, or for memory.
    pub(crate) fn is_listed(&self) -> bool {
        self.is_listed
    }
}
