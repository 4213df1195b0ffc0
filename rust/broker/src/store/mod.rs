//! Storage of persistent messages while they are in a queue: the interface for stores on disk.
//!
//! A queue's home calls [`Store::keep`] when a message with `persistent:true` is added to it. The holder of the message
//! calls [`Store::forget`] when the message is acknowledged, written to an `ack:auto` consumer, expired, dead-lettered
//! or dropped. In between, the message may move between shards and be redelivered without further calls.
//!
//! Each shard has its own handle. The handle that forgets a message may differ from the one that kept it: so acknowledgements
//! carry no record ids to the home, and can be merged. A handle's calls are handed over by [`Store::end_turn`], before
//! anything that they have caused leaves the shard. A store writes what was handed over in this order, whichever the handle:
//! what is safe is always a beginning of it. So a message is never forgotten before it is kept, and an ACK that is safe
//! covers everything that led to its delivery.
//!
//! A dead letter is kept at its new place before it is forgotten at the old one: in between it has its old record.
//!
//! A store that [pages](Store::pages) can load a message again: a queue may then hold a stub of it, and requests the message
//! before it is delivered (`queue/paging.rs`). It takes messages that are not kept, too, but only for this process.
//!
//! Deliveries do not wait for the store, but RECEIPTs do: each call has a position, and a RECEIPT waits until the store
//! reports that everything up to the position after the frame's last call is safe ([`handle::Handle`]).
//!
//! The asking shard writes the messages and acknowledgements of a COMMIT as one record ([`Store::begin_transaction`]):
//! the homes have told it the reserved places of the messages.

pub mod file;
pub mod handle;
pub mod recording;
#[cfg(not(any(simulated, loom)))]
pub mod sqlite;

use std::fmt::Debug;

use stompica_proto::ProtocolError;

use crate::ids::{NO_RECORD, RecordId};
use crate::message::OwnedMessage;
use crate::report::types::StoreStatus;

/// The queue of retained messages, as stores know it.
pub const RETAINED: &[u8] = b"retained\n";
/// The queue of definitions of durable subscriptions, as stores know it.
pub const DEFINITIONS: &[u8] = b"definitions\n";

/// A point between two calls of one handle; positions grow.
pub type Position = u64;

/// Identifies a transaction of one handle.
pub type TransactionId = u64;

/// How often a message was delivered, and how often that failed. Both only grow, so the larger one is the later one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Counts {
    /// Deliveries.
    pub deliveries: u32,
    /// NACKs and `ack_timeout`s.
    pub failures: u16,
}

/// What a store may be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// Everything.
    Free,
    /// Too much is not written: publishers have to pause. The store wakes all shards when that ends.
    Behind,
    /// The disk is full: new messages have to be refused. Everything else may be told, and what was told is not lost.
    Full,
}

/// The store, for one shard.
pub trait Store: Debug + Send {
    /// Keeps a message of a queue at the message's place. Returns [`NO_RECORD`] if the store does not keep it.
    fn keep(&mut self, queue: &[u8], message: &OwnedMessage) -> RecordId;

    /// Removes a message that is no longer needed.
    fn forget(&mut self, record: RecordId);

    /// Whether messages can be loaded again, so that queues may hold stubs of them. It never changes.
    fn pages(&self) -> bool {
        false
    }

    /// Makes sure that a message can be loaded, kept or not. Returns its record; [`NO_RECORD`]: the store cannot take it, and
    /// it stays in memory. The record of a message that is not kept ends when the message is loaded or forgotten.
    fn page_out(&mut self, _queue: &[u8], _message: &OwnedMessage) -> RecordId {
        NO_RECORD
    }

    /// Whether messages may be paged out now; otherwise later: the store wakes the shard then.
    fn has_room_to_page(&self) -> bool {
        true
    }

    /// Requests a message. [`Store::loaded`] answers each request once, in any order, even if the record is forgotten
    /// meanwhile; the store wakes the shard for it.
    fn load(&mut self, _record: RecordId) {}

    /// The next answer to [`Store::load`]. The message is created by this call, so that this thread counts its bytes; it has
    /// its record if it is kept. Its place and its expiry are set by the caller.
    fn loaded(&mut self) -> Option<(RecordId, Result<OwnedMessage, Unreadable>)> {
        None
    }

    /// Notes how often a message was delivered and how often that has failed, for the next process. No RECEIPT waits for it.
    fn deliver(&mut self, _record: RecordId, _counts: Counts) {}

    /// A turn begins, at this time of the broker's clock.
    fn begin_turn(&mut self, _now_ms: u64) {}

    /// The calls since the last time are handed over: anything that they have caused may leave the shard now.
    fn end_turn(&mut self) {}

    /// The position after the last call of this handle.
    fn position(&self) -> Position {
        0
    }

    /// The position up to which everything is safe. The store wakes the shard when it changes.
    ///
    /// # Errors
    /// The store has failed: everything that is not safe yet is lost if the process ends. It does not recover.
    fn safe(&mut self) -> Result<Position, ProtocolError> {
        Ok(self.position())
    }

    /// What it may be told now.
    fn room(&self) -> Room {
        Room::Free
    }

    /// What it says of itself, for diagnostics.
    fn status(&self) -> StoreStatus {
        StoreStatus { state: "ready", ..StoreStatus::default() }
    }

    /// Whether messages survive the end of the process, so that RECEIPTs have to wait for the store.
    fn is_durable(&self) -> bool {
        false
    }

    /// Begins a record for all messages and acknowledgements of one COMMIT.
    fn begin_transaction(&mut self) -> TransactionId {
        0
    }

    /// Assigns later calls of [`Store::keep`] and [`Store::forget`] to this transaction, or to none.
    fn enter(&mut self, _: Option<TransactionId>) {}

    /// Completes the record of a transaction: from now on all of it is valid. If the transaction has calls, there is a
    /// position after it.
    fn end_transaction(&mut self, _: TransactionId) {}
}

/// A record is damaged or lost. It is no such error if it can be read later: the store tries again by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unreadable;

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
#[cfg(test)]
pub mod paging_double;
#[cfg(test)]
mod promises;
