//! What one shard tells the log in one turn: the entries of its messages, already encoded, and what else has happened.

use super::encode;
use super::entry::{Counts, Message, SegmentNumber};
use super::table::Place;
use crate::door::HashMap;
use crate::ids::RecordId;

/// The entry of a message, as a part of the bytes of its batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The record of the message.
    pub record: RecordId,
    /// Where its entry begins.
    pub start: usize,
    /// Where it ends.
    pub end: usize,
    /// Whether its queue is one of several that may have the message. Pieces of an entry that is shared are the whole entry.
    pub is_shared: bool,
}

impl Piece {
    /// The same piece, so many bytes further back.
    #[must_use]
    pub fn moved(self, by: usize) -> Self {
        Piece { start: self.start + by, end: self.end + by, ..self }
    }
}

/// One thing that a shard tells, or the log itself while it moves what a segment has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// A message is kept.
    Keep(Piece),
    /// A message is no longer needed.
    Forget(RecordId),
    /// A message was delivered, so often by now.
    Deliver(RecordId, Counts),
    /// A transaction keeps and forgets messages.
    Commit(Commit),
    /// A message is moved from this place, unless it is no longer needed there.
    Move(Piece, Place),
    /// A message was forgotten before; this has to be known as long as this segment exists.
    StayForgotten(SegmentNumber, RecordId),
}

/// What a transaction does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Commit {
    /// The messages that it keeps.
    pub kept: Vec<Piece>,
    /// The messages that it acknowledges.
    pub forgotten: Vec<RecordId>,
}

/// What one shard has to tell.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// Entries of messages.
    pub bytes: Vec<u8>,
    /// What has happened, in order.
    pub calls: Vec<Call>,
}

impl Batch {
    /// Adds the entry of a message to the bytes.
    pub fn add(&mut self, message: &Message<'_>) -> Piece {
        let start = self.bytes.len();
        encode::append_message(&mut self.bytes, message);
        let is_shared = message.queue != message.destination;
        Piece { record: message.record, start, end: self.bytes.len(), is_shared }
    }

    /// A message is kept.
    pub fn keep(&mut self, message: &Message<'_>) {
        let piece = self.add(message);
        self.calls.push(Call::Keep(piece));
    }

    /// Adds everything of another batch behind this one.
    pub fn append(&mut self, other: Batch) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&other.bytes);
        self.calls.extend(other.calls.into_iter().map(|call| match call {
            Call::Keep(piece) => Call::Keep(piece.moved(start)),
            Call::Move(piece, from) => Call::Move(piece.moved(start), from),
            Call::Commit(Commit { kept, forgotten }) => {
                let kept = kept.into_iter().map(|piece| piece.moved(start)).collect();
                Call::Commit(Commit { kept, forgotten })
            }
            other => other,
        }));
    }

    /// The bytes of a piece.
    #[must_use]
    pub fn bytes_of(&self, piece: Piece) -> &[u8] {
        &self.bytes[piece.start..piece.end]
    }

    /// Whether there is nothing to tell.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }
}

/// The records that these batches forget.
#[must_use]
pub fn forgotten<'a>(batches: impl Iterator<Item = &'a Batch>) -> HashMap<RecordId, ()> {
    let mut forgotten = HashMap::default();
    for call in batches.flat_map(|batch| &batch.calls) {
        match call {
            Call::Forget(record) => _ = forgotten.insert(*record, ()),
            Call::Commit(commit) => forgotten.extend(commit.forgotten.iter().map(|record| (*record, ()))),
            _ => {}
        }
    }
    forgotten
}
