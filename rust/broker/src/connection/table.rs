//! All connections of one shard, by keys that are never reused.

use slab::Slab;

use super::conn::Conn;
use crate::ids::ConnKey;

/// All connections of one shard.
#[derive(Debug, Default)]
pub struct Conns {
    /// Boxed, so that a growing table moves pointers and leaves no large holes.
    slots: Slab<Box<Conn>>,
    /// Generation of the next owner of any slot; grows with every connection.
    generation: u32,
}

impl Conns {
    /// Adds a connection and returns its key.
    pub fn insert(&mut self, mut conn: Conn) -> ConnKey {
        self.generation = self.generation.wrapping_add(1);
        conn.life.generation = self.generation;
        ConnKey { index: self.slots.insert(Box::new(conn)) as u32, generation: self.generation }
    }

    /// The connection, unless it is removed.
    #[must_use]
    pub fn get(&self, key: ConnKey) -> Option<&Conn> {
        self.slots
            .get(key.index as usize)
            .filter(|conn| conn.life.generation == key.generation)
            .map(Box::as_ref)
    }

    /// The connection, unless it is removed.
    pub fn get_mut(&mut self, key: ConnKey) -> Option<&mut Conn> {
        self.slots
            .get_mut(key.index as usize)
            .filter(|conn| conn.life.generation == key.generation)
            .map(Box::as_mut)
    }

    /// The connection of a live subscription, which always exists.
    pub fn member_mut(&mut self, index: u32) -> &mut Conn {
        &mut self.slots[index as usize]
    }

    /// Takes the connection out.
    pub fn remove(&mut self, key: ConnKey) -> Option<Box<Conn>> {
        self.get(key)?;
        Some(self.slots.remove(key.index as usize))
    }

    /// The key of the connection in a slot.
    #[must_use]
    pub fn key_at(&self, slot: usize) -> Option<ConnKey> {
        let conn = self.slots.get(slot)?;
        Some(ConnKey { index: slot as u32, generation: conn.life.generation })
    }

    /// The number of connections.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether there are no connections.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// The number of slots, including free ones.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.slots.capacity()
    }

    /// The connection in a slot.
    #[must_use]
    pub fn at(&self, index: usize) -> Option<&Conn> {
        self.slots.get(index).map(Box::as_ref)
    }

    /// All connections with their keys.
    pub fn iter(&self) -> impl Iterator<Item = (ConnKey, &Conn)> {
        self.slots
            .iter()
            .map(|(index, conn)| (ConnKey { index: index as u32, generation: conn.life.generation }, &**conn))
    }

    /// The keys of all connections.
    #[must_use]
    pub fn keys(&self) -> Vec<ConnKey> {
        self.iter().map(|(key, _)| key).collect()
    }
}
