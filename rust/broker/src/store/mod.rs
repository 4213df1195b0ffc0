//! Where persistent messages are kept while they are in a queue: the seam for stores on disk.
//!
//! A queue's home calls [`Store::keep`] when a message with `persistent:true` is put into it. Whoever holds the message
//! when its life ends (it is acknowledged, written to an `ack:auto` consumer, expired, dead-lettered or dropped) calls
//! [`Store::forget`]. Between the two the message moves between shards, redeliveries included, without a word to the
//! store. Each shard has a handle of its own.

use std::fmt::Debug;

use crate::ids::{NO_RECORD, RecordId};
use crate::message::OwnedMessage;

/// A shard's handle of the store.
pub trait Store: Debug + Send {
    /// Keeps a message of a queue. What is not kept gets [`NO_RECORD`].
    fn keep(&mut self, queue: &[u8], message: &OwnedMessage) -> RecordId;

    /// A message is needed no more.
    fn forget(&mut self, record: RecordId);
}

/// `store=memory`: a message lives as long as the process.
#[derive(Debug, Default)]
pub struct Memory;

impl Store for Memory {
    fn keep(&mut self, _: &[u8], _: &OwnedMessage) -> RecordId {
        NO_RECORD
    }

    fn forget(&mut self, _: RecordId) {}
}
