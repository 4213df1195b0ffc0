//! The topics that feed the queues of durable subscriptions.

use crate::ids::SubscriptionKey;
use crate::requester::Requester;

/// The topic that feeds the queue of a durable subscription.
#[derive(Debug)]
pub(crate) struct Binding {
    /// The router's subscription.
    pub(crate) subscription: SubscriptionKey,
    /// The topic or pattern.
    pub(crate) topic: Box<[u8]>,
    /// One for each home that has not completed the initial replay: the RECEIPT waits for them.
    pub(crate) requesters: Vec<Requester>,
}
