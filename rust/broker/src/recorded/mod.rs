//! Recorded destinations on one shard: those whose home it is, and replays to its subscriptions.
//!
//! ```text
//! SEND ─► home: number ─► block of this turn ─┬─► recording                  (store/recording)
//!            └─► live subscribers             └─► shards with replays ─► window ─┐
//!                                      history, read by portions ────────────────┴─► replay ─► private queue ─► outbox
//! ```
//! A replay is delivered only what comes next in the numbers of its destination: from history, or from the window of the newest
//! blocks, whichever has it. So nothing is missing and nothing comes twice where history ends and live messages begin. A replay
//! that falls behind the window reads history again: it never slows publishers or other subscriptions.
//!
//! This module knows no queues or connections: `queue/recorded.rs` and `delivery/recorded.rs` act on it.

pub mod numbers;
pub mod replay;
pub mod windows;

use std::collections::VecDeque;
use std::sync::Arc;

use stompica_proto::ProtocolError;
use stompica_proto::error::Code;

use self::numbers::Homes;
use self::replay::Replays;
use crate::ids::ShardId;
use crate::requester::Requester;
use crate::store::recording::block::Block;
use crate::store::recording::desk::Desk;
use crate::store::{Position, Room};

/// An answer that waits until messages are recorded.
#[derive(Debug)]
struct Waiting {
    position: Position,
    requester: Requester,
    /// The shards whose stores have to be asked then, as bits.
    next: u64,
}

/// Recorded destinations on one shard.
#[derive(Debug)]
pub struct Recorded {
    shard: ShardId,
    /// `None`: nothing is recorded.
    pub desk: Option<Arc<Desk>>,
    /// The destinations whose home this shard is.
    pub homes: Homes,
    /// Replays to subscriptions of this shard.
    pub replays: Replays,
    waiting: VecDeque<Waiting>,
}

impl Recorded {
    /// Nothing, on this shard.
    #[must_use]
    pub fn new(shard: ShardId) -> Self {
        Recorded {
            shard,
            desk: None,
            homes: Homes::default(),
            replays: Replays::default(),
            waiting: VecDeque::new(),
        }
    }

    /// Whether a message can be recorded.
    ///
    /// # Errors
    /// `E-STORE-FULL`, `E-STORE-IO`.
    pub fn accepts(&self) -> Result<(), ProtocolError> {
        let Some(desk) = &self.desk else {
            return Err(ProtocolError::new(Code::NotReady, "the recording is not open"));
        };
        desk.safe(usize::from(self.shard.0))?;
        match desk.room() {
            Room::Full => {
                Err(ProtocolError::new(Code::StoreFull, "there is no room on the disk of the recording"))
            }
            Room::Free | Room::Behind => Ok(()),
        }
    }

    /// Whether publishers have to pause until more is recorded.
    #[must_use]
    pub fn is_far_behind(&self) -> bool {
        self.desk.as_ref().is_some_and(|desk| desk.room() == Room::Behind)
    }

    /// Hands over the blocks of this turn. Returns those that other shards have to be told of, as bits; the own one is among
    /// them.
    pub fn end_turn(&mut self) -> Vec<(u64, Arc<Block>)> {
        let Some(desk) = self.desk.as_ref().filter(|_| self.homes.has_blocks()) else { return Vec::new() };
        let (blocks, watched) = self.homes.take_blocks();
        if desk.safe(usize::from(self.shard.0)).is_ok() {
            desk.post(usize::from(self.shard.0), blocks, self.homes.position());
        }
        watched
    }

    /// Makes an answer wait until everything so far is safe; then the stores of the shards `next` are asked, as bits.
    pub fn hold(&mut self, requester: Requester, next: u64) {
        self.waiting.push_back(Waiting { position: self.homes.position(), requester, next });
    }

    /// Whether an answer waits.
    #[must_use]
    pub fn is_waited_for(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// The next answer that is ready: the shards to ask, or the failure.
    pub fn next_answer(&mut self) -> Option<(Requester, Result<u64, ProtocolError>)> {
        let position = self.waiting.front()?.position;
        let safe = match &self.desk {
            Some(desk) => desk.safe(usize::from(self.shard.0)),
            None => Ok(Position::MAX),
        };
        let outcome = match safe {
            Ok(safe) if safe < position => return None,
            other => other,
        };
        let Waiting { requester, next, .. } = self.waiting.pop_front()?;
        Some((requester, outcome.map(|_| next)))
    }

    /// Whether no answer waits, and everything is safe or never will be.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        let position = self.homes.position();
        let is_safe =
            |desk: &Arc<Desk>| desk.safe(usize::from(self.shard.0)).map_or(true, |safe| safe >= position);
        self.waiting.is_empty() && !self.homes.has_blocks() && self.desk.as_ref().is_none_or(is_safe)
    }

    /// Drops all answers, because the shard ends.
    pub fn abandon_answers(&mut self) {
        self.waiting.drain(..).for_each(|waiting| _ = waiting.requester.answered());
        self.replays.abandon_answers();
    }

    /// The approximate memory in bytes, without blocks, which count themselves. The first shard also counts the catalog.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        use crate::door::sync::Ordering;
        let catalog = match &self.desk {
            Some(desk) if self.shard.0 == 0 => desk.catalog_bytes.load(Ordering::Relaxed),
            _ => 0,
        };
        self.homes.held_bytes() + self.replays.held_bytes() + usize::try_from(catalog).unwrap_or(0)
    }
}
