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
//!
//! Delivery does not wait for the store. RECEIPTs do: each call has a position, and a RECEIPT waits until the store says
//! that everything up to the position behind the frame's last call is safe ([`handle::Handle`]).
//!
//! The messages and acknowledgements of a COMMIT are written as one record by the shard that asked
//! ([`Store::begin_transaction`]): the homes have told it the places that they keep for the messages.

pub mod handle;

use std::fmt::Debug;

use stompica_proto::ProtocolError;

use crate::ids::{NO_RECORD, RecordId};
use crate::message::OwnedMessage;

/// Names a point between two calls of one handle; positions grow.
pub type Position = u64;

/// Identifies a transaction of one handle.
pub type TransactionId = u64;

/// The store, as seen by one shard.
pub trait Store: Debug + Send {
    /// Keeps a message of a queue, at the place that is in the message. Returns [`NO_RECORD`] if the store does not keep
    /// it.
    fn keep(&mut self, queue: &[u8], message: &OwnedMessage) -> RecordId;

    /// Removes a message that is no longer needed, even if its `keep` has not arrived yet through another handle.
    fn forget(&mut self, record: RecordId);

    /// The position behind the last call of this handle.
    fn position(&self) -> Position {
        0
    }

    /// The position up to which everything is safe. The store wakes the shard when it changes.
    ///
    /// # Errors
    /// The store has failed: what is not safe yet is lost if the process ends. It does not recover.
    fn safe(&mut self) -> Result<Position, ProtocolError> {
        Ok(self.position())
    }

    /// Whether messages survive the end of the process, so that RECEIPTs have to wait for the store.
    fn is_durable(&self) -> bool {
        false
    }

    /// Begins a record for all messages and acknowledgements of one COMMIT.
    fn begin_transaction(&mut self) -> TransactionId {
        0
    }

    /// The calls of [`Store::keep`] and [`Store::forget`] that follow belong to this transaction, or to none.
    fn enter(&mut self, _: Option<TransactionId>) {}

    /// The record of a transaction is complete: from now on all of it is valid. One in which something was kept or
    /// forgotten has a position behind it.
    fn end_transaction(&mut self, _: TransactionId) {}
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
