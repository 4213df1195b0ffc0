//! The subscriptions that a connection still has when its end has begun.

use crate::router::group::SubscriptionIndex;

/// The subscriptions that a connection still has when its end has begun.
#[derive(Debug)]
pub struct Leaving {
    /// Subscriptions that have not been removed yet.
    pub(crate) subscriptions: Vec<SubscriptionIndex>,
    /// Publishers to them wait for room in the connection's outbox.
    pub(crate) full: bool,
    /// The connection is removed with its last subscription; otherwise it closes in an orderly way.
    pub(crate) is_lost: bool,
}
