//! Hot path: appends many messages for one connection only.

use super::Outbox;
use crate::message::chunk::{ChunkPool, Kind};

impl Outbox {
    /// Appends MESSAGEs for this connection only. Each call of `write` writes one, or returns false if none is left.
    #[inline]
    pub fn append_messages(&mut self, pool: &mut ChunkPool, mut write: impl FnMut(&mut Vec<u8>) -> bool) {
        loop {
            let chunk = self.private_chunk(pool);
            let (start, end) = pool.append_all(chunk, &mut write);
            if start == end {
                return;
            }
            self.bytes += (end - start) as usize;
            self.push_private(pool, chunk, start, end, Kind::Message);
        }
    }
}
