//! The topics that feed the queues of durable subscriptions.

use crate::ids::{RecordId, SubscriptionKey};
use crate::requester::Requester;
use crate::text::Text;

/// The topic that feeds the queue of a durable subscription.
#[derive(Debug)]
pub(crate) struct Binding {
    /// The router's subscription.
    pub(crate) subscription: SubscriptionKey,
    /// The topic or pattern.
    pub(crate) topic: Text,
    /// One for each home that has not completed the initial replay: the RECEIPT waits for them.
    pub(crate) requesters: Vec<Requester>,
    /// Its record in the store.
    pub(crate) record: RecordId,
    /// Messages with smaller records are those of an earlier subscription of this name, which was ended.
    pub(crate) since: RecordId,
}
