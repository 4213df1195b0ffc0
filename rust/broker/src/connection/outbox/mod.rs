//! Hot path: the pending output of one socket, as ranges of shared chunks.
//!
//! A frame counts as written once the socket has passed all of it to the system: [`Outbox::written`] decides this for
//! write markers, progress and the end of a connection.
//!
//! Invariants: every range except the first consists of whole frames; the first may have been written in part. Each
//! range holds one reference to its chunk, and so does `private`, the chunk that only this outbox appends to. `bytes`
//! is the sum of the ranges. Adjacent ranges merge, so that a burst to one topic costs one entry and one `writev`
//! element.

mod copies;
pub mod drop_notice;
mod positions;
pub(super) mod write_markers;

use std::collections::VecDeque;
use std::io::{self, IoSlice, Write as _};

use smallvec::SmallVec;

use crate::connection::outbox::drop_notice::{told_by, with_drop_notice};
use crate::connection::outbox::write_markers::WriteMarkers;
use crate::connection::socket::Socket;
use crate::door::planted;
pub use crate::message::chunk::Kind;
use crate::message::chunk::{CHUNK_BYTES, ChunkId, ChunkPool};

/// Elements of one `writev`; the kernel takes 1024.
const IOVECS_MAX: usize = 512;
/// A series of frames up to this length is copied, not referred to, if it cannot merge (measured:
/// docs/decisions/0012-growable-chunks.md).
const COPY_BYTES_MAX: u32 = 256;

/// The result of a flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flushed {
    /// The outbox is empty, and the socket has passed on all bytes.
    Drained,
    /// The socket takes no more now; a writable event will follow.
    Blocked,
    /// The list of ranges was longer than one `writev`: it is flushed again in the next turn.
    More,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Range {
    pub(super) chunk: ChunkId,
    pub(super) start: u32,
    pub(super) end: u32,
    pub(super) kind: Kind,
}

/// The frames that wait for one connection.
#[derive(Debug, Default)]
pub struct Outbox {
    pub(super) ranges: VecDeque<Range>,
    pub(super) private: Option<ChunkId>,
    pub(super) bytes: usize,
    /// The bytes of answers among them.
    pub(super) answer_bytes: usize,
    /// Messages dropped from the front, which the next MESSAGE has to report.
    gap: u32,
    /// Bytes that ever left the list of ranges, because the socket took them.
    taken: u64,
    /// Bytes that the socket took and holds back; they do not count as written.
    held: usize,
    /// Positions of frames whose writing is to be reported.
    pub(super) write_markers: WriteMarkers,
}

impl Outbox {
    /// The number of pending bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The number of pending bytes of answers.
    pub fn answer_bytes(&self) -> usize {
        self.answer_bytes
    }

    /// The number of bytes that the socket has ever taken.
    #[must_use]
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// Whether nothing is pending.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// The number of pending MESSAGEs; they are counted piece by piece.
    pub fn messages(&self, pool: &ChunkPool) -> usize {
        let messages = self.ranges.iter().filter(|range| range.kind == Kind::Message);
        messages.map(|range| pool.frames_in(range.chunk, range.start, range.end)).sum()
    }

    /// Adds a range of a shared chunk. Returns whether it needs a new reference to the chunk, which the caller adds
    /// (once for a whole group).
    #[must_use]
    pub fn push_shared(&mut self, pool: &mut ChunkPool, chunk: ChunkId, start: u32, end: u32) -> bool {
        let len = end - start;
        self.bytes += len as usize;
        if let Some(last) = self.ranges.back_mut() {
            if last.chunk == chunk && last.end == start && last.kind == Kind::Message {
                last.end = end;
                return false;
            }
            if len < COPY_BYTES_MAX {
                let private = self.private_chunk(pool);
                let (start, end) = pool.copy(chunk, start, end, private);
                self.push_private(pool, private, start, end, Kind::Message);
                return false;
            }
        }
        self.ranges.push_back(Range { chunk, start, end, kind: Kind::Message });
        true
    }

    /// Appends one frame of this connection alone, written by `write`.
    pub fn append(&mut self, pool: &mut ChunkPool, kind: Kind, write: impl FnOnce(&mut Vec<u8>)) {
        let chunk = self.private_chunk(pool);
        let (start, end) = pool.append(chunk, write);
        self.bytes += (end - start) as usize;
        self.answer_bytes += usize::from(kind == Kind::Answer) * (end - start) as usize;
        self.push_private(pool, chunk, start, end, kind);
    }

    /// The position at the start of a range.
    fn position(&self, at: usize) -> u64 {
        let before: u64 = self.ranges.iter().take(at).map(|range| u64::from(range.end - range.start)).sum();
        self.taken + before
    }

    fn private_chunk(&mut self, pool: &mut ChunkPool) -> ChunkId {
        match self.private {
            Some(chunk) if !pool.is_full(chunk) => chunk,
            full => {
                if let Some(chunk) = full {
                    pool.release(chunk);
                }
                *self.private.insert(pool.open())
            }
        }
    }

    #[inline]
    fn push_private(&mut self, pool: &mut ChunkPool, chunk: ChunkId, start: u32, end: u32, kind: Kind) {
        match self.ranges.back_mut() {
            Some(last) if last.chunk == chunk && last.end == start && last.kind == kind => last.end = end,
            _ => {
                pool.retain(chunk, 1);
                self.ranges.push_back(Range { chunk, start, end, kind });
            }
        }
    }

    /// Writes as much as the socket takes, with one `writev`.
    ///
    /// # Errors
    /// An error of the socket: the connection is lost.
    pub fn flush(&mut self, pool: &mut ChunkPool, socket: &mut Socket) -> io::Result<Flushed> {
        if self.bytes == 0 {
            return Ok(if self.pass_on(socket)? { Flushed::Drained } else { Flushed::Blocked });
        }
        if self.gap > 0 {
            self.tell_of_gap(pool);
        }
        let offered = self.ranges.len().min(IOVECS_MAX);
        let (wanted, written) = {
            let slices: SmallVec<[IoSlice<'_>; 16]> = self
                .ranges
                .iter()
                .take(offered)
                .map(|range| IoSlice::new(pool.bytes(range.chunk, range.start, range.end)))
                .collect();
            let wanted: usize = slices.iter().map(|slice| slice.len()).sum();
            let written = loop {
                match socket.write_vectored(&slices) {
                    Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                    Ok(written) => break written,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break 0,
                    Err(error) => return Err(error),
                }
            };
            (wanted, written)
        };
        self.advance(pool, written);
        let is_passed_on = self.pass_on(socket)?;
        if self.bytes == 0 {
            self.drained(pool);
            return Ok(if is_passed_on { Flushed::Drained } else { Flushed::Blocked });
        }
        if written < wanted {
            self.compact(pool);
            return Ok(Flushed::Blocked);
        }
        Ok(Flushed::More)
    }

    fn advance(&mut self, pool: &mut ChunkPool, mut written: usize) {
        self.bytes -= written;
        self.taken += written as u64;
        while let Some(first) = self.ranges.front_mut() {
            let len = (first.end - first.start) as usize;
            self.answer_bytes -= usize::from(first.kind == Kind::Answer) * len.min(written);
            if written < len {
                first.start += written as u32;
                return;
            }
            written -= len;
            pool.release(first.chunk);
            self.ranges.pop_front();
        }
    }

    fn drained(&mut self, pool: &mut ChunkPool) {
        if let Some(chunk) = self.private.take().filter(|_| !planted!("chunk-leaked")) {
            pool.release(chunk);
        }
        if self.write_markers.is_empty() {
            self.write_markers = WriteMarkers::default();
        }
        // An idle connection keeps no list: the memory of ten thousand lists costs more than one allocation per
        // write.
        self.ranges = VecDeque::new();
    }

    /// Reduces the memory of a blocked outbox to its pending bytes, since the block may last.
    fn compact(&mut self, pool: &mut ChunkPool) {
        if let Some(chunk) = self.private {
            pool.shrink(chunk);
        }
        let Some(&first) = self.ranges.front() else { return };
        let used = (first.end - first.start) as usize;
        let pinned = pool.len(first.chunk);
        if Some(first.chunk) != self.private
            && first.start > 0
            && pinned >= CHUNK_BYTES / 4
            && used < pinned / 4
        {
            let copy = pool.open();
            // The byte before it is copied, too: at offset 0 of a chunk, a cut would treat the rest of this frame as a
            // whole frame.
            let (before, end) = pool.copy(first.chunk, first.start - 1, first.end, copy);
            pool.release(first.chunk);
            self.ranges[0] = Range { chunk: copy, start: before + 1, end, kind: first.kind };
        }
    }

    /// Drops every frame of which no byte was written. Returns the number of dropped frames.
    pub fn cut_unsent(&mut self, pool: &mut ChunkPool) -> usize {
        let mut dropped = 0;
        while self.ranges.len() > 1 {
            let Some(range) = self.ranges.pop_back() else { break };
            dropped += self.discard(pool, range);
        }
        if let Some(&range) = self.ranges.front() {
            let keep_to = match planted!("range-cut-inside-frame") {
                true => (range.start + 1).min(range.end),
                false => pool.boundary_at_or_after(range.chunk, range.start).min(range.end),
            };
            dropped += pool.frames_in(range.chunk, keep_to, range.end);
            self.bytes -= (range.end - keep_to) as usize;
            self.answer_bytes -= usize::from(range.kind == Kind::Answer) * (range.end - keep_to) as usize;
            if keep_to == range.start {
                pool.release(range.chunk);
                self.ranges.pop_front();
            } else {
                self.ranges[0].end = keep_to;
            }
        }
        if self.bytes == 0 {
            self.drained(pool);
        }
        dropped
    }

    /// Drops the oldest whole MESSAGE frames of which no byte was written, until at most `bytes` are pending. Returns
    /// the number of dropped frames; other frames stay. The next MESSAGE reports them.
    pub fn drop_oldest(&mut self, pool: &mut ChunkPool, bytes: usize) -> usize {
        let mut dropped = 0;
        let mut at = 0;
        while self.bytes > bytes
            && let Some(next) = self.next_frame_of(&[Kind::Message], pool, at)
        {
            at = next;
            let range = self.ranges[at];
            let mut cut = range.start;
            let position = self.position(at);
            while self.bytes > bytes && cut < range.end {
                let end = pool.frame_end_after(range.chunk, cut).min(range.end);
                self.bytes -= (end - cut) as usize;
                let told = match planted!("dropped-notice-lost") {
                    true => 0,
                    false => told_by(pool.bytes(range.chunk, cut, end)),
                };
                self.gap = self.gap.saturating_add(1 + told);
                cut = end;
                dropped += 1;
            }
            self.write_markers.shift(position, -i64::from(cut - range.start));
            self.shorten(pool, at, cut);
        }
        if self.bytes == 0 {
            self.drained(pool);
        }
        dropped
    }

    /// Adds the gap to the `dropped` header of the first MESSAGE of which no byte was written.
    fn tell_of_gap(&mut self, pool: &mut ChunkPool) {
        let Some(at) = self.next_frame_of(&[Kind::Message, Kind::Delivery], pool, 0) else { return };
        let range = self.ranges[at];
        let frame_end = pool.frame_end_after(range.chunk, range.start).min(range.end);
        let count = std::mem::take(&mut self.gap);
        let copy = with_drop_notice(pool.bytes(range.chunk, range.start, frame_end), count);
        let private = self.private_chunk(pool);
        let (start, end) = pool.append(private, |out| out.extend_from_slice(&copy));
        pool.retain(private, 1);
        let grown = copy.len() as i64 - i64::from(frame_end - range.start);
        self.write_markers.shift(self.position(at), grown);
        self.bytes = self.bytes.saturating_add_signed(grown as isize);
        self.shorten(pool, at, frame_end);
        self.ranges.insert(at, Range { chunk: private, start, end, kind: range.kind });
    }

    /// The index, at or after `at`, of a range of one of these kinds that begins with a whole frame; splits off the rest
    /// of a frame that is being written.
    fn next_frame_of(&mut self, kinds: &[Kind], pool: &mut ChunkPool, mut at: usize) -> Option<usize> {
        loop {
            let range = *self.ranges.get(at)?;
            let start = pool.boundary_at_or_after(range.chunk, range.start).min(range.end);
            let is_taken = range.kind == Kind::Delivery && planted!("queue-delivery-dropped");
            if (!kinds.contains(&range.kind) && !is_taken) || start == range.end {
                at += 1;
            } else if start > range.start {
                pool.retain(range.chunk, 1);
                self.ranges[at].start = start;
                self.ranges.insert(at, Range { end: start, ..range });
                at += 1;
            } else {
                return Some(at);
            }
        }
    }

    /// Moves the start of a range, or removes the range if nothing is left of it.
    fn shorten(&mut self, pool: &mut ChunkPool, at: usize, start: u32) {
        let range = self.ranges[at];
        if start == range.end {
            pool.release(range.chunk);
            self.ranges.remove(at);
        } else {
            self.ranges[at].start = start;
        }
    }

    fn discard(&mut self, pool: &mut ChunkPool, range: Range) -> usize {
        let frames = pool.frames_in(range.chunk, range.start, range.end);
        self.bytes -= (range.end - range.start) as usize;
        self.answer_bytes -= usize::from(range.kind == Kind::Answer) * (range.end - range.start) as usize;
        pool.release(range.chunk);
        frames
    }

    /// Drops everything, since the connection has ended.
    pub fn clear(&mut self, pool: &mut ChunkPool) {
        while let Some(range) = self.ranges.pop_front() {
            pool.release(range.chunk);
        }
        (self.bytes, self.answer_bytes) = (0, 0);
        self.drained(pool);
    }
}

#[cfg(test)]
mod tests;
