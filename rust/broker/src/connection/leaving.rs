//! The subscriptions of a connection whose end has begun.

use crate::router::group::SubscriptionIndex;

/// The subscriptions of a connection whose end has begun.
#[derive(Debug)]
pub struct Leaving {
    /// Those that are left.
    pub(crate) subscriptions: Vec<SubscriptionIndex>,
    /// Publishers to them wait for room in its outbox.
    pub(crate) full: bool,
    /// The connection goes with the last one, and closes in order otherwise.
    pub(crate) is_lost: bool,
}
