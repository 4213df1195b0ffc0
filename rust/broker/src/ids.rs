//! Keys of a shard's items, each guarded against reuse, and the ids that clients see.

use std::fmt::Write as _;

use crate::collections::keyed::Key;
use crate::config::Ids;
use crate::door::{Token, planted, random_bytes};

/// Index of a shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ShardId(pub u8);

impl ShardId {
    /// The bit of this shard in a set of shards.
    #[must_use]
    pub fn bit(self) -> u64 {
        1 << self.0
    }

    /// The shards of a set, in order.
    pub fn of_bits(mut bits: u64) -> impl Iterator<Item = ShardId> {
        std::iter::from_fn(move || {
            let shard = (bits != 0).then(|| ShardId(bits.trailing_zeros() as u8))?;
            bits &= !shard.bit();
            Some(shard)
        })
    }
}

/// Identifies a queue of one home.
pub type QueueKey = Key;
/// Identifies a consumer of one home.
pub type ConsumerKey = Key;
/// Identifies a pattern of one home.
pub type PatternKey = Key;
/// Identifies a subscription of one shard.
pub type SubscriptionKey = Key;

/// A subscription on any shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Subscriber {
    /// The shard of its connection.
    pub shard: ShardId,
    /// The key of the subscription on that shard.
    pub key: SubscriptionKey,
}

/// Identifies a message in a store; unique within the store.
pub type RecordId = u64;
/// The record id of a message that is not in a store.
pub const NO_RECORD: RecordId = 0;

/// The sender of messages of the broker itself; connections are numbered from 1.
pub const NOBODY: u64 = 0;

/// Identifies a connection on one shard by slot and generation, so that a late event never reaches the slot's next
/// owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnKey {
    /// The slot in the shard's slab.
    pub index: u32,
    /// How often the slot was used before.
    pub generation: u32,
}

impl ConnKey {
    /// No connection: for items of the broker itself.
    pub const NONE: ConnKey = ConnKey { index: u32::MAX, generation: 0 };

    /// The key as a poll token.
    #[must_use]
    pub fn token(self) -> Token {
        Token((self.generation as usize) << 32 | self.index as usize)
    }

    /// The key of a token from [`ConnKey::token`].
    #[must_use]
    pub fn from_token(token: Token) -> Self {
        ConnKey { index: token.0 as u32, generation: (token.0 >> 32) as u32 }
    }
}

/// Generates `message-id`s: epoch, shard, counter. They are unique across restarts without any synchronisation.
#[derive(Debug)]
pub struct MessageIds {
    text: Vec<u8>,
    prefix_len: usize,
    next: u64,
}

impl MessageIds {
    /// A generator for one shard; `epoch` differs after each start.
    #[must_use]
    pub fn new(epoch: &str, shard: ShardId) -> Self {
        let text = format!("{epoch}-{}-", shard.0).into_bytes();
        MessageIds { prefix_len: text.len(), text, next: 1 }
    }

    /// The next id; valid until the next call.
    pub fn next_id(&mut self) -> &[u8] {
        self.text.truncate(self.prefix_len);
        stompica_proto::encode::decimal(&mut self.text, self.next);
        self.next += 1;
        &self.text
    }
}

/// The part of message ids that changes with every start; fixed with `ids=sequential`.
#[must_use]
pub fn epoch(ids: Ids) -> String {
    match ids {
        Ids::Sequential => "0".to_owned(),
        Ids::Random => hexadecimal::<5>(),
    }
}

/// The unguessable part of the names of a connection's temporary destinations; the first two digits are its shard.
#[must_use]
pub fn secret(shard: ShardId) -> String {
    let random = if planted!("secrets-alike") { "0".repeat(30) } else { hexadecimal::<15>() };
    format!("{:02x}{random}", shard.0)
}

/// A session id: random, or the connection's number with `ids=sequential`.
#[must_use]
pub fn session_id(ids: Ids, connection: u64) -> String {
    match ids {
        Ids::Sequential => connection.to_string(),
        Ids::Random => hexadecimal::<16>(),
    }
}

fn hexadecimal<const BYTES: usize>() -> String {
    random_bytes::<BYTES>().iter().fold(String::with_capacity(2 * BYTES), |mut text, byte| {
        _ = write!(text, "{byte:02x}"); // writing to a String cannot fail
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_restored_from_its_token() {
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
