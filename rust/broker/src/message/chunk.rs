//! Hot path: encoded frames, shared by every outbox that sends them.
//!
//! A chunk is an append-only buffer of whole frames. It is reference-counted: each outbox that refers to a range of it
//! and the writer that still appends to it hold a reference. When the last reference is released, the chunk is reused.
//! Chunks stay within a shard, so there are no locks and no atomics. Budget: no allocation per frame once the pool is
//! warm (see `bench/README.md`, `fanout-75`).

use slab::Slab;

#[cfg(any(test, simulated))]
use crate::audit::Audit;
#[cfg(any(test, simulated))]
use crate::door::HashMap;

/// A chunk of this size accepts no further frame; a single larger frame gets its own chunk.
pub const CHUNK_BYTES: usize = 64 << 10;
/// Maximum capacity kept for reuse.
const SPARE_BYTES_MAX: usize = 8 << 20;
/// The unit in which the system allocates memory, at the first write.
const PAGE_BYTES: usize = 4 << 10;

/// Identifies a chunk of one [`ChunkPool`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ChunkId(u32);

/// The kind of a frame; only `Message` frames may be dropped to make room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A MESSAGE of a topic.
    Message,
    /// A MESSAGE whose write is tracked: it must not be dropped.
    Delivery,
    /// RECEIPT, ERROR, pong and similar.
    Answer,
}

#[derive(Debug, Default)]
struct Chunk {
    bytes: Vec<u8>,
    /// End offsets of the frames, ascending: the positions where an outbox may be cut.
    frame_ends: Vec<u32>,
    references: u32,
    /// The maximum length that `bytes` ever had in its current allocation: memory beyond it was never written, so the
    /// system has not allocated it.
    written: usize,
    /// The share of this chunk in `held_bytes`.
    counted: usize,
}

impl Chunk {
    /// Updates the pool's total with the memory that the chunk occupies.
    #[inline]
    fn count(&mut self, held_bytes: &mut usize) {
        self.written = self.written.max(self.bytes.len());
        let pages = self.written.next_multiple_of(PAGE_BYTES).min(self.bytes.capacity());
        let occupied = pages + 4 * self.frame_ends.capacity();
        if occupied != self.counted {
            *held_bytes = *held_bytes + occupied - self.counted;
            self.counted = occupied;
        }
    }
}

/// All chunks of one shard.
#[derive(Debug, Default)]
pub struct ChunkPool {
    chunks: Slab<Chunk>,
    spare: Vec<Chunk>,
    spare_bytes: usize,
    held_bytes: usize,
    opened: u64,
    allocated: u64,
}

impl ChunkPool {
    /// Bytes occupied by chunks in use.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// The number of chunks that were ever opened, and the number of those that were newly allocated.
    #[must_use]
    pub fn opened(&self) -> (u64, u64) {
        (self.opened, self.allocated)
    }

    /// Opens an empty chunk with one reference, which belongs to the caller.
    pub fn open(&mut self) -> ChunkId {
        self.opened += 1;
        let mut chunk = self.spare.pop().unwrap_or_else(|| {
            self.allocated += 1;
            Chunk::default()
        });
        self.spare_bytes -= chunk.counted;
        self.held_bytes += chunk.counted;
        chunk.references = 1;
        ChunkId(self.chunks.insert(chunk) as u32)
    }

    /// Adds references.
    pub fn retain(&mut self, id: ChunkId, count: u32) {
        self.chunks[id.0 as usize].references += count;
    }

    /// Releases one reference.
    pub fn release(&mut self, id: ChunkId) {
        let chunk = &mut self.chunks[id.0 as usize];
        chunk.references -= 1;
        if chunk.references == 0 {
            let mut chunk = self.chunks.remove(id.0 as usize);
            self.held_bytes -= chunk.counted;
            if chunk.counted <= 2 * CHUNK_BYTES && self.spare_bytes + chunk.counted <= SPARE_BYTES_MAX {
                chunk.bytes.clear();
                chunk.frame_ends.clear();
                self.spare_bytes += chunk.counted;
                self.spare.push(chunk);
            }
        }
    }

    /// Appends one frame, which `write` writes; returns its range.
    #[inline]
    pub fn append(&mut self, id: ChunkId, write: impl FnOnce(&mut Vec<u8>)) -> (u32, u32) {
        let chunk = &mut self.chunks[id.0 as usize];
        let start = chunk.bytes.len() as u32;
        write(&mut chunk.bytes);
        let end = chunk.bytes.len() as u32;
        chunk.frame_ends.push(end);
        chunk.count(&mut self.held_bytes);
        (start, end)
    }

    /// Appends frames until the chunk is full; returns their range. `write` writes one at a time, and returns false if
    /// there is none.
    #[inline]
    pub fn append_all(&mut self, id: ChunkId, mut write: impl FnMut(&mut Vec<u8>) -> bool) -> (u32, u32) {
        let Chunk { bytes, frame_ends, .. } = &mut self.chunks[id.0 as usize];
        let start = bytes.len() as u32;
        while bytes.len() < CHUNK_BYTES && write(bytes) {
            frame_ends.push(bytes.len() as u32);
        }
        let end = bytes.len() as u32;
        self.chunks[id.0 as usize].count(&mut self.held_bytes);
        (start, end)
    }

    /// Copies a range of whole frames from one chunk to another; returns its range there.
    pub fn copy(&mut self, from: ChunkId, start: u32, end: u32, to: ChunkId) -> (u32, u32) {
        debug_assert_ne!(from, to, "a chunk is copied into another");
        let (first, last) = self.frames_between(from, start, end);
        let Some((source, target)) = self.chunks.get2_mut(from.0 as usize, to.0 as usize) else {
            return (0, 0); // unreachable: the caller holds references to both
        };
        let at = target.bytes.len() as u32;
        target.bytes.extend_from_slice(&source.bytes[start as usize..end as usize]);
        target
            .frame_ends
            .extend(source.frame_ends[first..last].iter().map(|frame_end| frame_end - start + at));
        target.count(&mut self.held_bytes);
        (at, at + end - start)
    }

    /// Frees the unused capacity of a chunk that will exist for a while.
    pub fn shrink(&mut self, id: ChunkId) {
        let chunk = &mut self.chunks[id.0 as usize];
        if chunk.bytes.capacity() > 2 * chunk.bytes.len() {
            chunk.bytes.shrink_to_fit();
            chunk.frame_ends.shrink_to_fit();
            chunk.written = 0;
            chunk.count(&mut self.held_bytes);
        }
    }

    /// Whether the chunk accepts no further frame.
    #[must_use]
    pub fn is_full(&self, id: ChunkId) -> bool {
        self.chunks[id.0 as usize].bytes.len() >= CHUNK_BYTES
    }

    /// The number of bytes in the chunk.
    #[must_use]
    pub fn len(&self, id: ChunkId) -> usize {
        self.chunks[id.0 as usize].bytes.len()
    }

    /// The bytes of a range.
    #[must_use]
    pub fn bytes(&self, id: ChunkId, start: u32, end: u32) -> &[u8] {
        &self.chunks[id.0 as usize].bytes[start as usize..end as usize]
    }

    /// The end of the frame that contains the byte at `offset`; `offset` itself if a frame starts there.
    #[must_use]
    pub fn boundary_at_or_after(&self, id: ChunkId, offset: u32) -> u32 {
        if offset == 0 {
            return 0;
        }
        let ends = &self.chunks[id.0 as usize].frame_ends;
        ends.get(ends.partition_point(|&end| end < offset)).copied().unwrap_or(offset)
    }

    /// The end of the frame that starts at `start`.
    #[must_use]
    pub fn frame_end_after(&self, id: ChunkId, start: u32) -> u32 {
        let ends = &self.chunks[id.0 as usize].frame_ends;
        ends.get(ends.partition_point(|&end| end <= start)).copied().unwrap_or(start)
    }

    /// The number of frames that end within a range.
    #[must_use]
    pub fn frames_in(&self, id: ChunkId, start: u32, end: u32) -> usize {
        let (first, last) = self.frames_between(id, start, end);
        last - first
    }

    fn frames_between(&self, id: ChunkId, start: u32, end: u32) -> (usize, usize) {
        let ends = &self.chunks[id.0 as usize].frame_ends;
        (
            ends.partition_point(|&frame_end| frame_end <= start),
            ends.partition_point(|&frame_end| frame_end <= end),
        )
    }

    /// Compares the counted memory with what the chunks occupy, and their references with those that were visited.
    #[cfg(any(test, simulated))]
    pub fn audit(&self, audit: &mut Audit, references: &HashMap<ChunkId, u32>) {
        let occupied = |chunk: &Chunk| {
            let pages = chunk.written.max(chunk.bytes.len()).next_multiple_of(PAGE_BYTES);
            pages.min(chunk.bytes.capacity()) + 4 * chunk.frame_ends.capacity()
        };
        for (index, chunk) in &self.chunks {
            let found = references.get(&ChunkId(index as u32)).copied().unwrap_or(0);
            audit.equal("references to a chunk", chunk.references, found);
            audit.equal("bytes of a chunk", chunk.counted, occupied(chunk));
        }
        for id in references.keys().filter(|id| !self.chunks.contains(id.0 as usize)) {
            audit.find(format!("{id:?} is referred to after its end"));
        }
        audit.equal(
            "bytes of chunks",
            self.held_bytes,
            self.chunks.iter().map(|(_, chunk)| chunk.counted).sum(),
        );
        audit.equal(
            "bytes of spare chunks",
            self.spare_bytes,
            self.spare.iter().map(|chunk| chunk.counted).sum(),
        );
    }

    /// Chunks in use.
    #[cfg(test)]
    #[must_use]
    pub fn in_use(&self) -> usize {
        self.chunks.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releasing_the_last_reference_frees_the_chunk() {
        let mut pool = ChunkPool::default();
        let id = pool.open();
        assert_eq!(pool.append(id, |out| out.extend_from_slice(b"abc")), (0, 3));
        pool.retain(id, 1);
        pool.release(id);
        assert_eq!(pool.bytes(id, 0, 3), b"abc");
        assert!(pool.held_bytes() >= 3);
        pool.release(id);
        assert_eq!((pool.in_use(), pool.held_bytes()), (0, 0));
        let again = pool.open();
        assert!(pool.held_bytes() >= 3, "the spare chunk is counted once it is in use");
        assert_eq!(pool.len(again), 0);
    }

    #[test]
    fn the_counted_memory_is_close_to_the_contents() {
        for frame in [3, 127, 4100, 9000] {
            let mut pool = ChunkPool::default();
            let mut bytes = 0;
            for _ in 0..100 {
                let id = pool.open();
                while !pool.is_full(id) {
                    pool.append(id, |out| out.resize(out.len() + frame, b'x'));
                }
                bytes += pool.len(id) + 4 * pool.frames_in(id, 0, u32::MAX);
            }
            let held = pool.held_bytes();
            assert!(
                (bytes..bytes * 3 / 2).contains(&held),
                "frames of {frame} bytes: {bytes} bytes are counted as {held}"
            );
        }
    }

    #[test]
    fn a_reused_chunk_counts_its_previous_length() {
        let mut pool = ChunkPool::default();
        let id = pool.open();
        pool.append(id, |out| out.resize(50_000, b'x'));
        let held = pool.held_bytes();
        pool.release(id);
        let again = pool.open();
        pool.append(again, |out| out.push(b'x'));
        assert_eq!(pool.held_bytes(), held);
        pool.shrink(again);
        assert!(pool.held_bytes() < 100);
    }

    #[test]
    fn frames_are_found_at_their_boundaries() {
        let mut pool = ChunkPool::default();
        let id = pool.open();
        for frame in [&b"aa"[..], b"bbb", b"c"] {
            pool.append(id, |out| out.extend_from_slice(frame));
        }
        let boundaries: Vec<u32> = (0..=6).map(|offset| pool.boundary_at_or_after(id, offset)).collect();
        assert_eq!(boundaries, [0, 2, 2, 5, 5, 5, 6]);
        assert_eq!(pool.frame_end_after(id, 0), 2);
        assert_eq!(pool.frame_end_after(id, 2), 5);
        assert_eq!(pool.frames_in(id, 0, 6), 3);
        assert_eq!(pool.frames_in(id, 2, 5), 1);
        let copy = pool.open();
        pool.append(copy, |out| out.push(b'x'));
        assert_eq!(pool.copy(id, 2, 6, copy), (1, 5));
        assert_eq!(pool.bytes(copy, 0, 5), b"xbbbc");
        assert_eq!(pool.frames_in(copy, 0, 5), 3);
    }
}
