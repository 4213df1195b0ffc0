//! The newest blocks of destinations with replays on one shard. They are shared with the home and with other shards.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::door::HashMap;
use crate::ids::SubscriptionKey;
use crate::store::recording::block::Block;

/// The bytes of a window; the newest block may exceed it.
const WINDOW_BYTES: usize = 1 << 20;

/// The newest blocks of one destination.
#[derive(Debug, Default)]
pub struct Window {
    blocks: VecDeque<Arc<Block>>,
    bytes: usize,
    /// The number behind the newest message that is known here.
    pub next: u64,
    /// The replays of this destination.
    pub subscriptions: Vec<SubscriptionKey>,
}

impl Window {
    /// Adds the newest block.
    pub fn push(&mut self, block: Arc<Block>) {
        self.next = self.next.max(block.next());
        self.bytes += block.bytes();
        self.blocks.push_back(block);
        while self.bytes > WINDOW_BYTES
            && self.blocks.len() > 1
            && let Some(oldest) = self.blocks.pop_front()
        {
            self.bytes -= oldest.bytes();
        }
    }

    /// The block with the message of this number.
    #[must_use]
    pub fn find(&self, seq: u64) -> Option<Arc<Block>> {
        let after = self.blocks.partition_point(|block| block.next() <= seq);
        self.blocks.get(after).filter(|block| block.first <= seq).map(Arc::clone)
    }
}

/// The windows of one shard.
pub type Windows = HashMap<Arc<[u8]>, Window>;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::recording::block::Recorded;

    fn block(first: u64, count: u64, length: usize) -> Arc<Block> {
        let mut block = Block::new((*b"/topic/a").into(), 1, first, 0);
        let body = vec![b'x'; length];
        for _ in 0..count {
            block.push(&Recorded {
                time_ms: 0,
                plain: true,
                persistent: false,
                id: b"",
                headers: b"",
                body: &body,
            });
        }
        Arc::new(block)
    }

    #[test]
    fn a_window_has_the_newest_blocks() {
        let mut window = Window::default();
        window.push(block(5, 3, 10));
        window.push(block(8, 1, 10));
        let first_of = |window: &Window, seq| window.find(seq).map(|block| block.first);
        assert_eq!(
            (4..10).map(|seq| first_of(&window, seq)).collect::<Vec<_>>(),
            [None, Some(5), Some(5), Some(5), Some(8), None]
        );
        window.push(block(9, 2, WINDOW_BYTES));
        assert_eq!((first_of(&window, 8), first_of(&window, 9), window.next), (None, Some(9), 11));
    }
}
