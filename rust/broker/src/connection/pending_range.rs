//! Hot path: distributes the frames of a group, encoded once, to the outboxes of its members.

use super::Connections;
use super::conn::Flush;
use super::deferred::Waiting;
use super::room::{give_drop_notice, make_room};
use crate::ids::ConnKey;
use crate::message::chunk::ChunkId;
use crate::router::group::{GroupIndex, Member, Members};
use crate::turn::Turn;

/// A group with more members than this is flushed at a limited pace.
pub const LARGE_GROUP: usize = 256;

/// Frames of one group that its members' outboxes do not refer to yet.
#[derive(Debug)]
pub struct PendingRange {
    /// The group.
    pub group: GroupIndex,
    /// Its members, which do not change until the range ends.
    pub members: Members,
    /// The chunk of the frames.
    pub chunk: ChunkId,
    /// The start of the first frame.
    pub start: u32,
    /// The end of the last frame.
    pub end: u32,
}

impl Connections {
    /// Copies the pending messages for their receivers, and queues the frames of the pending range for all its members.
    #[inline(always)]
    pub fn distribute(&mut self, turn: &mut Turn) {
        if !self.pending_copies.is_empty() || self.pending_range.is_some() {
            self.distribute_pending(turn);
        }
    }

    #[inline(never)]
    fn distribute_pending(&mut self, turn: &mut Turn) {
        if !self.pending_copies.is_empty() {
            self.distribute_copies(turn);
        }
        if let Some(range) = self.pending_range.take() {
            self.distribute_to(turn, &range.members, range.chunk, range.start, range.end);
        }
    }

    /// Queues frames of a group in the outboxes of some or all of its members.
    pub fn distribute_to(
        &mut self,
        turn: &mut Turn,
        members: &[Member],
        chunk: ChunkId,
        start: u32,
        end: u32,
    ) {
        let frames = self.chunks.frames_in(chunk, start, end);
        turn.counters.deliveries += (frames * members.len()) as u64;
        let is_large = members.len() > LARGE_GROUP;
        let limit = turn.config.outbox_limit;
        let mut references = 0;
        for member in members {
            let conn = self.table.member_mut(member.conn);
            let key = ConnKey { index: member.conn, generation: conn.life.generation };
            let mut start = start;
            if !conn.has_room(limit) && !make_room(conn, &mut self.chunks, turn, frames) {
                if self.is_deferred(turn, key) {
                    references += 1;
                    let range = Waiting::Range(chunk, start, end, member.subscription);
                    self.defer(limit, key, range, true);
                }
                continue;
            }
            if conn.output.dropped > 0 {
                start = give_drop_notice(conn, &mut self.chunks, chunk, start);
            }
            if start < end {
                references += u32::from(conn.output.outbox.push_shared(&mut self.chunks, chunk, start, end));
            }
            if conn.output.flush == Flush::Idle || (conn.output.flush == Flush::Paced && !is_large) {
                if is_large {
                    conn.output.flush = Flush::Paced;
                    self.paced.push_back(key);
                } else {
                    conn.output.flush = Flush::Prompt;
                    self.dirty.push(key);
                }
            }
            if conn.output.outbox.bytes() >= limit && !conn.output.is_full() {
                self.newly_full.push(key);
            }
        }
        self.chunks.retain(chunk, references);
    }
}
