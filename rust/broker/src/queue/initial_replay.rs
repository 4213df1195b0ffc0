//! A new subscription that waits for what this home holds.

use super::replay::Replay;

/// A new subscription that waits for what this home holds.
#[derive(Debug, Default)]
pub(crate) struct PendingReplay {
    /// Other shards that know of it.
    pub(crate) seen: usize,
    /// What it is to get, once they do.
    pub(crate) asked: Option<Replay>,
}
