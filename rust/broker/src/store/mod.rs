//! Storage of persistent messages while they are in a queue: the interface for stores on disk.
//!
//! A queue's home calls [`Store::keep`] when a message with `persistent:true` is put into it. The holder of the message
//! calls [`Store::forget`] when the message is acknowledged, written to an `ack:auto` consumer, expired, dead-lettered
//! or dropped. In between, the message may move between shards and be redelivered without further calls.
//!
//! Each shard has its own handle, and the handle that forgets a message may be another one than the handle that kept it.
//! The calls of different handles have no order, so a store may receive `forget` before `keep`: it remembers the record as
//! a tombstone until `keep` arrives. Therefore acknowledgements carry no record numbers to the home, and can be merged.
//!
//! A dead letter is kept at its new place before it is forgotten at the old one: on the way it has its old record.

use std::fmt::Debug;

use crate::ids::{NO_RECORD, RecordId};
use crate::message::OwnedMessage;

/// The store, as seen by one shard.
pub trait Store: Debug + Send {
    /// Keeps a message of a queue. Returns [`NO_RECORD`] if the store does not keep it.
    fn keep(&mut self, queue: &[u8], message: &OwnedMessage) -> RecordId;

    /// Removes a message that is no longer needed, even if its `keep` has not arrived yet through another handle.
    fn forget(&mut self, record: RecordId);
}

/// Keeps a message that is put into a queue, if it is persistent, and then forgets it where it was kept before.
pub fn move_to(store: &mut dyn Store, queue: &[u8], message: &mut OwnedMessage) {
    let before = std::mem::replace(&mut message.record, NO_RECORD);
    if message.persistent {
        message.record = store.keep(queue, message);
    }
    if before != NO_RECORD {
        store.forget(before);
    }
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

#[cfg(test)]
pub mod double;
