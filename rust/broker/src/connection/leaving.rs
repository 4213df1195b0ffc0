//! The subscriptions of a connection whose end has begun.

use crate::router::group::SubscriptionIndex;

/// The subscriptions of a connection whose end has begun.
#[derive(Debug)]
pub struct Leaving {
    /// Subscriptions that have not been removed.
    pub(crate) subscriptions: Vec<SubscriptionIndex>,
    /// Publishers to them wait for room in the connection's outbox.
    pub(crate) full: bool,
    /// The connection is removed with its last subscription; otherwise it closes in order.
    pub(crate) is_lost: bool,
}
