//! Initial replay on the side of the consumer's connection: which homes it asks for the next window.

use std::collections::VecDeque;

use crate::ids::{ShardId, SubscriptionKey};

/// The windows that a connection has to ask homes for.
#[derive(Debug, Default)]
pub struct Pulls {
    /// Its subscriptions, with homes that have more for them, in turn.
    pub(crate) wanting: VecDeque<(SubscriptionKey, ShardId)>,
    /// Entries of `wanting` whose subscription has ended: less than half of them.
    pub(crate) gone: usize,
    /// Windows that were asked for and have not come.
    pub(crate) windows: usize,
    /// Entries of `wanting` that have not been examined since something changed.
    pub(crate) unasked: usize,
    /// The connection is on one of the shard's lists of those to examine again.
    pub(crate) is_listed: bool,
}

impl Pulls {
    /// Whether the connection waits for its turn to ask, or for memory.
    pub(crate) fn is_listed(&self) -> bool {
        self.is_listed
    }
}
