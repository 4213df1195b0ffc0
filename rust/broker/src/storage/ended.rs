//! Messages of durable subscriptions that were ended and created again: a crash may have left some of the earlier one. A start
//! forgets them (`queue/restored.rs`); whoever else reads a store leaves them out.

use crate::door::HashMap;
use crate::ids::{NO_RECORD, RecordId};
use crate::message::OwnedMessage;
use crate::queue::restored::since_of;
use crate::store::DEFINITIONS;
use crate::store::file::recovery::Recovered;

/// Leaves them out. `read` reads a message; `None`: it cannot be read.
pub(crate) fn leave_out_ended(recovered: &mut Recovered, read: impl Fn(RecordId) -> Option<OwnedMessage>) {
    let mut since = HashMap::default();
    for defined in recovered.queues.get(DEFINITIONS).map(|all| &all[..]).unwrap_or_default() {
        if let Some(definition) = read(defined.record) {
            let message = definition.message();
            // The newest definition counts.
            let newest = since.entry(message.body.to_vec()).or_insert((NO_RECORD, NO_RECORD));
            *newest = (*newest).max((defined.record, since_of(message.headers, defined.record)));
        }
    }
    for (name, (_, first)) in since {
        if let Some(waiting) = recovered.queues.get_mut(&name) {
            waiting.retain(|one| one.record >= first);
        }
    }
}
