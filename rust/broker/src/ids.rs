//! Keys of what a shard holds, each with a guard against reuse, and the ids that clients see.

use std::fmt::Write as _;

use rand::Rng as _;

use crate::collections::keyed::Key;
use crate::config::Ids;

/// Index of a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ShardId(pub u8);

impl ShardId {
    /// The shard's bit in a set of shards.
    #[must_use]
    pub fn bit(self) -> u64 {
        1 << self.0
    }
}

/// Names a queue of one home.
pub type QueueKey = Key;
/// Names a consumer of one home.
pub type ConsumerKey = Key;
/// Names a pattern of one home.
pub type PatternKey = Key;
/// Names a subscription of one shard.
pub type SubscriptionKey = Key;

/// A subscription, wherever its connection lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Subscriber {
    /// The shard of its connection.
    pub shard: ShardId,
    /// The subscription there.
    pub key: SubscriptionKey,
}

/// Names a message that a store keeps; unique within the store.
pub type RecordId = u64;
/// Not kept by any store.
pub const NO_RECORD: RecordId = 0;

/// The sender of what the broker itself sends; connections are numbered from 1.
pub const NOBODY: u64 = 0;

/// A connection on one shard: slot and generation, so that a late event never reaches the slot's next owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnKey {
    /// Slot in the shard's slab.
    pub index: u32,
    /// How often the slot was given out before.
    pub generation: u32,
}

impl ConnKey {
    /// No connection: what belongs to the broker itself.
    pub const NONE: ConnKey = ConnKey { index: u32::MAX, generation: 0 };

    /// The key as a token of the poll.
    #[must_use]
    pub fn token(self) -> mio::Token {
        mio::Token((self.generation as usize) << 32 | self.index as usize)
    }

    /// The key that [`ConnKey::token`] made.
    #[must_use]
    pub fn from_token(token: mio::Token) -> Self {
        ConnKey { index: token.0 as u32, generation: (token.0 >> 32) as u32 }
    }
}

/// Makes `message-id`s: epoch, shard, counter. Unique across restarts without any synchronisation.
#[derive(Debug)]
pub struct MessageIds {
    text: Vec<u8>,
    prefix_len: usize,
    next: u64,
}

impl MessageIds {
    /// Ids of one shard; `epoch` differs from start to start.
    #[must_use]
    pub fn new(epoch: &str, shard: ShardId) -> Self {
        let text = format!("{epoch}-{}-", shard.0).into_bytes();
        MessageIds { prefix_len: text.len(), text, next: 1 }
    }

    /// The next id; stands until the next call.
    pub fn next_id(&mut self) -> &[u8] {
        self.text.truncate(self.prefix_len);
        stompica_proto::encode::decimal(&mut self.text, self.next);
        self.next += 1;
        &self.text
    }
}

/// The part of message ids that changes with every start; fixed for `ids=sequential`.
#[must_use]
pub fn epoch(ids: Ids) -> String {
    match ids {
        Ids::Sequential => "0".to_owned(),
        Ids::Random => hexadecimal::<5>(),
    }
}

/// What makes the names of a connection's temporary destinations unguessable; two digits name its shard.
#[must_use]
pub fn secret(shard: ShardId) -> String {
    format!("{:02x}{}", shard.0, hexadecimal::<15>())
}

/// A session id: unguessable, or the connection's number for `ids=sequential`.
#[must_use]
pub fn session_id(ids: Ids, connection: u64) -> String {
    match ids {
        Ids::Sequential => connection.to_string(),
        Ids::Random => hexadecimal::<16>(),
    }
}

fn hexadecimal<const BYTES: usize>() -> String {
    let bytes: [u8; BYTES] = rand::rng().random();
    bytes.iter().fold(String::with_capacity(2 * BYTES), |mut text, byte| {
        _ = write!(text, "{byte:02x}"); // writing to a String cannot fail
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_survives_the_token() {
        let key = ConnKey { index: 7, generation: u32::MAX };
        assert_eq!(ConnKey::from_token(key.token()), key);
    }

    #[test]
    fn message_ids_count_up() {
        let mut ids = MessageIds::new("ab", ShardId(3));
        assert_eq!(ids.next_id(), b"ab-3-1");
        assert_eq!(ids.next_id(), b"ab-3-2");
    }
}
