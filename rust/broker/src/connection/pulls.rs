//! Initial replay on the consumer's side: the homes that it asks for the next window.

use std::collections::VecDeque;

use crate::ids::{ShardId, SubscriptionKey};

/// The requests for windows of one connection.
#[derive(Debug, Default)]
pub struct Pulls {
    /// Its subscriptions and the homes that have more messages for them, in turn.
    pub(crate) requests: VecDeque<(SubscriptionKey, ShardId)>,
    /// The number of entries of `requests` whose subscription has ended: less than half of them.
    pub(crate) gone: usize,
    /// Windows that were requested and have not come.
    pub(crate) windows: usize,
    /// The number of entries of `requests` that have not been examined since the last change.
    pub(crate) unexamined: usize,
    /// The connection is on one of the shard's lists of those to examine again.
    pub(crate) is_listed: bool,
}

impl Pulls {
    /// Whether the connection waits for its turn to ask, or for memory.
    pub(crate) fn is_listed(&self) -> bool {
        self.is_listed
    }
}
