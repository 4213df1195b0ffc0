//! Storage of persistent messages while they are in a queue: the interface for stores on disk.
//!
//! A queue's home calls [`Store::keep`] when a message with `persistent:true` is put into it. The holder of the message
//! calls [`Store::forget`] when the message is acknowledged, written to an `ack:auto` consumer, expired, dead-lettered
//! or dropped. In between, the message may move between shards and be redelivered without further calls. Each shard has
//! its own handle.

use std::fmt::Debug;

use crate::ids::{NO_RECORD, RecordId};
use crate::message::OwnedMessage;

/// The store, as seen by one shard.
pub trait Store: Debug + Send {
    /// Keeps a message of a queue. Returns [`NO_RECORD`] if the store does not keep it.
    fn keep(&mut self, queue: &[u8], message: &OwnedMessage) -> RecordId;

    /// Removes a message that is no longer needed.
    fn forget(&mut self, record: RecordId);
}

/// `store=memory`: messages are lost when the process ends.
#[derive(Debug, Default)]
pub struct Memory;

impl Store for Memory {
    fn keep(&mut self, _: &[u8], _: &OwnedMessage) -> RecordId {
        NO_RECORD
    }

    fn forget(&mut self, _: RecordId) {}
}
